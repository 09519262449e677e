//! NodePools, as they are made and as they are changed.

use super::*;

#[test] // api 4, cases 1 to 14; api 16, cases 5 and 6; api 20, case 4
fn node_pools() {
    const DOMAIN: &str =
        "cel spec.template.metadata.labels: label domain \"karpenter.sh\" is restricted";
    const AWS: &str =
        "cel spec.template.metadata.labels: label domain \"karpenter.k8s.aws\" is restricted";
    const IN: &str = "cel spec.template.spec.requirements: requirements with operator 'In' must have a value defined";
    const BOUND: &str = "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value";
    const MIN_VALUES: &str = "requirements with 'minValues' must have at least that many values specified in the 'values' field";
    let label =
        |key: &str, value: &str| json!({"template": {"metadata": {"labels": {key: value}}}});
    let requirement = |it: Value| template(json!({"requirements": [it]}));
    let cpu = |values: Value| {
        requirement(
            json!({"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": values}),
        )
    };
    table(
        "NodePool",
        &pool(),
        &[
            (json!({}), &[]),
            (
                template(json!({"requirements": null})),
                &["schema spec.template.spec.requirements: Required value"],
            ),
            (label("karpenter.sh/initialized", "true"), &[DOMAIN]),
            (label("karpenter.sh/capacity-type", "spot"), &[]),
            (label("foo.karpenter.sh/x", "y"), &[DOMAIN]),
            (label("notkarpenter.sh/x", "y"), &[DOMAIN]),
            (label("karpenter.sh.example.com/x", "y"), &[]),
            (
                label("karpenter.sh/nodepool", "me"),
                &[
                    "cel spec.template.metadata.labels: label \"karpenter.sh/nodepool\" is restricted",
                ],
            ),
            (
                label("kubernetes.io/hostname", "me"),
                &["label \"kubernetes.io/hostname\" is restricted"],
            ),
            (label("karpenter.k8s.aws/instance-size", "large"), &[]),
            (label("karpenter.k8s.aws/ec2nodeclass", "default"), &[]),
            (label("karpenter.k8s.aws/nitro-sandbox", "true"), &[]),
            (label("karpenter.k8s.aws/instance-pods", "1"), &[AWS]),
            (label("example.karpenter.k8s.aws/x", "y"), &[AWS]),
            (label("mykarpenter.k8s.aws/x", "y"), &[AWS]),
            (label("node-role.kubernetes.io/x", ""), &[]),
            (label("kubernetes.io/custom", "a"), &[]),
            (label("kops.k8s.io/instancegroup", "b"), &[]),
            (
                requirement(json!({"key": "team", "operator": "In"})),
                &[
                    "cel spec.template.spec.requirements: no such key: values evaluating rule: requirements with operator 'In' must have a value defined",
                ],
            ),
            (requirement(json!({"key": "team", "operator": "In", "values": []})), &[IN]),
            (requirement(json!({"key": "team", "operator": "NotIn", "values": []})), &[]),
            (requirement(json!({"key": "team", "operator": "NotIn"})), &[]),
            (
                requirement(
                    json!({"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]}),
                ),
                &[
                    "cel spec.template.spec.requirements[0].key: label \"karpenter.sh/nodepool\" is restricted",
                ],
            ),
            (
                requirement(
                    json!({"key": "karpenter.k8s.aws/instance-pods", "operator": "Exists"}),
                ),
                &[
                    "cel spec.template.spec.requirements[0].key: label domain \"karpenter.k8s.aws\" is restricted",
                ],
            ),
            (
                requirement(json!({"key": "team", "operator": "Is"})),
                &["schema spec.template.spec.requirements[0].operator: Unsupported value: \"Is\""],
            ),
            (cpu(json!(["0"])), &[]),
            (cpu(json!(["-1"])), &[BOUND]),
            (
                cpu(json!(["a"])),
                &[
                    "type conversion error from 'string' to 'int' evaluating rule: requirements operator",
                ],
            ),
            (cpu(json!(["1", "2"])), &[BOUND]),
            (cpu(json!([])), &[BOUND]),
            (
                requirement(
                    json!({"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"], "minValues": 2}),
                ),
                &[MIN_VALUES],
            ),
            (requirement(json!({"key": "team", "operator": "Exists", "minValues": 2})), &[]),
            (
                requirement(json!({"key": "team", "operator": "Exists", "minValues": 0})),
                &["greater than or equal to 1"],
            ),
            (
                requirement(json!({"key": "team", "operator": "Exists", "minValues": 51})),
                &["less than or equal to 50"],
            ),
            (
                template(json!({"taints": [{"key": "a", "effect": "NoSchedule"}],
                                "startupTaints": [{"key": "a", "effect": "NoSchedule"}]})),
                &[],
            ),
            (json!({"weight": 0}), &["schema spec.weight"]),
            (json!({"weight": 101}), &["schema spec.weight"]),
            (
                json!({"replicas": 3, "weight": 10}),
                &["cel spec: 'weight' is not supported on static NodePools"],
            ),
            (
                json!({"replicas": 3, "limits": {"cpu": 10}}),
                &["cel spec: only 'limits.nodes' is supported on static NodePools"],
            ),
            (json!({"replicas": 3, "limits": {}}), &[]),
            (json!({"replicas": 3, "limits": {"nodes": "3"}}), &[]),
            (json!({"replicas": 0}), &[]),
            (json!({"replicas": -1}), &["schema spec.replicas"]),
            (
                // B-086, with the empty group; a kind in lower case is admitted.
                template(json!({"nodeClassRef": {"group": "karpenter.k8s.aws/v1"}})),
                &["nodeClassRef.group"],
            ),
            (
                template(json!({"nodeClassRef": {"group": ""}})),
                &["cel spec.template.spec.nodeClassRef.group: group may not be empty"],
            ),
            (template(json!({"nodeClassRef": {"kind": "ec2nodeclass"}})), &[]),
            (
                template(json!({"nodeClassRef": {"name": ""}})),
                &["cel spec.template.spec.nodeClassRef.name: name may not be empty"],
            ),
            (
                template(json!({"nodeClassRef": {"kind": null}})),
                &["nodeClassRef.kind: Required value"],
            ),
            (
                json!({"template": {"metadata": {"name": "x"}}}),
                &[
                    "schema spec.template.metadata.name: unknown field \"spec.template.metadata.name\"",
                ],
            ),
            (json!({"limits": {"cpu": "1 core"}}), &["schema spec.limits.cpu"]),
            (json!({"limits": {"cpu": 1.5}}), &["schema spec.limits.cpu"]),
        ],
    );
    // A bound without values cannot be evaluated either, and the rule for `In` holds.
    let (_, found) = admit(
        "NodePool",
        &json!({"template": {"spec": {"requirements": [{"key": "a", "operator": "Gt"}],
            "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}}),
        None,
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("no such key: values evaluating rule: requirements operator 'Gt'"));
}

#[test] // api 4, cases 12 and 13; api 8, case 1; api 20, case 4
fn updates() {
    const MODES: &str = "cel spec: Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes";
    let with = |change: Value| {
        let mut spec = pool();
        apply_merge_patch(&mut spec, &change);
        spec
    };
    let class = |change: Value| with(template(json!({"nodeClassRef": change})));
    for (old, new, expected) in [
        (pool(), with(json!({"replicas": 3})), &[MODES][..]),
        (with(json!({"replicas": 3})), pool(), &[MODES]),
        (with(json!({"replicas": 3})), with(json!({"replicas": 0})), &[]),
        (pool(), class(json!({"name": "other"})), &[]),
        (
            pool(),
            class(json!({"kind": "Other"})),
            &["cel spec.template.spec.nodeClassRef: nodeClassRef.kind is immutable"],
        ),
        (
            pool(),
            class(json!({"group": "other"})),
            &["cel spec.template.spec.nodeClassRef: nodeClassRef.group is immutable"],
        ),
        (
            with(json!({"weight": 10, "limits": {"cpu": "200"}})),
            with(json!({"weight": 10, "limits": {"cpu": "200"}, "replicas": 3})),
            &[MODES, "only 'limits.nodes'", "'weight' is not supported"],
        ),
        // What was wrong before and has not changed is tolerated.
        (with(json!({"weight": 0})), with(json!({"weight": 0, "limits": {"cpu": "1"}})), &[]),
        (with(json!({"weight": 0})), with(json!({"weight": 101})), &["spec.weight"]),
    ] {
        let (_, found) = admit("NodePool", &new, Some(&old));
        assert_eq!(found.len(), expected.len(), "{old} to {new}: {found:#?}");
        for part in expected {
            assert!(found.iter().any(|it| it.contains(part)), "{found:#?} lack {part}");
        }
    }
    let claim =
        json!({"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}});
    let mut changed = claim.clone();
    changed["expireAfter"] = json!("1h");
    let (_, found) = admit("NodeClaim", &changed, Some(&claim));
    assert_eq!(found, ["cel spec: spec is immutable"]);
    // The default that is filled in is no change.
    let mut same = claim.clone();
    same["expireAfter"] = json!("720h");
    assert!(admit("NodeClaim", &same, Some(&claim)).1.is_empty());
}
