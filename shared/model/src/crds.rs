//! The CustomResourceDefinitions of the kinds that we serve (`spec` api 1 to 15), as JSON.
//!
//! They accept, refuse, default and prune as Karpenter's do. [`all`] is what `infra/crds` holds; `lint` validates against the very
//! same schemas, CEL rules included. Tests hold them against the Rust types: every field of one is in the other.

mod capacity_buffer;
mod ec2_node_class;
mod node_claim;
mod node_overlay;
mod node_pool;
mod parts;
pub mod schema;

use serde_json::{Value, json};

use crate::Kind;

/// One definition and what a command needs to know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Crd {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// The whole CustomResourceDefinition.
    pub definition: Value,
}

impl Crd {
    /// The OpenAPI schema of the served version.
    pub fn schema(&self) -> &Value {
        &self.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    }

    /// Where the number of replicas is that the scale subresource sets; `None` without that subresource.
    pub fn scale_path(&self) -> Option<&str> {
        let subresources = &self.definition["spec"]["versions"][0]["subresources"];
        subresources["scale"]["specReplicasPath"].as_str()
    }

    /// `plural.group`, also the name of the file in `infra/crds`, less `.yaml`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

/// A column of `kubectl get`: name, type, path, and 1 when only `-o wide` shows it.
type Column = (&'static str, &'static str, &'static str, i32);

/// What a definition says besides the schema.
struct Names {
    singular: &'static str,
    short: &'static [&'static str],
    category: &'static str,
    columns: &'static [Column],
    scale: bool,
}

fn crd<K: Kind>(names: &Names, schema: &Value) -> Crd {
    let columns: Vec<Value> = names
        .columns
        .iter()
        .map(|(name, type_, path, priority)| {
            let mut column = json!({"name": name, "type": type_, "jsonPath": path});
            if *priority > 0 {
                column["priority"] = json!(priority);
            }
            column
        })
        .collect();
    let mut subresources = json!({"status": {}});
    if names.scale {
        subresources["scale"] = json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.nodes",
        });
    }
    let mut all_names = json!({
        "kind": K::KIND,
        "listKind": format!("{}List", K::KIND),
        "plural": K::PLURAL,
        "singular": names.singular,
        "categories": [names.category],
    });
    if !names.short.is_empty() {
        all_names["shortNames"] = json!(names.short);
    }
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", K::PLURAL, K::GROUP)},
        "spec": {
            "group": K::GROUP,
            "names": all_names,
            "scope": if K::NAMESPACED { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": K::VERSION,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": columns,
                "subresources": subresources,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    Crd {
        group: K::GROUP,
        version: K::VERSION,
        kind: K::KIND,
        plural: K::PLURAL,
        namespaced: K::NAMESPACED,
        definition,
    }
}

/// All five, NodePool first.
pub fn all() -> Vec<Crd> {
    vec![
        node_pool::crd(),
        node_claim::crd(),
        ec2_node_class::crd(),
        node_overlay::crd(),
        capacity_buffer::crd(),
    ]
}

#[cfg(test)]
mod tests;
