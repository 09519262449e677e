//! Tags on what a class makes (`spec` aws-nodeclass 19).

use std::collections::BTreeMap;

use spokeshave_model::{EC2NodeClass, labels};

/// `kubernetes.io/cluster/<cluster>`.
pub fn cluster_key(cluster: &str) -> String {
    format!("kubernetes.io/cluster/{cluster}")
}

/// The tags of fleets, instances, volumes, interfaces, spot requests and launch templates. `nodepool` may be empty.
pub fn at_creation(
    class: &EC2NodeClass,
    cluster: &str,
    nodepool: &str,
) -> BTreeMap<String, String> {
    let mut tags: BTreeMap<String, String> = class.spec.tags.clone().into_inner();
    for (key, value) in [
        (cluster_key(cluster), "owned"),
        (labels::NODEPOOL.to_owned(), nodepool),
        (labels::TAG_CLUSTER_NAME.to_owned(), cluster),
        (labels::NODECLASS.to_owned(), class.metadata.name.as_str()),
    ] {
        tags.insert(key, value.to_owned());
    }
    tags
}

/// The keys of `spec.tags` that we set ourselves, sorted. The CRD refuses them too, and refuses
/// everything that begins `kubernetes.io/cluster`.
pub fn restricted<'a>(tags: impl IntoIterator<Item = &'a String>) -> Vec<&'a str> {
    let mut found: Vec<&str> =
        tags.into_iter().map(String::as_str).filter(|it| is_restricted(it)).collect();
    found.sort_unstable();
    found
}

fn is_restricted(key: &str) -> bool {
    let is_cluster = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    matches!(
        key,
        labels::NODEPOOL | labels::TAG_CLUSTER_NAME | labels::NODECLASS | labels::TAG_NODECLAIM
    ) || key.strip_prefix("kubernetes.io/cluster/").is_some_and(is_cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // aws-nodeclass 19, case 1
    fn ours_win_over_the_class() {
        let mut class = EC2NodeClass::default();
        class.metadata.name = "default".into();
        let given = [("team", "a"), ("Name", "custom"), ("karpenter.sh/nodepool", "x")];
        class.spec.tags = given
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect::<BTreeMap<_, _>>()
            .into();
        let tags = at_creation(&class, "demo", "general");
        let text: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            text,
            [
                "Name=custom",
                "eks:eks-cluster-name=demo",
                "karpenter.k8s.aws/ec2nodeclass=default",
                "karpenter.sh/nodepool=general",
                "kubernetes.io/cluster/demo=owned",
                "team=a",
            ]
        );
    }

    #[test] // aws-nodeclass 8, case 10; 19, case 7
    fn keys_that_a_class_may_not_set() {
        let keys: Vec<String> = [
            "team",
            "Name",
            "kubernetes.io/cluster/other",
            "kubernetes.io/cluster/",
            "kubernetes.io/cluster/-x",
            "karpenter.sh/nodeclaim",
            "karpenter.sh/nodepool",
            "eks:eks-cluster-name",
            "eks:eks-cluster-arn",
            "karpenter.k8s.aws/ec2nodeclass",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(
            restricted(&keys),
            [
                "eks:eks-cluster-name",
                "karpenter.k8s.aws/ec2nodeclass",
                "karpenter.sh/nodeclaim",
                "karpenter.sh/nodepool",
                "kubernetes.io/cluster/other",
            ]
        );
    }
}
