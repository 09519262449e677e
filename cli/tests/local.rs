//! `spokeshave local` from outside.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

fn input(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/local").join(name);
    path.display().to_string()
}

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spokeshave")).arg("local").args(args).output().expect("runs")
}

/// Runs with JSON output on the small catalog.
fn answer(args: &[&str]) -> (i32, Value) {
    let catalog = input("catalog.json");
    let mut all = vec!["--output", "json", "--catalog", &catalog];
    all.extend(args);
    let output = run(&all);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (
        output.status.code().expect("exits"),
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{error}")),
    )
}

fn write(name: &str, text: &str) -> String {
    let path = std::env::temp_dir().join(format!("spokeshave-local-{}-{name}", std::process::id()));
    std::fs::write(&path, text).expect("writes");
    path.display().to_string()
}

#[test]
fn the_first_manifests_of_a_newcomer_settle() {
    let manifests = input("getting-started.yaml");
    let (status, it) = answer(&["--manifests", &manifests]);
    assert_eq!((status, &it["settled"]), (0, &Value::Bool(true)));
    assert_eq!(it["pods"], serde_json::json!({"running": 5, "pending": 0}));
    assert_eq!(it["violations"], serde_json::json!([]));
    let claims = it["nodeClaims"].as_array().expect("a list");
    assert!(!claims.is_empty());
    for claim in claims {
        assert_eq!(claim["nodePool"], "default");
        assert_eq!(claim["nodeClass"], "default");
        assert_eq!(claim["capacityType"], "on-demand");
        assert_eq!(claim["state"], "Initialized");
        assert!(claim["instanceId"].as_str().expect("text").starts_with("i-"));
    }
    let sum: f64 = claims.iter().filter_map(|it| it["pricePerHour"].as_f64()).sum();
    assert!((it["pricePerHour"].as_f64().expect("a number") - sum).abs() < 1e-9);
}

#[test]
fn an_interrupted_spot_node_is_replaced_and_the_broken_event_is_dropped_alone() {
    let (manifests, broken, spot) = (input("mixed.yaml"), input("broken.json"), input("spot.json"));
    let (status, it) = answer(&["--manifests", &manifests, "--events", &broken, "--events", &spot]);
    assert_eq!(status, 0);
    assert_eq!(it["violations"], serde_json::json!([]));
    // Ten pods want the pool that no instance type satisfies; everybody else runs.
    assert_eq!(it["pods"], serde_json::json!({"running": 190, "pending": 10}));
    let pending = it["pending"].as_array().expect("a list");
    assert!(
        pending
            .iter()
            .all(|it| it["pod"].as_str().is_some_and(|it| it.starts_with("default/stuck-")))
    );
    let timeline = it["timeline"].as_array().expect("a list");
    let has = |concern: &str, action: &str, object: &str| {
        timeline.iter().any(|it| {
            it["concern"] == concern
                && it["action"] == action
                && it["object"].as_str().is_some_and(|it| it.starts_with(object))
        })
    };
    assert!(has("provision", "skip", "NodePool/impossible"), "the impossible pool is named");
    assert!(
        has("interruption", "mark-unavailable", "Offering/"),
        "the interrupted offering is left out"
    );
    assert!(
        timeline.iter().any(|it| it["concern"] == "interruption" && it["action"] == "drop"),
        "{timeline:#?}"
    );
    let interrupted = &it["interruptions"][0];
    assert_eq!(interrupted["kind"], "EC2 Spot Instance Interruption Warning");
    let id = interrupted["instanceId"].as_str().expect("an id");
    let claims = it["nodeClaims"].as_array().expect("a list");
    assert!(claims.iter().all(|it| it["instanceId"] != id), "the interrupted instance is gone");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let (catalog, manifests) = (input("catalog.json"), input("getting-started.yaml"));
    let args = [
        "--output",
        "json",
        "--catalog",
        &catalog,
        "--manifests",
        &manifests,
        "--seed",
        "5",
        "--faults",
        "all",
    ];
    let (one, two) = (run(&args), run(&args));
    assert_eq!(one.stdout, two.stdout);
    assert!(one.status.success());
}

