//! What a big cluster costs: 5,000 nodes and 100,000 pods behind an API server that a second process makes up.
//!
//! `big_cluster pass`: provision reads everything for the first time, then plans again and again after 100 changes.
//! `big_cluster bridge [SECONDS]`: the bridge lists, then follows 500 pod changes a second.
//! `big_cluster burst`: on the cluster of `KUBECONFIG`, 1,000 pods are made that nothing can place; how long after the last
//! one the bridge has told of all of them.
//!
//! `cargo run --release -p spokeshave-kube --example big_cluster -- pass`

#[path = "../tests/api/mod.rs"]
mod api;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    pin::pin,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use api::{Api, NODES, PODS, node, node_name, pod};
use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use spokeshave_cluster_bridge_function::{Mode, Start};
use spokeshave_kube::{Bearer, Connection, Endpoint, KubeCluster, KubeWatches, Login, OwnLogin};
use spokeshave_lambda::{SqsBatch, SqsRecord};
use spokeshave_model::Settings;
use spokeshave_ports::{
    AwsError, Bus, Concern, Invocation, Key, Record, StateKey, WallClock, Work, fake::Fake,
    queues::BusEvent,
};

const N_NODES: usize = 5_000;
const N_PODS: usize = 100_000;
/// Bound pods change so often.
const CHANGES_PER_SECOND: u64 = 500;
/// Passes that are measured.
const PASSES: usize = 20;

#[derive(Clone)]
struct At(String);

impl Login for At {
    async fn endpoint(&self) -> Result<Endpoint, String> {
        Ok(Endpoint { url: self.0.clone(), certificate_authority: String::new() })
    }

    async fn token(&self, _: Timestamp) -> Result<Option<Bearer>, String> {
        Ok(None)
    }
}

/// The server in a process of its own, told what to do line by line.
struct Server {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
    url: String,
}

impl Server {
    fn start() -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut server = Self { child, answers, url: String::new() };
        server.url = server.answer();
        server
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim().to_owned()
    }

    fn tell(&mut self, order: &str) -> String {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{order}").expect("it listens");
        self.answer()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until its input ends. `change N` makes N pods change and answers the version; `rate N` makes bound pods change N
/// times a second from now on.
#[allow(clippy::print_stdout)]
fn serve() {
    let api = Arc::new(Api::start());
    for n in 0..N_NODES {
        api.put(NODES, node(n));
    }
    for n in 0..N_PODS {
        api.put(PODS, pod(n, n % 500, &node_name(n / 20)));
    }
    api.forget_history();
    println!("{}", api.url());
    let mut at = 0;
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (order, n) = line.split_once(' ').unwrap_or((&line, "0"));
        let n: u64 = n.parse().unwrap_or(0);
        if order == "rate" {
            let api = Arc::clone(&api);
            std::thread::spawn(move || {
                let began = Instant::now();
                for done in 0.. {
                    let due = Duration::from_micros(done * 1_000_000 / n.max(1));
                    std::thread::sleep(due.saturating_sub(began.elapsed()));
                    let it = usize::try_from(done).unwrap_or(0) * 37 % N_PODS;
                    // Every other change ends a pod or begins one anew, as Deployments and Jobs have it.
                    let mut pod = pod(it, it % 500, &node_name(it / 20));
                    if done % 4 == 0 {
                        api.remove(PODS, "shop", pod["metadata"]["name"].as_str().unwrap_or(""));
                    } else if done % 4 == 1 {
                        pod["status"]["phase"] = json!("Succeeded");
                        api.put(PODS, pod);
                    } else {
                        api.put(PODS, pod);
                    }
                    if done % 10_000 == 0 {
                        api.requests();
                    }
                }
            });
            println!("ok");
            continue;
        }
        let mut version = 0;
        for _ in 0..n {
            at += 1;
            let it = at * 61 % N_PODS;
            // Pods that end, that move to another node, and one in ten that waits and fits somewhere.
            let node = match at % 10 {
                0 => String::new(),
                k => node_name((it + k) % N_NODES),
            };
            version = api.put(PODS, pod(it, it % 500, &node));
        }
        println!("{version}");
    }
}

