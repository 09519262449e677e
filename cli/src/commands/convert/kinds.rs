//! The three kinds that had a v1beta1 (`spec` api 18).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spokeshave_model::FieldPath;

use crate::{
    Failure,
    input::{Manifest, noun},
};

const KUBELET: &str = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";
const NODE_CLASS_REFERENCE: &str = "compatibility.karpenter.sh/v1beta1-nodeclass-reference";
const UBUNTU: &str = "compatibility.karpenter.k8s.aws/v1beta1-ubuntu";
const ALIAS_VERSION: &str = "compatibility.karpenter.k8s.aws/v1-alias-version";

type Fields = Map<String, Value>;

/// One object on its way.
pub(super) struct Conversion<'a> {
    manifest: &'a Manifest,
    object: Fields,
    notes: Vec<String>,
}

impl<'a> Conversion<'a> {
    pub(super) fn new(manifest: &'a Manifest) -> Self {
        let mut object = manifest.value.as_object().cloned().unwrap_or_default();
        let version = format!("{}/v1", manifest.group());
        object.insert("apiVersion".into(), json!(version));
        Self { manifest, object, notes: Vec::new() }
    }

    /// The object in v1, and what is to be said about it.
    pub(super) fn finish(self) -> (Value, Vec<String>) {
        (Value::Object(self.object), self.notes)
    }