#[test]
fn faults_break_no_invariant_and_everything_settles() {
    let manifests = input("getting-started.yaml");
    for seed in 1..=12 {
        let seed = seed.to_string();
        let (status, it) = answer(&["--manifests", &manifests, "--faults", "all", "--seed", &seed]);
        assert_eq!(it["violations"], serde_json::json!([]), "seed {seed}");
        assert_eq!((status, &it["pods"]["running"]), (0, &5.into()), "seed {seed}");
    }
}

/// One type in one zone that EC2 is short of now and then, and thirty pods that want a node each.
const SHORT: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: spokeshave}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: spokeshave}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 30
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
"#;
const ONE_TYPE: &str = r#"{"instanceTypes": [{"name": "only", "labels": {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["linux"]},
    "capacity": {"cpu": "2", "memory": "4Gi", "pods": "20"}, "overhead": {"cpu": "100m", "memory": "100Mi"},
    "offerings": [{"capacityType": "on-demand", "zone": "us-east-1a", "zoneId": "use1-az1", "price": 0.1}]}]}"#;

/// By seed: the claims that got no instance, and the second of the last launch, when nothing but the marks of offerings and a
/// pause after the second failure kept claims from being made, all of them at once with the first success.
const WITHOUT_STEPS: [(&str, usize, f64); 4] =
    [("1", 36, 790.058), ("2", 72, 1382.09), ("3", 42, 1171.656), ("4", 25, 979.524)];

#[test] // What fails is tried again one by one, and each success doubles what is tried: no storm of claims, and no delay.
fn capacity_that_is_short_makes_no_storm_of_claims() {
    let manifests = write("short.yaml", SHORT);
    let catalog = write("one-type.json", ONE_TYPE);
    let mut all_failed = 0;
    for (seed, failed_before, last_before) in WITHOUT_STEPS {
        let args = [
            "--output",
            "json",
            "--catalog",
            &catalog,
            "--manifests",
            &manifests,
            "--faults",
            "ice",
        ];
        let output = run(&[&args[..], &["--seed", seed]].concat());
        let it: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(it["settled"], true, "seed {seed}");
        assert_eq!(it["pods"], serde_json::json!({"running": 30, "pending": 0}), "seed {seed}");
        assert_eq!(it["violations"], serde_json::json!([]), "seed {seed}");
        let timeline = it["timeline"].as_array().expect("a list");
        let of = |concern: &str, action: &str| {
            let those =
                timeline.iter().filter(|it| it["concern"] == concern && it["action"] == action);
            those.map(|it| it["t"].as_f64().expect("seconds")).collect::<Vec<f64>>()
        };
        let (made, failed) = (of("provision", "create"), of("launch", "delete"));
        let launched = of("launch", "launch");
        assert_eq!(made.len() - failed.len(), 30, "seed {seed}");
        assert!(failed.len() < failed_before, "seed {seed}: {}", failed.len());
        let last = launched.last().copied().unwrap_or_default();
        assert!(last < last_before, "seed {seed}: {last}");
        all_failed += failed.len();
        // Batches as they were made: the first one whole, the one after a failure of a single claim, then at most doubling.
        let mut batches: Vec<(f64, usize)> = Vec::new();
        for at in made {
            match batches.last_mut() {
                Some((last, n)) if at - *last < 2.0 => *n += 1,
                _ => batches.push((at, 1)),
            }
        }
        assert_eq!(batches[0].1, 30, "seed {seed}");
        for pair in batches.windows(2) {
            let [(before, _), (at, n)] = pair else { continue };
            let struck = failed.iter().any(|it| it > before && it < at);
            let allowed =
                if struck { 1 } else { 2 * launched.iter().filter(|it| *it < at).count() };
            assert!(*n <= allowed, "seed {seed}: {n} at {at}");
        }
    }
    // Of 175 before.
    assert!(all_failed <= 120, "{all_failed}");
}

