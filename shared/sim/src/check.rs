//! The invariant checker: watches what functions do, and looks at the world once it has come to rest.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use spokeshave_model::{
    InstanceId, Kind, NodeClaim, NodePool, ObjectKey, Uid,
    core::{Node, Pod, PodDisruptionBudget, ReplicaSet, StatefulSet, VolumeAttachment},
    labels, pod_classes,
};
use spokeshave_ports::Concern;

use crate::{kubernetes, world::Inner};

/// An instance without a claim for longer than this has been leaked: the launch time-out (5 minutes), two rounds of
/// collection (2 minutes each), and a dead handler's message coming back (6 minutes).
const LEAK: SignedDuration = SignedDuration::from_mins(20);

/// Partition of the state table in which disruption keeps its commands.
const COMMANDS: &str = "command";

/// Called when an instance was launched.
pub fn launched(world: &mut Inner, id: &InstanceId) {
    let Some(machine) = world.machines.get(id) else { return };
    let cluster = world.settings.cluster_name.clone();
    let tags = machine.instance.tags.clone();
    let wanted = [
        (labels::TAG_CLUSTER_NAME.to_owned(), Some(cluster.clone())),
        (format!("kubernetes.io/cluster/{cluster}"), Some("owned".to_owned())),
        (labels::NODECLASS.to_owned(), None),
        (labels::TAG_LAUNCH.to_owned(), None),
    ];
    for (key, value) in wanted {
        let ok = tags.get(&key).is_some_and(|it| value.as_ref().is_none_or(|value| it == value));
        if !ok {
            world.violation(
                "untagged",
                format!("Instance/{id}"),
                format!("launched without tag {key}"),
            );
        }
    }
}

/// Called before a function terminates an instance.
pub fn terminated(world: &mut Inner, concern: Concern, id: &InstanceId) {
    if concern != Concern::InstanceGc {
        return;
    }
    // Collection may take only what no claim owns.
    let owner = world.store.list::<NodeClaim>().find(|it| {
        it.status.provider_id.instance_id().as_ref() == Some(id) && !it.metadata.deleting()
    });
    if let Some(claim) = owner {
        let object = claim.reference();
        world.violation(
            "collected-in-use",
            object,
            format!("instance {id} was collected though its claim lives"),
        );
    }
}

/// Called before a function deletes an object.
pub fn deletion<K: Kind>(world: &mut Inner, concern: Concern, object: &K, grace: Option<i64>) {
    if K::KIND != "Pod" {
        return;
    }
    let Some(pod) = world.store.get::<Pod>(&object.key()) else { return };
    if pod.metadata.deleting() || pod.is_terminal() || !pod.is_bound() {
        return;
    }
    // Only a deadline excuses a deletion past the eviction API, or an instance that is gone.
    let node = world.store.get::<Node>(&ObjectKey::cluster(&pod.spec.node_name));
    let claim = node.as_ref().and_then(|node| {
        world.store.list::<NodeClaim>().find(|it| it.status.provider_id == node.spec.provider_id)
    });
    let deadline = claim
        .as_ref()
        .and_then(|it| it.metadata.annotation(labels::TERMINATION_TIMESTAMP))
        .and_then(|it| it.parse::<jiff::Timestamp>().ok());
    let own_grace = pod.spec.termination_grace_period_seconds.unwrap_or(30);
    let due = deadline.is_some_and(|at| at - SignedDuration::from_secs(own_grace) <= world.now);
    let lost = node
        .as_ref()
        .and_then(|it| it.spec.provider_id.instance_id())
        .is_none_or(|id| world.machines.get(&id).is_none_or(|it| !it.is_live()));
    if due || lost {
        return;
    }
    for key in kubernetes::budgets_of(world, &pod) {
        kubernetes::refresh_budget(world, &key);
        let allowed = world
            .store
            .get::<PodDisruptionBudget>(&key)
            .map_or(0, |it| it.status.disruptions_allowed);
        if allowed <= 0 {
            let detail =
                format!("{concern} deleted it (grace {grace:?}) though {key} allows no disruption");
            world.violation("eviction-against-pdb", object.reference(), detail);
        }
    }
}