    /// Takes a field that must be an object out of `from`; absent and null are empty.
    fn take(&self, from: &mut Fields, name: &str, path: &str) -> Result<Option<Fields>, Failure> {
        match from.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(fields)),
            Some(other) => {
                let field = FieldPath::parse(path);
                let problem = format!("found {} where an object should be", noun(&other));
                Err(self
                    .manifest
                    .failure(&field, problem)
                    .fix("correct the field, then convert again"))
            }
        }
    }

    fn annotate(&mut self, key: &str, value: String) {
        let metadata = self.object.entry("metadata").or_insert_with(|| json!({}));
        let annotations = match metadata.as_object_mut() {
            Some(metadata) => metadata.entry("annotations").or_insert_with(|| json!({})),
            None => return,
        };
        if annotations.is_null() {
            *annotations = json!({});
        }
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(key.to_owned(), Value::String(value));
        }
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.object.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }

    /// Says which fields of `from` were not carried over.
    fn leave_behind(&mut self, from: &Fields, path: &str) {
        for key in from.keys() {
            self.notes.push(format!("{path}.{key} has no place in v1 and was left out"));
        }
    }

    pub(super) fn node_pool(&mut self) -> Result<(), Failure> {
        let mut object = std::mem::take(&mut self.object);
        let mut spec = self.take(&mut object, "spec", "spec")?.unwrap_or_default();
        let template = self.take(&mut spec, "template", "spec.template")?;
        let disruption = self.take(&mut spec, "disruption", "spec.disruption")?;
        self.object = object;
        let mut template = template.unwrap_or_default();
        let path = "spec.template.spec";
        let mut inner = self.take(&mut template, "spec", path)?.unwrap_or_default();
        if inner.remove("resources").is_some() {
            self.notes.push(format!("{path}.resources has no place in v1 and was left out"));
        }
        self.template(&mut inner, path)?;
        if let Some(mut disruption) = disruption {
            if let Some(expiry) = disruption.remove("expireAfter").filter(|it| !it.is_null()) {
                inner.insert("expireAfter".into(), expiry);
            }
            let converted = self.disruption(disruption);
            if !converted.is_empty() {
                spec.insert("disruption".into(), Value::Object(converted));
            }
        }
        template.insert("spec".into(), Value::Object(inner));
        spec.insert("template".into(), Value::Object(template));
        self.object.insert("spec".into(), Value::Object(spec));
        Ok(())
    }

    fn disruption(&mut self, mut old: Fields) -> Fields {
        let mut new = Fields::new();
        let after = old.remove("consolidateAfter").filter(|it| !it.is_null());
        let policy = old.remove("consolidationPolicy").filter(|it| !it.is_null());
        match policy.as_ref().and_then(Value::as_str) {
            Some("WhenUnderutilized") => {
                new.insert("consolidationPolicy".into(), json!("WhenEmptyOrUnderutilized"));
                new.insert("consolidateAfter".into(), after.unwrap_or_else(|| json!("0s")));
            }
            Some("WhenEmpty") => {
                new.insert("consolidationPolicy".into(), json!("WhenEmpty"));
                new.insert("consolidateAfter".into(), after.unwrap_or_else(|| json!("Never")));
            }
            _ => {
                let given = [("consolidationPolicy", policy), ("consolidateAfter", after)];
                new.extend(given.into_iter().filter_map(|(key, it)| Some((key.to_owned(), it?))));
            }
        }
        if let Some(budgets) = old.remove("budgets").filter(|it| !it.is_null()) {
            new.insert("budgets".into(), budgets);
        }
        self.leave_behind(&old, "spec.disruption");
        new
    }

    /// What templates and claims have in common.
    fn template(&mut self, spec: &mut Fields, path: &str) -> Result<(), Failure> {
        if let Some(kubelet) = spec.remove("kubelet").filter(|it| !it.is_null()) {
            self.notes.push(format!(
                "{path}.kubelet was kept in the annotation {KUBELET}, which nothing reads any more: move it to \
                 spec.kubelet of the EC2NodeClass"
            ));
            self.annotate(KUBELET, kubelet.to_string());
        }
        let old = self.take(spec, "nodeClassRef", &format!("{path}.nodeClassRef"))?;
        if let Some(old) = &old {
            self.annotate(NODE_CLASS_REFERENCE, Value::Object(old.clone()).to_string());
        }
        spec.insert("nodeClassRef".into(), reference(old.as_ref()));
        if spec.get("requirements").is_none_or(Value::is_null) {
            spec.insert("requirements".into(), json!([]));
        }
        Ok(())
    }

    /// `expiry` has the pools of the input; a pool that says nothing has `None`.
    pub(super) fn node_claim(
        &mut self,
        expiry: &BTreeMap<&str, Option<String>>,
    ) -> Result<(), Failure> {
        let mut object = std::mem::take(&mut self.object);
        let spec = self.take(&mut object, "spec", "spec")?;
        self.object = object;
        let mut spec = spec.unwrap_or_default();
        self.template(&mut spec, "spec")?;
        let labels = self.object.get("metadata").and_then(|it| it.get("labels"));
        let pool = labels.and_then(|it| it.get("karpenter.sh/nodepool")).and_then(Value::as_str);
        match pool.and_then(|it| expiry.get(it)) {
            Some(Some(text)) => {
                spec.insert("expireAfter".into(), json!(text));
            }
            // The pool's default is the claim's, too.
            Some(None) => {}
            None => {
                if let Some(pool) = pool {
                    self.notes.push(format!(
                        "its NodePool {pool:?} is not among the input, so expireAfter became Never"
                    ));
                }
                spec.insert("expireAfter".into(), json!("Never"));
            }
        }
        self.object.insert("spec".into(), Value::Object(spec));
        Ok(())
    }

    pub(super) fn node_class(&mut self) -> Result<(), Failure> {
        let mut object = std::mem::take(&mut self.object);
        let spec = self.take(&mut object, "spec", "spec")?;
        self.object = object;
        let mut spec = spec.unwrap_or_default();
        let terms = spec.get("amiSelectorTerms").and_then(Value::as_array);
        let has_terms = terms.is_some_and(|it| !it.is_empty());
        let family = spec.get("amiFamily").and_then(Value::as_str).unwrap_or_default().to_owned();
        match family.as_str() {
            "AL2" | "AL2023" | "Bottlerocket" | "Windows2019" | "Windows2022" | "Windows2025" => {
                if !has_terms {
                    let version = self.annotation(ALIAS_VERSION).unwrap_or("latest");
                    let alias = format!("{}@{version}", family.to_lowercase());
                    spec.insert("amiSelectorTerms".into(), json!([{"alias": alias}]));
                    spec.remove("amiFamily");
                }
            }
            "Ubuntu" => self.ubuntu(&mut spec, has_terms),
            other => {
                if !other.is_empty() && other != "Custom" {
                    self.notes
                        .push(format!("spec.amiFamily {other:?} is unknown and became Custom"));
                }
                spec.insert("amiFamily".into(), json!("Custom"));
            }
        }
        self.object.insert("spec".into(), Value::Object(spec));
        Ok(())
    }

    /// Ubuntu is no family any more: its images boot like those of AL2.
    fn ubuntu(&mut self, spec: &mut Fields, has_terms: bool) {
        let mut changed = vec!["amiFamily"];
        spec.insert("amiFamily".into(), json!("AL2"));
        let devices = spec.get("blockDeviceMappings").and_then(Value::as_array);
        if devices.is_none_or(Vec::is_empty) {
            changed.push("blockDeviceMappings");
            let root = json!({"deviceName": "/dev/sda1", "rootVolume": true,
                "ebs": {"encrypted": true, "volumeSize": "20Gi", "volumeType": "gp3"}});
            spec.insert("blockDeviceMappings".into(), json!([root]));
        }
        if !has_terms {
            changed.push("incompatible");
            spec.insert("amiSelectorTerms".into(), json!([{"id": "ami-placeholder"}]));
            self.notes.push(
                "spec.amiFamily Ubuntu is gone and no image was named: ami-placeholder finds none, put the ids of \
                 your images into spec.amiSelectorTerms"
                    .to_owned(),
            );
        }
        self.annotate(UBUNTU, changed.join(","));
    }
}

/// `apiVersion`, `kind`, `name` become `group`, `kind`, `name`.
fn reference(old: Option<&Fields>) -> Value {
    let Some(old) = old else { return json!({"group": "", "kind": "", "name": ""}) };
    let text = |name: &str| old.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let group = match api_version.split_once('/') {
        Some((group, _)) => group,
        None if api_version.is_empty() => "karpenter.k8s.aws",
        None => "",
    };
    let kind = if text("kind").is_empty() { "EC2NodeClass" } else { text("kind") };
    json!({"group": group, "kind": kind, "name": text("name")})
}
