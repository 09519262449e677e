//! Tags of everything that a launch makes (`spec` aws-capacity 13.1).

use spokeshave_model::{EC2NodeClass, Kind, NodeClaim, labels};
use spokeshave_ports::ec2::Tags;

/// Key of the ownership tag: `kubernetes.io/cluster/<cluster>`, value `owned`.
pub const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";

/// `spec.tags` uses keys that are ours to set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.tags must not contain {}", .0.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>().join(", "))]
pub struct RestrictedTags(pub Vec<String>);

/// Whether a key belongs to us.
pub fn is_restricted(key: &str) -> bool {
    let cluster = key.strip_prefix(CLUSTER_PREFIX).is_some_and(|name| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|it| it.is_ascii_alphanumeric())
            && bytes.all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_'))
    });
    cluster
        || key == labels::NODEPOOL
        || key == labels::TAG_CLUSTER_NAME
        || key == labels::NODECLASS
        || key == labels::TAG_NODECLAIM
}

/// The class's tags with ours over them. `claim` is absent where a class is tried without one.
///
/// # Errors
/// All keys of `spec.tags` that are ours.
pub fn tags(
    class: &EC2NodeClass,
    claim: Option<&NodeClaim>,
    cluster: &str,
) -> Result<Tags, RestrictedTags> {
    let offenders: Vec<String> =
        class.spec.tags.keys().filter(|key| is_restricted(key)).cloned().collect();
    if !offenders.is_empty() {
        return Err(RestrictedTags(offenders));
    }
    let mut tags: Tags = class.spec.tags.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let pool = claim.and_then(NodeClaim::nodepool).unwrap_or_default();
    for (key, value) in [
        (format!("{CLUSTER_PREFIX}{cluster}"), "owned"),
        (labels::NODEPOOL.to_owned(), pool),
        (labels::TAG_CLUSTER_NAME.to_owned(), cluster),
        (labels::NODECLASS.to_owned(), class.name()),
    ] {
        tags.insert(key, value.to_owned());
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use spokeshave_model::{ObjectMeta, meta::StringMap};

    use super::*;

    fn class(tags: &[(&str, &str)]) -> EC2NodeClass {
        let mut class =
            EC2NodeClass { metadata: ObjectMeta::named("k"), ..EC2NodeClass::default() };
        let tags: StringMap =
            tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        class.spec.tags = tags.into();
        class
    }

    #[test] // aws-capacity 13, case 6
    fn ours_are_laid_over_the_users() {
        let mut claim = NodeClaim::default();
        claim.metadata.labels.insert(labels::NODEPOOL.into(), "p".into());
        let got = tags(&class(&[("Name", "web"), ("team", "a")]), Some(&claim), "c1");
        let expected: Tags = [
            ("Name", "web"),
            ("team", "a"),
            ("kubernetes.io/cluster/c1", "owned"),
            ("karpenter.sh/nodepool", "p"),
            ("eks:eks-cluster-name", "c1"),
            ("karpenter.k8s.aws/ec2nodeclass", "k"),
        ]
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
        assert_eq!(got, Ok(expected));
    }

    #[test] // aws-capacity 13, cases 5, 7
    fn ours_may_not_be_set() {
        let error = tags(&class(&[("team", "a"), ("karpenter.sh/nodepool", "x")]), None, "c1");
        assert_eq!(
            error.expect_err("restricted").to_string(),
            "spec.tags must not contain \"karpenter.sh/nodepool\""
        );
        assert!(
            tags(&class(&[("kubernetes.io/cluster/other-cluster", "owned")]), None, "c1").is_err()
        );
        assert!(tags(&class(&[("kubernetes.io/clusterX", "y")]), None, "c1").is_ok());
        assert!(is_restricted("karpenter.sh/nodeclaim"));
        assert!(!is_restricted("kubernetes.io/cluster/"));
        assert!(!is_restricted("kubernetes.io/cluster/-a"));
    }
}
