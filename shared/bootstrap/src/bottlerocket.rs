//! Bottlerocket: settings in TOML (`spec` aws-nodeclass 12).

use std::collections::BTreeMap;

use spokeshave_model::{Alias, EC2NodeClass};
use toml::{Table, Value};

use crate::{
    BootstrapInput, RenderError,
    kubelet::Managed,
    toml_text::{self, Entries, Node},
};

/// Type of a known key of `settings.kubernetes`.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Integer,
    Unsigned32,
    Boolean,
    Texts,
    TextMap,
    TextsMap,
    /// Tables by name, each with these keys.
    Structs(&'static [(&'static str, Kind)]),
    /// One table with these keys.
    Struct(&'static [(&'static str, Kind)]),
}

const CREDENTIAL_PROVIDER: &[(&str, Kind)] = &[
    ("enabled", Kind::Boolean),
    ("cache-duration", Kind::Text),
    ("image-patterns", Kind::Texts),
    ("environment", Kind::TextMap),
];
const STATIC_POD: &[(&str, Kind)] = &[("enabled", Kind::Boolean), ("manifest", Kind::Text)];
const RESERVED_MEMORY: &[(&str, Kind)] = &[
    ("enabled", Kind::Boolean),
    ("memory", Kind::Text),
    ("hugepages-2Mi", Kind::Text),
    ("hugepages-1Gi", Kind::Text),
];
const TOPOLOGY_OPTIONS: &[(&str, Kind)] =
    &[("prefer-closest-numa-nodes", Kind::Boolean), ("max-allowable-numa-nodes", Kind::Integer)];

/// The keys of `settings.kubernetes` that are read and written, in the order they are written.
const KUBERNETES: &[(&str, Kind)] = &[
    ("api-server", Kind::Text),
    ("cloud-provider", Kind::Text),
    ("cluster-certificate", Kind::Text),
    ("cluster-name", Kind::Text),
    ("cluster-dns-ip", Kind::Text),
    ("credential-providers", Kind::Structs(CREDENTIAL_PROVIDER)),
    ("node-labels", Kind::TextMap),
    ("node-taints", Kind::TextsMap),
    ("max-pods", Kind::Integer),
    ("static-pods", Kind::Structs(STATIC_POD)),
    ("eviction-hard", Kind::TextMap),
    ("eviction-soft", Kind::TextMap),
    ("eviction-soft-grace-period", Kind::TextMap),
    ("eviction-max-pod-grace-period", Kind::Integer),
    ("kube-reserved", Kind::TextMap),
    ("system-reserved", Kind::TextMap),
    ("allowed-unsafe-sysctls", Kind::Texts),
    ("server-tls-bootstrap", Kind::Boolean),
    ("registry-qps", Kind::Integer),
    ("registry-burst", Kind::Integer),
    ("event-qps", Kind::Integer),
    ("event-burst", Kind::Integer),
    ("kube-api-qps", Kind::Integer),
    ("kube-api-burst", Kind::Integer),
    ("container-log-max-size", Kind::Text),
    ("container-log-max-files", Kind::Integer),
    ("cpu-manager-policy", Kind::Text),
    ("cpu-manager-policy-options", Kind::Texts),
    ("cpu-manager-reconcile-period", Kind::Text),
    ("memory-manager-policy", Kind::Text),
    ("memory-manager-reserved-memory", Kind::Structs(RESERVED_MEMORY)),
    ("topology-manager-scope", Kind::Text),
    ("topology-manager-policy", Kind::Text),
    ("topology-manager-policy-options", Kind::Struct(TOPOLOGY_OPTIONS)),
    ("image-gc-high-threshold-percent", Kind::Text),
    ("image-gc-low-threshold-percent", Kind::Text),
    ("ids-per-pod", Kind::Integer),
    ("cpu-cfs-quota-enforced", Kind::Boolean),
    ("shutdown-grace-period", Kind::Text),
    ("shutdown-grace-period-for-critical-pods", Kind::Text),
    ("cluster-domain", Kind::Text),
    ("seccomp-default", Kind::Boolean),
    ("pod-pids-limit", Kind::Integer),
    ("device-ownership-from-security-context", Kind::Boolean),
    ("single-process-oom-kill", Kind::Boolean),
    ("container-log-max-workers", Kind::Integer),
    ("container-log-monitor-interval", Kind::Text),
    ("hostname-override-source", Kind::Text),
    ("log-level", Kind::Unsigned32),
];

