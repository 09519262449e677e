//! Settings by their environment names, and feature gates. Reading the environment is the caller's work.

pub mod registry;

use jiff::SignedDuration;

use crate::duration::parse_go;

/// `FEATURE_GATES` and `AWS_FEATURE_GATES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    pub node_repair: bool,
    pub reserved_capacity: bool,
    pub spot_to_spot_consolidation: bool,
    pub node_overlay: bool,
    pub static_capacity: bool,
    pub capacity_buffer: bool,
    pub node_class_cel: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            node_repair: false,
            reserved_capacity: true,
            spot_to_spot_consolidation: false,
            node_overlay: false,
            static_capacity: false,
            capacity_buffer: false,
            node_class_cel: false,
        }
    }
}

impl FeatureGates {
    /// Merges `Name=true,Name2=false` over these gates. Unknown names are ignored.
    ///
    /// # Errors
    /// An entry without `=`, or with a value that is no boolean word.
    pub fn merge(&mut self, text: &str) -> Result<(), SettingError> {
        for entry in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let malformed = || SettingError {
                name: "FEATURE_GATES".into(),
                value: text.into(),
                problem: format!("{entry:?} is not Name=true or Name=false"),
            };
            let (name, value) = entry.split_once('=').ok_or_else(malformed)?;
            let value = parse_bool(value.trim()).ok_or_else(malformed)?;
            match name.trim() {
                "NodeRepair" => self.node_repair = value,
                "ReservedCapacity" => self.reserved_capacity = value,
                "SpotToSpotConsolidation" => self.spot_to_spot_consolidation = value,
                "NodeOverlay" => self.node_overlay = value,
                "StaticCapacity" => self.static_capacity = value,
                "CapacityBuffer" => self.capacity_buffer = value,
                "NodeClassCEL" => self.node_class_cel = value,
                _ => {}
            }
        }
        Ok(())
    }
}

/// `PREFERENCE_POLICY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreferencePolicy {
    #[default]
    Respect,
    Ignore,
}

/// `MIN_VALUES_POLICY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinValuesPolicy {
    #[default]
    Strict,
    BestEffort,
}

/// Everything that can be set, with Karpenter's defaults. Environment names are Karpenter's.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub cluster_name: String,
    pub cluster_endpoint: String,
    pub cluster_ca_bundle: String,
    pub isolated_vpc: bool,
    pub eks_control_plane: bool,
    /// A fraction, not a percentage.
    pub vm_memory_overhead_percent: f64,
    pub interruption_queue: String,
    pub reserved_enis: i64,
    pub disable_dry_run: bool,
    /// Neither gauges of nodes and NodePools nor the status metrics and events of NodeClaims, NodePools and Nodes.
    pub disable_cluster_state_observability: bool,
    /// Gauges of every single node, and of the conditions of every NodeClaim, NodePool and Node.
    pub object_gauges: bool,
    /// Status metrics also under the names that they had before.
    pub deprecated_metrics: bool,
    pub enable_zonal_shift: bool,
    pub ami_refresh_interval: SignedDuration,
    pub subnet_refresh_interval: SignedDuration,
    pub batch_max_duration: SignedDuration,
    pub batch_idle_duration: SignedDuration,
    pub preference_policy: PreferencePolicy,
    pub min_values_policy: MinValuesPolicy,
    pub ignore_dra_requests: bool,
    pub scheduler_config: String,
    pub gates: FeatureGates,
    /// Ours: AWS region and account of the stack; `aws`, `aws-cn` and so on in ARNs follow from the region.
    pub region: String,
    pub account_id: String,
    /// Ours: `ec2` (default) or `kwok`.
    pub ec2_mode: String,
    /// Ours: what goes wrong in a made-up EC2, and how long things take; empty: nothing, and as Karpenter's.
    pub kwok: String,
    /// Ours: gauges of every offering of the NodePools. CloudWatch takes a fee for each of the thousands of series.
    pub offering_metrics: bool,
    /// Ours: calls of AWS by service and operation. CloudWatch takes a fee for each series.
    pub call_metrics: bool,
    /// Ours: nodes of Auto Scaling groups are drained when a lifecycle hook holds their instance on its way out.
    pub lifecycle_hooks: bool,
    /// Ours: how often such a group hears that a drain still goes on; 30 s to 1 h.
    pub heartbeat_interval: SignedDuration,
    /// Ours: for how long it does; 1 min to 48 h, beyond which no hook waits.
    pub heartbeat_until: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster_name: String::new(),
            cluster_endpoint: String::new(),
            cluster_ca_bundle: String::new(),
            isolated_vpc: false,
            eks_control_plane: false,
            vm_memory_overhead_percent: 0.075,
            interruption_queue: String::new(),
            reserved_enis: 0,
            disable_dry_run: false,
            disable_cluster_state_observability: false,
            object_gauges: false,
            deprecated_metrics: false,
            enable_zonal_shift: false,
            ami_refresh_interval: SignedDuration::from_mins(1),
            subnet_refresh_interval: SignedDuration::from_mins(1),
            batch_max_duration: SignedDuration::from_secs(10),
            batch_idle_duration: SignedDuration::from_secs(1),
            preference_policy: PreferencePolicy::Respect,
            min_values_policy: MinValuesPolicy::Strict,
            ignore_dra_requests: true,
            scheduler_config: String::new(),
            gates: FeatureGates::default(),
            region: "us-east-1".into(),
            account_id: String::new(),
            ec2_mode: "ec2".into(),
            kwok: String::new(),
            offering_metrics: false,
            call_metrics: false,
            lifecycle_hooks: false,
            heartbeat_interval: SignedDuration::from_mins(5),
            heartbeat_until: SignedDuration::from_hours(48),
        }
    }
}

