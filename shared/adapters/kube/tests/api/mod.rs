//! A made-up API server on this machine: lists in pages and watches, as Kubernetes does, of objects that the test changes.
//!
//! It serves whatever path is asked for; one that nobody has put anything into is an empty list. Its history can be cut off
//! (410 for whoever comes with an older version), and it can go away and come back under the same address.

// Each test and example takes what it needs.
#![allow(dead_code, unreachable_pub)]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// Stands in an object's text for its resource version.
const VERSION: &str = "@version@";

/// One object: its text, and the node that it is bound to if it is a pod that is.
#[derive(Clone)]
struct Stored {
    text: Arc<str>,
    bound: bool,
    version: u64,
}

impl Stored {
    fn at(&self, version: u64) -> String {
        self.text.replace(VERSION, &version.to_string())
    }
}

struct Happened {
    version: u64,
    before: Option<Stored>,
    after: Option<Stored>,
}

#[derive(Default)]
struct Collection {
    objects: BTreeMap<String, Stored>,
    log: Vec<Happened>,
}

#[derive(Default)]
struct State {
    version: u64,
    /// Watches from before this version are too old.
    oldest: u64,
    collections: BTreeMap<String, Collection>,
    /// Every request's path and query, in order.
    requests: Vec<String>,
    connections: Vec<TcpStream>,
    /// Counts how often the server went away.
    generation: u64,
    /// Watches are cut off once they have told what there was.
    short: bool,
    /// The next event of every watch makes no sense.
    garbled: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server.
pub struct Api {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Api {
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    pub fn start_at(address: &str) -> Self {
        let listener = TcpListener::bind(address).expect("an address");
        let address = listener.local_addr().expect("an address");
        let api = Self { shared: Arc::default(), address };
        api.shared.state().version = 1000;
        api.serve(listener);
        api
    }

    fn serve(&self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        let generation = shared.state().generation;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut state = shared.state();
                if state.generation != generation {
                    return;
                }
                state.connections.extend(stream.try_clone());
                drop(state);
                let shared = Arc::clone(&shared);
                thread::spawn(move || converse(&shared, stream, generation));
            }
        });
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Goes away: nobody is answered, and every connection is closed.
    pub fn go_away(&self) {
        let mut state = self.shared.state();
        state.generation += 1;
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.changed.notify_all();
        // Whoever waits for connections notices.
        let _ = TcpStream::connect(self.address);
    }

    /// Comes back under its old address, with what it had.
    pub fn come_back(&self) {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => return self.serve(listener),
                Err(_) if Instant::now() < until => thread::yield_now(),
                Err(error) => panic!("the address is taken: {error}"),
            }
        }
    }

    /// Puts an object; its resource version is filled in. Returns the version.
    pub fn put(&self, path: &str, mut object: Value) -> u64 {
        object["metadata"]["resourceVersion"] = json!(VERSION);
        let key = key(&object);
        let bound = object.pointer("/spec/nodeName").is_some_and(|it| it != "");
        let text: Arc<str> = object.to_string().into();
        self.change(path, key, Some((text, bound)))
    }

    /// Takes an object away.
    pub fn remove(&self, path: &str, namespace: &str, name: &str) -> u64 {
        self.change(path, format!("{namespace}/{name}"), None)
    }

    fn change(&self, path: &str, key: String, object: Option<(Arc<str>, bool)>) -> u64 {
        let mut state = self.shared.state();
        state.version += 1;
        let version = state.version;
        let collection = state.collections.entry(path.to_owned()).or_default();
        let after = object.map(|(text, bound)| Stored { text, bound, version });
        let before = match &after {
            Some(after) => collection.objects.insert(key, after.clone()),
            None => collection.objects.remove(&key),
        };
        collection.log.push(Happened { version, before, after });
        drop(state);
        self.shared.changed.notify_all();
        version
    }

    /// Forgets what happened so far: a watch from before now is told 410.
    pub fn forget_history(&self) {
        let mut state = self.shared.state();
        state.oldest = state.version;
        for collection in state.collections.values_mut() {
            collection.log.clear();
        }
    }

    /// Watches end once they have told what there was.
    pub fn cut_watches_short(&self, short: bool) {
        self.shared.state().short = short;
    }

    /// Every watch tells of an object that cannot be read, from now on.
    pub fn garble(&self, garbled: bool) {
        self.shared.state().garbled = garbled;
    }

    pub fn version(&self) -> u64 {
        self.shared.state().version
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().requests)
    }
}

