use std::{cell::RefCell, fs, io::Write, rc::Rc};

use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::Format;

#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

const CATALOG: &str = r#"{"instanceTypes":[
  {"name":"m.small","labels":{"kubernetes.io/arch":["amd64"],"kubernetes.io/os":["linux"]},
   "capacity":{"cpu":"2","memory":"4Gi","pods":"10"},"overhead":{"cpu":"100m"},
   "offerings":[{"capacityType":"spot","zone":"a","zoneId":"1","price":0.03},
                {"capacityType":"on-demand","zone":"b","zoneId":"2","price":0.1}]}]}"#;

const CLUSTER: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: example.com/tier, operator: Exists}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  containers: [{name: c, resources: {requests: {cpu: 500m}}}]
status:
  phase: Pending
  conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]
---
apiVersion: v1
kind: Pod
metadata: {name: huge, namespace: shop}
spec:
  containers: [{name: c, resources: {requests: {cpu: '90'}}}]
status:
  phase: Pending
  conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]
";

/// Runs the command over these files; standard output, or the failure.
fn plan(name: &str, format: Format, more: &[&str]) -> Result<String, Failure> {
    let folder =
        std::env::temp_dir().join(format!("spokeshave-plan-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (cluster, catalog) = (folder.join("cluster.yaml"), folder.join("catalog.json"));
    fs::write(&cluster, CLUSTER).expect("written");
    fs::write(&catalog, CATALOG).expect("written");
    let mut line = vec!["plan", "--cluster"];
    let (cluster, catalog) = (cluster.display().to_string(), catalog.display().to_string());
    line.extend([cluster.as_str(), "--catalog", catalog.as_str(), "--now", "2026-03-01T12:00:00Z"]);
    line.extend(more);
    let args = Line::try_parse_from(line).expect("a call").args;
    let sink = Sink::default();
    let out = Output::into_writers(format, Box::new(sink.clone()), Box::new(Sink::default()));
    let status = run(&args, &out);
    drop(out);
    fs::remove_dir_all(&folder).expect("removed");
    assert_eq!(status?, ExitStatus::Answered);
    let bytes = sink.0.borrow().clone();
    Ok(String::from_utf8(bytes).expect("UTF-8"))
}

#[test]
fn every_key_of_the_contract_is_there() {
    let text = plan("json", Format::Json, &["--explain", "shop/web"]).expect("an answer");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    let claim = &answer["newNodeClaims"][0];
    assert_eq!(claim["nodePool"], json!("default"));
    assert_eq!(claim["requests"], json!({"cpu": "500m", "pods": "1"}));
    assert_eq!(claim["pods"], json!(["shop/web"]));
    assert_eq!(claim["instanceTypes"], json!(["m.small"]));
    assert_eq!(
        claim["cheapest"],
        json!({"instanceType": "m.small", "zone": "a", "capacityType": "spot", "pricePerHour": 0.03})
    );
    assert_eq!(
        claim["requirements"][2],
        json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand", "spot"], "minValues": null})
    );
    assert!(claim["labels"]["example.com/tier"].is_string());
    let left = &answer["unschedulable"][0];
    assert_eq!(left["pod"], json!("shop/huge"));
    for reason in [&left["reason"], &left["pools"]["default"]] {
        let reason = reason.as_str().unwrap_or_default();
        assert!(reason.starts_with("no instance type has enough resources, requirements="));
    }
    for empty in ["existingNodes", "deferred", "ignored"] {
        assert_eq!(answer[empty], json!([]), "{empty}");
    }
    assert_eq!(answer["pricePerHour"], json!(0.03));
    assert!(answer["solveMillis"].is_number() && answer["setupMillis"].is_number());
    assert_eq!(answer["explain"]["pod"], json!("shop/web"));
    assert!(answer["explain"]["steps"].as_array().is_some_and(|it| it.len() > 1));
}

#[test]
fn text_fits_a_hundred_columns() {
    let text = plan("text", Format::Text, &[]).expect("an answer");
    assert!(text.starts_with("1 pod(s) on 1 new node(s) at 0.0300 $/h, 0 on 0 existing one(s)\n"));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn calls_that_cannot_be_used() {
    for (more, part) in [
        (&["--explain", "web"][..], "not NAMESPACE/NAME"),
        (&["--explain", "shop/none"], "not one of those to place"),
        (&["--explain", "kube-system/none"], "name a pod of --pods"),
        (&["--preference-policy", "ignore"], "PREFERENCE_POLICY"),
        (&["--set", "SCHEDULER_CONFIG=podTopologySpread: {x: 1}"], "SCHEDULER_CONFIG"),
    ] {
        let failure = plan("calls", Format::Json, more).expect_err(part).to_string();
        assert!(failure.contains(part), "{failure}");
    }
}

/// Runs the command over a cluster of these objects; the answer.
fn plan_of(name: &str, cluster: &str, more: &[&str]) -> Result<Value, Failure> {
    let folder = std::env::temp_dir().join(format!("spokeshave-of-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (file, catalog) = (folder.join("cluster.yaml"), folder.join("catalog.json"));
    fs::write(&file, cluster).expect("written");
    fs::write(&catalog, CATALOG).expect("written");
    let (file, catalog) = (file.display().to_string(), catalog.display().to_string());
    let mut line = vec!["plan", "--cluster", &file, "--catalog", &catalog];
    line.extend(["--now", "2026-03-01T12:00:00Z"]);
    line.extend(more);
    let args = Line::try_parse_from(line).expect("a call").args;
    let sink = Sink::default();
    let out = Output::into_writers(Format::Json, Box::new(sink.clone()), Box::new(Sink::default()));
    let status = run(&args, &out);
    drop(out);
    fs::remove_dir_all(&folder).expect("removed");
    status?;
    let bytes = sink.0.borrow().clone();
    Ok(serde_json::from_slice(&bytes).expect("JSON"))
}

#[test]
fn a_pod_that_is_ignored_is_explained() {
    let pod = "
---
apiVersion: v1
kind: Pod
metadata: {name: pinned, namespace: shop}
spec: {nodeSelector: {kubernetes.io/hostname: n1}, containers: [{name: c}]}
status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
";
    let cluster = format!("{CLUSTER}{pod}");
    let answer = plan_of("ignored", &cluster, &["--explain", "shop/pinned"]).expect("an answer");
    let steps = json!(["ignored: label kubernetes.io/hostname is restricted"]);
    assert_eq!(answer["explain"], json!({"pod": "shop/pinned", "steps": steps}));
}

#[test]
fn an_object_that_is_given_twice_is_named_with_both_places() {
    let twice = format!("{CLUSTER}---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: default}}\n");
    let failure = plan_of("twice", &twice, &[]).expect_err("twice");
    assert_eq!(failure.object.as_deref(), Some("NodePool/default"));
    assert_eq!(failure.line, Some(29));
    assert!(failure.problem.contains("given twice, first in "), "{}", failure.problem);
    assert!(failure.problem.ends_with("cluster.yaml:2"), "{}", failure.problem);
    // Without a namespace an object is in `default`.
    let pods = "
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default}, spec: {containers: [{name: c}]}}
";
    let failure = plan_of("twins", pods, &[]).expect_err("twice");
    assert_eq!((failure.object.as_deref(), failure.line), (Some("Pod/default/a"), Some(4)));
    let failure = plan_of("nameless", "{apiVersion: v1, kind: Pod, metadata: {labels: {a: b}}}", &[])
        .expect_err("no name");
    assert_eq!(failure.field.as_deref(), Some("metadata.name"));
}

#[test]
fn the_order_of_the_objects_changes_no_byte() {
    let more = (0..12).map(|n| {
        let (cpu, node) = (300 + 100 * (n % 5), if n % 3 == 0 { ", nodeName: n1" } else { "" });
        format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: more-{n}, namespace: shop, labels: {{app: a}}}}
spec:
  {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}m}}}}}}]{node}}}
status:
  phase: Pending
  conditions: [{{type: PodScheduled, status: 'False', reason: Unschedulable}}]
"
        )
    });
    let nodes = ["n1", "n2"].map(|name| {
        format!(
            "
apiVersion: v1
kind: Node
metadata: {{name: {name}}}
status: {{allocatable: {{cpu: '2', memory: 4Gi, pods: '10'}}}}
"
        )
    });
    let mut documents: Vec<String> =
        CLUSTER.split("---").map(str::to_owned).chain(more).chain(nodes).collect();
    let mut answers = Vec::new();
    for turn in 0..4 {
        documents.rotate_left(turn * 3);
        if turn % 2 == 1 {
            documents.reverse();
        }
        let name = format!("order-{turn}");
        let more = ["--disruption", "--explain", "shop/more-1"];
        let mut answer = plan_of(&name, &documents.join("---"), &more).expect("an answer");
        for millis in ["solveMillis", "setupMillis"] {
            answer[millis] = json!(0);
        }
        answers.push(answer.to_string());
    }
    assert!(answers[0].contains("shop/more-11"), "{}", answers[0]);
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:#?}");
}
