//! Static pools: a fixed number of nodes (`spec` scheduling 22, lifecycle 31).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use spokeshave_disruption::costs::{legacy_cost, lifetime_remaining};
use spokeshave_model::{
    Kind, NodeClaim, NodePool, conditions, core::Pod, duration::NillableDuration, hash,
    pod_classes::do_not_disrupt, resources::NODES,
};
use spokeshave_ports::{Cluster, Decision, Invocation, Key, StateTable, chain};
use spokeshave_scheduling::{ClusterView, StateNode, claim_of_pool};

use crate::{
    carry_out::hand_over,
    names::Draws,
    records::{self, Commands},
    world::Trouble,
};

/// What a static pool is short of, or has too much of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Claims to create.
    pub create: i64,
    /// The limit leaves no room for what is missing.
    pub limited: bool,
    /// Claims to delete, first those that cost least.
    pub delete: Vec<String>,
}

/// Works out how a static pool changes. `commands` are those of disruption under way.
pub fn decide(pool: &NodePool, view: &ClusterView, commands: &Commands, now: Timestamp) -> Change {
    let replicas = pool.spec.replicas.unwrap_or(0).max(0);
    let states: BTreeMap<String, StateNode> = view
        .state_nodes()
        .into_iter()
        .filter(StateNode::is_managed)
        .map(|it| (it.claim_name().to_owned(), it))
        .collect();
    let mine =
        || view.claims.values().filter(|it| it.is_managed() && it.nodepool() == Some(pool.name()));
    let (mut active, mut pending, mut deleting) = (Vec::new(), 0_i64, 0_i64);
    for claim in mine() {
        let name = claim.name();
        let node = states.get(name).map_or("", |it| it.node_name());
        let listed = |names: &BTreeSet<String>| names.contains(name) || names.contains(node);
        let going = claim.metadata.deleting() || claim.is_true(NodeClaim::INSTANCE_TERMINATING);
        if going || listed(&commands.marked) {
            deleting += 1;
        } else if listed(&commands.begun) {
            pending += 1;
        } else {
            active.push(claim);
        }
    }
    let n_active = i64::try_from(active.len()).unwrap_or(i64::MAX);
    let mut change = Change::default();
    let ready = conditions::is_true(&pool.status.conditions, conditions::READY);
    if ready && !pool.metadata.deleting() && n_active + pending < replicas {
        let limit = pool.spec.limits.as_ref().and_then(|it| it.0.get(NODES)).map(|it| it.value());
        let free = limit.map_or(i64::MAX, |it| it - (n_active + pending + deleting));
        change.create = (replicas - n_active).min(free).max(0);
        change.limited = change.create == 0;
    }
    let excess = usize::try_from(n_active - replicas).unwrap_or(0);
    if excess > 0 {
        let mut ranked: Vec<(u8, f64, &str)> = active
            .iter()
            .map(|claim| {
                let (rank, cost) = rank(claim, states.get(claim.name()), view, now);
                (rank, cost, claim.name())
            })
            .collect();
        ranked.sort_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| a.1.total_cmp(&b.1)).then_with(|| a.2.cmp(b.2))
        });
        change.delete = ranked.into_iter().take(excess).map(|it| it.2.to_owned()).collect();
    }
    change
}

/// Without an instance, empty, free to go, held; then what going costs.
fn rank(
    claim: &NodeClaim,
    state: Option<&StateNode>,
    view: &ClusterView,
    now: Timestamp,
) -> (u8, f64) {
    if claim.status.provider_id.is_empty() {
        return (0, 0.0);
    }
    let node = state.map_or("", |it| it.node_name());
    let pods: Vec<&Pod> = view
        .pods_on(node)
        .into_iter()
        .flat_map(|it| it.pods.values())
        .filter(|it| !it.is_terminal())
        .map(|it| &**it)
        .collect();
    let held = pods.iter().any(|it| do_not_disrupt(it, now).is_active());
    if !held && pods.iter().all(|it| it.is_daemon()) {
        return (1, 0.0);
    }
    let life = claim.spec.expire_after.as_ref().and_then(NillableDuration::get);
    let left = lifetime_remaining(life, claim.metadata.creation_timestamp, now);
    (if held { 3 } else { 2 }, legacy_cost(pods, left))
}

/// Brings every static pool to its size.
pub(crate) async fn scale(
    view: &ClusterView,
    seed: &[&str],
    cluster: &impl Cluster,
    state: &impl StateTable,
    queues: &impl spokeshave_ports::Queues,
    cx: &Invocation<'_>,
) -> Result<bool, Trouble> {
    let pools: Vec<_> =
        view.nodepools.values().filter(|it| it.is_static() && it.is_managed()).collect();
    let mut unfinished = false;
    if pools.is_empty() {
        return Ok(unfinished);
    }
    if !cx.settings.gates.static_capacity {
        for pool in pools {
            let text = "a static pool, and the gate StaticCapacity is off";
            cx.decide(Decision::new("skip", pool.reference(), text));
        }
        return Ok(unfinished);
    }
    let commands = records::commands(state).await?;
    let began = cx.now.to_string();
    let mut parts = seed.to_vec();
    parts.extend([began.as_str(), "static"]);
    let mut draws = Draws::new(&parts);
    let mut claims: Vec<NodeClaim> = Vec::new();
    for pool in pools {
        let change = decide(pool, view, &commands, cx.now);
        if change.limited {
            cx.decide(Decision::new("skip", pool.reference(), "nodepool node limit reached"));
        }
        for _ in 0..change.create {
            let mut claim =
                claim_of_pool(pool, &hash::node_pool(pool), |from, to| draws.number(from, to));
            claim.metadata.name = format!("{}{}", claim.metadata.generate_name, draws.suffix());
            claims.push(claim);
        }
        for name in change.delete {
            let key = spokeshave_model::ObjectKey::cluster(&name);
            let Some(claim) = view.claims.get(&key) else { continue };
            let text = format!("{} has more nodes than replicas", pool.reference());
            match cluster.delete::<NodeClaim>(&key, &claim.metadata.uid, None).await {
                Ok(()) => cx.decide(Decision::new("delete", claim.reference(), text)),
                Err(error) => {
                    unfinished |= error.is_retryable();
                    let text = chain(&error);
                    cx.decide(Decision::new("delete", claim.reference(), text).as_error());
                }
            }
        }
    }
    if claims.is_empty() {
        return Ok(unfinished);
    }
    let names: Vec<String> = claims.iter().map(|it| it.metadata.name.clone()).collect();
    records::note_orders(state, &names, cx.now).await?;
    let mut created = Vec::new();
    for claim in claims {
        let pool = claim.nodepool().unwrap_or_default().to_owned();
        match cluster.create(&claim).await {
            Ok(claim) => {
                let text = format!("NodePool/{pool} has fewer nodes than replicas");
                cx.decide(Decision::new("create", claim.reference(), text));
                cx.count(
                    "karpenter_nodeclaims_created_total",
                    &[
                        ("reason", "provisioned"),
                        ("nodepool", &pool),
                        ("min_values_relaxed", "false"),
                    ],
                );
                created.push(((pool, claim.spec.requirements.clone()), Key::of(&*claim)));
            }
            Err(error) => {
                unfinished |= error.is_retryable();
                cx.decide(Decision::new("create", claim.reference(), chain(&error)).as_error());
            }
        }
    }
    hand_over(created, queues, cx).await;
    Ok(unfinished)
}
