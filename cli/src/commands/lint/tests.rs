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
fn objects_are_told_by_kind_and_name() {
    let buffer = "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {name: b, namespace: n}\nspec: 1\n";
    let manifests = input::load_text("a.yaml", buffer).expect("valid");
    let found = lint(&manifests, &[], &FeatureGates::default(), Timestamp::UNIX_EPOCH);
    let objects: Vec<&str> = found.iter().map(|it| it.object.as_str()).collect();
    assert_eq!(objects, ["CapacityBuffer/b"]);
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

#[test] // api 0, the three layers of checking: each says what it finds, and no fault is told twice
fn what_rules_refuse_hides_no_other_fault() {
    // Rules over the whole spec.
    let class = CLASS.replace("  role: r\n", "  kubelet: {notAKubeletField: 1}\n");
    assert_eq!(
        findings(&class),
        [
            "4 Cel spec: must specify exactly one of ['role', 'instanceProfile']",
            "5 Runtime spec.kubelet.notAKubeletField: spec.kubelet: unknown field \"notAKubeletField\"",
        ]
    );
    let latest = CLASS.replace("  role: r\n", "").replace("v20250115", "latest");
    assert_eq!(findings(&latest).len(), 2, "{:?}", findings(&latest));
    let duplicate = "      taints:\n      - {key: a, effect: NoSchedule}\n      - {key: a, effect: NoSchedule}\n";
    assert_eq!(
        findings(&format!("{POOL}{duplicate}  replicas: 1\n  weight: 1\n")),
        [
            "5 Cel spec: 'weight' is not supported on static NodePools",
            "18 Runtime spec.template.spec.taints[1]: duplicate taint Key/Effect pair a=NoSchedule",
        ]
    );
    // Rules over a list or map: other entries, and other faults of the same entry.
    let entries = "      - {key: team, operator: In, values: []}\n      - {key: karpenter.sh/capacity-type, operator: In, \
                   values: [preemptible]}\n      - {key: karpenter.sh/capacity-type, operator: In, values: [spot], \
                   minValues: 2}\n      - {key: cpu, operator: Gt, values: []}\n";
    let rule = |message: &str| format!("12 Cel spec.template.spec.requirements: {message}");
    assert_eq!(
        findings(&format!("{POOL}{entries}")),
        [
            rule(
                "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value"
            ),
            rule("requirements with 'minValues' must have at least that many values specified in the 'values' field"),
            rule("requirements with operator 'In' must have a value defined"),
            "17 Runtime spec.template.spec.requirements[2]: invalid value: no valid values found in [preemptible] for \
             karpenter.sh/capacity-type, expected one of: [on-demand reserved spot] in requirements, restricted"
                .to_owned(),
        ]
    );
    let labels = "  template:\n    metadata:\n      labels:\n        karpenter.sh/initialized: a b\n        \
                  karpenter.k8s.aws/ec2nodeclass: x\n        a_b/c: x\n";
    let found = findings(&POOL.replace("  template:\n", labels));
    let starts = [
        "8 Cel spec.template.metadata.labels: label domain \"karpenter.sh\" is restricted",
        "9 Schema spec.template.metadata.labels.karpenter.sh/initialized: Invalid value: \"a b\"",
        "10 Runtime spec.template.metadata.labels[karpenter.k8s.aws/ec2nodeclass]: invalid key name",
        "11 Runtime spec.template.metadata.labels[a_b/c]: invalid key name \"a_b/c\" in labels, \"prefix part",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
    let overlay = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: o}\nspec:\n  requirements: []\n  \
                   capacity: {cpu: 1, vpc.amazonaws.com/efa: 1}\n";
    assert_eq!(
        findings(overlay),
        [
            "6 Runtime spec.capacity[vpc.amazonaws.com/efa]: invalid capacity: vpc.amazonaws.com/efa in resource, \
             restricted",
            "6 Cel spec.capacity: invalid resource restricted",
        ]
    );
    // What nobody sells is only known of a pool whose labels are right (api 16, case 5).
    let label = "  template:\n    metadata: {labels: {karpenter.k8s.aws/instance-pods: \"9\"}}\n";
    assert_eq!(
        findings(&POOL.replace("  template:\n", label)),
        ["7 Cel spec.template.metadata.labels: label domain \"karpenter.k8s.aws\" is restricted"]
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
    // A slip in an annotation that keeps nodes would otherwise show when they are gone.
    let annotated = |value: &str| {
        let annotation = format!("  name: p\n  annotations: {{spokeshave.dev/expiration: {value}}}\n");
        findings(&POOL.replacen("  name: p\n", &annotation, 1))
    };
    assert_eq!(annotated("replace"), [] as [&str; 0]);
    assert!(
        annotated("replac")[0].ends_with(
            "\"replac\" means nothing here, only \"replace\" does: nodes that reach expireAfter are deleted at once, whatever budgets say"
        ),
        "{:?}",
        annotated("replac")
    );
}

#[test] // api 10, consequences 3, 4 and 6
fn selector_terms_that_nobody_wants() {
    let class = |terms: &str| {
        findings(&format!(
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: c}}\nspec:\n  role: r\n  \
             amiSelectorTerms: [{{alias: al2023@v20250115}}]\n  securityGroupSelectorTerms: [{{id: sg-1}}]\n  \
             subnetSelectorTerms: {terms}\n"
        ))
    };
    assert!(class("[{id: subnet-1}]").is_empty());
    let everything = class("[{tags: {}}]");
    assert!(
        everything[0].starts_with("8 Advice spec.subnetSelectorTerms[0].tags: no tags in a term")
    );
    let reservations = format!("{CLASS}  capacityReservationSelectorTerms: [{{tags: {{}}}}]\n");
    assert_eq!(
        findings(&reservations),
        [
            "9 Advice spec.capacityReservationSelectorTerms[0].tags: no tags in a term that has nothing else: it \
             selects no capacity reservation"
        ]
    );
    let mixed = class("[{id: subnet-1, tags: {a: b}}, {tags: {a: b}}]");
    assert_eq!(
        mixed,
        [
            "8 Advice spec.subnetSelectorTerms[0].tags: tags beside id has no effect; make it a term of its own"
        ]
    );
}