#[test]
fn a_broken_manifest_starts_nothing_and_names_the_place() {
    let text = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: p\nspec:\n  template:\n    spec:\n      \
                requirements: []\n      nodeClassRef:\n        group: karpenter.k8s.aws\n        kind: EC2NodeClass\n  limits:\n    cpu: lots\n";
    let path = write("broken.yaml", text);
    let output = run(&["--manifests", &path]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
    for part in [path.as_str(), "NodePool/p", "spec."] {
        assert!(error.contains(part), "{error}");
    }
    std::fs::remove_file(&path).expect("removes");
}

#[test]
fn what_cannot_be_used_is_said() {
    let manifests = input("getting-started.yaml");
    for (args, part) in [
        (vec!["--manifests", &manifests, "--faults", "gremlins"], "gremlins"),
        (vec!["--manifests", &manifests, "--until", "soon"], "--until"),
        (vec!["--manifests", &manifests, "--at", "90s"], "--at 90s"),
        (vec!["--manifests", "no-such-file.yaml"], "no-such-file.yaml"),
        (vec!["--manifests", &manifests, "--region", "xx-nowhere-1"], "xx-nowhere-1"),
    ] {
        let output = run(&args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(part), "{args:?}: {error}");
    }
    let event = write("out-of-range.json", r#"{"detail": {"instance-id": "{{instance:99}}"}}"#);
    let catalog = input("catalog.json");
    let output = run(&["--manifests", &manifests, "--catalog", &catalog, "--events", &event]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("{{instance:99}}"));
    std::fs::remove_file(&event).expect("removes");
}

#[test]
fn manifests_can_come_and_go_later() {
    let manifests = input("getting-started.yaml");
    let gone = write(
        "gone.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: inflate\n  annotations:\n    spokeshave.dev/delete: \"true\"\n",
    );
    let at = format!("10m={gone}");
    let (status, it) = answer(&["--manifests", &manifests, "--at", &at]);
    assert_eq!(status, 0);
    assert_eq!(it["pods"], serde_json::json!({"running": 0, "pending": 0}));
    assert_eq!(it["nodeClaims"], serde_json::json!([]), "empty nodes go");
    assert_eq!(it["pricePerHour"], 0.0);
    std::fs::remove_file(&gone).expect("removes");
}

#[test]
fn with_a_duration_the_state_at_the_end_is_judged() {
    let manifests = input("getting-started.yaml");
    let (status, it) = answer(&["--manifests", &manifests, "--until", "20s"]);
    assert_eq!((status, &it["settled"]), (1, &Value::Bool(false)));
    assert_eq!(it["pods"], serde_json::json!({"running": 0, "pending": 5}));
    let (status, it) = answer(&["--manifests", &manifests, "--until", "30m"]);
    assert_eq!((status, &it["settled"]), (0, &Value::Bool(true)));
}

/// A startup taint goes with its agent, and stays where nobody takes it away.
#[test]
fn startup_taints_wait_for_their_agent() {
    let pool = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: tainted}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      startupTaints:
      - {key: node.cilium.io/agent-not-ready, value: "true", effect: NoExecute}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@v20250715}]
  role: KarpenterNodeRole-spokeshave
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: spokeshave}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: spokeshave}}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 500m}}}]}
"#;
    let agent = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium, namespace: kube-system}
spec:
  selector: {matchLabels: {app: cilium}}
  template:
    metadata: {labels: {app: cilium}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: agent, image: cilium, resources: {requests: {cpu: 100m}}}]
"#;
    let pool = write("tainted.yaml", pool);
    let agent = write("agent.yaml", agent);
    let (status, it) = answer(&["--manifests", &pool, "--until", "5m"]);
    assert_eq!((status, it["nodeClaims"][0]["state"].as_str()), (0, Some("Registered")));
    assert_eq!(it["pods"], serde_json::json!({"running": 0, "pending": 1}));
    assert_eq!(it["nodeClaims"].as_array().map(Vec::len), Some(1));
    let (status, it) = answer(&["--manifests", &pool, "--manifests", &agent]);
    assert_eq!((status, it["nodeClaims"][0]["state"].as_str()), (0, Some("Initialized")));
    assert_eq!(it["pods"], serde_json::json!({"running": 2, "pending": 0}));
    assert_eq!(it["violations"], serde_json::json!([]));
}

