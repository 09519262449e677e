//! Keys of labels, annotations, taints, finalizers and tags. Source: Karpenter v1 API, `spec` 16.

/// Label: the pool a claim or node belongs to.
pub const NODEPOOL: &str = "karpenter.sh/nodepool";
/// Label: `spot`, `on-demand` or `reserved`.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// Label on a node that has been registered.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// Label on a node that has been initialized.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// Label on a node whose claim's taints must not be added at registration.
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
/// Label: the EC2NodeClass of a claim or node. Not well-known.
pub const NODECLASS: &str = "karpenter.k8s.aws/ec2nodeclass";

pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub const ARCH: &str = "kubernetes.io/arch";
pub const OS: &str = "kubernetes.io/os";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";

pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
pub const INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ: &str =
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str =
    "karpenter.k8s.aws/instance-accelerator-manufacturer";
pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
pub const INSTANCE_ENCRYPTION_IN_TRANSIT: &str =
    "karpenter.k8s.aws/instance-encryption-in-transit-supported";
pub const INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
pub const NITRO_SANDBOX: &str = "karpenter.k8s.aws/nitro-sandbox";
pub const CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
pub const CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
pub const CAPACITY_RESERVATION_INTERRUPTIBLE: &str =
    "karpenter.k8s.aws/capacity-reservation-interruptible";
pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";

/// Keys that a NodePool may leave undefined and pods may still ask for: the cloud supplies them. Sorted.
pub const WELL_KNOWN: &[&str] = &[
    "karpenter.k8s.aws/capacity-reservation-id",
    "karpenter.k8s.aws/capacity-reservation-interruptible",
    "karpenter.k8s.aws/capacity-reservation-type",
    "karpenter.k8s.aws/instance-accelerator-count",
    "karpenter.k8s.aws/instance-accelerator-manufacturer",
    "karpenter.k8s.aws/instance-accelerator-name",
    "karpenter.k8s.aws/instance-capability-flex",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-cpu",
    "karpenter.k8s.aws/instance-cpu-manufacturer",
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz",
    "karpenter.k8s.aws/instance-ebs-bandwidth",
    "karpenter.k8s.aws/instance-encryption-in-transit-supported",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-generation",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.k8s.aws/instance-gpu-memory",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-hypervisor",
    "karpenter.k8s.aws/instance-local-nvme",
    "karpenter.k8s.aws/instance-memory",
    "karpenter.k8s.aws/instance-network-bandwidth",
    "karpenter.k8s.aws/instance-size",
    "karpenter.k8s.aws/instance-tenancy",
    "karpenter.k8s.aws/nitro-sandbox",
    "karpenter.k8s.aws/placement-group-id",
    "karpenter.k8s.aws/placement-group-partition",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "topology.k8s.aws/zone-id",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Whether `key` is well-known. See [`WELL_KNOWN`].
pub fn is_well_known(key: &str) -> bool {
    WELL_KNOWN.binary_search(&key).is_ok()
}

/// The key that `key` is an alias of, or `key` itself.
pub fn normalize(key: &str) -> &str {
    match key {
        "failure-domain.beta.kubernetes.io/zone" | "topology.ebs.csi.aws.com/zone" => ZONE,
        "failure-domain.beta.kubernetes.io/region" => REGION,
        "beta.kubernetes.io/arch" => ARCH,
        "beta.kubernetes.io/os" => OS,
        "beta.kubernetes.io/instance-type" => INSTANCE_TYPE,
        other => other,
    }
}

/// Annotation: voluntary disruption is not wanted.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
pub const NODEPOOL_HASH: &str = "karpenter.sh/nodepool-hash";
pub const NODEPOOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
pub const NODECLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
pub const NODECLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
/// Annotation: RFC 3339 time by which a claim must be gone.
pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
pub const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
pub const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";
pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";
pub const TAGGED: &str = "karpenter.k8s.aws/tagged";
pub const CLUSTER_NAME_TAGGED: &str = "compatibility.karpenter.k8s.aws/cluster-name-tagged";
pub const INSTANCE_PROFILE_NAME: &str = "karpenter.k8s.aws/instance-profile-name";
/// Annotation of ours on a claim: the launch attempt it belongs to.
pub const LAUNCH_ATTEMPT: &str = "spokeshave.dev/launch-attempt";
/// Annotation of ours on a claim: the disruption command that made it as a replacement.
pub const COMMAND: &str = "spokeshave.dev/command";
/// What a claim asks for, instance types aside, as a name: by it launching remembers for what capacity runs short.
pub const SHAPE: &str = "spokeshave.dev/shape";
/// Annotation of ours on a NodePool: `replace` acts on rebalance recommendations.
pub const REBALANCE: &str = "spokeshave.dev/rebalance";
/// Annotation of ours on a NodePool: `replace` has nodes that reach `expireAfter` replaced as drifted ones are.
pub const EXPIRATION: &str = "spokeshave.dev/expiration";
/// Annotation of ours on a NodePool: how long before a scheduled change of EC2 its nodes begin to leave (Go text such as
/// `48h`). Without it they leave as soon as the change is announced.
pub const SCHEDULED_CHANGE_LEAD_TIME: &str = "spokeshave.dev/scheduled-change-lead-time";
/// Annotation of ours on a claim: when EC2 recommended to move off it, in a pool that acts on that. Counts as drift.
pub const REBALANCE_RECOMMENDED: &str = "spokeshave.dev/rebalance-recommended";

/// Taint key: the node has not been registered yet (`NoExecute`).
pub const UNREGISTERED_TAINT: &str = "karpenter.sh/unregistered";
/// Taint key: the node is to be disrupted (`NoSchedule`).
pub const DISRUPTED_TAINT: &str = "karpenter.sh/disrupted";
/// Finalizer of claims and nodes.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
/// Finalizer of EC2NodeClasses.
pub const NODECLASS_FINALIZER: &str = "karpenter.k8s.aws/termination";

/// EC2 tag: the cluster's name.
pub const TAG_CLUSTER_NAME: &str = "eks:eks-cluster-name";
/// IAM tag: the cluster's ARN.
pub const TAG_CLUSTER_ARN: &str = "eks:eks-cluster-arn";
/// EC2 tag: the claim's name.
pub const TAG_NODECLAIM: &str = "karpenter.sh/nodeclaim";
/// EC2 tag of ours: the launch attempt.
pub const TAG_LAUNCH: &str = "spokeshave.dev/launch";
/// EC2 tag before v1, whose role `eks:eks-cluster-name` took.
pub const TAG_MANAGED_BY: &str = "karpenter.sh/managed-by";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_well_known_keys_are_sorted_for_the_search() {
        assert!(WELL_KNOWN.is_sorted());
        assert!(is_well_known(ZONE) && !is_well_known(NODECLASS) && !is_well_known(HOSTNAME));
    }
}