/// A line of `/proc/self/status` in MiB.
fn mib(of: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|it| it.starts_with(of)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Seconds of processor time that this process has used.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// A Ready pool and what it can buy.
fn world(api: &Server) -> (Fake, KubeCluster<At>) {
    let fake = Fake::default();
    let types = json!({"instanceTypes": [{"name": "m5.xlarge", "labels": {"kubernetes.io/arch": ["amd64"]},
        "capacity": {"cpu": "4", "memory": "15Gi", "pods": "58"},
        "offerings": [{"capacityType": "on-demand", "zone": "us-west-2a", "price": 0.2}]}]});
    let record = Record { version: 1, data: types, expires_at: None };
    fake.records.borrow_mut().insert(StateKey::new("catalog", "fixed"), record);
    (fake, KubeCluster::new(Connection::new(At(api.url.clone()))))
}

#[allow(clippy::print_stdout)]
async fn pass() {
    let mut server = Server::start();
    let (fake, cluster) = world(&server);
    let settings = Settings::default();
    let run = async |version: &str| {
        let now = Timestamp::now();
        fake.now.set(now);
        let key =
            Key { kind: "Pod".into(), resource_version: version.to_owned(), ..Key::default() };
        let body = serde_json::to_string(&Work::new("PodsPending", vec![key])).expect("JSON");
        let records = vec![SqsRecord { message_id: "m".into(), body, ..SqsRecord::default() }];
        let deadline = now + SignedDuration::from_mins(2);
        let cx = Invocation {
            concern: Concern::Provision,
            now,
            deadline,
            settings: &settings,
            journal: &fake,
        };
        let (began, used) = (Instant::now(), cpu());
        let batch = SqsBatch { records };
        let answer =
            spokeshave_provision_function::handle(&batch, &cluster, &fake, &fake, &WallClock, &cx)
                .await;
        assert_eq!(answer, spokeshave_lambda::BatchAnswer::done());
        let decisions = std::mem::take(&mut *fake.decisions.borrow_mut());
        let retries: Vec<_> =
            decisions.iter().filter(|it| it.error || it.action == "wait").collect();
        assert!(retries.is_empty(), "{retries:?}");
        (began.elapsed(), cpu() - used, decisions.len())
    };
    let (took, used, _) = run("").await;
    println!(
        "first run, {N_NODES} nodes and {N_PODS} pods listed: {took:?}, {used:.2} s of the processor, peak {} MiB",
        mib("VmHWM")
    );
    let mut times = Vec::new();
    for _ in 0..PASSES {
        let version = server.tell("change 100");
        let (took, used, decisions) = run(&version).await;
        assert!(decisions > 0, "pods that wait are told of");
        times.push((took, used));
    }
    times.sort_by_key(|it| it.0);
    let middle = times[times.len() / 2];
    let used: f64 = times.iter().map(|it| it.1).sum::<f64>() / times.len() as f64;
    println!(
        "run after 100 changes: median {:?}, longest {:?}, {:.0} ms of the processor, peak {} MiB",
        middle.0,
        times[times.len() - 1].0,
        used * 1000.0,
        mib("VmHWM")
    );
}

/// Takes everything and counts.
#[derive(Default)]
struct Counting {
    calls: Cell<usize>,
    events: RefCell<BTreeMap<&'static str, (usize, usize)>>,
}

impl Bus for Counting {
    async fn put(&self, events: &[BusEvent]) -> Result<Vec<usize>, AwsError> {
        self.calls.set(self.calls.get() + 1);
        for event in events {
            let mut counts = self.events.borrow_mut();
            let (n, keys) = counts.entry(event.detail_type).or_default();
            *n += 1;
            *keys += event.work.keys.len();
        }
        Ok(Vec::new())
    }
}

#[allow(clippy::print_stdout)]
async fn bridge(seconds: i64) {
    let mut server = Server::start();
    let cluster = Arc::new(KubeCluster::new(Connection::new(At(server.url.clone()))));
    let watches = KubeWatches::new(cluster);
    let fake = Fake::default();
    let bus = Counting::default();
    let settings = Settings::default();
    let now = Timestamp::now();
    let deadline = now + SignedDuration::from_secs(seconds + 20);
    let journal = &fake;
    let cx =
        Invocation { concern: Concern::ClusterBridge, now, deadline, settings: &settings, journal };
    let start =
        Start { holder: "one".into(), stack: "s".into(), mode: Mode::Watch, hand_over: None };
    let watching = spokeshave_cluster_bridge_function::run(
        &start, &watches, &fake, &fake, &bus, &WallClock, &cx,
    );
    let meter = async {
        tokio::time::sleep(Duration::from_secs(15)).await;
        println!(
            "listed: {:.2} s of the processor, {} calls of the bus, {:?}, peak {} MiB",
            cpu(),
            bus.calls.get(),
            bus.events.borrow(),
            mib("VmHWM")
        );
        server.tell(&format!("rate {CHANGES_PER_SECOND}"));
        bus.events.borrow_mut().clear();
        bus.calls.set(0);
        let (began, used) = (Instant::now(), cpu());
        let length = Duration::from_secs(u64::try_from(seconds - 18).unwrap_or(10));
        tokio::time::sleep(length).await;
        let wall = began.elapsed().as_secs_f64();
        println!(
            "{CHANGES_PER_SECOND} changes a second for {wall:.0} s: {:.1} % of a processor, {:.1} calls of the bus a second, {:?}, \
             now {} MiB, peak {} MiB",
            (cpu() - used) / wall * 100.0,
            bus.calls.get() as f64 / wall,
            bus.events.borrow(),
            mib("VmRSS"),
            mib("VmHWM")
        );
    };
    let (ended, ()) = futures_util::future::join(watching, meter).await;
    println!("{ended:?}");
}

/// Notes which pods have been told of, and when the last of them was.
#[derive(Default)]
struct Told {
    pods: RefCell<BTreeMap<String, Instant>>,
}

impl Bus for Told {
    async fn put(&self, events: &[BusEvent]) -> Result<Vec<usize>, AwsError> {
        let now = Instant::now();
        for event in events.iter().filter(|it| it.detail_type == "PodsPending") {
            for key in event.work.keys.iter().filter(|it| it.name.starts_with("burst-")) {
                self.pods.borrow_mut().insert(key.name.clone(), now);
            }
        }
        Ok(Vec::new())
    }
}

/// Pods of a burst.
const BURST: usize = 1000;
/// Requests under way at a time.
const SIDE_BY_SIDE: usize = 32;

async fn call(client: &kube::Client, method: &str, path: &str, body: &serde_json::Value) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(body.to_string().into_bytes()).expect("a request");
    let answer: Result<serde_json::Value, kube::Error> = client.request(request).await;
    if let Err(error) = answer {
        assert!(matches!(&error, kube::Error::Api(it) if it.code == 409), "{path}: {error}");
    }
}