/// What a later time brings is not due yet; a machine that is on its way is.
#[test]
fn a_node_that_expires_later_keeps_nothing_from_having_settled() {
    let text = std::fs::read_to_string(input("getting-started.yaml")).expect("reads");
    let manifests = write("expiring.yaml", &text.replace("expireAfter: 720h", "expireAfter: 10m"));
    for (until, status) in [("9s", 1), ("8m", 0), ("14m", 0)] {
        let (got, it) = answer(&["--manifests", &manifests, "--until", until]);
        assert_eq!((got, &it["settled"]), (status, &Value::Bool(status == 0)), "{until}");
        let running = if status == 0 { 5 } else { 0 };
        assert_eq!(it["pods"]["running"], running, "{until}");
    }
}

/// A class, a pool whose nodes live for an hour, and three pods in a deployment.
fn hourly(pods: &str, more: &str) -> String {
    format!(
        "
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {{name: default}}
spec:
  role: R
  amiSelectorTerms: [{{alias: al2023@latest}}]
  subnetSelectorTerms: [{{tags: {{karpenter.sh/discovery: spokeshave}}}}]
  securityGroupSelectorTerms: [{{tags: {{karpenter.sh/discovery: spokeshave}}}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: default}}
spec:
  template:
    spec:
      expireAfter: 1h
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
      requirements: []
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: default}}
spec:
  replicas: 3
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}{pods}}}
    spec: {{containers: [{{name: c, image: x, resources: {{requests: {{cpu: 500m}}}}}}]}}
{more}"
    )
}

#[test] // B-023: an expired node that cannot be drained, looked at ten times in half an hour
fn an_expired_node_that_waits_for_its_pods_is_replaced_once_at_most() {
    // A pod that nobody can place makes provisioning look at everything again.
    let passes: Vec<String> = (0..10)
        .map(|n| {
            let pod = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: hopeless-{n}, namespace: default}}\nspec: {{nodeSelector: {{team: nobody}}, containers: [{{name: c, image: x}}]}}\n"
            );
            format!("{}s={}", 3620 + 180 * n, write(&format!("hopeless-{n}.yaml"), &pod))
        })
        .collect();
    let budget = |allowed: u32| {
        format!(
            "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: web, namespace: default}}\nspec: {{maxUnavailable: {allowed}, selector: {{matchLabels: {{app: web}}}}}}\n"
        )
    };
    let run = |manifests: &str, more: &[&str]| {
        let mut args = vec!["--manifests", manifests];
        args.extend(passes.iter().flat_map(|it| ["--at", it.as_str()]));
        args.extend(more);
        answer(&args)
    };
    let object = |it: &Value| it["object"].as_str().unwrap_or_default().to_owned();
    let of = |it: &Value, concern: &str, action: &str| -> Vec<(f64, String)> {
        let timeline = it["timeline"].as_array().expect("a list");
        let those = timeline.iter().filter(|it| it["concern"] == concern && it["action"] == action);
        those.map(|it| (it["t"].as_f64().expect("a time"), object(it))).collect()
    };
    let held =
        write("held.yaml", &hourly(", annotations: {karpenter.sh/do-not-disrupt: 'true'}", ""));
    let guarded = write("guarded.yaml", &hourly("", &budget(0)));
    for manifests in [&held, &guarded] {
        let (status, it) = run(manifests, &["--until", "92m"]);
        assert_eq!(status, 0);
        let made = of(&it, "provision", "create");
        assert_eq!(made.len(), 1, "{made:?}");
        let claim = &made[0].1;
        assert_eq!(of(&it, "lifecycle", "delete").len(), 1);
        assert_eq!(&of(&it, "lifecycle", "delete")[0].1, claim);
        let tainted = of(&it, "termination", "taint");
        assert!(tainted.len() == 1 && tainted[0].0 < 3610.0, "{tainted:?}");
        assert_eq!(of(&it, "termination", "evict"), []);
        assert_eq!(it["nodeClaims"].as_array().map(Vec::len), Some(1));
        assert_eq!(it["nodeClaims"][0]["state"], "Terminating");
        assert_eq!(it["pods"], serde_json::json!({"running": 3, "pending": 10}));
        let looks = of(&it, "provision", "unschedulable");
        let looks: std::collections::BTreeSet<u64> =
            looks.iter().filter(|it| it.0 > 3610.0).map(|it| it.0 as u64).collect();
        assert!(looks.len() >= 10, "{looks:?}");
        assert_eq!(it["violations"], serde_json::json!([]));
    }
    // Once the pods may go, one at a time, all of them go to one new node.
    let freed = format!("92m={}", write("freed.yaml", &budget(1)));
    let (status, it) = run(&guarded, &["--at", &freed, "--until", "105m"]);
    assert_eq!(status, 0);
    let made = of(&it, "provision", "create");
    assert_eq!(made.len(), 2, "{made:?}");
    assert_eq!(of(&it, "termination", "evict").len(), 3);
    assert_eq!(it["nodeClaims"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        format!("NodeClaim/{}", it["nodeClaims"][0]["name"].as_str().expect("text")),
        made[1].1
    );
    assert_eq!(it["pods"], serde_json::json!({"running": 3, "pending": 10}));
    assert_eq!(it["violations"], serde_json::json!([]));
}

