//! Step A: the types of the upstream kubelet configuration, strictly.
//!
//! Source: `kubelet.config.k8s.io/v1beta1` KubeletConfiguration of the Kubernetes libraries 0.36.3.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Problem, root};
use crate::{FieldPath, Quantity, duration::parse_go};

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
enum Type {
    Text,
    Bool,
    Int32,
    Int64,
    Float,
    /// A duration in Go form.
    Duration,
    /// A duration in Go form, or an integer.
    DurationOrInteger,
    /// A point in time, RFC 3339.
    Time,
    Quantity,
    Texts,
    Integers,
    TextMap,
    BoolMap,
    TextsMap,
    QuantityMap,
    Object(&'static [(&'static str, Type)]),
    Objects(&'static [(&'static str, Type)]),
}

use Type::{
    Bool, BoolMap, Duration, DurationOrInteger, Float, Int32, Int64, Integers, Object, Objects,
    QuantityMap, Text, TextMap, Texts, TextsMap, Time,
};

const AUTHENTICATION: &[(&str, Type)] = &[
    ("anonymous", Object(&[("enabled", Bool)])),
    ("webhook", Object(&[("cacheTTL", Duration), ("enabled", Bool)])),
    ("x509", Object(&[("clientCAFile", Text)])),
];

const AUTHORIZATION: &[(&str, Type)] = &[
    ("mode", Text),
    ("webhook", Object(&[("cacheAuthorizedTTL", Duration), ("cacheUnauthorizedTTL", Duration)])),
];

const LOG_BUFFER: &[(&str, Type)] = &[("infoBufferSize", Type::Quantity), ("splitStream", Bool)];

const LOGGING: &[(&str, Type)] = &[
    ("flushFrequency", DurationOrInteger),
    ("format", Text),
    ("options", Object(&[("json", Object(LOG_BUFFER)), ("text", Object(LOG_BUFFER))])),
    ("verbosity", Int64),
    ("vmodule", Objects(&[("filePattern", Text), ("verbosity", Int64)])),
];

const TAINT: &[(&str, Type)] =
    &[("effect", Text), ("key", Text), ("timeAdded", Time), ("value", Text)];