fn key(object: &Value) -> String {
    let part = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", part("namespace"), part("name"))
}

fn converse(shared: &Shared, stream: TcpStream, generation: u64) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let target = line.split(' ').nth(1)?.to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            if header.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
        }
        if !line.starts_with("GET ") {
            // Events on objects: taken, and forgotten.
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            answer(&mut stream, 201, "{}")?;
            continue;
        }
        let url = target.split_once('?').unwrap_or((&target, ""));
        let query: BTreeMap<String, String> = url
            .1
            .split('&')
            .filter_map(|it| it.split_once('='))
            .map(|(name, value)| (name.to_owned(), decoded(value)))
            .collect();
        shared.state().requests.push(decoded(&target));
        if query.get("watch").is_some_and(|it| it == "true" || it == "1") {
            watch(shared, &mut stream, url.0, &query, generation)?;
        } else {
            list(shared, &mut stream, url.0, &query)?;
        }
    }
}

fn decoded(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 3).and_then(|it| u8::from_str_radix(it, 16).ok());
        out.push(char::from(code.unwrap_or(b'?')));
        rest = rest.get(at + 3..).unwrap_or_default();
    }
    out + rest
}

/// Whether a field selector on `spec.nodeName` takes objects that are bound, or those that are not; `None`: all.
fn wanted(query: &BTreeMap<String, String>) -> Option<bool> {
    match query.get("fieldSelector").map(String::as_str) {
        Some("spec.nodeName=") => Some(false),
        Some("spec.nodeName!=") => Some(true),
        _ => None,
    }
}

fn list(
    shared: &Shared,
    stream: &mut TcpStream,
    path: &str,
    query: &BTreeMap<String, String>,
) -> Option<()> {
    let number = |name: &str| query.get(name).and_then(|it| it.parse::<usize>().ok());
    let (limit, skip) = (number("limit").unwrap_or(usize::MAX), number("continue").unwrap_or(0));
    let state = shared.state();
    let wanted = wanted(query);
    let empty = Collection::default();
    let objects = &state.collections.get(path).unwrap_or(&empty).objects;
    let mut of =
        objects.values().filter(|it| wanted.is_none_or(|bound| it.bound == bound)).skip(skip);
    let mut body = String::from("{\"kind\":\"List\",\"items\":[");
    let mut n = 0;
    for object in of.by_ref().take(limit) {
        if n > 0 {
            body.push(',');
        }
        body.push_str(&object.at(object.version));
        n += 1;
    }
    let more = if of.next().is_some() { (skip + n).to_string() } else { String::new() };
    body.push_str(&format!(
        "],\"metadata\":{{\"resourceVersion\":\"{}\",\"continue\":\"{more}\"}}}}",
        state.version
    ));
    drop(state);
    answer(stream, 200, &body)
}

fn answer(stream: &mut TcpStream, status: u16, body: &str) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {status} .\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()
}

fn watch(
    shared: &Shared,
    stream: &mut TcpStream,
    path: &str,
    query: &BTreeMap<String, String>,
    generation: u64,
) -> Option<()> {
    let number = |name: &str| query.get(name).and_then(|it| it.parse::<u64>().ok());
    let mut told = number("resourceVersion").unwrap_or(0);
    let seconds = number("timeoutSeconds").unwrap_or(300);
    let until = Instant::now() + Duration::from_secs(seconds);
    let wanted = wanted(query);
    let mut state = shared.state();
    if told < state.oldest {
        drop(state);
        let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
            "reason": "Expired", "message": "too old resource version"});
        return answer(stream, 410, &gone.to_string());
    }
    let head =
        "HTTP/1.1 200 .\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).ok()?;
    loop {
        if state.generation != generation {
            return None;
        }
        let mut lines = String::new();
        if let Some(collection) = state.collections.get(path) {
            let from = collection.log.partition_point(|it| it.version <= told);
            for happened in collection.log.get(from..).unwrap_or_default() {
                lines.extend(line(happened, wanted, state.garbled));
                told = happened.version;
            }
        }
        let is_over = state.short || Instant::now() >= until;
        if !lines.is_empty() {
            drop(state);
            let chunk = format!("{:x}\r\n{lines}\r\n", lines.len());
            stream.write_all(chunk.as_bytes()).ok()?;
            state = shared.state();
        } else if !is_over {
            let left = until.saturating_duration_since(Instant::now());
            let waited = shared.changed.wait_timeout(state, left.min(Duration::from_secs(1)));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if is_over {
            drop(state);
            return stream.write_all(b"0\r\n\r\n").ok();
        }
    }
}

