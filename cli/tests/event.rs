//! `spokeshave event`: documents, bodies, batches and lists of documents.

mod common;

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use spokeshave::{ExitStatus, Failure, Format};

use crate::common::{Ran, run};

fn events(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../events").join(name);
    path.display().to_string()
}

fn file(name: &str, text: impl AsRef<[u8]>) -> String {
    common::file("event", name, text)
}

fn run_as(format: Format, args: &[&str]) -> (Result<ExitStatus, Failure>, String) {
    let Ran { status, output, .. } = run(format, &[&["event"], args].concat());
    (status, output)
}

fn rows(args: &[&str]) -> Vec<Value> {
    let (status, text) = run_as(Format::Json, args);
    assert_eq!(status, Ok(ExitStatus::Answered));
    serde_json::from_str(&text).expect("JSON")
}

/// `record kind instances actions` of each row.
fn shapes(rows: &[Value]) -> Vec<String> {
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let shape = |row: &Value| {
        let ids: Vec<String> = list(&row["instanceIds"])
            .iter()
            .map(|it| it.as_str().unwrap_or_default().to_owned())
            .collect();
        let actions: Vec<String> = list(&row["actions"])
            .iter()
            .map(|it| {
                format!(
                    "{}({})",
                    it["action"].as_str().unwrap_or_default(),
                    it["object"].as_str().unwrap_or_default()
                )
            })
            .collect();
        assert_eq!(row["deleteMessage"], json!(true));
        let kind = row["kind"].as_str().expect("a text");
        format!("{} {kind} [{}] {}", row["record"], ids.join(","), actions.join(" "))
    };
    rows.iter().map(shape).collect()
}

const CLUSTER: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
   "metadata": {"name": "a", "uid": "1", "labels": {"node.kubernetes.io/instance-type": "m5.large",
     "topology.kubernetes.io/zone": "us-west-2a", "karpenter.sh/nodepool": "default"}},
   "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}},
   "status": {"providerID": "aws:///us-west-2a/i-0c0ffee0000000001", "nodeName": "n1"}},
  {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
   "metadata": {"name": "b", "labels": {"karpenter.k8s.aws/capacity-reservation-id": "cr-0b10c000000000001"}},
   "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}},
   "status": {"providerID": "aws:///us-west-2b/i-0c0ffee0000000002"}},
  {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
   "spec": {"providerID": "aws:///us-west-2a/i-0c0ffee0000000001"}}]}"#;

#[test] // nodeclass 22 and 23
fn documents_against_a_cluster() {
    let cluster = file("cluster.json", CLUSTER);
    let spot = "PublishEvent(NodeClaim/a) PublishEvent(Node/n1) \
                MarkOfferingUnavailable(spot:m5.large:us-west-2a) DeleteNodeClaim(NodeClaim/a) \
                PublishEvent(NodeClaim/a) PublishEvent(Node/n1)";
    let stop = "PublishEvent(NodeClaim/b) DeleteNodeClaim(NodeClaim/b) PublishEvent(NodeClaim/b)";
    let reserved = "PublishEvent(NodeClaim/b) ZeroReservation(cr-0b10c000000000001) \
                    DeleteNodeClaim(NodeClaim/b) PublishEvent(NodeClaim/b)";
    let (one, two, three) = ("i-0c0ffee0000000001", "i-0c0ffee0000000002", "i-0c0ffee0000000003");
    for (name, expected) in [
        ("spot-interruption-warning.json", format!("0 SpotInterruption [{one}] {spot}")),
        ("sns-notification.json", format!("0 SpotInterruption [{one}] {spot}")),
        (
            "rebalance-recommendation.json",
            format!("0 RebalanceRecommendation [{one}] PublishEvent(NodeClaim/a) PublishEvent(Node/n1)"),
        ),
        ("state-change-stopped.json", format!("0 InstanceStateChange [{two}] {stop}")),
        ("state-change-terminated.json", format!("0 InstanceStateChange [{two}] {stop}")),
        ("state-change-running.json", "0 NoOp [] ".into()),
        (
            "health-scheduled-change-many.json",
            format!(
                "0 ScheduledChange [{one},{two},{three}] PublishEvent(NodeClaim/a) PublishEvent(Node/n1) \
                 DeleteNodeClaim(NodeClaim/a) PublishEvent(NodeClaim/a) PublishEvent(Node/n1) {stop}"
            ),
        ),
        ("health-scheduled-change.json", format!("0 ScheduledChange [{three}] ")),
        ("health-scheduled-change-closed.json", "0 NoOp [] ".into()),
        (
            "capacity-reservation-interruption.json",
            format!("0 CapacityReservationInterruption [{two}] {reserved}"),
        ),
        (
            "capacity-block-expiration.json",
            "0 CapacityReservationExpiration [] DeleteNodeClaim(NodeClaim/b) PublishEvent(NodeClaim/b)".into(),
        ),
        ("malformed.txt", "0 Malformed [] ".into()),
        ("malformed-time.txt", "0 Malformed [] ".into()),
    ] {
        let path = events(&format!("aws/{name}"));
        let rows = rows(&[&path, "--cluster", &cluster]);
        assert_eq!(shapes(&rows), [expected], "{name}");
        assert_eq!(rows[0]["file"], json!(path));
        assert_eq!(rows[0]["error"].is_null(), rows[0]["kind"] != "Malformed");
    }
}