/// A setting cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting {name}: {value:?}: {problem}")]
pub struct SettingError {
    pub name: String,
    pub value: String,
    pub problem: String,
}

/// The name of a queue that is given by name, URL or ARN: up to 80 letters, digits, `-` and `_`, and `.fifo` at the end
/// of some. Empty stays empty.
fn queue_name(text: &str) -> Option<String> {
    let name = if let Some(rest) = text.strip_prefix("arn:") {
        let mut parts = rest.split(':');
        let service = parts.nth(1)?;
        let name = parts.nth(2).filter(|it| !it.is_empty() && service == "sqs")?;
        parts.next().is_none().then_some(name)?
    } else if let Some((_, rest)) = text.split_once("://") {
        let mut parts = rest.split('/');
        let name = parts.nth(2).filter(|it| !it.is_empty())?;
        parts.next().is_none().then_some(name)?
    } else {
        text
    };
    let plain = name.strip_suffix(".fifo").unwrap_or(name);
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (name.len() <= 80 && plain.chars().all(allowed)).then(|| name.to_owned())
}

impl Settings {
    /// Sets one by its environment name. Returns whether the name is known.
    ///
    /// # Errors
    /// A text that does not parse, or a value that breaks the setting's rule.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, SettingError> {
        let wrong = |problem: &str| SettingError {
            name: name.to_owned(),
            value: value.to_owned(),
            problem: problem.to_owned(),
        };
        let boolean = || parse_bool(value).ok_or_else(|| wrong("must be true or false"));
        let duration = |least: i64| {
            parse_go(value).filter(|it| it.as_secs() >= least && !it.is_negative()).ok_or_else(
                || wrong(&format!("must be a duration of at least {least}s, such as 90s or 1h30m")),
            )
        };
        let between = |least: i64, most: i64| {
            parse_go(value).filter(|it| (least..=most).contains(&it.as_secs())).ok_or_else(|| {
                wrong(&format!("must be a duration from {least}s to {most}s, such as 90s or 1h30m"))
            })
        };
        match name {
            "CLUSTER_NAME" => self.cluster_name = value.to_owned(),
            "CLUSTER_ENDPOINT" => {
                let host = value.split_once("://").map(|(_, rest)| rest.trim_start_matches('/'));
                if !value.is_empty() && host.is_none_or(str::is_empty) {
                    return Err(wrong("must be an absolute URL with a host"));
                }
                self.cluster_endpoint = value.to_owned();
            }
            "CLUSTER_CA_BUNDLE" => self.cluster_ca_bundle = value.to_owned(),
            "ISOLATED_VPC" => self.isolated_vpc = boolean()?,
            "EKS_CONTROL_PLANE" => self.eks_control_plane = boolean()?,
            "VM_MEMORY_OVERHEAD_PERCENT" => {
                self.vm_memory_overhead_percent = value
                    .parse()
                    .ok()
                    .filter(|it: &f64| it.is_finite() && *it >= 0.0)
                    .ok_or_else(|| {
                        wrong("vm-memory-overhead-percent must be a fraction >= 0, such as 0.075")
                    })?;
            }
            "INTERRUPTION_QUEUE" => {
                self.interruption_queue = queue_name(value).ok_or_else(|| {
                    wrong("must be the name, the URL or the ARN of an SQS queue, or empty")
                })?;
            }
            "RESERVED_ENIS" => {
                self.reserved_enis = value
                    .parse()
                    .ok()
                    .filter(|it| *it >= 0)
                    .ok_or_else(|| wrong("reserved-enis must be an integer >= 0"))?;
            }
            "DISABLE_DRY_RUN" => self.disable_dry_run = boolean()?,
            "DISABLE_CLUSTER_STATE_OBSERVABILITY" => {
                self.disable_cluster_state_observability = boolean()?;
            }
            "OBJECT_GAUGES" => self.object_gauges = boolean()?,
            "DEPRECATED_METRICS" => self.deprecated_metrics = boolean()?,
            "ENABLE_ZONAL_SHIFT" => self.enable_zonal_shift = boolean()?,
            "AMI_REFRESH_INTERVAL" => self.ami_refresh_interval = duration(60)?,
            "SUBNET_REFRESH_INTERVAL" => self.subnet_refresh_interval = duration(60)?,
            "BATCH_MAX_DURATION" => self.batch_max_duration = duration(0)?,
            "BATCH_IDLE_DURATION" => self.batch_idle_duration = duration(0)?,
            "PREFERENCE_POLICY" => {
                self.preference_policy = match value {
                    "Respect" => PreferencePolicy::Respect,
                    "Ignore" => PreferencePolicy::Ignore,
                    _ => return Err(wrong("must be Respect or Ignore")),
                };
            }
            "MIN_VALUES_POLICY" => {
                self.min_values_policy = match value {
                    "Strict" => MinValuesPolicy::Strict,
                    "BestEffort" => MinValuesPolicy::BestEffort,
                    _ => return Err(wrong("must be Strict or BestEffort")),
                };
            }
            "IGNORE_DRA_REQUESTS" => self.ignore_dra_requests = boolean()?,
            "SCHEDULER_CONFIG" => self.scheduler_config = value.to_owned(),
            "FEATURE_GATES" | "AWS_FEATURE_GATES" => {
                self.gates
                    .merge(value)
                    .map_err(|error| SettingError { name: name.to_owned(), ..error })?;
            }
            "AWS_REGION" => self.region = value.to_owned(),
            "AWS_ACCOUNT_ID" => self.account_id = value.to_owned(),
            "SPOKESHAVE_EC2" => {
                if !matches!(value, "ec2" | "kwok") {
                    return Err(wrong("must be ec2 or kwok"));
                }
                self.ec2_mode = value.to_owned();
            }
            "SPOKESHAVE_KWOK" => self.kwok = value.to_owned(),
            "SPOKESHAVE_OFFERING_METRICS" => self.offering_metrics = boolean()?,
            "SPOKESHAVE_CALL_METRICS" => self.call_metrics = boolean()?,
            "SPOKESHAVE_LIFECYCLE_HOOKS" => self.lifecycle_hooks = boolean()?,
            "SPOKESHAVE_HEARTBEAT_INTERVAL" => self.heartbeat_interval = between(30, 3_600)?,
            "SPOKESHAVE_HEARTBEAT_UNTIL" => self.heartbeat_until = between(60, 172_800)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The cluster's ARN.
    pub fn cluster_arn(&self) -> String {
        let partition = self.partition();
        format!(
            "arn:{partition}:eks:{}:{}:cluster/{}",
            self.region, self.account_id, self.cluster_name
        )
    }

    /// The partition of the region, as ARNs name it.
    pub fn partition(&self) -> &'static str {
        match self.region.split('-').take(2).collect::<Vec<_>>().as_slice() {
            ["cn", ..] => "aws-cn",
            ["us", "gov"] => "aws-us-gov",
            ["us", "iso"] => "aws-iso",
            ["us", "isob"] => "aws-iso-b",
            ["eu", "isoe"] => "aws-iso-e",
            ["us", "isof"] => "aws-iso-f",
            ["eusc", ..] => "aws-eusc",
            _ => "aws",
        }
    }
}

/// `1 t T true True TRUE 0 f F false False FALSE`, as Karpenter's variables accept.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}