const COMMAND: &[(&str, Kind)] = &[
    ("commands", Kind::Texts), // Lists of lists: see `command_lists`.
    ("mode", Kind::Text),
    ("essential", Kind::Boolean),
];

/// Name of the bootstrap command that makes one volume of the instance store.
const MOUNT_INSTANCE_STORAGE: &str = "000-mount-instance-storage";

fn wrong_type(path: &str, wanted: &str) -> RenderError {
    RenderError::Toml(format!("{path} must be {wanted}"))
}

/// Checks `value` against `kind`; keys of structs that are not known vanish.
fn check(path: &str, value: Value, kind: Kind) -> Result<Value, RenderError> {
    let strings =
        |value: &Value| value.as_array().is_some_and(|items| items.iter().all(Value::is_str));
    let ok = match kind {
        Kind::Text => value.is_str(),
        Kind::Integer => value.is_integer(),
        Kind::Unsigned32 => value.as_integer().is_some_and(|it| u32::try_from(it).is_ok()),
        Kind::Boolean => value.is_bool(),
        Kind::Texts => strings(&value),
        Kind::TextMap => value.as_table().is_some_and(|it| it.values().all(Value::is_str)),
        Kind::TextsMap => value.as_table().is_some_and(|it| it.values().all(strings)),
        Kind::Structs(_) | Kind::Struct(_) => value.is_table(),
    };
    if !ok {
        let wanted = match kind {
            Kind::Text => "a string",
            Kind::Integer => "an integer",
            Kind::Unsigned32 => "an integer from 0 to 4294967295",
            Kind::Boolean => "a boolean",
            Kind::Texts => "a list of strings",
            Kind::TextMap => "a table of strings",
            Kind::TextsMap => "a table of lists of strings",
            Kind::Structs(_) | Kind::Struct(_) => "a table",
        };
        return Err(wrong_type(path, wanted));
    }
    match (value, kind) {
        (Value::Table(table), Kind::Struct(fields)) => {
            Ok(Value::Table(known(path, table, fields)?.into_iter().collect()))
        }
        (Value::Table(table), Kind::Structs(fields)) => {
            let mut checked = Table::new();
            for (name, value) in table {
                let path = format!("{path}.{name}");
                checked.insert(name, check(&path, value, Kind::Struct(fields))?);
            }
            Ok(Value::Table(checked))
        }
        (value, _) => Ok(value),
    }
}

/// The known keys of a table, checked.
fn known(
    path: &str,
    mut table: Table,
    fields: &[(&str, Kind)],
) -> Result<BTreeMap<String, Value>, RenderError> {
    let mut found = BTreeMap::new();
    for (key, kind) in fields {
        if let Some(value) = table.remove(*key) {
            found.insert((*key).to_owned(), check(&format!("{path}.{key}"), value, *kind)?);
        }
    }
    Ok(found)
}

/// One bootstrap command: `commands` (a list of lists of strings), `mode`, `essential`.
fn command(path: &str, value: Value) -> Result<Entries, RenderError> {
    let Value::Table(mut table) = value else { return Err(wrong_type(path, "a table")) };
    let mut entries = Vec::new();
    for (key, kind) in COMMAND {
        let Some(value) = table.remove(*key) else { continue };
        let path = format!("{path}.{key}");
        let value = match (*kind, value) {
            (Kind::Texts, Value::Array(lists)) => {
                for list in &lists {
                    check(&path, list.clone(), Kind::Texts)
                        .map_err(|_| wrong_type(&path, "a list of lists of strings"))?;
                }
                Value::Array(lists)
            }
            (Kind::Texts, _) => return Err(wrong_type(&path, "a list of lists of strings")),
            (kind, value) => check(&path, value, kind)?,
        };
        entries.push(((*key).to_owned(), Node::Value(value)));
    }
    Ok(entries)
}

fn texts(items: &[&str]) -> Value {
    Value::Array(items.iter().map(|&it| Value::from(it)).collect())
}

fn text_map(map: &BTreeMap<String, String>) -> Value {
    Value::Table(map.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect())
}

