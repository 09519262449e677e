//! What each setting is, for documentation. [`super::Settings::set`] is what counts; tests keep the two together.

/// A setting by its environment name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    pub name: &'static str,
    /// As it would be written; empty when nothing is set.
    pub default: &'static str,
    /// Parameter of `template.yaml` that gives it to the functions; empty when the stack sets it itself, or nobody does.
    pub parameter: &'static str,
    pub meaning: &'static str,
}

const fn described(
    name: &'static str,
    default: &'static str,
    parameter: &'static str,
    meaning: &'static str,
) -> Described {
    Described { name, default, parameter, meaning }
}

/// Every setting, in the order in which a person looks for it.
pub const ALL: &[Described] = &[
    described(
        "CLUSTER_NAME",
        "",
        "ClusterName",
        "Name of the EKS cluster; without one a function refuses to start",
    ),
    described(
        "CLUSTER_ENDPOINT",
        "",
        "ClusterEndpoint",
        "URL of the API server; asked of EKS when empty",
    ),
    described(
        "CLUSTER_CA_BUNDLE",
        "",
        "ClusterCABundle",
        "Certificate authority of the API server in base64; asked of EKS when empty",
    ),
    described(
        "INTERRUPTION_QUEUE",
        "",
        "InterruptionQueueName",
        "Name, URL or ARN of the interruption queue; the stack wires its own",
    ),
    described(
        "FEATURE_GATES",
        "",
        "FeatureGates",
        "`Name=true` or `Name=false`, separated by commas, merged over the defaults below; unknown names are ignored",
    ),
    described("AWS_FEATURE_GATES", "", "", "The same, as Karpenter for AWS calls it"),
    described(
        "BATCH_MAX_DURATION",
        "10s",
        "BatchMaxDuration",
        "Longest time that pending pods are gathered before they are planned together",
    ),
    described(
        "BATCH_IDLE_DURATION",
        "1s",
        "BatchIdleDuration",
        "Pending pods are gathered until none has come for so long",
    ),
    described(
        "PREFERENCE_POLICY",
        "Respect",
        "PreferencePolicy",
        "`Respect` or `Ignore`: preferred affinities and `ScheduleAnyway` spreads",
    ),
    described(
        "MIN_VALUES_POLICY",
        "Strict",
        "MinValuesPolicy",
        "`Strict` or `BestEffort`: `minValues` of a NodePool's requirements",
    ),
    described(
        "IGNORE_DRA_REQUESTS",
        "true",
        "IgnoreDRARequests",
        "Whether pods with resource claims are planned as if they had none",
    ),
    described(
        "SCHEDULER_CONFIG",
        "",
        "",
        "Defaults of the cluster's own scheduler for topology spread, as in its configuration file",
    ),
    described(
        "VM_MEMORY_OVERHEAD_PERCENT",
        "0.075",
        "VMMemoryOverheadPercent",
        "Fraction of an instance's memory that the hypervisor takes, where the real figure is not known yet",
    ),
    described(
        "RESERVED_ENIS",
        "0",
        "ReservedENIs",
        "Network interfaces that are left out when pods per node are counted",
    ),
    described(
        "ISOLATED_VPC",
        "false",
        "IsolatedVPC",
        "No price list and no clean-up of instance profiles: neither service can be reached",
    ),
    described(
        "EKS_CONTROL_PLANE",
        "false",
        "",
        "Accepted for compatibility; the end point is always asked of EKS when it is not given",
    ),
    described(
        "DISABLE_DRY_RUN",
        "false",
        "DisableDryRun",
        "No dry runs of CreateFleet, RunInstances and CreateLaunchTemplate when an EC2NodeClass is validated",
    ),
    described(
        "DISABLE_CLUSTER_STATE_OBSERVABILITY",
        "false",
        "DisableClusterStateObservability",
        "No gauges of nodes and NodePools, and no status metrics and events of NodeClaims, NodePools and Nodes",
    ),
    described(
        "OBJECT_GAUGES",
        "false",
        "ObjectGauges",
        "Gauges of every single node and pod, and of the conditions of every NodeClaim, NodePool and Node; each is a metric that CloudWatch charges for",
    ),
    described(
        "DEPRECATED_METRICS",
        "false",
        "DeprecatedMetrics",
        "The metrics of conditions and terminations also under their old names, `operator_status_condition_*` and `operator_termination_*` with labels `group` and `kind`",
    ),
    described(
        "ENABLE_ZONAL_SHIFT",
        "false",
        "EnableZonalShift",
        "Zones that the Application Recovery Controller shifts traffic away from are left alone; the cluster must be registered for zonal shift",
    ),
    described("AMI_REFRESH_INTERVAL", "1m", "", "How often images are resolved anew, at least 60s"),
    described(
        "SUBNET_REFRESH_INTERVAL",
        "1m",
        "",
        "How often subnets are resolved anew, at least 60s",
    ),
    described("AWS_REGION", "us-east-1", "", "Region; Lambda sets it"),
    described("AWS_ACCOUNT_ID", "", "", "Account; the stack sets it"),
    described(
        "SPOKESHAVE_EC2",
        "ec2",
        "EC2Mode",
        "`ec2`, or `kwok` for instances that exist only in the state table",
    ),
    described(
        "SPOKESHAVE_KWOK",
        "",
        "KwokProfile",
        "What goes wrong in KWOK mode, and how long things take: `join=30s,latency=80ms,throttle=true,short=spot:m5.large:us-west-2a`, `*` for any capacity type, type or zone",
    ),
    described(
        "SPOKESHAVE_OFFERING_METRICS",
        "false",
        "OfferingMetrics",
        "Price and availability of every offering of the NodePools as gauges: CloudWatch takes a fee for each of thousands of series",
    ),
    described(
        "SPOKESHAVE_CALL_METRICS",
        "false",
        "CallMetrics",
        "How many calls of AWS are made, how often each is tried, how long it takes and how it ends, by service and operation: CloudWatch takes a fee for each series",
    ),
    described(
        "SPOKESHAVE_LIFECYCLE_HOOKS",
        "false",
        "LifecycleHooks",
        "Nodes of Auto Scaling groups, managed or not, are drained when a lifecycle hook holds their instance before its termination, and the hook is answered",
    ),
    described(
        "SPOKESHAVE_HEARTBEAT_INTERVAL",
        "5m",
        "HeartbeatInterval",
        "How often such a hook is told that the drain still goes on, 30s to 1h; less than the hook's own time-out",
    ),
    described(
        "SPOKESHAVE_HEARTBEAT_UNTIL",
        "48h",
        "HeartbeatUntil",
        "For how long it is told so, 60s to 48h; the group goes on when the hook's time-out has passed after that",
    ),
];

