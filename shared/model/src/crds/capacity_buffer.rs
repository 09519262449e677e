//! CapacityBuffer (`spec` api 15), shared with other autoscalers: install it only where it is missing.

use serde_json::json;

use super::{
    Crd, Names,
    parts::quantities,
    schema::{Schema, conditions, root},
};
use crate::CapacityBuffer;

pub(super) fn crd() -> Crd {
    let names = Names {
        singular: "capacitybuffer",
        short: &["cb"],
        category: "autoscaling",
        scale: false,
        columns: &[
            ("Strategy", "string", ".spec.provisioningStrategy", 0),
            ("PodTemplate", "string", ".status.podTemplateRef.name", 0),
            ("Replicas", "integer", ".status.replicas", 0),
            ("ConditionsType", "string", ".status.conditions[*].type", 0),
            ("ConditionsStatus", "string", ".status.conditions[*].status", 0),
            ("ConditionsReason", "string", ".status.conditions[*].reason", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
        ],
    };
    let template = Schema::object(&[("name", "Name of the object.", Schema::text().min_length(1))])
        .required(&["name"]);
    let scalable = Schema::object(&[
        ("apiGroup", "API group of the object; empty means apps.", Schema::text()),
        ("kind", "Deployment, StatefulSet or ReplicaSet.", Schema::text().min_length(1)),
        ("name", "Name of the object.", Schema::text().min_length(1)),
    ])
    .required(&["kind", "name"]);
    let spec = Schema::object(&[
        (
            "provisioningStrategy",
            "How the room is kept.",
            Schema::text().default(json!("buffer.x-k8s.io/active-capacity")),
        ),
        ("podTemplateRef", "The PodTemplate whose pods room is kept for.", template.clone()),
        ("scalableRef", "The workload whose pods room is kept for.", scalable),
        ("replicas", "Room for so many pods.", Schema::int32().min(0)),
        ("percentage", "Room for such a part of the workload's pods.", Schema::int32().min(0)),
        ("limits", "Room for no more pods than have these requests together.", quantities()),
    ])
    .rule(
        "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        "If podTemplateRef is set, replicas or limits must also be set",
    )
    .rule(
        "!has(self.podTemplateRef) || !has(self.scalableRef)",
        "You must define either PodTemplateRef or ScalableRef, but not both",
    );
    let status = Schema::object(&[
        ("podTemplateRef", "The template in use.", template),
        ("podTemplateGeneration", "Its generation.", Schema::int64()),
        ("replicas", "Room is kept for so many pods.", Schema::int32()),
        ("provisioningStrategy", "The strategy in use.", Schema::text()),
        ("conditions", "", conditions().keyed_by("type")),
    ]);
    let help = "A buffer keeps room for pods that do not exist yet.";
    super::crd::<CapacityBuffer>(&names, &root(help, spec, status, true))
}