/// All top-level fields, sorted.
const FIELDS: &[(&str, Type)] = &[
    ("address", Text),
    ("allowedUnsafeSysctls", Texts),
    ("apiVersion", Text),
    ("authentication", Object(AUTHENTICATION)),
    ("authorization", Object(AUTHORIZATION)),
    ("cgroupDriver", Text),
    ("cgroupRoot", Text),
    ("cgroupsPerQOS", Bool),
    ("clusterDNS", Texts),
    ("clusterDomain", Text),
    ("configMapAndSecretChangeDetectionStrategy", Text),
    ("containerLogMaxFiles", Int32),
    ("containerLogMaxSize", Text),
    ("containerLogMaxWorkers", Int32),
    ("containerLogMonitorInterval", Duration),
    ("containerRuntimeEndpoint", Text),
    ("contentType", Text),
    ("cpuCFSQuota", Bool),
    ("cpuCFSQuotaPeriod", Duration),
    ("cpuManagerPolicy", Text),
    ("cpuManagerPolicyOptions", TextMap),
    ("cpuManagerReconcilePeriod", Duration),
    ("crashLoopBackOff", Object(&[("maxContainerRestartPeriod", Duration)])),
    ("enableContentionProfiling", Bool),
    ("enableControllerAttachDetach", Bool),
    ("enableDebugFlagsHandler", Bool),
    ("enableDebuggingHandlers", Bool),
    ("enableProfilingHandler", Bool),
    ("enableServer", Bool),
    ("enableSystemLogHandler", Bool),
    ("enableSystemLogQuery", Bool),
    ("enforceNodeAllocatable", Texts),
    ("eventBurst", Int32),
    ("eventRecordQPS", Int32),
    ("evictionHard", TextMap),
    ("evictionMaxPodGracePeriod", Int32),
    ("evictionMinimumReclaim", TextMap),
    ("evictionPressureTransitionPeriod", Duration),
    ("evictionSoft", TextMap),
    ("evictionSoftGracePeriod", TextMap),
    ("failCgroupV1", Bool),
    ("failSwapOn", Bool),
    ("featureGates", BoolMap),
    ("fileCheckFrequency", Duration),
    ("hairpinMode", Text),
    ("healthzBindAddress", Text),
    ("healthzPort", Int32),
    ("httpCheckFrequency", Duration),
    ("imageGCHighThresholdPercent", Int32),
    ("imageGCLowThresholdPercent", Int32),
    ("imageMaximumGCAge", Duration),
    ("imageMinimumGCAge", Duration),
    ("imagePullCredentialsVerificationPolicy", Text),
    ("imageServiceEndpoint", Text),
    ("iptablesDropBit", Int32),
    ("iptablesMasqueradeBit", Int32),
    ("kernelMemcgNotification", Bool),
    ("kind", Text),
    ("kubeAPIBurst", Int32),
    ("kubeAPIQPS", Int32),
    ("kubeReserved", TextMap),
    ("kubeReservedCgroup", Text),
    ("kubeletCgroups", Text),
    ("localStorageCapacityIsolation", Bool),
    ("logging", Object(LOGGING)),
    ("makeIPTablesUtilChains", Bool),
    ("maxOpenFiles", Int64),
    ("maxParallelImagePulls", Int32),
    ("maxPods", Int32),
    ("memoryManagerPolicy", Text),
    ("memoryReservationPolicy", Text),
    ("memorySwap", Object(&[("swapBehavior", Text)])),
    ("memoryThrottlingFactor", Float),
    ("mergeDefaultEvictionSettings", Bool),
    ("nodeLeaseDurationSeconds", Int32),
    ("nodeStatusMaxImages", Int32),
    ("nodeStatusReportFrequency", Duration),
    ("nodeStatusUpdateFrequency", Duration),
    ("oomScoreAdj", Int32),
    ("podCIDR", Text),
    ("podLogsDir", Text),
    ("podPidsLimit", Int64),
    ("podsPerCore", Int32),
    ("port", Int32),
    ("preloadedImagesVerificationAllowlist", Texts),
    ("protectKernelDefaults", Bool),
    ("providerID", Text),
    ("qosReserved", TextMap),
    ("readOnlyPort", Int32),
    ("registerNode", Bool),
    ("registerWithTaints", Objects(TAINT)),
    ("registryBurst", Int32),
    ("registryPullQPS", Int32),
    ("reservedMemory", Objects(&[("numaNode", Int32), ("limits", QuantityMap)])),
    ("reservedSystemCPUs", Text),
    ("resolvConf", Text),
    ("rotateCertificates", Bool),
    ("runOnce", Bool),
    ("runtimeRequestTimeout", Duration),
    ("seccompDefault", Bool),
    ("serializeImagePulls", Bool),
    ("serverTLSBootstrap", Bool),
    ("showHiddenMetricsForVersion", Text),
    ("shutdownGracePeriod", Duration),
    (
        "shutdownGracePeriodByPodPriority",
        Objects(&[("priority", Int32), ("shutdownGracePeriodSeconds", Int64)]),
    ),
    ("shutdownGracePeriodCriticalPods", Duration),
    ("singleProcessOOMKill", Bool),
    ("staticPodPath", Text),
    ("staticPodURL", Text),
    ("staticPodURLHeader", TextsMap),
    ("streamingConnectionIdleTimeout", Duration),
    ("syncFrequency", Duration),
    ("systemCgroups", Text),
    ("systemReserved", TextMap),
    ("systemReservedCgroup", Text),
    ("tlsCertFile", Text),
    ("tlsCipherSuites", Texts),
    ("tlsCurvePreferences", Integers),
    ("tlsMinVersion", Text),
    ("tlsPrivateKeyFile", Text),
    ("topologyManagerPolicy", Text),
    ("topologyManagerPolicyOptions", TextMap),
    ("topologyManagerScope", Text),
    ("tracing", Object(&[("endpoint", Text), ("samplingRatePerMillion", Int32)])),
    ("userNamespaces", Object(&[("idsPerPod", Int64)])),
    ("volumePluginDir", Text),
    ("volumeStatsAggPeriod", Duration),
];

