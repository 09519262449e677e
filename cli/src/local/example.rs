//! The bundled example, the same files as in `infra/examples/`.

/// Name and text of each manifest file.
pub const MANIFESTS: &[(&str, &str)] = &[
    ("infra/examples/nodepools.yaml", include_str!("../../../infra/examples/nodepools.yaml")),
    ("infra/examples/workloads.yaml", include_str!("../../../infra/examples/workloads.yaml")),
];

/// The spot interruption that is delivered once the workload has settled.
pub const EVENT: &str = include_str!("../../../infra/examples/spot-interruption.json");
