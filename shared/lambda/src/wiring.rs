//! Which event goes to which queue. `template.yaml` says the same; a test compares the two.

use spokeshave_ports::Concern;

/// Detail types on the custom bus and the concerns that their rules route them to.
pub const ROUTES: &[(&str, &[Concern])] = &[
    ("PodsPending", &[Concern::Provision]),
    ("PodBound", &[Concern::Lifecycle]),
    ("PodGone", &[Concern::Lifecycle, Concern::Termination]),
    ("NodeChanged", &[Concern::Lifecycle, Concern::Termination]),
    ("NodeClaimChanged", &[Concern::Launch, Concern::Lifecycle]),
    ("NodeClaimDeleting", &[Concern::Termination]),
    ("NodeClaimGone", &[Concern::Nodepool, Concern::Provision]),
    ("NodeClaimRegistered", &[Concern::Tagging, Concern::Nodepool]),
    ("NodePoolChanged", &[Concern::Nodepool, Concern::Provision, Concern::Disruption]),
    ("NodeClassChanged", &[Concern::Nodeclass, Concern::Nodepool]),
    ("NodeClassGone", &[Concern::InstanceProfileGc, Concern::Nodepool]),
    ("DisruptionDue", &[Concern::Disruption]),
    ("Sweep", &[Concern::Lifecycle, Concern::Termination, Concern::Nodeclass, Concern::Nodepool]),
];

/// The concerns that a detail type is routed to.
pub fn routes(detail_type: &str) -> &'static [Concern] {
    ROUTES.iter().find(|(name, _)| *name == detail_type).map_or(&[], |(_, to)| to)
}

/// Functions on a schedule of their own, and how often in seconds.
pub const SCHEDULES: &[(Concern, u64)] = &[
    (Concern::ClusterBridge, 60),
    (Concern::Disruption, 60),
    (Concern::Nodeclass, 300),
    (Concern::InstanceGc, 120),
    (Concern::InstanceProfileGc, 1800),
    (Concern::CatalogRefresh, 300),
];

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

const fn source(concern: Concern, batch_size: usize, window: u64, max_concurrency: usize, timeout: u64) -> Source {
    Source { concern, batch_size, window, max_concurrency, timeout, max_receives: 10 }
}

/// Every queue that a function reads. The bridge is started directly, not by a queue.
pub const SOURCES: &[Source] = &[
    source(Concern::Provision, 10, 0, 2, 60),
    source(Concern::Launch, 10, 0, 10, 60),
    source(Concern::Lifecycle, 100, 1, 5, 60),
    source(Concern::Tagging, 50, 1, 2, 60),
    source(Concern::Interruption, 100, 0, 5, 30),
    source(Concern::Disruption, 10, 0, 2, 60),
    source(Concern::Termination, 100, 1, 5, 60),
    source(Concern::Nodeclass, 10, 1, 2, 60),
    source(Concern::Nodepool, 50, 1, 2, 60),
    source(Concern::InstanceGc, 10, 0, 2, 60),
    source(Concern::InstanceProfileGc, 10, 0, 2, 60),
    source(Concern::CatalogRefresh, 10, 0, 2, 120),
];
