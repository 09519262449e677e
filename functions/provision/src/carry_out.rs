//! Creating the claims of a plan, and handing them to launch.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use spokeshave_model::{
    Kind, NodeClaim, NodePool, NodeSelectorRequirement, ObjectKey, Resources, resources::NODES,
};
use spokeshave_ports::{
    Cluster, ClusterError, Concern, Decision, Invocation, Key, Queues, StateTable, Work, chain,
};
use spokeshave_scheduling::{
    ClusterView, PlannedClaim, Solution, buffers::is_virtual, usage_by_pool,
};

use crate::{Nominations, names::Draws, records, world::Trouble};

/// Keys in one message to launch at most.
const KEYS_PER_MESSAGE: usize = 100;
/// Other names tried when a drawn one is taken.
const NAMES_TRIED: usize = 5;

/// Claims that one launch can serve: same pool, same requirements.
type Like = (String, Vec<NodeSelectorRequirement>);

/// Creates the claims and hands them to launch, group by group of like ones. Returns whether any was left out that may
/// succeed later.
pub(crate) async fn create_claims(
    solution: &Solution,
    view: &ClusterView,
    seed: &[&str],
    told: &mut Nominations,
    cluster: &impl Cluster,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> Result<bool, Trouble> {
    if solution.new_claims.is_empty() {
        return Ok(false);
    }
    let began = cx.now.to_string();
    let mut parts = seed.to_vec();
    parts.push(&began);
    let mut draws = Draws::new(&parts);
    let planned: Vec<(NodeClaim, &PlannedClaim)> = solution
        .new_claims
        .iter()
        .map(|it| {
            let mut claim = it.to_node_claim(|from, to| draws.number(from, to));
            claim.metadata.name = format!("{}{}", claim.metadata.generate_name, draws.suffix());
            (claim, it)
        })
        .collect();
    let names: Vec<String> = planned.iter().map(|it| it.0.metadata.name.clone()).collect();
    records::note_orders(state, &names, cx.now).await?;
    let usage = usage_by_pool(view);
    let mut pools: BTreeMap<String, bool> = BTreeMap::new();
    let mut created: Vec<(Like, Key)> = Vec::new();
    let mut unfinished = false;
    for (mut claim, planned) in planned {
        let pool = planned.nodepool.name().to_owned();
        let allowed = match pools.get(&pool) {
            Some(known) => *known,
            None => {
                let allowed = may_create(&pool, usage.get(&pool), cluster, cx).await?;
                pools.insert(pool.clone(), allowed);
                allowed
            }
        };
        if !allowed {
            continue;
        }
        let mut made = cluster.create(&claim).await;
        for _ in 0..NAMES_TRIED {
            if !matches!(made, Err(ClusterError::AlreadyExists { .. })) {
                break;
            }
            // A call that was repeated on the way finds its own claim.
            let there = cluster.get::<NodeClaim>(&claim.key()).await?;
            if let Some(own) = there.filter(|it| it.spec == claim.spec) {
                made = Ok(own);
                break;
            }
            claim.metadata.name = format!("{}{}", claim.metadata.generate_name, draws.suffix());
            made = cluster.create(&claim).await;
        }
        match made {
            Ok(claim) => {
                report(&claim, planned, cx);
                let target = format!("nodeclaim/{}", claim.name());
                for pod in planned.pods.iter().filter(|it| !is_virtual(it)) {
                    told.tell(pod, &target, cluster).await;
                }
                created.push(((pool, claim.spec.requirements.clone()), Key::of(&*claim)));
            }
            Err(error) => {
                unfinished |= error.is_retryable();
                let object = claim.reference();
                cx.decide(
                    Decision::new("create", object, chain(&error)).caused_by(&error).as_error(),
                );
            }
        }
    }
    hand_over(created, queues, cx).await;
    Ok(unfinished)
}

fn report(claim: &NodeClaim, planned: &PlannedClaim, cx: &Invocation<'_>) {
    let pods: Vec<String> = planned.pods.iter().map(|it| it.key().to_string()).collect();
    let mut decision = Decision::new(
        "create",
        claim.reference(),
        format!("{} pod(s): {}", pods.len(), pods.join(", ")),
    )
    .with("nodeclaim", claim.name())
    .with("nodepool", planned.nodepool.name())
    .with("instance_types", planned.instance_types.len());
    if let Some(cheapest) = &planned.cheapest {
        decision = decision
            .with("instance_type", cheapest.instance_type.as_str())
            .with("zone", cheapest.zone.as_str())
            .with("capacity_type", cheapest.capacity_type.as_str())
            .with("price_per_hour", serde_json::json!(cheapest.price));
    }
    cx.decide(decision);
    let relaxed = if planned.min_values_relaxed { "true" } else { "false" };
    cx.count(
        "karpenter_nodeclaims_created_total",
        &[
            ("reason", "provisioned"),
            ("nodepool", planned.nodepool.name()),
            ("min_values_relaxed", relaxed),
        ],
    );
}

/// Whether the pool still is there, and below its limits. Equality is allowed: the plan decides about it.
pub(crate) async fn may_create(
    pool: &str,
    usage: Option<&Resources>,
    cluster: &impl Cluster,
    cx: &Invocation<'_>,
) -> Result<bool, Trouble> {
    let object = format!("NodePool/{pool}");
    let Some(fresh) = cluster.get::<NodePool>(&ObjectKey::cluster(pool)).await? else {
        cx.decide(Decision::new("skip", object, "the pool is gone"));
        return Ok(false);
    };
    let none = Resources::new();
    let usage = usage.unwrap_or(&none);
    if let Some(text) = fresh.spec.limits.as_ref().and_then(|limits| over_limit(usage, limits)) {
        cx.decide(Decision::new("skip", object, text));
        return Ok(false);
    }
    Ok(true)
}

/// Which limit is exceeded, if any is.
pub(crate) fn over_limit(usage: &Resources, limits: &Resources) -> Option<String> {
    limits.iter().find(|(name, limit)| usage.get(name) > *limit).map(|(name, limit)| {
        let unit = if name == NODES { "node limit" } else { name };
        format!("{unit} usage of {} exceeds limit of {limit}", usage.get(name))
    })
}

/// One message per group of like claims. A message that is not sent is made good by the bridge, which sees the claims.
pub(crate) async fn hand_over(
    created: Vec<(Like, Key)>,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) {
    let mut groups: BTreeMap<Like, Vec<Key>> = BTreeMap::new();
    for (like, key) in created {
        groups.entry(like).or_default().push(key);
    }
    for keys in groups
        .into_values()
        .flat_map(|keys| keys.chunks(KEYS_PER_MESSAGE).map(<[Key]>::to_vec).collect::<Vec<_>>())
    {
        let work = Work::new("NodeClaimsCreated", keys);
        if let Err(error) = queues.send(Concern::Launch, &work, SignedDuration::ZERO, "").await {
            cx.decide(
                Decision::new("send", "Queue/launch", chain(&error)).caused_by(&error).as_error(),
            );
        }
    }
}