#[test]
fn details_and_keys() {
    let cluster = file("details.json", CLUSTER);
    let path = events("aws/spot-interruption-warning.json");
    let rows = rows(&[&path, "--cluster", &cluster]);
    let details: Vec<&str> = rows[0]["actions"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["detail"].as_str())
        .collect();
    assert_eq!(
        details,
        [
            "Warning SpotInterrupted: Spot interruption warning was triggered",
            "Warning SpotInterrupted: Spot interruption warning was triggered",
            "for 3m",
            "spot_interrupted",
            "Warning TerminatingOnInterruption: Interruption triggered termination for the NodeClaim",
            "Warning TerminatingOnInterruption: Interruption triggered termination for the Node",
        ]
    );
    let keys: Vec<&str> =
        rows[0].as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["actions", "deleteMessage", "error", "file", "instanceIds", "kind", "record"]
    );
}

#[test]
fn batches_and_lists_are_numbered() {
    let batch = events("lambda/interruption-batch.json");
    assert_eq!(
        shapes(&rows(&[&batch])),
        [
            "0 SpotInterruption [i-0c0ffee0000000001] ",
            "1 RebalanceRecommendation [i-0c0ffee0000000001] ",
            "2 Malformed [] ",
            "3 NoOp [] ",
            "4 CapacityReservationInterruption [i-0c0ffee0000000002] ",
        ]
    );
    let read = |name: &str| fs::read_to_string(events(name)).expect("a sample");
    let list = format!(
        "[{}, {}, null, 7, \"text\", {{}}]",
        read("aws/spot-interruption-warning.json"),
        read("aws/state-change-stopping.json")
    );
    let list = file("list.json", list);
    let spot = events("aws/spot-interruption-warning.json");
    let rows = rows(&[&list, &spot]);
    assert_eq!(
        shapes(&rows),
        [
            "0 SpotInterruption [i-0c0ffee0000000001] ",
            "1 InstanceStateChange [i-0c0ffee0000000002] ",
            "2 NoOp [] ",
            "3 Malformed [] ",
            "4 Malformed [] ",
            "5 NoOp [] ",
            "0 SpotInterruption [i-0c0ffee0000000001] ",
        ]
    );
    assert_eq!((&rows[5]["file"], &rows[6]["file"]), (&json!(list), &json!(spot)));
}

#[test]
fn odd_files() {
    for (name, text, expected) in [
        ("empty", &b""[..], vec!["0 NoOp [] "]),
        ("blank", b"\n", vec!["0 Malformed [] "]),
        ("not-utf8", b"\xff\xfe{}", vec!["0 Malformed [] "]),
        ("bom", b"\xef\xbb\xbf{}", vec!["0 NoOp [] "]),
        ("empty-list", b"[]", vec![]),
        ("empty-batch", b"{\"Records\":[]}", vec![]),
        ("cut-list", b"[{}", vec!["0 Malformed [] "]),
        (
            "odd-records",
            b"{\"Records\":[{},{\"body\":null},{\"body\":\"\"},{\"body\":3},7]}",
            vec![
                "0 Malformed [] ",
                "1 Malformed [] ",
                "2 NoOp [] ",
                "3 Malformed [] ",
                "4 Malformed [] ",
            ],
        ),
        ("records-no-list", b"{\"Records\":{}}", vec!["0 NoOp [] "]),
    ] {
        let path = file(&format!("odd-{name}.json"), text);
        assert_eq!(shapes(&rows(&[&path])), expected, "{name}");
    }
}

#[test] // nodeclass 23, case 7
fn reservations_that_no_class_found_are_not_emptied() {
    let class = |id: &str| {
        format!(
            r#"{{"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {{"name": "d"}},
            "spec": {{"amiSelectorTerms": [], "subnetSelectorTerms": [], "securityGroupSelectorTerms": []}},
            "status": {{"capacityReservations": [{{"id": "{id}", "availabilityZone": "us-west-2a",
              "instanceMatchCriteria": "open", "instanceType": "m5.large", "ownerID": "1",
              "reservationType": "default", "state": "active"}}]}}}}"#
        )
    };
    let cluster = file("reserved.json", CLUSTER);
    let path = events("aws/capacity-reservation-interruption.json");
    for (id, emptied) in [("cr-0b10c000000000001", true), ("cr-2", false)] {
        let class = file(&format!("class-{id}.json"), class(id));
        let shapes = shapes(&rows(&[&path, "--cluster", &cluster, &class]));
        assert_eq!(shapes[0].contains("ZeroReservation"), emptied, "{id}");
    }
}