/// Puts the disks of the instance store together before anything uses them. Images before 1.46.0 must be told which
/// directories to move.
fn mount_instance_storage(image_version: &str) -> Entries {
    let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
    if !is_at_least_1_46(image_version) {
        bind.extend(["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]);
    }
    let commands =
        Value::Array(vec![texts(&["apiclient", "ephemeral-storage", "init"]), texts(&bind)]);
    vec![
        ("commands".into(), Node::Value(commands)),
        ("mode".into(), Node::Value("always".into())),
        ("essential".into(), Node::Value(true.into())),
    ]
}

pub(crate) fn render(input: &BootstrapInput) -> Result<String, RenderError> {
    let text = input.user_data.as_deref().unwrap_or_default();
    let mut document: Table =
        toml::from_str(text).map_err(|error| RenderError::Toml(error.message().to_owned()))?;
    let mut settings = match document.remove("settings") {
        None => Table::new(),
        Some(Value::Table(settings)) => settings,
        Some(_) => return Err(wrong_type("settings", "a table")),
    };
    let kubernetes = match settings.remove("kubernetes") {
        None => Table::new(),
        Some(Value::Table(kubernetes)) => kubernetes,
        Some(_) => return Err(wrong_type("settings.kubernetes", "a table")),
    };
    let mut commands: BTreeMap<String, Node> = BTreeMap::new();
    match settings.remove("bootstrap-commands") {
        None => {}
        Some(Value::Table(table)) => {
            for (name, value) in table {
                let path = format!("settings.bootstrap-commands.{name}");
                commands.insert(name, Node::Table(command(&path, value)?));
            }
        }
        Some(_) => return Err(wrong_type("settings.bootstrap-commands", "a table")),
    }
    if input.raid0 {
        let mount = mount_instance_storage(&input.image_version);
        commands.insert(MOUNT_INSTANCE_STORAGE.into(), Node::Table(mount));
    }

    let mut known = known("settings.kubernetes", kubernetes, KUBERNETES)?;
    set_ours(&mut known, input);
    let kubernetes: Entries = KUBERNETES
        .iter()
        .filter_map(|(key, _)| Some(((*key).to_owned(), known.remove(*key)?)))
        .filter(|(_, value)| value.as_table().is_none_or(|table| !table.is_empty()))
        .map(|(key, value)| (key, Node::from(value)))
        .collect();

    let mut entries = toml_text::sorted(settings);
    if !commands.is_empty() {
        entries.push(("bootstrap-commands".into(), Node::Table(commands.into_iter().collect())));
    }
    entries.push(("kubernetes".into(), Node::Table(kubernetes)));
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(toml_text::document("settings", &entries))
}

/// Sets what we know of the node over what the user wrote.
fn set_ours(known: &mut BTreeMap<String, Value>, input: &BootstrapInput) {
    let cluster = &input.cluster;
    let settings = Managed::read(&input.kubelet);
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            known.insert(key.to_owned(), value);
        }
    };
    set("cluster-name", Some(cluster.name.as_str().into()));
    set("api-server", Some(cluster.endpoint.as_str().into()));
    set("max-pods", settings.max_pods.map(Value::from));
    set("cluster-dns-ip", settings.dns().map(Value::from));
    let amounts = |map: &BTreeMap<String, String>| (!map.is_empty()).then(|| text_map(map));
    set("system-reserved", amounts(&settings.system_reserved));
    set("kube-reserved", amounts(&settings.kube_reserved));
    set("eviction-hard", amounts(&settings.eviction_hard));
    set("eviction-soft", amounts(&settings.eviction_soft));
    set("eviction-soft-grace-period", amounts(&settings.eviction_soft_grace_period));
    set("eviction-max-pod-grace-period", settings.eviction_max_pod_grace_period.map(Value::from));
    let percent = |it: Option<i64>| it.map(|it| Value::from(it.to_string()));
    set("image-gc-high-threshold-percent", percent(settings.image_gc_high_threshold_percent));
    set("image-gc-low-threshold-percent", percent(settings.image_gc_low_threshold_percent));
    set("cpu-cfs-quota-enforced", settings.cpu_cfs_quota.map(Value::from));

    if cluster.ca_bundle.is_empty() {
        known.remove("cluster-certificate");
    } else {
        known.insert("cluster-certificate".into(), cluster.ca_bundle.as_str().into());
    }
    let mut labels = match known.remove("node-labels") {
        Some(Value::Table(labels)) => labels,
        _ => Table::new(),
    };
    for (key, value) in &input.labels {
        labels.insert(key.clone(), value.as_str().into());
    }
    known.insert("node-labels".into(), Value::Table(labels));
    let mut taints: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for taint in &input.taints {
        let text = format!("{}:{:?}", taint.value, taint.effect);
        taints.entry(&taint.key).or_default().push(text.into());
    }
    let taints = taints.into_iter().map(|(key, list)| (key.to_owned(), Value::Array(list)));
    known.insert("node-taints".into(), Value::Table(taints.collect()));
}

