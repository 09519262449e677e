//! Whether a node is about as large as its claim promised.

use jiff::SignedDuration;
use spokeshave_model::{NodeClaim, core::Node};

/// At most one scan of a claim in this time. As in Karpenter 1.x.
pub const SCAN_INTERVAL: SignedDuration = SignedDuration::from_mins(10);

/// A node with less than this part of what was promised is too small. In thousandths.
const LEAST_RATIO_MILLI: i128 = 900;

/// What is wrong with the shape of a claim's node, one text per resource. An uninitialized or deleting claim has no
/// issue.
pub fn issues(claim: &NodeClaim, node: &Node) -> Vec<String> {
    if claim.metadata.deleting() || !claim.is_true(NodeClaim::INITIALIZED) {
        return Vec::new();
    }
    let mut issues = Vec::new();
    for (name, request) in claim.spec.resources.requests.iter() {
        let promised = claim.status.capacity.get(name);
        if request.is_zero() || promised.is_zero() {
            continue;
        }
        let found = node.status.capacity.get(name);
        if found.nanos().saturating_mul(1000) < promised.nanos().saturating_mul(LEAST_RATIO_MILLI) {
            let percent = found.as_f64() / promised.as_f64() * 100.0;
            issues.push(format!(
                "expected {promised} of resource {name}, but found {found} ({percent:.1}% of expected)"
            ));
        }
    }
    issues
}