#[test] // Rebalance recommendations, where the pool asks for it
fn a_recommendation_that_is_acted_on() {
    let cluster = file("rebalance.json", CLUSTER);
    let pool = file(
        "pool.yaml",
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: default\n  annotations:\n    \
         spokeshave.dev/rebalance: replace\nspec:\n  template:\n    spec:\n      requirements: []\n      \
         nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: d}\n",
    );
    let path = events("aws/rebalance-recommendation.json");
    let now = "2026-03-02T08:00:00Z";
    let rows = rows(&[&path, "--cluster", &cluster, &pool, "--now", now]);
    assert_eq!(
        shapes(&rows),
        ["0 RebalanceRecommendation [i-0c0ffee0000000001] PublishEvent(NodeClaim/a) \
          PublishEvent(Node/n1) MarkOfferingUnavailable(spot:m5.large:us-west-2a) \
          AnnotateNodeClaim(NodeClaim/a)"]
    );
    let detail = format!("spokeshave.dev/rebalance-recommended={now}");
    assert_eq!(rows[0]["actions"][3]["detail"], json!(detail));
}

#[test]
fn text_is_one_line_per_message_and_action() {
    let cluster = file("text.json", CLUSTER);
    let path = events("aws/state-change-stopped.json");
    let garbage = events("aws/malformed-time.txt");
    let (status, text) = run_as(Format::Text, &[&path, &garbage, "--cluster", &cluster]);
    assert_eq!(status, Ok(ExitStatus::Answered));
    assert_eq!(
        text,
        format!(
            "{path}[0] InstanceStateChange i-0c0ffee0000000002\n  \
             PublishEvent NodeClaim/b: Warning InstanceStopping: Instance is stopping\n  \
             DeleteNodeClaim NodeClaim/b: instance_stopped\n  \
             PublishEvent NodeClaim/b: Warning TerminatingOnInterruption: Interruption triggered termination for the NodeClaim\n\
             {garbage}[0] Malformed: field time is not in RFC 3339 form: \"2 March\"\n"
        )
    );
}

#[test]
fn unusable_calls_name_the_file() {
    let (status, text) = run_as(Format::Json, &["nowhere.json"]);
    let failure = status.expect_err("there is no such file").to_string();
    assert!(failure.starts_with("nowhere.json: cannot read: "), "{failure}");
    assert_eq!(text, "");
    let cluster = file("broken.yaml", "kind: NodeClaim\n");
    let path = events("aws/malformed.txt");
    let (status, text) = run_as(Format::Json, &[&path, "--cluster", &cluster]);
    assert!(status.is_err() && text.is_empty(), "if one input is unusable, nothing is judged");
}

#[test] // nodeclass 30, cases 1, 2, 5 and 6
fn lifecycle_hooks_are_acted_on_where_they_are_asked_for() {
    let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "g"},
        "spec": {"providerID": "aws:///us-west-2b/i-0c3d4e5f607182930"}}"#;
    let cluster = file("group.json", node);
    let terminate = events("aws/asg-terminate-lifecycle-action.json");
    let own = events("aws/asg-direct-sqs-body.json");
    let (launch, test) =
        (events("aws/asg-launch-lifecycle-action.json"), events("aws/asg-test-notification.json"));
    let files = [&*terminate, &own, &launch, &test];
    let off = rows(&[&files[..], &["--cluster", &cluster]].concat());
    assert_eq!(shapes(&off), ["0 NoOp [] "; 4]);
    let on = ["--set", "SPOKESHAVE_LIFECYCLE_HOOKS=true"];
    let rows_on = rows(&[&files[..], &on, &["--cluster", &cluster]].concat());
    let drained = "0 LifecycleAction [i-0c3d4e5f607182930] DrainNode(Node/g)";
    assert_eq!(shapes(&rows_on), [drained, drained, "0 NoOp [] ", "0 NoOp [] "]);
    let detail = &rows_on[0]["actions"][0]["detail"];
    assert_eq!(detail, "then CONTINUE for mng-system/drain-first");
    let elsewhere = rows(&[&files[..1], &on].concat());
    assert_eq!(shapes(&elsewhere), ["0 LifecycleAction [i-0c3d4e5f607182930] "]);
}
