//! The Kubernetes adapter against a real API server, with the CRDs of `infra/crds`.
//!
//! `.ci/test` starts one (see `tests/control-plane`); any cluster that `KUBECONFIG` names and that may be written to does.

use std::{fs, path::Path, sync::Arc};

use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_kube::{Bearer, Connection, Endpoint, KubeCluster, KubeWatches, Login, OwnLogin};
use spokeshave_model::{
    NodeClaim, NodePool, ObjectKey, ObjectMeta, Taint, TaintEffect, Uid,
    core::{Lease, Namespace, Node, Pod, PodDisruptionBudget},
    meta::from_value,
};
use spokeshave_ports::{
    Change, Cluster, ClusterError, Precondition, Selector, Watch,
    cluster::{Eviction, KubeEvent},
    watch::{Positions, WatchEvent},
};
use spokeshave_tests::server;

/// A client that speaks to the API server without our adapter.
struct Raw(kube::Client);

impl Raw {
    async fn connect() -> Self {
        server("KUBECONFIG");
        let config = kube::Config::infer().await.expect("a kubeconfig");
        Self(kube::Client::try_from(config).expect("a client"))
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let kind = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        self.0.request(request.body(body).expect("a request")).await
    }

    /// Creates an object; one that is there is fine. Waits while what it needs is not there yet.
    async fn create(&self, path: &str, body: &Value) -> Value {
        for _ in 0..100 {
            match self.call(Method::POST, path, body).await {
                Ok(made) => return made,
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let name = body["metadata"]["name"].as_str().expect("a name");
                    let path = format!("{path}/{name}");
                    return self.call(Method::GET, &path, &Value::Null).await.expect("it is there");
                }
                // No service account yet, a CRD that is not served yet.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
            }
        }
        panic!("{path} did not take {body}");
    }

    async fn namespace(&self, name: &str) {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create("/api/v1/namespaces", &body).await;
    }

    /// A pod that runs and is ready.
    async fn pod(&self, namespace: &str, name: &str, app: &str) -> Pod {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let body = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": "n-1", "containers": [{"name": "c", "image": "i"}]},
        });
        self.create(&path, &body).await;
        let status = json!({"status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let status_path = format!("{path}/{name}/status");
        let pod = self.call(Method::PATCH, &status_path, &status).await.expect("a status");
        from_value(pod).expect("a pod")
    }
}

async fn cluster() -> KubeCluster {
    server("KUBECONFIG");
    KubeCluster::new(Connection::infer(OwnLogin).await.expect("a connection"))
}

/// Installs the CRDs and waits until they are served.
async fn with_crds() -> KubeCluster {
    let raw = Raw::connect().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/crds");
    for entry in fs::read_dir(folder).expect("infra/crds") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|it| it != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a CRD");
        let crd: Value = serde_saphyr::from_str(&text).expect("YAML");
        raw.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    }
    let cluster = cluster().await;
    for _ in 0..100 {
        if cluster.list::<NodePool>(&Selector::all()).await.is_ok()
            && cluster.list::<NodeClaim>(&Selector::all()).await.is_ok()
        {
            return cluster;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    panic!("the CRDs are not served");
}

fn node_pool(name: &str) -> NodePool {
    let value = json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
            ],
        }}},
    });
    from_value(value).expect("a NodePool")
}

fn node_claim(name: &str) -> NodeClaim {
    let value = json!({
        "metadata": {"name": name, "finalizers": ["karpenter.sh/termination"]},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
            ],
        },
    });
    from_value(value).expect("a NodeClaim")
}