/// Called when a function starts a voluntary disruption of a claim: its pool's budgets must allow one more.
///
/// Involuntary changes younger than a stale read may be old do not count: nobody could have known of them.
pub fn disruption_started(world: &mut Inner, claim: &NodeClaim, reason: &str) {
    let Some(pool) =
        claim.nodepool().and_then(|it| world.store.get::<NodePool>(&ObjectKey::cluster(it)))
    else {
        return;
    };
    let known_by = world.now - crate::store::STALENESS;
    let mut counted = 0_i64;
    let mut disrupting = 0_i64;
    for other in world.store.list::<NodeClaim>().filter(|it| it.nodepool() == Some(pool.name())) {
        if !other.is_true(NodeClaim::INITIALIZED) || other.is_true(NodeClaim::INSTANCE_TERMINATING)
        {
            continue;
        }
        counted += 1;
        let node = world.store.get::<Node>(&ObjectKey::cluster(&other.status.node_name));
        let unready = node.as_ref().is_some_and(|it| {
            let since = it.condition("Ready").and_then(|it| it.last_transition_time);
            !it.is_ready() && since.is_some_and(|at| at < known_by)
        });
        let going = other.metadata.deletion_timestamp.is_some_and(|at| at < known_by)
            || node
                .is_some_and(|it| it.metadata.deletion_timestamp.is_some_and(|at| at < known_by));
        let marked = other.is_true(NodeClaim::DISRUPTION_REASON) && other.key() != claim.key();
        if unready || going || marked {
            disrupting += 1;
        }
    }
    let budgets = pool.budgets();
    let allowed = budgets
        .iter()
        .filter(|it| it.applies_to(reason))
        .map(|it| it.allowed(counted, world.now).unwrap_or(0))
        .min();
    if let Some(allowed) = allowed
        && disrupting + 1 > allowed
    {
        let detail = format!(
            "{reason}: {disrupting} of {counted} nodes of NodePool/{} were being disrupted, {allowed} are allowed",
            pool.name()
        );
        world.violation("disruption-against-budget", claim.reference(), detail);
    }
}

/// Called now and then: what must be true at every moment.
pub fn always(world: &mut Inner) {
    let mut by_claim: BTreeMap<InstanceId, Vec<String>> = BTreeMap::new();
    for claim in world.store.list::<NodeClaim>() {
        if let Some(id) = claim.status.provider_id.instance_id() {
            by_claim.entry(id).or_default().push(claim.reference());
        }
    }
    let now = world.now;
    let mut found = Vec::new();
    for (id, claims) in &by_claim {
        if claims.len() > 1 {
            found.push((
                "shared-instance",
                format!("Instance/{id}"),
                format!("owned by {}", claims.join(", ")),
            ));
        }
    }
    for machine in world.machines.values().filter(|it| it.remains()) {
        let id = &machine.instance.id;
        if !by_claim.contains_key(id) && machine.launched + LEAK < now {
            let detail = format!(
                "no NodeClaim owns it {} s after its launch",
                (now - machine.launched).get_seconds()
            );
            found.push(("leaked-instance", format!("Instance/{id}"), detail));
        }
    }
    // Instances of one attempt are never more than the claims it was made for.
    let mut by_attempt: BTreeMap<&str, Vec<&InstanceId>> = BTreeMap::new();
    for machine in world.machines.values() {
        if let Some(attempt) = machine.instance.tags.get(labels::TAG_LAUNCH) {
            by_attempt.entry(attempt).or_default().push(&machine.instance.id);
        }
    }
    for (attempt, ids) in by_attempt {
        let wanted = world
            .fleets
            .values()
            .find(|(request, _)| {
                request.tags.get(labels::TAG_LAUNCH).is_some_and(|it| it == attempt)
            })
            .map(|(request, _)| request.target.max(1));
        if wanted.is_some_and(|wanted| ids.len() as i64 > wanted) {
            found.push((
                "doubled-instance",
                format!("Attempt/{attempt}"),
                format!("{} instances", ids.len()),
            ));
        }
    }
    for (rule, object, detail) in found {
        world.violation(rule, object, detail);
    }
}