#[test] // B-026: three drifted nodes, one at a time, and what comes in their place never gets ready
fn drift_to_nodes_that_do_not_work_keeps_the_old_ones() {
    let apart = "spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}, containers";
    let budget = "spec:\n  disruption: {budgets: [{nodes: '1'}], consolidateAfter: Never}\n  template:\n    spec:\n      expireAfter: Never";
    let text = hourly("", "")
        .replace("spec: {containers", apart)
        .replace("spec:\n  template:\n    spec:\n      expireAfter: 1h", budget);
    let manifests = write("drifting.yaml", &text);
    // Nobody ever takes this startup taint away.
    let broken = text.replace(
        "requirements: []",
        "requirements: []\n      startupTaints: [{key: example.com/never, effect: NoExecute}]",
    );
    let change = format!("10m={}", write("drifted.yaml", &broken));
    let (status, it) = answer(&["--manifests", &manifests, "--at", &change, "--until", "2h"]);
    assert_eq!((status, &it["violations"]), (0, &serde_json::json!([])));
    assert_eq!(it["pods"], serde_json::json!({"running": 3, "pending": 0}));
    let timeline = it["timeline"].as_array().expect("a list");
    let of = |concern: &str, action: &str| -> Vec<&Value> {
        let those = timeline.iter().filter(|it| it["concern"] == concern && it["action"] == action);
        those.map(|it| &it["object"]).collect()
    };
    let first = of("provision", "create");
    assert_eq!(first.len(), 3);
    assert_eq!(of("lifecycle", "drifted").len(), 3, "{timeline:#?}");
    assert!(!of("disruption", "roll-back").is_empty());
    assert_eq!(of("disruption", "disrupt").len(), of("disruption", "roll-back").len());
    assert!(of("disruption", "delete").is_empty() && of("termination", "evict").is_empty());
    let left: Vec<String> = it["nodeClaims"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|it| it["state"] == "Initialized")
        .map(|it| format!("NodeClaim/{}", it["name"].as_str().expect("text")))
        .collect();
    assert_eq!(left.len(), 3);
    assert!(
        first.iter().all(|it| left.iter().any(|left| *left == it.as_str().unwrap_or_default()))
    );
}