#[tokio::test]
async fn objects_are_written_under_preconditions() {
    let cluster = with_crds().await;
    let made = cluster.create(&node_claim("guarded")).await.expect("created");
    assert!(!made.metadata.uid.is_empty() && !made.metadata.resource_version.is_empty());
    let again = cluster.create(&node_claim("guarded")).await;
    let object = "NodeClaim/guarded".to_owned();
    assert_eq!(again, Err(ClusterError::AlreadyExists { object: object.clone() }));

    // No difference is no call: even of an object that is not there.
    let absent = node_claim("absent");
    assert!(cluster.patch(&absent, &absent, Precondition::Uid).await.is_ok());

    let mut labelled = (*made).clone();
    labelled.metadata.labels.insert("team".into(), "a".into());
    let labelled =
        cluster.patch(&*made, &labelled, Precondition::ResourceVersion).await.expect("patched");
    assert_eq!(labelled.metadata.labels["team"], "a");
    assert_eq!(labelled.spec, made.spec);

    // Read before the label was there: refused by version, taken by UID.
    let mut stale = (*made).clone();
    stale.metadata.annotations.insert("x".into(), "1".into());
    let refused = cluster.patch(&*made, &stale, Precondition::ResourceVersion).await;
    assert_eq!(refused, Err(ClusterError::Conflict { object: object.clone() }));
    let taken = cluster.patch(&*made, &stale, Precondition::Uid).await.expect("patched");
    assert_eq!(taken.metadata.labels["team"], "a");

    // Another object of the same name.
    let mut other = (*taken).clone();
    other.metadata.uid = Uid::from("00000000-0000-0000-0000-000000000000");
    let mut changed = other.clone();
    changed.metadata.labels.insert("team".into(), "b".into());
    let refused = cluster.patch(&other, &changed, Precondition::Uid).await;
    assert_eq!(refused, Err(ClusterError::Conflict { object: object.clone() }));

    // The status is written apart from the rest.
    let mut with_status = (*taken).clone();
    with_status.status.provider_id = "aws:///us-west-2a/i-0123456789abcdef0".into();
    with_status.metadata.labels.insert("not".into(), "written".into());
    let told = cluster.patch_status(&*taken, &with_status, Precondition::ResourceVersion).await;
    let told = told.expect("patched");
    assert_eq!(told.status.provider_id, with_status.status.provider_id);
    assert!(!told.metadata.labels.contains_key("not"));

    let key = ObjectKey::cluster("guarded");
    // Not this one: nothing happens.
    cluster.delete::<NodeClaim>(&key, &other.metadata.uid, None).await.expect("another is gone");
    let there = cluster.get::<NodeClaim>(&key).await.expect("read").expect("there");
    assert!(!there.metadata.deleting());
    cluster.delete::<NodeClaim>(&key, &there.metadata.uid, None).await.expect("deleted");
    let deleting =
        cluster.get::<NodeClaim>(&key).await.expect("read").expect("a finalizer holds it");
    assert!(deleting.metadata.deleting());
    let mut finished = (*deleting).clone();
    finished.metadata.finalizers.clear();
    cluster.patch(&*deleting, &finished, Precondition::ResourceVersion).await.expect("let go");
    assert_eq!(cluster.get::<NodeClaim>(&key).await.expect("read"), None);
    cluster.delete::<NodeClaim>(&key, &there.metadata.uid, None).await.expect("gone is done");
    let gone = cluster.patch(&*deleting, &finished, Precondition::Uid).await;
    assert_eq!(gone, Err(ClusterError::NotFound { object }));
}

#[tokio::test]
async fn the_server_defaults_and_refuses_by_our_crds() {
    let cluster = with_crds().await;
    let made = cluster.create(&node_pool("defaulted")).await.expect("created");
    let stored = serde_json::to_value(&*made).expect("JSON");
    assert_eq!(
        stored["spec"]["disruption"],
        json!({
            "budgets": [{"nodes": "10%"}],
            "consolidateAfter": "0s",
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
        })
    );
    assert_eq!(made.spec.template.spec.requirements.len(), 1);

    let mut broken = node_pool("broken");
    broken.spec.template.spec.requirements[0].values.clear();
    match cluster.create(&broken).await {
        Err(ClusterError::Refused { object, message }) => {
            assert_eq!(object, "NodePool/broken");
            assert!(
                message.contains("requirements with operator 'In' must have a value defined"),
                "{message}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn slim_kinds_change_only_what_differs() {
    let (raw, cluster) = (Raw::connect().await, cluster().await);
    let body = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "slim"},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
    });
    raw.create("/api/v1/nodes", &body).await;
    let key = ObjectKey::cluster("slim");
    let node = cluster.get::<Node>(&key).await.expect("read").expect("there");
    let mut tainted = (*node).clone();
    tainted.spec.taints.push(Taint {
        key: "karpenter.sh/disrupted".into(),
        effect: TaintEffect::NoSchedule,
        ..Taint::default()
    });
    cluster.patch(&*node, &tainted, Precondition::ResourceVersion).await.expect("patched");
    let stored = raw.call(Method::GET, "/api/v1/nodes/slim", &Value::Null).await.expect("read");
    assert_eq!(stored["spec"]["podCIDR"], "10.0.0.0/24");
    let taints = stored["spec"]["taints"].as_array().expect("taints");
    assert!(taints.iter().any(|it| it["key"] == "karpenter.sh/disrupted"), "{taints:?}");
}

