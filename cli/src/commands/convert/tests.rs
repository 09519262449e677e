use super::*;

fn converted(text: &str) -> (Value, Vec<String>) {
    let manifests = input::load_text("old.yaml", text).expect("valid");
    let (mut objects, notes) = convert(&manifests).expect("converts");
    (objects.remove(0), notes.into_iter().map(|it| it.message).collect())
}

fn pool(spec: &str) -> (Value, Vec<String>) {
    converted(&format!(
        "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {{name: p}}\nspec: {spec}\n"
    ))
}

fn class(rest: &str) -> (Value, Vec<String>) {
    converted(&format!("apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\n{rest}\n"))
}

const REF: &str = "template: {spec: {nodeClassRef: {name: default}, requirements: []}}";

#[test] // api 18, cases 1 and 2
fn disruption() {
    let (object, notes) = pool(&format!(
        "{{disruption: {{consolidationPolicy: WhenUnderutilized, expireAfter: 720h}}, {REF}}}"
    ));
    assert_eq!(object["apiVersion"], "karpenter.sh/v1");
    assert_eq!(
        object["spec"]["disruption"],
        json!({"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"})
    );
    assert_eq!(object["spec"]["template"]["spec"]["expireAfter"], "720h");
    assert!(notes.is_empty(), "{notes:?}");
    let (object, _) = pool(&format!(
        "{{disruption: {{consolidationPolicy: WhenEmpty, consolidateAfter: 30s, expireAfter: Never}}, {REF}}}"
    ));
    assert_eq!(
        object["spec"]["disruption"],
        json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"})
    );
    assert_eq!(object["spec"]["template"]["spec"]["expireAfter"], "Never");
    let (object, _) = pool(&format!(
        "{{disruption: {{consolidationPolicy: WhenEmpty, budgets: [{{nodes: 10%}}]}}, weight: 3, {REF}}}"
    ));
    assert_eq!(
        object["spec"]["disruption"],
        json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", "budgets": [{"nodes": "10%"}]})
    );
    assert_eq!(object["spec"]["weight"], 3);
    let (object, _) = pool(&format!("{{disruption: {{expireAfter: 1h}}, {REF}}}"));
    assert_eq!(object["spec"].get("disruption"), None, "defaults are not written");
}

#[test] // api 18, case 3
fn class_references() {
    let (object, _) = pool("{template: {spec: {nodeClassRef: {name: default}}}}");
    let spec = &object["spec"]["template"]["spec"];
    assert_eq!(
        spec["nodeClassRef"],
        json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"})
    );
    assert_eq!(spec["requirements"], json!([]));
    assert_eq!(
        object["metadata"]["annotations"]["compatibility.karpenter.sh/v1beta1-nodeclass-reference"],
        r#"{"name":"default"}"#
    );
    let (object, _) = pool(
        "{template: {spec: {nodeClassRef: {apiVersion: example.com/v2, kind: Foo, name: x}}}}",
    );
    assert_eq!(
        object["spec"]["template"]["spec"]["nodeClassRef"],
        json!({"group": "example.com", "kind": "Foo", "name": "x"})
    );
}