/// The feature gates and whether each is on by default.
pub const GATES: &[(&str, bool, &str)] = &[
    ("NodeRepair", false, "nodes whose conditions say that they are broken are replaced"),
    ("ReservedCapacity", true, "capacity reservations that an EC2NodeClass selects are used first"),
    ("SpotToSpotConsolidation", false, "a spot node may be replaced by a cheaper spot node"),
    ("NodeOverlay", false, "NodeOverlays change prices and capacities of instance types"),
    ("StaticCapacity", false, "NodePools with `replicas` keep as many nodes, pods or no pods"),
    ("CapacityBuffer", false, "CapacityBuffers keep room for pods that do not exist yet"),
    (
        "NodeClassCEL",
        false,
        "expressions in `spec.kubelet` of an EC2NodeClass are evaluated for each instance type",
    ),
];

#[cfg(test)]
mod tests {
    use super::{super::Settings, *};

    #[test]
    fn every_setting_is_described_with_its_default() {
        let source = include_str!("../settings.rs");
        for it in ALL {
            let mut settings = Settings::default();
            assert_eq!(settings.set(it.name, it.default), Ok(true), "{}", it.name);
            assert_eq!(settings, Settings::default(), "{}", it.name);
        }
        // Arms of the one match over names.
        let arms = source.split("match name {").nth(1).expect("the match");
        let arms = arms.split("_ => return Ok(false)").next().expect("its end");
        for name in arms.split('"').filter(|it| {
            it.contains('_')
                && it.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_' || byte == b'2')
        }) {
            assert!(ALL.iter().any(|it| it.name == name), "{name} is not described");
        }
    }

    #[test] // lifecycle 37.1, case 1
    fn a_gate_that_is_not_named_keeps_its_default() {
        let mut settings = Settings::default();
        assert_eq!(settings.set("FEATURE_GATES", "SpotToSpotConsolidation=true"), Ok(true));
        let gates = settings.gates;
        assert!(gates.spot_to_spot_consolidation && gates.reserved_capacity);
        assert!(!gates.node_repair && !gates.static_capacity);
    }

    #[test] // aws-nodeclass 30: heartbeats every 30 to 3600 s, until 60 to 172800 s
    fn heartbeats_keep_to_what_auto_scaling_takes() {
        let mut settings = Settings::default();
        for (name, least, most) in [
            ("SPOKESHAVE_HEARTBEAT_INTERVAL", 30, 3_600),
            ("SPOKESHAVE_HEARTBEAT_UNTIL", 60, 172_800),
        ] {
            assert_eq!(settings.set(name, &format!("{least}s")), Ok(true), "{name}");
            assert_eq!(settings.set(name, &format!("{most}s")), Ok(true), "{name}");
            for wrong in [format!("{}s", least - 1), format!("{}s", most + 1), "soon".to_owned()] {
                let error = settings.set(name, &wrong).expect_err("out of bounds");
                let problem =
                    format!("must be a duration from {least}s to {most}s, such as 90s or 1h30m");
                assert_eq!(error.problem, problem, "{name}");
            }
        }
        assert_eq!(settings.heartbeat_interval.as_secs(), 3_600);
        assert_eq!(settings.heartbeat_until.as_secs(), 172_800);
    }

    #[test]
    fn every_gate_is_described_with_its_default() {
        for (name, default, _) in GATES {
            let mut gates = super::super::FeatureGates::default();
            gates.merge(&format!("{name}={default}")).expect("known");
            assert_eq!(gates, super::super::FeatureGates::default(), "{name}");
            gates.merge(&format!("{name}={}", !default)).expect("known");
            assert_ne!(gates, super::super::FeatureGates::default(), "{name} changes nothing");
        }
    }
}