#[tokio::test]
async fn lists_come_in_pages_and_sorted() {
    let (raw, cluster) = (Raw::connect().await, cluster().await);
    raw.namespace("pages").await;
    for n in 0..520 {
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": format!("l-{:03}", 519 - n), "labels": {"half": (n % 2).to_string()}},
        });
        raw.create("/apis/coordination.k8s.io/v1/namespaces/pages/leases", &body).await;
    }
    let selector = Selector { namespace: "pages".into(), ..Selector::all() };
    let all = cluster.list::<Lease>(&selector).await.expect("listed");
    let names: Vec<&str> = all.iter().map(|it| it.metadata.name.as_str()).collect();
    let expected: Vec<String> = (0..520).map(|n| format!("l-{n:03}")).collect();
    assert_eq!(names, expected);
    let half = Selector { labels: Selector::label("half", "1").labels, ..selector };
    assert_eq!(cluster.list::<Lease>(&half).await.expect("listed").len(), 260);
    let missing = cluster.get::<Namespace>(&ObjectKey::cluster("no-such")).await;
    assert_eq!(missing, Ok(None));
}

#[tokio::test]
async fn evictions_are_answered_as_budgets_say() {
    let (raw, cluster) = (Raw::connect().await, cluster().await);
    raw.namespace("evict").await;
    let budget = |name: &str, app: &str| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
        })
    };
    let budgets = "/apis/policy/v1/namespaces/evict/poddisruptionbudgets";
    raw.create(budgets, &budget("web", "web")).await;
    raw.create(budgets, &budget("twice-a", "twice")).await;
    raw.create(budgets, &budget("twice-b", "twice")).await;
    let free = raw.pod("evict", "free", "free").await;
    let held = raw.pod("evict", "held", "web").await;
    let twice = raw.pod("evict", "twice", "twice").await;
    // The budget's controller counts; until it has, the server blocks too.
    let key = |name: &str| ObjectKey::namespaced("evict", name);
    let counted = async || {
        let budget = cluster.get::<PodDisruptionBudget>(&key("web")).await.expect("read");
        budget.is_some_and(|it| it.status.disruptions_allowed == 0)
    };
    assert!(counted().await);

    let uid = |pod: &Pod| pod.metadata.uid.clone();
    let evict = async |name: &str, uid: &Uid| cluster.evict(&key(name), uid).await;
    assert_eq!(evict("held", &uid(&held)).await, Ok(Eviction::Blocked));
    assert_eq!(evict("twice", &uid(&twice)).await, Ok(Eviction::Misconfigured));
    assert_eq!(evict("free", &uid(&held)).await, Ok(Eviction::Replaced));
    assert_eq!(evict("free", &uid(&free)).await, Ok(Eviction::Accepted));
    assert_eq!(evict("nobody", &uid(&free)).await, Ok(Eviction::Gone));
    let on_node = cluster.list::<Pod>(&Selector::on_node("n-1")).await.expect("listed");
    assert!(on_node.iter().any(|it| it.metadata.name == "held"));
    assert_eq!(cluster.list::<Pod>(&Selector::on_node("n-2")).await.expect("listed"), []);
}

#[tokio::test]
async fn events_are_told_once() {
    let (raw, cluster) = (Raw::connect().await, cluster().await);
    let event = KubeEvent {
        kind: "NodeClaim",
        api_version: "karpenter.sh/v1".into(),
        key: ObjectKey::cluster("told"),
        uid: Uid::from("u-told"),
        warning: true,
        reason: "FailedDraining".into(),
        message: "Failed to drain node, 2 pods are waiting to be evicted".into(),
    };
    let hour = SignedDuration::from_hours(1);
    cluster.publish(event.clone(), hour).await;
    cluster.publish(event.clone(), hour).await;
    // Another process that says the same.
    self::cluster().await.publish(event, hour).await;
    let path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid%3Du-told";
    let found = raw.call(Method::GET, path, &Value::Null).await.expect("listed");
    let found = found["items"].as_array().expect("items");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["type"], "Warning");
    assert_eq!(found[0]["reason"], "FailedDraining");
    assert_eq!(found[0]["involvedObject"]["name"], "told");
}

/// Logs in as EKS is logged in to: end point, authority and a bearer token that changes.
struct TokenLogin {
    endpoint: Endpoint,
    tokens: std::sync::Mutex<Vec<&'static str>>,
}

impl Login for TokenLogin {
    async fn endpoint(&self) -> Result<Endpoint, String> {
        Ok(self.endpoint.clone())
    }

    async fn token(&self, now: Timestamp) -> Result<Option<Bearer>, String> {
        let mut tokens = self.tokens.lock().expect("no panic");
        let token = if tokens.len() > 1 { tokens.remove(0) } else { tokens[0] };
        Ok(Some(Bearer { token: token.into(), renew_at: now + SignedDuration::from_mins(12) }))
    }
}