/// Called once the world has come to rest: nothing is left behind, nothing is missing.
pub fn at_rest(world: &mut Inner) {
    always(world);
    let mut found: Vec<(&'static str, String, String)> = Vec::new();
    let claims: BTreeMap<InstanceId, _> = world
        .store
        .list::<NodeClaim>()
        .filter_map(|it| Some((it.status.provider_id.instance_id()?, it)))
        .collect();
    for machine in world.machines.values().filter(|it| it.remains()) {
        let id = &machine.instance.id;
        let Some(claim) = claims.get(id) else {
            found.push((
                "leaked-instance",
                format!("Instance/{id}"),
                "no NodeClaim owns it at the end".into(),
            ));
            continue;
        };
        let registered = claim.is_true(NodeClaim::REGISTERED);
        for key in ["Name", labels::TAG_NODECLAIM] {
            if registered && !machine.instance.tags.contains_key(key) {
                let detail =
                    format!("{} is registered but tag {key} is missing", claim.reference());
                found.push(("untagged", format!("Instance/{id}"), detail));
            }
        }
    }
    for node in world.store.list::<Node>() {
        if let Some(id) = node.spec.provider_id.instance_id()
            && world.machines.get(&id).is_some_and(|it| !it.is_live())
        {
            found.push(("stale-node", node.reference(), format!("its instance {id} is gone")));
        }
    }
    unfinished(world, &mut found);
    for set in world.store.list::<ReplicaSet>().filter(|it| !it.metadata.deleting()) {
        let have = living(world, &set.metadata.uid);
        let wanted = set.spec.replicas.unwrap_or(1);
        if have != wanted {
            found.push(("lost-pod", set.reference(), format!("{have} pods instead of {wanted}")));
        }
    }
    for set in world.store.list::<StatefulSet>().filter(|it| !it.metadata.deleting()) {
        let have = living(world, &set.metadata.uid);
        let wanted = set.spec.replicas.unwrap_or(1);
        // Ordinals wait for each other while one is pending.
        let waiting = world.store.list::<Pod>().any(|it| {
            it.metadata.controller().is_some_and(|it| it.uid == set.metadata.uid)
                && it.status.phase == "Pending"
        });
        if have != wanted && !waiting {
            found.push(("lost-pod", set.reference(), format!("{have} pods instead of {wanted}")));
        }
    }
    for (rule, object, detail) in found {
        world.violation(rule, object, detail);
    }
}

/// Every disruption command has ended, done or undone, and whatever is being removed waits for pods or volumes only.
fn unfinished(world: &Inner, found: &mut Vec<(&'static str, String, String)>) {
    let live = |it: &spokeshave_ports::Record| it.expires_at.is_none_or(|at| at > world.now);
    for (key, record) in
        world.table.iter().filter(|(key, it)| key.partition == COMMANDS && live(it))
    {
        let stage = record.data.get("stage").and_then(serde_json::Value::as_str);
        if stage != Some("Done") {
            let detail = format!("stays at {}", stage.unwrap_or("an unknown stage"));
            found.push(("unfinished-command", format!("Command/{}", key.sort), detail));
        }
    }
    let claims: BTreeMap<_, _> = world
        .store
        .list::<NodeClaim>()
        .filter(|it| !it.status.provider_id.is_empty())
        .map(|it| (it.status.provider_id.clone(), it))
        .collect();
    let taint = pod_classes::disrupted_taint();
    let mut held = BTreeSet::new();
    for node in world.store.list::<Node>() {
        let claim = claims.get(&node.spec.provider_id);
        let going = node.metadata.deleting() || claim.is_some_and(|it| it.metadata.deleting());
        if !going && claim.is_some() && node.spec.taints.iter().any(|it| it.matches(&taint)) {
            found.push(("left-taint", node.reference(), "nothing disrupts it any more".into()));
        }
        let name = &node.metadata.name;
        let waits =
            world.store.list::<Pod>().any(|it| {
                it.spec.node_name == *name && pod_classes::is_waiting_for_eviction(&it, world.now)
            }) || world.store.list::<VolumeAttachment>().any(|it| it.spec.node_name == *name);
        if waits {
            held.extend(claim.map(|it| it.reference()));
        } else if going {
            let detail = "no pod and no volume holds it".to_owned();
            found.push(("stuck-termination", node.reference(), detail));
        }
    }
    for claim in world.store.list::<NodeClaim>().filter(|it| it.metadata.deleting()) {
        let reference = claim.reference();
        if !held.contains(&reference) && claim.is_managed() {
            let detail = "no pod and no volume holds it".to_owned();
            found.push(("stuck-termination", reference, detail));
        }
    }
}

fn living(world: &Inner, owner: &Uid) -> i32 {
    let pods = world.store.list::<Pod>().filter(|it| {
        !it.is_terminal()
            && !it.metadata.deleting()
            && it.metadata.controller().is_some_and(|it| it.uid == *owner)
    });
    i32::try_from(pods.count()).unwrap_or(i32::MAX)
}