#[test] // B-031: nodes of one age all expire at once, whatever budgets say
fn expiry_asks_no_budget() {
    let apart = "spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}, containers";
    let text = hourly("", "").replace("spec: {containers", apart).replace(
        "spec:\n  template:\n    spec:\n      expireAfter",
        "spec:\n  disruption: {budgets: [{nodes: '0'}]}\n  template:\n    spec:\n      expireAfter",
    );
    let manifests = write("expiring-together.yaml", &text);
    let (status, it) = answer(&["--manifests", &manifests, "--until", "70m"]);
    assert_eq!((status, &it["violations"]), (0, &serde_json::json!([])));
    let timeline = it["timeline"].as_array().expect("a list");
    let of = |concern: &str, action: &str| -> Vec<(f64, &Value)> {
        let those = timeline.iter().filter(|it| it["concern"] == concern && it["action"] == action);
        those.map(|it| (it["t"].as_f64().expect("a time"), &it["object"])).collect()
    };
    let expired = of("lifecycle", "delete");
    assert_eq!(expired.len(), 3, "{expired:?}");
    assert!(expired.iter().all(|it| (3600.0..3610.0).contains(&it.0)), "{expired:?}");
    assert_eq!(it["pods"], serde_json::json!({"running": 3, "pending": 0}));
}

#[test] // B-085 and B-086: pools that can never make a node are said, skipped, and tried by nobody
fn pools_with_misspelt_values_make_no_claims() {
    for (right, wrong, condition) in [
        (
            "requirements: []",
            "requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [xspot]}]",
            "ValidationSucceeded: False, NodePoolValidationFailed",
        ),
        (
            "requirements: []",
            "requirements: [{key: kubernetes.io/arch, operator: In, values: [x86]}]",
            "ValidationSucceeded: False, NodePoolValidationFailed",
        ),
        (
            "kind: EC2NodeClass, name",
            "kind: ec2nodeclass, name",
            "NodeClassReady: False, NodeClassNotFound",
        ),
    ] {
        let text = hourly("", "").replace(right, wrong);
        let manifests = write("misspelt.yaml", &text);
        let (status, it) = answer(&["--manifests", &manifests, "--until", "30m"]);
        assert_eq!((status, &it["nodeClaims"]), (0, &serde_json::json!([])), "{wrong}");
        assert_eq!(it["pods"], serde_json::json!({"running": 0, "pending": 3}), "{wrong}");
        assert_eq!(it["pending"][0]["reason"], "no dynamic nodepools found", "{wrong}");
        let timeline = it["timeline"].as_array().expect("a list");
        let of = |action: &str, reason: &str| {
            timeline.iter().filter(|it| it["action"] == action && it["reason"] == reason).count()
        };
        assert_eq!(of("set-condition", condition), 1, "{wrong}: {timeline:#?}");
        assert!(timeline.iter().all(|it| it["action"] != "create"), "{wrong}");
        assert_eq!(it["calls"].get("CreateFleet"), None, "{wrong}");
    }
}

/// Three pods on spot nodes.
const THREE_SPOT_PODS: &str = "
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: R
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: spokeshave}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: spokeshave}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: x, resources: {requests: {cpu: '1'}}}]}
";

