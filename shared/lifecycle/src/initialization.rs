//! When a registered node may be counted on.

use spokeshave_model::{NodeClaim, Taint, TaintEffect, core::Node, labels};

/// Taints that a young node has and that go away by themselves, by key and effect.
pub const KNOWN_EPHEMERAL_TAINTS: &[(&str, TaintEffect)] = &[
    ("node.kubernetes.io/not-ready", TaintEffect::NoSchedule),
    ("node.kubernetes.io/not-ready", TaintEffect::NoExecute),
    ("node.kubernetes.io/unreachable", TaintEffect::NoSchedule),
    ("node.cloudprovider.kubernetes.io/uninitialized", TaintEffect::NoSchedule),
    (labels::UNREGISTERED_TAINT, TaintEffect::NoExecute),
];

/// Taints of this prefix are ephemeral too, whatever their effect.
pub const READINESS_PREFIX: &str = "readiness.k8s.io/";

/// Whether a taint goes away by itself while a node starts. Values are ignored.
pub fn is_ephemeral(taint: &Taint) -> bool {
    taint.key.starts_with(READINESS_PREFIX)
        || KNOWN_EPHEMERAL_TAINTS
            .iter()
            .any(|(key, effect)| taint.key == *key && taint.effect == *effect)
}

/// Why a node is not initialized: the reason of the condition and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotYet {
    pub reason: &'static str,
    pub message: String,
}

impl NotYet {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// The first rule that a claim and its nodes do not meet yet; `None` when the node is initialized.
///
/// `nodes` are all with the claim's provider id. `missing_driver` is the first requested DRA driver that has not
/// published a complete pool.
pub fn first_unmet(
    claim: &NodeClaim,
    nodes: &[&Node],
    missing_driver: Option<&str>,
) -> Option<NotYet> {
    let &[node] = nodes else {
        return Some(NotYet::new("NodeNotFound", "Node not registered with cluster"));
    };
    if !node.is_ready() {
        return Some(NotYet::new("NodeNotReady", "Node status is NotReady"));
    }
    let is_startup = |taint: &&Taint| claim.spec.startup_taints.iter().any(|it| it.matches(taint));
    if let Some(taint) = node.spec.taints.iter().find(is_startup) {
        let message = format!("StartupTaint \"{taint}\" still exists");
        return Some(NotYet::new("StartupTaintsExist", message));
    }
    if let Some(taint) = node.spec.taints.iter().find(|it| is_ephemeral(it)) {
        let message = format!("KnownEphemeralTaint \"{taint}\" still exists");
        return Some(NotYet::new("KnownEphemeralTaintsExist", message));
    }
    let is_missing = |name: &str| node.status.allocatable.get(name).is_zero();
    let requests = claim.spec.resources.requests.iter();
    if let Some((name, _)) =
        requests.into_iter().find(|(name, amount)| !amount.is_zero() && is_missing(name))
    {
        let message = format!("Resource \"{name}\" was requested but not registered");
        return Some(NotYet::new("ResourceNotRegistered", message));
    }
    missing_driver.map(|driver| {
        let message = format!("DRA driver \"{driver}\" has not published a complete resource pool");
        NotYet::new("DRADriverPoolsNotPublished", message)
    })
}
