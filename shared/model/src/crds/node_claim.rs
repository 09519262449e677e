//! NodeClaim (`spec` api 8).

use serde_json::json;

use super::{
    Crd, Names,
    parts::{Keys, node_class_ref, quantities, requirements, taints},
    schema::{DURATION, NILLABLE_DURATION, Schema, node_claim_conditions, root},
};
use crate::NodeClaim;

pub(super) fn crd() -> Crd {
    let names = Names {
        singular: "nodeclaim",
        short: &[],
        category: "karpenter",
        scale: false,
        columns: &[
            ("Type", "string", r".metadata.labels.node\.kubernetes\.io/instance-type", 0),
            ("Capacity", "string", r".metadata.labels.karpenter\.sh/capacity-type", 0),
            ("Zone", "string", r".metadata.labels.topology\.kubernetes\.io/zone", 0),
            ("Node", "string", ".status.nodeName", 0),
            ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
            ("ImageID", "string", ".status.imageID", 1),
            ("ID", "string", ".status.providerID", 1),
            ("NodePool", "string", r".metadata.labels.karpenter\.sh/nodepool", 1),
            ("NodeClass", "string", ".spec.nodeClassRef.name", 1),
            ("Drifted", "string", ".status.conditions[?(@.type==\"Drifted\")].status", 1),
        ],
    };
    let help = "A claim is one node, from the wish for it until it is gone.";
    super::crd::<NodeClaim>(&names, &root(help, spec(), status(), true))
}

fn spec() -> Schema {
    let resources = Schema::object(&[(
        "requests",
        "What the pods that the node is made for ask for, daemons included.",
        quantities(),
    )]);
    Schema::object(&[
        ("nodeClassRef", "The class that says how the instance is made.", node_class_ref()),
        ("requirements", "What the node's labels must be.", requirements(Keys::Claim)),
        ("resources", "", resources),
        ("taints", "Taints of the node.", taints()),
        ("startupTaints", "Taints that something else takes away.", taints()),
        (
            "expireAfter",
            "Age at which the node is replaced, or Never.",
            Schema::text().pattern(NILLABLE_DURATION).default(json!("720h")),
        ),
        (
            "terminationGracePeriod",
            "Longest time that draining may take.",
            Schema::text().pattern(DURATION),
        ),
    ])
    .required(&["nodeClassRef", "requirements"])
    .rule("self == oldSelf", "spec is immutable")
}

fn status() -> Schema {
    Schema::object(&[
        ("nodeName", "The node.", Schema::text()),
        ("providerID", "The instance, as the node's spec.providerID names it.", Schema::text()),
        ("imageID", "The instance's image.", Schema::text()),
        ("capacity", "What the instance has.", quantities()),
        ("allocatable", "What pods may use of it.", quantities()),
        ("lastPodEventTime", "When a pod last came or went.", Schema::time()),
        ("conditions", "", node_claim_conditions().keyed_by("type")),
    ])
}