#[test] // aws-nodeclass 23: an instance that is stopped from outside stays stopped until termination ends it, with one call
fn a_stopped_instance_is_terminated_once() {
    let manifests = write("stopped.yaml", THREE_SPOT_PODS);
    for (state, told) in [
        ("stopping", vec!["instance_stopped"]),
        ("stopped", vec!["instance_stopped"]),
        ("shutting-down", vec!["instance_terminated"]),
        ("terminated", vec!["instance_terminated"]),
    ] {
        let event = serde_json::json!({
            "version": "0", "id": "12345678-1234-1234-1234-123456789012", "source": "aws.ec2",
            "detail-type": "EC2 Instance State-change Notification", "account": "111122223333",
            "time": "2026-01-05T09:00:00Z", "region": "us-east-1",
            "detail": {"instance-id": "{{instance:0}}", "state": state}});
        let event = write(&format!("{state}.json"), &event.to_string());
        let (status, it) = answer(&["--manifests", &manifests, "--events", &event]);
        assert_eq!(
            (status, &it["settled"], &it["violations"]),
            (0, &Value::Bool(true), &serde_json::json!([])),
            "{state}"
        );
        assert_eq!(it["pods"], serde_json::json!({"running": 3, "pending": 0}), "{state}");
        let timeline = it["timeline"].as_array().expect("a list");
        let of = |concern: &str, action: &str| -> Vec<&str> {
            let lines =
                timeline.iter().filter(|it| it["concern"] == concern && it["action"] == action);
            lines.filter_map(|it| it["reason"].as_str()).collect()
        };
        assert_eq!(of("interruption", "delete"), told, "{state}");
        let calls = &it["calls"]["TerminateInstances"];
        let stopped = matches!(state, "stopping" | "stopped");
        assert_eq!(calls.as_u64().unwrap_or(0), u64::from(stopped), "{state}");
        assert_eq!(of("termination", "terminate").len(), usize::from(stopped), "{state}");
    }
}

#[test] // From a spot warning to the claim's deletion and the replacement's CreateFleet: under a second, no batch window.
fn displaced_pods_do_not_wait() {
    let manifests = write("displaced.yaml", THREE_SPOT_PODS);
    // Seconds that the simulated CreateFleet takes: its end is what the timeline shows.
    const FLEET_CALL: f64 = 0.9;
    for seed in ["1", "2", "3"] {
        let spot = input("spot.json");
        let (status, it) = answer(&["--manifests", &manifests, "--events", &spot, "--seed", seed]);
        assert_eq!(status, 0);
        let timeline = it["timeline"].as_array().expect("a list");
        let time = |from: f64, concern: &str, action: &str| {
            timeline
                .iter()
                .filter(|it| it["concern"] == concern && it["action"] == action)
                .filter_map(|it| it["t"].as_f64())
                .find(|t| *t >= from)
                .expect(action)
        };
        let received = time(0.0, "interruption", "mark-unavailable");
        let deleted = time(received, "interruption", "delete");
        assert!(deleted - received < 0.1, "seed {seed}: deleted after {}", deleted - received);
        let sent = time(received, "launch", "launch") - FLEET_CALL;
        assert!(sent - received < 1.0, "seed {seed}: CreateFleet after {}", sent - received);
    }
}

#[test]
fn the_first_hours_of_a_day_are_priced_against_the_cheapest_fleet() {
    let path = write("day.html", "");
    let (status, it) = answer(&["--day", "--until", "70m", "--report", &path]);
    assert_eq!(it["violations"], serde_json::json!([]), "{status}");
    let page = std::fs::read_to_string(&path).expect("written");
    let tile = |name: &str| -> f64 {
        let (before, _) = page.split_once(&format!("</b>{name}</div>")).expect("a tile");
        let (_, value) = before.rsplit_once("<b>").expect("a value");
        value.trim_start_matches('$').parse().expect("a number")
    };
    let (paid, least) = (tile("paid"), tile("cheapest possible"));
    assert!(0.0 < least && least < paid && paid < 3.0 * least, "{paid} {least}");
    assert!(tile("pod-hours") > 20.0 && tile("pods moved") >= 0.0);
    assert!(tile("disruptions per pod-hour") < 1.0);
    assert!(page.contains(">cheapest possible $/h</text>"), "the chart has both lines");
    std::fs::remove_file(&path).expect("removes");
}

#[test] // the account is in the region that is given, whatever a catalog sells
fn a_region_goes_with_a_catalog() {
    let manifests = input("getting-started.yaml");
    let (status, it) = answer(&["--manifests", &manifests, "--region", "eu-west-1"]);
    assert_eq!((status, &it["settled"]), (0, &Value::Bool(true)));
    let timeline = it["timeline"].as_array().expect("a list");
    let mut nodes = timeline.iter().filter(|it| it["action"] == "register");
    let at_home = |it: &Value| {
        it["object"].as_str().is_some_and(|it| it.ends_with(".eu-west-1.compute.internal"))
    };
    assert!(nodes.clone().count() > 0 && nodes.all(at_home), "{timeline:?}");
}

