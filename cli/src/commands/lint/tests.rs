use super::*;

fn findings(text: &str) -> Vec<String> {
    against(text, "")
}

/// Findings as `line source field: message`.
fn against(text: &str, before: &str) -> Vec<String> {
    let manifests = input::load_text("a.yaml", text).expect("valid");
    let before = input::load_text("b.yaml", before).expect("valid");
    let at = "2026-01-01T00:00:00Z".parse().expect("a time");
    let found = lint(&manifests, &before, &FeatureGates::default(), at);
    found
        .iter()
        .map(|it| format!("{} {:?} {}: {}", it.line, it.source, it.field, it.message))
        .collect()
}

const POOL: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: p
spec:
  template:
    spec:
      nodeClassRef:
        group: karpenter.k8s.aws
        kind: EC2NodeClass
        name: default
      requirements:
      - key: kubernetes.io/arch
        operator: In
        values: [amd64]
";

#[test]
fn clean_manifests_have_no_findings() {
    assert_eq!(findings(POOL), Vec::<String>::new());
    assert_eq!(findings(include_str!("../../../tests/worked-set.yaml")), Vec::<String>::new());
    assert_eq!(findings("apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n"), Vec::<String>::new());
}

#[test]
fn lines_are_those_of_the_field_or_its_nearest_ancestor() {
    let missing = POOL.replace("        name: default\n", "");
    assert_eq!(
        findings(&missing),
        ["8 Schema spec.template.spec.nodeClassRef.name: Required value"]
    );
    let unknown =
        POOL.replace("        operator: In\n", "        operator: In\n        extra: 1\n");
    assert_eq!(
        findings(&unknown),
        ["15 Schema spec.template.spec.requirements[0].extra: unknown field \
          \"spec.template.spec.requirements[0].extra\""]
    );
    let no_values = POOL.replace("        values: [amd64]\n", "");
    assert_eq!(
        findings(&no_values),
        [
            "12 Cel spec.template.spec.requirements: no such key: values evaluating rule: requirements with operator \
          'In' must have a value defined"
        ]
    );
    let second = format!("{POOL}---\n{}", POOL.replace("name: p", "name: P"));
    assert!(findings(&second)[0].starts_with("20 Schema metadata.name: Invalid value: \"P\""));
}

#[test]
fn a_version_that_is_not_served_is_an_error() {
    assert_eq!(
        findings(&POOL.replace("karpenter.sh/v1", "karpenter.sh/v1beta1")),
        [
            "1 Schema apiVersion: no matches for kind \"NodePool\" in version \"karpenter.sh/v1beta1\""
        ]
    );
}

#[test] // api 4, cases 4 and 10
fn what_only_a_controller_finds() {
    let taints = format!(
        "{POOL}      taints:\n      - {{key: a, effect: NoSchedule}}\n      startupTaints:\n      - {{key: a, effect: NoSchedule}}\n"
    );
    assert_eq!(
        findings(&taints),
        [
            "19 Runtime spec.template.spec.startupTaints[0]: duplicate taint Key/Effect pair a=NoSchedule"
        ]
    );
    let label = POOL.replace(
        "  template:\n",
        "  template:\n    metadata:\n      labels:\n        karpenter.k8s.aws/ec2nodeclass: x\n",
    );
    let found = findings(&label);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(
        "9 Runtime spec.template.metadata.labels[karpenter.k8s.aws/ec2nodeclass]: invalid key name"
    ));
    // The pools of others are not looked at by our controllers.
    assert!(findings(&taints.replace("karpenter.k8s.aws", "eks.amazonaws.com")).is_empty());
}

#[test] // api 4, case 3: one message for one problem, although rule and controller both object
fn one_finding_per_problem() {
    let label = POOL.replace(
        "  template:\n",
        "  template:\n    metadata:\n      labels:\n        karpenter.sh/nodepool: me\n",
    );
    assert_eq!(
        findings(&label),
        ["8 Cel spec.template.metadata.labels: label \"karpenter.sh/nodepool\" is restricted"]
    );
}

#[test] // api 4, case 12
fn changes_are_judged_against_what_was_there() {
    let fixed = format!("{POOL}  replicas: 3\n");
    let message = "5 Cel spec: Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) \
        provisioning modes";
    assert_eq!(against(&fixed, POOL), [message]);
    assert!(against(&fixed, "").is_empty(), "a creation");
    assert!(against(&fixed, &POOL.replace("name: p", "name: q")).is_empty(), "another object");
    assert!(against(POOL, POOL).is_empty());
}

#[test]
fn advice_is_a_warning() {
    let budgets = format!(
        "{POOL}  disruption:\n    budgets:\n    - {{nodes: '1', schedule: '0 0 30 2 *', duration: 1h}}\n"
    );
    let manifests = input::load_text("a.yaml", &budgets).expect("valid");
    let at = "2026-01-01T00:00:00Z".parse().expect("a time");
    let found = lint(&manifests, &[], &FeatureGates::default(), at);
    assert_eq!(
        serde_json::to_value(&found).expect("writes"),
        serde_json::json!([{
            "file": "a.yaml", "line": 18, "object": "NodePool/p",
            "field": "spec.disruption.budgets[0].schedule",
            "message": "the schedule has no hit within five years, which counts as always active",
            "severity": "warning", "source": "advice"}])
    );
    let nothing = POOL.replace(
        "  template:\n",
        "  template:\n    metadata:\n      labels:\n        kubernetes.io/arch: arm64\n",
    );
    assert!(findings(&nothing)[0].contains("together allow no value"));
}

#[test] // api 10, consequences 3, 4 and 6
fn selector_terms_that_nobody_wants() {
    let class = |terms: &str| {
        findings(&format!(
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: c}}\nspec:\n  role: r\n  \
             amiSelectorTerms: [{{alias: al2023@latest}}]\n  securityGroupSelectorTerms: [{{id: sg-1}}]\n  \
             subnetSelectorTerms: {terms}\n"
        ))
    };
    assert!(class("[{id: subnet-1}]").is_empty());
    let everything = class("[{tags: {}}]");
    assert!(
        everything[0].starts_with("8 Advice spec.subnetSelectorTerms[0].tags: no tags in a term")
    );
    let mixed = class("[{id: subnet-1, tags: {a: b}}, {tags: {a: b}}]");
    assert_eq!(
        mixed,
        [
            "8 Advice spec.subnetSelectorTerms[0].tags: tags beside id has no effect; make it a term of its own"
        ]
    );
}