/// Warnings alone, as `field: message`.
fn warnings(text: &str) -> Vec<String> {
    let lines = findings(text);
    let advice = lines.iter().filter_map(|it| it.split_once(" Advice "));
    advice.map(|it| it.1.to_owned()).collect()
}

const CLASS: &str = "\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: c}
spec:
  role: r
  amiSelectorTerms: [{alias: al2023@v20250115}]
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{id: sg-1}]
";

#[test]
fn images_that_follow_releases_are_warned_about() {
    let with = |alias: &str| warnings(&CLASS.replace("al2023@v20250115", alias));
    assert!(with("al2023@v20250115").is_empty());
    for alias in ["al2023@latest", "bottlerocket@latest", "al2@latest"] {
        let found = with(alias);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("spec.amiSelectorTerms[0].alias: every new image release"),
            "{found:?}"
        );
    }
    // No other version exists.
    assert!(with("windows2022@latest").is_empty());
}

#[test]
fn budgets_that_leave_gaps_are_warned_about() {
    let with = |budgets: &str| warnings(&format!("{POOL}  disruption:\n    budgets: {budgets}\n"));
    let gap = |at: usize, reason: &str| {
        format!(
            "spec.disruption.budgets[{at}].schedule: budgets for {reason} all have a schedule: outside their windows \
             nothing limits disruption; add a budget without a schedule"
        )
    };
    let work = "{nodes: \"0\", schedule: \"0 9 * * mon-fri\", duration: 8h}";
    assert_eq!(with(&format!("[{work}]")), [gap(0, "Underutilized")]);
    assert!(with(&format!("[{{nodes: 10%}}, {work}]")).is_empty());
    assert_eq!(
        with(&format!("[{{nodes: 10%, reasons: [Empty, Underutilized]}}, {work}]")),
        [gap(1, "Drifted")]
    );
    // Windows without a gap between them are no windows.
    assert!(with("[{nodes: \"1\", schedule: \"@daily\", duration: 24h}]").is_empty());
    assert!(with("[{nodes: \"1\", schedule: \"* * * * *\", duration: 1m}]").is_empty());
    let halves = "[{nodes: \"1\", schedule: \"0 0 * * *\", duration: 12h}, \
                   {nodes: \"2\", schedule: \"0 12 * * *\", duration: 12h}]";
    assert!(with(halves).is_empty());
    assert_eq!(with(&halves.replace("\"0 12", "\"1 12")), [gap(0, "Underutilized")]);
}