/// Adds a pod that mounts the claim `data` of `volume`; it runs, on a node in `zone`.
fn a_pod_goes_to_its_volume(name: &str, volume: &str, zone: &str) {
    let pod = r#"---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"#;
    let manifests = write(name, &format!("{volume}{pod}"));
    let (status, it) = answer(&["--manifests", &input("getting-started.yaml"), &manifests]);
    assert_eq!(status, 0);
    assert_eq!(it["pods"], serde_json::json!({"running": 6, "pending": 0}), "{}", it["pending"]);
    let claims = it["nodeClaims"].as_array().expect("a list");
    assert!(claims.iter().any(|it| it["zone"] == zone), "{claims:?}");
}

#[test] // scheduling 5: a claim that names its volume is bound by the cluster, and counts where the volume is
fn pods_follow_volumes_that_are_there() {
    a_pod_goes_to_its_volume(
        "volume.yaml",
        r#"
apiVersion: v1
kind: PersistentVolume
metadata: {name: there}
spec:
  csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [us-east-1b]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: there}
"#,
        "us-east-1b",
    );
}

#[test] // a StatefulSet's pod comes back to its volume, whose claim was bound when it ran first
fn pods_come_back_to_their_volumes() {
    let manifests = input("getting-started.yaml");
    let set = |replicas: u32| {
        format!(
            r#"
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: zonal}}
provisioner: ebs.csi.aws.com
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec:
  serviceName: db
  replicas: {replicas}
  selector: {{matchLabels: {{app: db}}}}
  template:
    metadata: {{labels: {{app: db}}}}
    spec:
      containers: [{{name: c, image: i, resources: {{requests: {{cpu: "7"}}}}}}]
  volumeClaimTemplates:
    - metadata: {{name: data}}
      spec: {{accessModes: [ReadWriteOnce], storageClassName: zonal, resources: {{requests: {{storage: 1Gi}}}}}}
"#
        )
    };
    let (one, none) = (write("set-one.yaml", &set(1)), write("set-none.yaml", &set(0)));
    let (away, back) = (format!("5m={none}"), format!("20m={one}"));
    let (status, it) = answer(&["--manifests", &manifests, &one, "--at", &away, "--at", &back]);
    assert_eq!(status, 0);
    assert_eq!(it["pods"], serde_json::json!({"running": 6, "pending": 0}), "{}", it["pending"]);
}

#[test] // a class that does not wait for pods has its volumes made at once, in a zone that it allows
fn pods_follow_volumes_that_were_made_at_once() {
    a_pod_goes_to_its_volume(
        "immediate.yaml",
        r#"
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: at-once}
provisioner: ebs.csi.aws.com
volumeBindingMode: Immediate
allowedTopologies:
  - matchLabelExpressions: [{key: topology.ebs.csi.aws.com/zone, values: [us-east-1c]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: at-once, resources: {requests: {storage: 1Gi}}}
"#,
        "us-east-1c",
    );
}

#[test] // Prices are those of the catalog, to the last digit, as `plan` prints them.
fn prices_keep_the_digits_of_the_catalog() {
    let manifests = write("digits.yaml", &SHORT.replace("replicas: 30", "replicas: 2"));
    let catalog =
        write("digits.json", &ONE_TYPE.replace("\"price\": 0.1", "\"price\": 0.4147483648"));
    let output = run(&["--output", "json", "--catalog", &catalog, "--manifests", &manifests]);
    let it: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let prices: Vec<&Value> =
        it["nodeClaims"].as_array().expect("a list").iter().map(|it| &it["pricePerHour"]).collect();
    assert_eq!(prices, [0.4147483648, 0.4147483648]);
    assert_eq!(it["pricePerHour"], 0.8294967296);
}