#[test] // api 18, case 6
fn kubelet_of_the_pool() {
    let (object, notes) = pool(
        "{template: {spec: {nodeClassRef: {name: d}, kubelet: {maxPods: 20}, resources: {requests: {cpu: 1}}}}}",
    );
    assert_eq!(
        object["metadata"]["annotations"]["compatibility.karpenter.sh/v1beta1-kubelet-conversion"],
        r#"{"maxPods":20}"#
    );
    let spec = &object["spec"]["template"]["spec"];
    assert!(spec.get("kubelet").is_none() && spec.get("resources").is_none());
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[test] // api 18, cases 4 and 5
fn image_families() {
    let (object, notes) = class("metadata: {name: c}\nspec: {amiFamily: Bottlerocket, role: r}");
    assert_eq!(
        object["spec"],
        json!({"role": "r", "amiSelectorTerms": [{"alias": "bottlerocket@latest"}]})
    );
    assert!(notes.is_empty());
    let (object, _) =
        class("metadata: {name: c}\nspec: {amiFamily: AL2, amiSelectorTerms: [{id: ami-1}]}");
    assert_eq!(object["spec"], json!({"amiFamily": "AL2", "amiSelectorTerms": [{"id": "ami-1"}]}));
    let (object, _) = class(
        "metadata: {name: c, annotations: {compatibility.karpenter.k8s.aws/v1-alias-version: v20250115}}\nspec: {amiFamily: AL2023}",
    );
    assert_eq!(object["spec"]["amiSelectorTerms"], json!([{"alias": "al2023@v20250115"}]));
    let (object, notes) = class("metadata: {name: c}\nspec: {amiFamily: Ubuntu}");
    assert_eq!(
        object["metadata"]["annotations"]["compatibility.karpenter.k8s.aws/v1beta1-ubuntu"],
        "amiFamily,blockDeviceMappings,incompatible"
    );
    assert_eq!(
        object["spec"],
        json!({"amiFamily": "AL2", "amiSelectorTerms": [{"id": "ami-placeholder"}], "blockDeviceMappings": [
            {"deviceName": "/dev/sda1", "rootVolume": true,
             "ebs": {"encrypted": true, "volumeSize": "20Gi", "volumeType": "gp3"}}]})
    );
    assert_eq!(notes.len(), 1);
    let (object, _) =
        class("metadata: {name: c}\nspec: {amiFamily: Other, amiSelectorTerms: [{id: ami-1}]}");
    assert_eq!(object["spec"]["amiFamily"], "Custom");
}

#[test] // api 18, case 7
fn claims_take_their_pools_expiry() {
    let claim = |labels: &str| {
        format!(
            "apiVersion: karpenter.sh/v1beta1\nkind: NodeClaim\nmetadata: {{name: c, labels: {labels}}}\n\
             spec: {{nodeClassRef: {{name: d}}, requirements: [], resources: {{requests: {{cpu: '1'}}}}}}\n"
        )
    };
    let (object, notes) = converted(&claim("{}"));
    assert_eq!(object["spec"]["expireAfter"], "Never");
    assert_eq!(object["spec"]["resources"], json!({"requests": {"cpu": "1"}}));
    assert!(notes.is_empty());
    let owned = claim("{karpenter.sh/nodepool: p}");
    let pool = "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\nspec: {template: {spec: {expireAfter: 5h}}}\n";
    let (object, _) = converted(&format!("{owned}{pool}"));
    assert_eq!(object["spec"]["expireAfter"], "5h");
    let (object, notes) = converted(&owned);
    assert_eq!((object["spec"]["expireAfter"].as_str(), notes.len()), (Some("Never"), 1));
}

#[test]
fn what_is_v1_already_passes_unchanged_and_others_are_passed_over() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\nspec: {anything: 1}\n";
    let manifests = input::load_text("a.yaml", text).expect("valid");
    let (objects, notes) = convert(&manifests).expect("converts");
    assert_eq!(objects, [manifests[1].value.clone()]);
    assert!(notes.is_empty());
    // No version of an overlay was converted, whatever it says.
    let text = "apiVersion: karpenter.sh/v1beta1\nkind: NodeOverlay\nmetadata: {name: o}\nspec: {requirements: []}\n";
    let manifests = input::load_text("a.yaml", text).expect("valid");
    assert_eq!(convert(&manifests).expect("converts").0, [manifests[0].value.clone()]);
}

#[test]
fn a_field_of_the_wrong_type_is_named() {
    let manifests = input::load_text(
        "a.yaml",
        "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: p}\nspec:\n  template: 3\n",
    )
    .expect("valid");
    let failure = convert(&manifests).expect_err("not an object").to_string();
    assert!(
        failure.starts_with("a.yaml:5: NodePool/p: spec.template: found a number"),
        "{failure}"
    );
}
