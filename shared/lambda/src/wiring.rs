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