/// The event of a watch with this selector, if it is one.
fn line(it: &Happened, wanted: Option<bool>, garbled: bool) -> Option<String> {
    let takes =
        |it: &Option<Stored>| it.clone().filter(|it| wanted.is_none_or(|bound| it.bound == bound));
    let (before, after) = (takes(&it.before), takes(&it.after));
    let (what, object) = match (before, after) {
        (None, Some(after)) => ("ADDED", after),
        (Some(_), Some(after)) => ("MODIFIED", after),
        // As it was before, at the version of what took it away.
        (Some(before), None) => ("DELETED", before),
        (None, None) => return None,
    };
    let object = if garbled { "{\"metadata\":7}".to_owned() } else { object.at(it.version) };
    Some(format!("{{\"type\":\"{what}\",\"object\":{object}}}\n"))
}

/// A pod as an API server tells of it: of some kilobytes, most of which decides nothing. Unbound when `node` is empty.
pub fn pod(n: usize, app: usize, node: &str) -> Value {
    let phase = if node.is_empty() { "Pending" } else { "Running" };
    let env: Vec<Value> = (0..12)
        .map(|it| json!({"name": format!("SETTING_{it}"), "value": "some/value-of-it"}))
        .collect();
    let container = json!({"name": "app", "image": "registry.example/shop/web:1.2.3",
        "imagePullPolicy": "IfNotPresent", "env": env, "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "128Mi"}},
        "livenessProbe": {"httpGet": {"path": "/live", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                          "readOnly": true}]});
    let fields: serde_json::Map<String, Value> =
        (0..24).map(|it| (format!("f:field-{it}"), json!({"f:value": {}, "f:name": {}}))).collect();
    let scheduled = if node.is_empty() {
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "lastTransitionTime": "2026-03-02T08:00:00Z"})
    } else {
        json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-03-02T08:00:00Z"})
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("web-{app}-{n}"), "generateName": format!("web-{app}-"), "namespace": "shop",
            "uid": format!("00000000-0000-4000-8000-{n:012}"), "creationTimestamp": "2026-03-02T08:00:00Z",
            "labels": {"app": format!("web-{app}"), "pod-template-hash": format!("{app:08x}")},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{app}"),
                "uid": format!("rs-{app}"), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": "2026-03-02T08:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}}],
        },
        "spec": {"nodeName": node, "containers": [container], "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "serviceAccountName": "default", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "priority": 0, "enableServiceLinks": true,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]}}]},
        "status": {"phase": phase, "qosClass": "Burstable", "hostIP": "10.0.0.1", "podIP": "10.0.1.1",
            "startTime": "2026-03-02T08:00:00Z",
            "conditions": [scheduled,
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-02T08:00:10Z"}],
            "containerStatuses": [{"name": "app", "ready": true, "restartCount": 0, "started": true,
                "image": "registry.example/shop/web:1.2.3", "containerID": format!("containerd://{n:064x}"),
                "state": {"running": {"startedAt": "2026-03-02T08:00:05Z"}}}]},
    })
}

/// A node of the pool `default` that is initialized.
pub fn node(n: usize) -> Value {
    let labels: serde_json::Map<String, Value> = [
        ("karpenter.sh/nodepool", "default"),
        ("karpenter.sh/registered", "true"),
        ("karpenter.sh/initialized", "true"),
        ("karpenter.sh/capacity-type", "on-demand"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", "m5.xlarge"),
        ("topology.kubernetes.io/zone", "us-west-2a"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), json!(value)))
    .collect();
    let images: Vec<Value> = (0..20)
        .map(|it| json!({"names": [format!("registry.example/image-{it}:1")], "sizeBytes": 12_345_678}))
        .collect();
    let amounts = json!({"cpu": "4", "memory": "15Gi", "pods": "58", "ephemeral-storage": "20Gi"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(n), "uid": format!("node-{n}"), "labels": labels,
            "creationTimestamp": "2026-03-02T07:00:00Z"},
        "spec": {"providerID": format!("aws:///us-west-2a/i-{n:017x}")},
        "status": {"capacity": amounts, "allocatable": amounts, "images": images,
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-03-02T08:00:00Z"}]},
    })
}

pub fn node_name(n: usize) -> String {
    format!("ip-10-{}-{}.us-west-2.compute.internal", n / 250, n % 250)
}

pub const PODS: &str = "/api/v1/pods";
pub const NODES: &str = "/api/v1/nodes";