async fn logged_in(tokens: &[&'static str]) -> KubeCluster<TokenLogin> {
    let text = fs::read_to_string(server("KUBECONFIG")).expect("a kubeconfig");
    let config: Value = serde_saphyr::from_str(&text).expect("YAML");
    let cluster = &config["clusters"][0]["cluster"];
    let endpoint = Endpoint {
        url: cluster["server"].as_str().expect("a server").into(),
        certificate_authority: cluster["certificate-authority-data"]
            .as_str()
            .expect("an authority")
            .into(),
    };
    let tokens = std::sync::Mutex::new(tokens.to_vec());
    KubeCluster::new(Connection::new(TokenLogin { endpoint, tokens }))
}

#[tokio::test]
async fn who_is_refused_is_told_why() {
    let nodes = |error| match error {
        Err(ClusterError::Refused { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    let unknown = logged_in(&["no-such-token"]).await;
    let message = nodes(unknown.list::<Node>(&Selector::all()).await.map(|_| ()));
    assert!(message.contains("401") && message.contains("access entry"), "{message}");
    let nobody = logged_in(&["nobody-token"]).await;
    let message = nodes(nobody.list::<Node>(&Selector::all()).await.map(|_| ()));
    assert!(message.contains("403") && message.contains("nodes is forbidden"), "{message}");
    // A token that is no longer accepted is renewed once.
    let renewed = logged_in(&["no-such-token", "admin-token"]).await;
    assert!(renewed.list::<Node>(&Selector::all()).await.is_ok());
}

async fn until(
    watches: &KubeWatches<OwnLogin>,
    wanted: impl Fn(&WatchEvent) -> bool,
) -> WatchEvent {
    for _ in 0..2000 {
        let event = watches.next(SignedDuration::from_secs(20)).await.expect("no refusal");
        let event = event.expect("an event in time");
        if wanted(&event) {
            return event;
        }
    }
    panic!("not among 2000 events");
}

#[tokio::test]
async fn watches_tell_what_changed_and_go_on_where_they_were() {
    let cluster = Arc::new(with_crds().await);
    let named = |event: &WatchEvent, name: &str| match event {
        WatchEvent::Listed(Change::NodeClaim { old, new })
        | WatchEvent::Changed(Change::NodeClaim { old, new }) => {
            new.as_ref().or(old.as_ref()).is_some_and(|it| it.metadata.name == name)
        }
        _ => false,
    };
    cluster.create(&node_claim("before")).await.expect("created");
    let watches = KubeWatches::new(cluster.clone());
    watches.start(&Positions::new()).await.expect("started");
    let listed = until(&watches, |it| named(it, "before")).await;
    assert!(matches!(listed, WatchEvent::Listed(_)));
    let bookmark =
        until(&watches, |it| matches!(it, WatchEvent::Bookmark { kind: "NodeClaim", .. }));
    let WatchEvent::Bookmark { resource_version, .. } = bookmark.await else { unreachable!() };

    let made = cluster.create(&node_claim("watched")).await.expect("created");
    let created = until(&watches, |it| named(it, "watched")).await;
    let expected = Change::NodeClaim { old: None, new: Some(made.clone()) };
    assert_eq!(created, WatchEvent::Changed(expected));
    let mut finished = (*made).clone();
    finished.metadata.finalizers.clear();
    let finished = cluster.patch(&*made, &finished, Precondition::Uid).await.expect("patched");
    let changed = until(&watches, |it| named(it, "watched")).await;
    let expected = Change::NodeClaim { old: Some(made.clone()), new: Some(finished) };
    assert_eq!(changed, WatchEvent::Changed(expected));
    let key = ObjectKey::cluster("watched");
    cluster.delete::<NodeClaim>(&key, &made.metadata.uid, None).await.expect("deleted");
    let gone = until(&watches, |it| named(it, "watched")).await;
    assert!(matches!(gone, WatchEvent::Changed(Change::NodeClaim { old: Some(_), new: None })));

    // A successor that begins where the first list ended sees all of it again, and no list.
    let successor = KubeWatches::new(cluster.clone());
    let from = Positions::from([("NodeClaim".to_owned(), resource_version)]);
    successor.start(&from).await.expect("started");
    let again = until(&successor, |it| named(it, "watched")).await;
    assert!(matches!(again, WatchEvent::Changed(Change::NodeClaim { old: None, new: Some(_) })));

    // A place that the server no longer knows.
    let late = KubeWatches::new(cluster);
    let from = Positions::from([("NodeClaim".to_owned(), "1".to_owned())]);
    late.start(&from).await.expect("started");
    until(&late, |it| matches!(it, WatchEvent::Restarted { kind: "NodeClaim" })).await;
    until(&late, |it| named(it, "before")).await;
}

#[test]
fn an_object_s_metadata_has_no_defaults_of_ours() {
    assert_eq!(serde_json::to_value(ObjectMeta::named("a")).expect("JSON"), json!({"name": "a"}));
}
