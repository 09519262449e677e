//! What a node learns from its user data at boot: labels and taints, read back from what was really rendered.

use std::collections::BTreeMap;

use base64::Engine;
use spokeshave_model::{Taint, TaintEffect};

/// Labels and taints that a kubelet registers with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boot {
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
}

/// Reads base64 user data: `NodeConfig` (AL2023), TOML settings (Bottlerocket), or bootstrap flags (AL2, Windows).
pub fn read(user_data: &str) -> Boot {
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(user_data.trim()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut boot = Boot::default();
    if let Ok(table) = text.parse::<toml::Table>() {
        bottlerocket(&table, &mut boot);
    }
    for part in node_configs(&text) {
        node_config(&part, &mut boot);
    }
    flags(&text, &mut boot);
    boot
}

fn bottlerocket(table: &toml::Table, boot: &mut Boot) {
    let Some(settings) = table.get("settings").and_then(|it| it.get("kubernetes")) else { return };
    for (key, value) in
        settings.get("node-labels").and_then(|it| it.as_table()).into_iter().flatten()
    {
        boot.labels.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
    }
    for (key, values) in
        settings.get("node-taints").and_then(|it| it.as_table()).into_iter().flatten()
    {
        let texts: Vec<&str> = match values {
            toml::Value::Array(list) => list.iter().filter_map(|it| it.as_str()).collect(),
            other => other.as_str().into_iter().collect(),
        };
        for text in texts {
            let (value, effect) = text.rsplit_once(':').unwrap_or(("", text));
            push_taint(boot, key, value, effect);
        }
    }
}

/// The YAML documents of a MIME message, or the whole text, that are NodeConfigs.
fn node_configs(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    if text.contains("kind: NodeConfig") {
        for part in text.split("\n--") {
            if part.contains("kind: NodeConfig")
                && let Some(start) =
                    part.find("apiVersion:").or_else(|| part.find("kind: NodeConfig"))
            {
                parts.push(part[start..].replace('\r', ""));
            }
        }
    }
    parts
}

fn node_config(yaml: &str, boot: &mut Boot) {
    for document in yaml.split("\n---") {
        let Ok(value) = serde_saphyr::from_str::<serde_json::Value>(document) else { continue };
        let kubelet = &value["spec"]["kubelet"];
        for taint in kubelet["config"]["registerWithTaints"].as_array().into_iter().flatten() {
            push_taint(
                boot,
                taint["key"].as_str().unwrap_or_default(),
                taint["value"].as_str().unwrap_or_default(),
                taint["effect"].as_str().unwrap_or_default(),
            );
        }
        for flag in kubelet["flags"].as_array().into_iter().flatten().filter_map(|it| it.as_str()) {
            flags(flag, boot);
        }
    }
}

fn flags(text: &str, boot: &mut Boot) {
    for (flag, is_label) in [("--node-labels=", true), ("--register-with-taints=", false)] {
        for rest in text.split(flag).skip(1) {
            let rest = rest.trim_start_matches(['"', '\'']);
            let end = rest
                .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\''))
                .unwrap_or(rest.len());
            for entry in rest[..end].split(',').filter(|it| !it.is_empty()) {
                if is_label {
                    let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
                    boot.labels.insert(key.to_owned(), value.to_owned());
                } else {
                    let (pair, effect) = entry.rsplit_once(':').unwrap_or((entry, ""));
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    push_taint(boot, key, value, effect);
                }
            }
        }
    }
}

fn push_taint(boot: &mut Boot, key: &str, value: &str, effect: &str) {
    let effect = match effect {
        "NoSchedule" => TaintEffect::NoSchedule,
        "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        _ => return,
    };
    let taint = Taint::new(key, value, effect);
    if !boot.taints.iter().any(|it| it.matches(&taint)) {
        boot.taints.push(taint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_family() {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let taint = Taint::new("karpenter.sh/unregistered", "", TaintEffect::NoExecute);
        let al2023 = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: \
                      application/node.eks.aws\n\n# text\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  \
                      kubelet:\n    config:\n      registerWithTaints:\n      - effect: NoExecute\n        key: \
                      karpenter.sh/unregistered\n    flags:\n    - --node-labels=\"a=b,c=d\"\n\n--//--\n";
        let bottlerocket = "[settings.kubernetes]\n[settings.kubernetes.node-labels]\na = \"b\"\nc = \"d\"\n\
                            [settings.kubernetes.node-taints]\n\"karpenter.sh/unregistered\" = [\":NoExecute\"]\n";
        let al2 = "/etc/eks/bootstrap.sh x --kubelet-extra-args '--node-labels=\"a=b,c=d\" \
                   --register-with-taints=\"karpenter.sh/unregistered:NoExecute\"'";
        for text in [al2023, bottlerocket, al2] {
            let boot = read(&encode(text));
            assert_eq!(boot.taints, std::slice::from_ref(&taint), "{text}");
            assert_eq!(
                boot.labels,
                BTreeMap::from([("a".into(), "b".into()), ("c".into(), "d".into())]),
                "{text}"
            );
        }
    }
}