#[test]
fn pools_that_nothing_satisfies_are_warned_about() {
    let with = |key: &str, operator: &str, values: &str| {
        warnings(&format!(
            "{POOL}      - {{key: {key}, operator: {operator}, values: {values}}}\n"
        ))
    };
    let cpu = "karpenter.k8s.aws/instance-cpu";
    assert!(with(cpu, "Gt", "[\"8\"]").is_empty());
    let found = with(cpu, "Gt", "[\"8000\"]");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("spec.template.spec.requirements: none of the ")
            && found[0].ends_with("satisfies the requirements: the pool makes no nodes"),
        "{found:?}"
    );
    assert_eq!(with("karpenter.k8s.aws/instance-family", "In", "[g5g]").len(), 1);
    assert!(with("karpenter.k8s.aws/instance-family", "In", "[m5, g5g]").is_empty());
}

#[test]
fn taints_of_agents_belong_to_the_startup_taints() {
    let taints = |field: &str| {
        format!(
            "{POOL}      {field}: [{{key: ebs.csi.aws.com/agent-not-ready, effect: NoExecute}}]\n"
        )
    };
    assert_eq!(
        warnings(&taints("taints")),
        ["spec.template.spec.taints[0]: ebs.csi.aws.com/agent-not-ready goes away by itself, but pods that do not \
          tolerate it are never planned for; move it to startupTaints"]
    );
    assert!(warnings(&taints("startupTaints")).is_empty());
    let driver = "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: ebs-csi-node, namespace: kube-system}\n";
    assert_eq!(
        warnings(&format!("{POOL}{driver}")),
        ["spec.template.spec.startupTaints: ebs-csi-node runs in the cluster, and pods may start before it is ready; add \
          ebs.csi.aws.com/agent-not-ready to startupTaints"]
    );
    assert!(warnings(&format!("{}{driver}", taints("startupTaints"))).is_empty());
    let cilium = "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: net, namespace: n}\nspec: {template: {spec: \
                  {containers: [{name: a, image: \"quay.io/cilium/cilium:v1.18.0\"}]}}}\n";
    assert_eq!(warnings(&format!("{POOL}{cilium}")).len(), 1);
    assert!(warnings(&format!("{POOL}{}", cilium.replace("cilium/cilium", "cilium/hubble"))).is_empty());
}

#[test]
fn what_a_rule_and_a_controller_refuse_is_said_once() {
    let bound = |operator: &str, value: &str| {
        POOL.replace("operator: In", &format!("operator: {operator}"))
            .replace("[amd64]", &format!("[\"{value}\"]"))
            .replace("kubernetes.io/arch", "n")
    };
    let rule = "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value";
    for operator in ["Gt", "Lt", "Gte", "Lte"] {
        assert_eq!(
            findings(&bound(operator, "-1")),
            [format!("12 Cel spec.template.spec.requirements: {rule}")]
        );
    }
    // The value of another requirement is a problem of its own.
    let other = format!("{}      - {{key: m, operator: In, values: [a/b]}}\n", bound("Gt", "-1"));
    let found = findings(&other);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].starts_with("16 Runtime spec.template.spec.requirements[1]: invalid value: invalid value a/b"));
    let budget = POOL.replace(
        "spec:\n  template:",
        "spec:\n  disruption: {budgets: [{nodes: \"1\", schedule: \"@daily\"}]}\n  template:",
    );
    assert_eq!(
        findings(&budget),
        ["6 Cel spec.disruption.budgets: 'schedule' must be set with 'duration'"]
    );
}