/// The version of the images that a class resolves to; empty when nothing tells.
pub fn image_version(class: &EC2NodeClass) -> String {
    let terms = &class.spec.ami_selector_terms;
    let images = &class.status.amis;
    let is_bottlerocket = |name: &str| name.contains("bottlerocket");
    let from_alias = || {
        let alias = Alias::parse(class.spec.alias()?)?;
        Some(alias.version)
    };
    let from_name = || terms.iter().find_map(|it| version_in_name(it.name.as_deref()?));
    let from_id = || {
        let mut ids = terms.iter().filter_map(|it| it.id.as_deref());
        ids.find_map(|id| {
            let image = images.iter().find(|it| it.id == id && is_bottlerocket(&it.name))?;
            version_in_name(&image.name)
        })
    };
    let from_any = || {
        let mut names = images.iter().map(|it| it.name.as_str()).filter(|it| is_bottlerocket(it));
        names.find_map(version_in_name)
    };
    from_alias().or_else(from_name).or_else(from_id).or_else(from_any).unwrap_or_default()
}

/// The first piece between dashes that begins with `v` and has a dot.
fn version_in_name(name: &str) -> Option<String> {
    name.split('-').find(|it| it.starts_with('v') && it.contains('.')).map(str::to_owned)
}

/// Whether an image of this version finds the directories to bind by itself.
fn is_at_least_1_46(version: &str) -> bool {
    if version == "latest" {
        return true;
    }
    let parts: Vec<&str> = version.trim_start_matches('v').split('.').collect();
    let [major, minor, _, ..] = parts.as_slice() else { return false };
    match (major.parse::<u32>(), minor.parse::<u32>()) {
        (Ok(major), Ok(minor)) => major > 1 || (major == 1 && minor >= 46),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_model::ec2_node_class::{AmiSelectorTerm, AmiStatus};

    use super::*;

    #[test] // aws-nodeclass 12, case 6
    fn versions() {
        for (version, want) in [
            ("1.45.0", false),
            ("v1.46.0", true),
            ("1.46", false),
            ("2.0.0", true),
            ("latest", true),
            ("abc.def.ghi", false),
            ("", false),
            ("vv1.46.1", true),
        ] {
            assert_eq!(is_at_least_1_46(version), want, "{version}");
        }
        let name = "bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a";
        assert_eq!(version_in_name(name).as_deref(), Some("v1.46.0"));
    }

    #[test]
    fn the_version_of_a_class() {
        let name = |version: &str| format!("bottlerocket-aws-k8s-1.33-x86_64-{version}-431fe75a");
        let image =
            |id: &str, name: String| AmiStatus { id: id.into(), name, ..AmiStatus::default() };
        let mut class = EC2NodeClass::default();
        assert_eq!(image_version(&class), "");
        class.status.amis = vec![
            image("ami-0", "al2023".into()),
            image("ami-1", name("v1.1.1")),
            image("ami-2", name("v2.2.2")),
        ];
        assert_eq!(image_version(&class), "v1.1.1");
        let term = |edit: fn(&mut AmiSelectorTerm)| {
            let mut term = AmiSelectorTerm::default();
            edit(&mut term);
            term
        };
        class.spec.ami_selector_terms = vec![term(|it| it.id = Some("ami-2".into()))];
        assert_eq!(image_version(&class), "v2.2.2");
        class.spec.ami_selector_terms.push(term(|it| {
            it.name = Some("bottlerocket-aws-k8s-1.33-x86_64-v1.20.3-*".into());
        }));
        assert_eq!(image_version(&class), "v1.20.3");
        class.spec.ami_selector_terms =
            vec![term(|it| it.alias = Some("bottlerocket@latest".into()))];
        assert_eq!(image_version(&class), "latest");
    }
}
