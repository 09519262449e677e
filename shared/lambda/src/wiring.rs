//! Which event goes to which queue. `template.yaml` says the same; a test compares the two.

use spokeshave_ports::Concern;

/// Detail types on the custom bus and the concerns that their rules route them to.
///
/// A detail type is also the `reason` of the work. What the keys name is said beside each.
pub const ROUTES: &[(&str, &[Concern])] = &[
    // Pods that provisioning is to place; batched.
    ("PodsPending", &[Concern::Provision]),
    // Something else that changes what can be placed (overlay, buffer, DaemonSet, volume claim, disrupted node);
    // batched, the newest key of each kind.
    ("ProvisionDue", &[Concern::Provision]),
    // A Node or NodeClaim that has just begun to be deleted: its pods need a place, a static pool a replica.
    ("PodsDisplaced", &[Concern::Provision]),
    // Pod events in the sense of `lastPodEventTime`, DaemonSet pods excepted: the Node's name alone.
    ("PodBound", &[Concern::Lifecycle]),
    ("PodEnding", &[Concern::Lifecycle]),
    ("PodGone", &[Concern::Lifecycle]),
    // A pod event of any pod on a node that is being deleted: the Node's name alone.
    ("DrainProgressed", &[Concern::Termination]),
    // A PodDisruptionBudget allows more than before.
    ("EvictionUnblocked", &[Concern::Termination]),
    // A VolumeAttachment of a node that is being deleted is gone: the Node's name alone.
    ("VolumeDetached", &[Concern::Termination]),
    // Nodes. `NodeLost` are those of ours that went without being finalized.
    ("NodeChanged", &[Concern::Lifecycle]),
    ("NodeDeleting", &[Concern::Termination]),
    ("NodeGone", &[Concern::Lifecycle, Concern::Termination]),
    ("NodeLost", &[Concern::InstanceGc]),
    // NodeClaims. `NodeClaimLost` are those that went without being finalized.
    ("NodeClaimCreated", &[Concern::Launch, Concern::Lifecycle]),
    ("NodeClaimChanged", &[Concern::Lifecycle]),
    ("NodeClaimRegistered", &[Concern::Tagging, Concern::Nodepool]),
    ("NodeClaimDeleting", &[Concern::Termination]),
    ("NodeClaimGone", &[Concern::Provision, Concern::Termination]),
    ("NodeClaimLost", &[Concern::InstanceGc]),
    // A NodeClaim that a disruption command may wait for is initialized, deleting or gone. Message group `commands`.
    ("CommandProgressed", &[Concern::Disruption]),
    // NodePools. `PoolCountsChanged` has the NodePool's name alone.
    (
        "NodePoolChanged",
        &[Concern::Nodepool, Concern::Provision, Concern::Lifecycle, Concern::Disruption],
    ),
    ("NodePoolReady", &[Concern::Provision, Concern::Disruption]),
    ("NodePoolGone", &[Concern::Nodepool, Concern::Disruption]),
    ("PoolCountsChanged", &[Concern::Nodepool]),
    // EC2NodeClasses: what is asked for, what was found, and whether the last NodeClaim of a class that is being
    // deleted may be gone (the name alone).
    ("NodeClassChanged", &[Concern::Nodeclass]),
    ("NodeClassStatusChanged", &[Concern::Nodepool, Concern::Lifecycle]),
    ("NodeClassGone", &[Concern::InstanceProfileGc, Concern::Nodepool]),
    ("NodeClassReleased", &[Concern::Nodeclass]),
    // Something that the disruption pass reads has changed; batched, the newest key of each kind.
    ("DisruptionDue", &[Concern::Disruption]),
    // The bridge starts its successor: the payload says where the watches stand. The rule's target is the function.
    ("HandOver", &[Concern::ClusterBridge]),
    // Every ten minutes, without keys: send a delayed message for whatever falls due before the next sweep.
    (
        "Sweep",
        &[
            Concern::Launch,
            Concern::Lifecycle,
            Concern::Tagging,
            Concern::Termination,
            Concern::Nodeclass,
            Concern::Nodepool,
        ],
    ),
];

/// The concerns that a detail type is routed to.
pub fn routes(detail_type: &str) -> &'static [Concern] {
    ROUTES.iter().find(|(name, _)| *name == detail_type).map_or(&[], |(_, to)| to)
}

/// The message group that a rule gives to a FIFO queue; empty for standard queues.
pub fn message_group(to: Concern, detail_type: &str) -> &'static str {
    match (to.is_fifo(), detail_type) {
        (false, _) => "",
        (true, "CommandProgressed") => "commands",
        (true, _) => "pass",
    }
}