/// The type mismatch that stops the decoding, or every unknown field. A text in `maxPods` is an expression.
pub(super) fn problems(settings: &BTreeMap<String, Value>) -> Vec<Problem> {
    let mut unknown = Vec::new();
    for (key, value) in settings {
        let path = FieldPath::root().field(key);
        let checked = match FIELDS.iter().find(|(name, _)| name == key) {
            None => {
                unknown.push(path);
                Ok(())
            }
            Some(_) if key == "maxPods" && value.is_string() => Ok(()),
            Some((_, wanted)) => check(*wanted, value, &path, &mut unknown),
        };
        if let Err((path, wanted)) = checked {
            let message = format!("spec.kubelet: {path}: must be {wanted}");
            return vec![Problem::new(whole(&path), message)];
        }
    }
    let problem = |path: FieldPath| {
        Problem::new(whole(&path), format!("spec.kubelet: unknown field {:?}", path.to_string()))
    };
    unknown.into_iter().map(problem).collect()
}

fn whole(path: &FieldPath) -> FieldPath {
    let mut whole = root();
    whole.0.extend(path.0.iter().cloned());
    whole
}

type Mismatch = (FieldPath, &'static str);

fn check(
    wanted: Type,
    value: &Value,
    path: &FieldPath,
    unknown: &mut Vec<FieldPath>,
) -> Result<(), Mismatch> {
    if value.is_null() {
        return Ok(());
    }
    let must = |holds: bool, wanted: &'static str| {
        if holds { Ok(()) } else { Err((path.clone(), wanted)) }
    };
    let is_duration = |it: &Value| it.as_str().is_some_and(|it| parse_go(it).is_some());
    match wanted {
        Text => must(value.is_string(), "a string"),
        Bool => must(value.is_boolean(), "a boolean"),
        Int32 => {
            let fits = value.as_i64().is_some_and(|it| i32::try_from(it).is_ok());
            must(fits, "a 32-bit integer")
        }
        Int64 => must(value.is_i64(), "a 64-bit integer"),
        Float => must(value.is_number(), "a number"),
        Duration => must(is_duration(value), "a duration string such as 1m30s"),
        DurationOrInteger => must(
            value.is_i64() || is_duration(value),
            "a duration string such as 5s, or an integer",
        ),
        Time => {
            let holds = value.as_str().is_some_and(|it| it.parse::<jiff::Timestamp>().is_ok());
            must(holds, "a time such as 2026-01-01T00:00:00Z")
        }
        Type::Quantity => {
            let holds = value.is_number()
                || value.as_str().is_some_and(|it| it.parse::<Quantity>().is_ok());
            must(holds, "a quantity such as 1Gi")
        }
        Texts => each(value, "a list of strings", Text, path, unknown),
        Integers => each(value, "a list of integers", Int32, path, unknown),
        TextMap => entries(value, "a map of strings", Text, path, unknown),
        BoolMap => entries(value, "a map of booleans", Bool, path, unknown),
        TextsMap => entries(value, "a map of lists of strings", Texts, path, unknown),
        QuantityMap => entries(value, "a map of quantities", Type::Quantity, path, unknown),
        Object(fields) => object(value, fields, path, unknown),
        Objects(fields) => each(value, "a list of objects", Object(fields), path, unknown),
    }
}

fn each(
    value: &Value,
    wanted: &'static str,
    of: Type,
    path: &FieldPath,
    unknown: &mut Vec<FieldPath>,
) -> Result<(), Mismatch> {
    let items = value.as_array().ok_or_else(|| (path.clone(), wanted))?;
    items.iter().enumerate().try_for_each(|(at, item)| check(of, item, &path.index(at), unknown))
}

fn entries(
    value: &Value,
    wanted: &'static str,
    of: Type,
    path: &FieldPath,
    unknown: &mut Vec<FieldPath>,
) -> Result<(), Mismatch> {
    let entries = value.as_object().ok_or_else(|| (path.clone(), wanted))?;
    entries.iter().try_for_each(|(key, item)| check(of, item, &path.field(key), unknown))
}

fn object(
    value: &Value,
    fields: &[(&str, Type)],
    path: &FieldPath,
    unknown: &mut Vec<FieldPath>,
) -> Result<(), Mismatch> {
    let entries = value.as_object().ok_or_else(|| (path.clone(), "an object"))?;
    for (key, item) in entries {
        let path = path.field(key);
        match fields.iter().find(|(name, _)| name == key) {
            None => unknown.push(path),
            Some((_, wanted)) => check(*wanted, item, &path, unknown)?,
        }
    }
    Ok(())
}
