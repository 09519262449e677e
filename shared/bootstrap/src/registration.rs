//! Labels and taints that a node registers with (`spec` aws-nodeclass 9).

use std::collections::BTreeMap;

use spokeshave_model::{AmiFamily, Taint, TaintEffect, labels as keys};

/// Domains whose labels the API server refuses from a kubelet, with all their subdomains.
const REFUSED_DOMAINS: &[&str] = &["kubernetes.io", "k8s.io", "node-restriction.kubernetes.io"];

/// Whether a kubelet may set this label on its own node. Labels without a domain always may.
pub fn is_kubelet_label(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    !REFUSED_DOMAINS.iter().any(|refused| {
        domain.strip_suffix(refused).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// The labels that the kubelet registers: the claim's, the capacity type, and for every family but Custom the promise
/// that the kubelet registers all taints itself. Labels that a kubelet may not set follow at registration.
pub fn labels(
    claim: &BTreeMap<String, String>,
    capacity_type: &str,
    family: AmiFamily,
) -> BTreeMap<String, String> {
    let mut labels = claim.clone();
    labels.insert(keys::CAPACITY_TYPE.into(), capacity_type.into());
    if family != AmiFamily::Custom {
        labels.insert(keys::DO_NOT_SYNC_TAINTS.into(), "true".into());
    }
    labels.retain(|key, _| is_kubelet_label(key));
    labels
}

/// Taints in order: the claim's, its startup taints, and `karpenter.sh/unregistered:NoExecute` unless it is there.
pub fn taints(taints: &[Taint], startup: &[Taint]) -> Vec<Taint> {
    let unregistered = Taint::new(keys::UNREGISTERED_TAINT, "", TaintEffect::NoExecute);
    let mut all: Vec<Taint> = taints.iter().chain(startup).cloned().collect();
    if !all.iter().any(|it| it.matches(&unregistered)) {
        all.push(unregistered);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(taints: &[Taint]) -> String {
        taints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    #[test] // aws-nodeclass 9, cases 1 and 2
    fn the_unregistered_taint_comes_last_unless_it_is_there() {
        let a = Taint::new("a", "b", TaintEffect::NoSchedule);
        let c = Taint::new("c", "", TaintEffect::NoExecute);
        let boot = Taint::new("karpenter.sh/unregistered", "", TaintEffect::NoExecute);
        assert_eq!(
            joined(&taints(std::slice::from_ref(&a), std::slice::from_ref(&c))),
            "a=b:NoSchedule,c:NoExecute,karpenter.sh/unregistered:NoExecute"
        );
        assert_eq!(
            joined(&taints(&[a], &[boot, c])),
            "a=b:NoSchedule,karpenter.sh/unregistered:NoExecute,c:NoExecute"
        );
    }

    #[test] // aws-nodeclass 9, cases 3, 4 and 8; aws-capacity 15, case 9
    fn labels_that_a_kubelet_may_not_set_are_left_out() {
        let claim: BTreeMap<String, String> = [
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/instance-type",
            "team",
            "example.k8s.io/x",
            "k8s.io/x",
            "foo.node-restriction.kubernetes.io/x",
            "mykubernetes.io/x",
            "karpenter.sh/nodepool",
            "topology.k8s.aws/zone-id",
        ]
        .into_iter()
        .map(|key| (key.to_owned(), "v".to_owned()))
        .collect();
        let kept = |family| labels(&claim, "spot", family).into_keys().collect::<Vec<_>>();
        assert_eq!(
            kept(AmiFamily::Al2),
            [
                "karpenter.sh/capacity-type",
                "karpenter.sh/do-not-sync-taints",
                "karpenter.sh/nodepool",
                "mykubernetes.io/x",
                "team",
                "topology.k8s.aws/zone-id",
            ]
        );
        assert_eq!(
            kept(AmiFamily::Custom),
            [
                "karpenter.sh/capacity-type",
                "karpenter.sh/nodepool",
                "mykubernetes.io/x",
                "team",
                "topology.k8s.aws/zone-id",
            ]
        );
    }
}