/// Whom each function sends work to directly, itself included. It is given these queues and no other.
pub const SENDS: &[(Concern, &[Concern])] = &[
    (Concern::Provision, &[Concern::Provision, Concern::Launch]),
    (Concern::Launch, &[Concern::Launch, Concern::Nodeclass]),
    (Concern::Lifecycle, &[Concern::Lifecycle]),
    (Concern::Tagging, &[Concern::Tagging]),
    (Concern::Interruption, &[Concern::Provision, Concern::Termination]),
    (Concern::Disruption, &[Concern::Disruption, Concern::Launch, Concern::Provision]),
    (Concern::Termination, &[Concern::Termination]),
    (Concern::Nodeclass, &[Concern::Nodeclass]),
    (Concern::InstanceGc, &[Concern::Interruption]),
    (Concern::CatalogRefresh, &[Concern::CatalogRefresh, Concern::Nodepool]),
];

/// Functions on a schedule of their own, and how often in seconds.
pub const SCHEDULES: &[(Concern, u64)] = &[
    (Concern::ClusterBridge, 60),
    (Concern::Disruption, 60),
    (Concern::Nodeclass, 300),
    // Every minute, since it polls instance status, too.
    (Concern::InstanceGc, 60),
    (Concern::InstanceProfileGc, 1800),
    (Concern::CatalogRefresh, 300),
];

/// Whose queues Lambda polls in every mode of the bridge: a spot warning leaves two minutes, and a launch is asked for by a
/// function. In `poll` mode all others are started by [`started_by`] and look into their queues themselves.
pub const ALWAYS_POLLED: &[Concern] = &[Concern::Interruption, Concern::Launch];

/// Who looks into its queue itself in every mode: nobody waits for these.
pub const NEVER_POLLED: &[Concern] = &[Concern::InstanceProfileGc, Concern::CatalogRefresh];

/// What starts a function in `poll` mode, or one of [`NEVER_POLLED`], to look into its queue: everything that is routed there, and a schedule, which
/// asks each minute where pods or nodes wait for it and every five minutes elsewhere. Empty for those that Lambda polls.
pub fn started_by(concern: Concern) -> Vec<&'static str> {
    if ALWAYS_POLLED.contains(&concern) || concern == Concern::ClusterBridge {
        return Vec::new();
    }
    let routed = ROUTES.iter().filter(|(_, to)| to.contains(&concern)).map(|(name, _)| *name);
    let each_minute =
        [Concern::Provision, Concern::Lifecycle, Concern::Disruption, Concern::Termination];
    let schedule = if each_minute.contains(&concern) { "Drain" } else { "DrainSlowly" };
    routed.chain([schedule]).collect()
}

/// How Lambda polls the queue of a concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    pub concern: Concern,
    /// Messages per invocation at most. FIFO queues allow 10.
    pub batch_size: usize,
    /// Seconds that Lambda gathers messages. FIFO queues allow none.
    pub window: u64,
    /// Invocations at the same time at most; a setting of the source, never reserved concurrency.
    pub max_concurrency: usize,
    /// The function's time limit in seconds.
    pub timeout: u64,
    /// Receives before a message goes to the dead-letter queue.
    pub max_receives: u32,
}

impl Source {
    /// Seconds a received message stays hidden: six times the limit, on FIFO queues the limit plus 30 s.
    pub const fn visibility(&self) -> u64 {
        if self.concern.is_fifo() { self.timeout + 30 } else { self.timeout * 6 }
    }
}

const fn source(
    concern: Concern,
    batch_size: usize,
    window: u64,
    max_concurrency: usize,
    timeout: u64,
) -> Source {
    Source { concern, batch_size, window, max_concurrency, timeout, max_receives: 10 }
}

/// Every queue that a function reads. The bridge is started directly, not by a queue.
pub const SOURCES: &[Source] = &[
    source(Concern::Provision, 10, 0, 2, 60),
    source(Concern::Launch, 10, 0, 10, 60),
    source(Concern::Lifecycle, 100, 1, 5, 60),
    source(Concern::Tagging, 50, 1, 2, 60),
    // More than 10 at once would need a window of a second: too long for two minutes' notice. A failure comes back after
    // 48 s, twice within that notice, and five times within the 300 s that the queue keeps a message.
    Source { max_receives: 5, ..source(Concern::Interruption, 10, 0, 5, 8) },
    source(Concern::Disruption, 10, 0, 2, 60),
    source(Concern::Termination, 100, 1, 5, 60),
    source(Concern::Nodeclass, 10, 1, 2, 60),
    source(Concern::Nodepool, 50, 1, 2, 60),
    source(Concern::InstanceGc, 10, 0, 2, 60),
    source(Concern::InstanceProfileGc, 10, 0, 2, 60),
    source(Concern::CatalogRefresh, 10, 0, 2, 120),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_detail_type_is_there_once_and_reaches_somebody() {
        for (at, (name, to)) in ROUTES.iter().enumerate() {
            assert!(!to.is_empty(), "{name}");
            assert!(ROUTES[..at].iter().all(|(other, _)| other != name), "{name}");
        }
        assert_eq!(routes("NoSuchType"), &[]);
        assert_eq!(message_group(Concern::Disruption, "CommandProgressed"), "commands");
        assert_eq!(message_group(Concern::Disruption, "DisruptionDue"), "pass");
        assert_eq!(message_group(Concern::Lifecycle, "NodeChanged"), "");
    }
}