#[allow(clippy::print_stdout)]
async fn burst() {
    let config = kube::Config::infer().await.expect("a kubeconfig");
    let client = kube::Client::try_from(config).expect("a client");
    let pods = "/api/v1/namespaces/default/pods";
    let connection = Connection::infer(OwnLogin).await.expect("a connection");
    let watches = KubeWatches::new(Arc::new(KubeCluster::new(connection)));
    let fake = Fake::default();
    let bus = Told::default();
    let settings = Settings::default();
    let now = Timestamp::now();
    let deadline = now + SignedDuration::from_secs(180);
    let journal = &fake;
    let cx =
        Invocation { concern: Concern::ClusterBridge, now, deadline, settings: &settings, journal };
    let start =
        Start { holder: "one".into(), stack: "s".into(), mode: Mode::Watch, hand_over: None };
    let watching = spokeshave_cluster_bridge_function::run(
        &start, &watches, &fake, &fake, &bus, &WallClock, &cx,
    );
    let make = async {
        let meta = |n: usize| json!({"name": format!("burst-{n}")});
        let container = json!([{"name": "c", "image": "i"}]);
        let numbers = || futures_util::stream::iter(0..BURST);
        let client = &client;
        let made = numbers().for_each_concurrent(SIDE_BY_SIDE, |n| {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(n),
                "spec": {"containers": container}});
            async move { call(client, "POST", pods, &pod).await }
        });
        made.await;
        let began = Instant::now();
        let status = json!({"status": {"conditions":
            [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        let status = &status;
        let marked = numbers().for_each_concurrent(SIDE_BY_SIDE, |n| async move {
            call(client, "PATCH", &format!("{pods}/burst-{n}/status"), status).await;
        });
        marked.await;
        let last = Instant::now();
        while bus.pods.borrow().len() < BURST && last.elapsed() < Duration::from_secs(60) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let told = bus.pods.borrow().values().max().copied().unwrap_or(last);
        println!(
            "{} of {BURST} pods that became unschedulable within {:?} were told of, the last {:?} after the last change",
            bus.pods.borrow().len(),
            last - began,
            told.saturating_duration_since(last)
        );
        assert_eq!(bus.pods.borrow().len(), BURST, "every pod is told of");
    };
    futures_util::future::select(pin!(make), pin!(watching)).await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("serve") => serve(),
        Some("burst") => burst().await,
        Some("bridge") => bridge(args.next().and_then(|it| it.parse().ok()).unwrap_or(60)).await,
        _ => pass().await,
    }
}
