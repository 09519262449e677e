//! NodePool (`spec` api 4 and 5).

use serde_json::json;

use super::{
    Crd, Names,
    parts::{Keys, label_map, node_class_ref, quantities, requirements, taints},
    schema::{
        BUDGET_DURATION, BUDGET_NODES, BUDGET_SCHEDULE, DURATION, NILLABLE_DURATION, Schema,
        conditions, root,
    },
};
use crate::NodePool;

pub(super) fn crd() -> Crd {
    let names = Names {
        singular: "nodepool",
        short: &[],
        category: "karpenter",
        scale: true,
        columns: &[
            ("NodeClass", "string", ".spec.template.spec.nodeClassRef.name", 0),
            ("Nodes", "string", ".status.nodes", 0),
            ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
            ("Weight", "integer", ".spec.weight", 1),
            ("CPU", "string", ".status.resources.cpu", 1),
            ("Memory", "string", ".status.resources.memory", 1),
        ],
    };
    let help =
        "A pool says what nodes may be made for pods, how many, and how they may be disrupted.";
    super::crd::<NodePool>(&names, &root(help, spec(), status(), true))
}

fn spec() -> Schema {
    Schema::object(&[
        ("template", "What the NodeClaims of the pool are made from.", template()),
        ("disruption", "How nodes may be replaced and removed.", disruption()),
        (
            "limits",
            "Most of each resource that the pool's nodes may have together; nodes is their number.",
            quantities(),
        ),
        (
            "weight",
            "Pools of higher weight are tried first; absent counts as 0.",
            Schema::int32().min(1).max(100),
        ),
        (
            "replicas",
            "Keeps exactly so many nodes, whatever pods there are. Alpha, needs the gate StaticCapacity.",
            Schema::int64().min(0),
        ),
    ])
    .required(&["template"])
    .rule(
        "has(self.replicas) == has(oldSelf.replicas)",
        "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes",
    )
    .rule(
        "!has(self.replicas) || !has(self.limits) || self.limits.size() == 0 || \
         (self.limits.size() == 1 && 'nodes' in self.limits)",
        "only 'limits.nodes' is supported on static NodePools",
    )
    .rule(
        "!has(self.replicas) || !has(self.weight)",
        "'weight' is not supported on static NodePools",
    )
}

fn template() -> Schema {
    let metadata = Schema::object(&[
        ("labels", "Labels of the nodes.", Keys::Pool.on_map(label_map().atomic())),
        ("annotations", "Annotations of the nodes.", Schema::map(Schema::text())),
    ]);
    let class = node_class_ref()
        .rule("self.group == oldSelf.group", "nodeClassRef.group is immutable")
        .rule("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable");
    let spec = Schema::object(&[
        ("nodeClassRef", "The class that says how instances are made.", class),
        (
            "requirements",
            "What the nodes' labels must be; an empty list allows everything.",
            requirements(Keys::Pool),
        ),
        ("taints", "Taints of the nodes, which pods must tolerate.", taints()),
        (
            "startupTaints",
            "Taints that something else takes away once a node is set up; pods need not tolerate them.",
            taints(),
        ),
        (
            "expireAfter",
            "Age at which a node is replaced, or Never.",
            Schema::text().pattern(NILLABLE_DURATION).default(json!("720h")),
        ),
        (
            "terminationGracePeriod",
            "Longest time that draining may take; then remaining pods are deleted.",
            Schema::text().pattern(DURATION),
        ),
    ])
    .required(&["nodeClassRef", "requirements"]);
    Schema::object(&[("metadata", "", metadata), ("spec", "", spec)]).required(&["spec"])
}

fn disruption() -> Schema {
    let reasons = Schema::list(Schema::one_of(&["Underutilized", "Empty", "Drifted"]));
    let budget = Schema::object(&[
        (
            "nodes",
            "Most nodes that may be disrupted at once: a count, or a percentage rounded up.",
            Schema::text().pattern(BUDGET_NODES).default(json!("10%")),
        ),
        ("reasons", "What the budget limits; absent: everything.", reasons.max_items(50).set()),
        (
            "schedule",
            "When the budget becomes active, as a cron expression in UTC.",
            Schema::text().pattern(BUDGET_SCHEDULE),
        ),
        (
            "duration",
            "How long it then stays active, in hours and minutes.",
            Schema::text().pattern(BUDGET_DURATION),
        ),
    ])
    .required(&["nodes"]);
    let budgets =
        Schema::list(budget).max_items(50).atomic().default(json!([{"nodes": "10%"}])).rule(
            "self.all(it, has(it.schedule) == has(it.duration))",
            "'schedule' must be set with 'duration'",
        );
    Schema::object(&[
        (
            "consolidateAfter",
            "How long a node must be without pod events before it is consolidated, or Never.",
            Schema::text().pattern(NILLABLE_DURATION).default(json!("0s")),
        ),
        (
            "consolidationPolicy",
            "Which nodes may be consolidated.",
            Schema::one_of(&["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"])
                .default(json!("WhenEmptyOrUnderutilized")),
        ),
        ("budgets", "How many nodes may be disrupted at once.", budgets),
    ])
    .default(json!({"consolidateAfter": "0s"}))
}

fn status() -> Schema {
    Schema::object(&[
        ("resources", "Capacity of the pool's nodes together.", quantities()),
        ("nodes", "Number of the pool's nodes.", Schema::int64().default(json!(0))),
        (
            "nodeClassObservedGeneration",
            "Generation of the class that registration health was judged with.",
            Schema::int64(),
        ),
        ("conditions", "", conditions().keyed_by("type")),
    ])
}
