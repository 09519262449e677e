//! AL2023: a nodeadm document after the user's own (`spec` aws-nodeclass 11).

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use serde_saphyr::DuplicateKeyPolicy;

use crate::{
    BootstrapInput, RenderError, kubelet,
    mime::{self, Part},
    scripts::SHELL,
    yaml_text,
};

const NODE_CONFIG: &str = "application/node.eks.aws";

pub(crate) fn al2023(input: &BootstrapInput) -> Result<String, RenderError> {
    let mut parts = user_parts(input.user_data.as_deref())?;
    let document = yaml_text::document(&document(input)?);
    parts.push(Part::new(NODE_CONFIG, format!("# Karpenter Generated NodeConfig\n{document}")));
    Ok(mime::write(&parts))
}

/// nodeadm merges documents in order and later ones win, so the user's come first.
fn user_parts(user_data: Option<&str>) -> Result<Vec<Part>, RenderError> {
    match user_data {
        None | Some("") => Ok(Vec::new()),
        Some(text) if mime::looks_like_mime(text) => {
            Ok(mime::parse(text)?.iter().map(with_content_headers).collect())
        }
        Some(text) if is_node_config(text) => Ok(vec![Part::new(NODE_CONFIG, text)]),
        Some(text) => Ok(vec![Part::new(SHELL, text)]),
    }
}

/// Only the content type of a user's part is kept.
///
/// DIFFERENCE: so is its transfer encoding, without which the node could not decode the body.
fn with_content_headers(part: &Part) -> Part {
    let mut kept = Part::new(part.header("Content-Type").unwrap_or_default(), part.body.as_str());
    if let Some(encoding) = part.header("Content-Transfer-Encoding") {
        kept.headers.insert("Content-Transfer-Encoding".into(), vec![encoding.to_owned()]);
    }
    kept
}

/// Whether a text is a YAML or JSON mapping, or has no content at all.
///
/// Read as Karpenter's YAML library does: the first document counts, a key may come twice, neither a tab nor
/// the end of a document can begin one.
fn is_node_config(text: &str) -> bool {
    let content = |it: &&str| !it.trim().is_empty() && !it.trim_start().starts_with('#');
    let Some(first) = text.lines().find(content) else { return true };
    if first.trim_start_matches(' ').starts_with('\t') || first.starts_with("...") {
        return false;
    }
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let mut bytes = text.as_bytes();
    match serde_saphyr::read_with_options::<_, Value>(&mut bytes, options).next() {
        // Nothing but empty documents.
        None => true,
        Some(document) => document.is_ok_and(|it| it.is_object()),
    }
}

fn document(input: &BootstrapInput) -> Result<Value, RenderError> {
    let cluster = &input.cluster;
    let cidr = cluster.service_cidr.as_deref().filter(|it| !it.is_empty());
    let mut facts = Map::new();
    facts.insert("apiServerEndpoint".into(), cluster.endpoint.as_str().into());
    if !cluster.ca_bundle.is_empty() {
        let packed: String =
            cluster.ca_bundle.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        let ca = STANDARD.decode(packed).map_err(|_| RenderError::InvalidCaBundle)?;
        facts.insert("certificateAuthority".into(), STANDARD.encode(ca).into());
    }
    facts.insert("cidr".into(), cidr.ok_or(RenderError::NoServiceCidr)?.into());
    facts.insert("name".into(), cluster.name.as_str().into());

    let mut config: Map<String, Value> =
        input.kubelet.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let taints = input.taints.iter().map(|taint| {
        let mut entry = Map::new();
        entry.insert("effect".into(), format!("{:?}", taint.effect).into());
        entry.insert("key".into(), taint.key.as_str().into());
        if !taint.value.is_empty() {
            entry.insert("value".into(), taint.value.as_str().into());
        }
        Value::Object(entry)
    });
    config.insert("registerWithTaints".into(), taints.collect());

    let mut node = Map::new();
    node.insert("config".into(), config.into());
    if let Some(labels) = kubelet::node_labels_argument(&input.labels) {
        node.insert("flags".into(), vec![Value::from(labels)].into());
    }
    let storage = if input.raid0 { json!({"strategy": "RAID0"}) } else { json!({}) };
    Ok(json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": facts,
            "containerd": {},
            "instance": {"localStorage": storage},
            "kubelet": node,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // aws-nodeclass 11, cases 3 and 4; B-037 a and e
    fn what_a_plain_text_is() {
        for (text, want) in [
            ("{\"apiVersion\":\"node.eks.aws/v1alpha1\",\"kind\":\"NodeConfig\"}", true),
            ("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet: {}\n", true),
            ("---\napiVersion: node.eks.aws/v1alpha1\n", true),
            ("a: b\n---\nc: d\n", true),
            ("# just a comment", true),
            (" \n\t\n", true),
            ("---\n", true),
            ("null", true),
            ("a: 1\na: 2\n", true),
            ("a: b\n---\nc: [", true),
            ("\ta: b", false),
            ("...\na: b", false),
            ("#!/bin/bash\necho hi", false),
            ("#!/bin/bash\nset -e\necho \"key: value\"\n", false),
            ("#!/bin/bash\ncat <<EOF\nfoo: bar\nEOF\n", false),
            ("- a\n- b", false),
            ("just text", false),
            ("42", false),
            ("a: [", false),
        ] {
            assert_eq!(is_node_config(text), want, "{text}");
        }
    }
}
