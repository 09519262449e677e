//! The load of Karpenter's interruption benchmark, on the simulated world with nothing but the function `interruption`
//! in it: a third Health events, a third spot warnings, the rest state changes, against claims and nodes that exist.

use std::{
    cell::RefCell,
    fmt,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_lambda::BatchAnswer;
use spokeshave_model::{NodeClaim, Settings, core::Node, meta::from_value};
use spokeshave_ports::{Concern, Invocation, queues::BusEvent};
use spokeshave_sim::{
    Functions, InvocationSpec, Market, ObjectChange, Ports, World, engine::Running,
};

/// Numbers of messages. Source: Karpenter's benchmark.
pub const COUNTS: [usize; 4] = [100, 1_000, 5_000, 15_000];
/// Nodes that the messages are about.
pub const NODES: usize = 1_500;
/// How long the queue of that benchmark keeps a message.
pub const RETENTION: SignedDuration = SignedDuration::from_secs(1_200);
/// The states that count.
pub const STATES: [&str; 4] = ["stopping", "stopped", "shutting-down", "terminated"];

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mix {
    ScheduledChange,
    Spot,
    StateChange,
}

fn instance(n: usize) -> String {
    format!("i-{n:017x}")
}

/// The bodies: a third of each kind, and what is left over are state changes; mixed, as they would come. Message `n` is about instance `n % nodes`.
pub fn bodies(messages: usize, nodes: usize, at: Timestamp) -> Vec<(Mix, String)> {
    let third = messages / 3;
    let envelope = |n: usize, source: &str, detail_type: &str, detail: Value| {
        json!({"version": "0", "id": format!("id-{n}"), "source": source, "account": "444455556666",
            "region": "us-east-1", "time": at.to_string(), "detail-type": detail_type,
            "resources": [instance(n % nodes)], "detail": detail})
        .to_string()
    };
    let body = |n: usize| {
        let id = instance(n % nodes);
        if n < third {
            let detail = json!({"service": "EC2", "eventTypeCategory": "scheduledChange",
                "statusCode": "upcoming", "startTime": "Mon, 16 Mar 2026 10:00:00 GMT",
                "eventDescription": [{"language": "en_US", "latestDescription": "Maintenance."}],
                "affectedEntities": [{"entityValue": id, "status": "PENDING"}]});
            (Mix::ScheduledChange, envelope(n, "aws.health", "AWS Health Event", detail))
        } else if n < 2 * third {
            let detail = json!({"instance-id": id, "instance-action": "terminate"});
            (Mix::Spot, envelope(n, "aws.ec2", "EC2 Spot Instance Interruption Warning", detail))
        } else {
            let detail = json!({"instance-id": id, "state": STATES[n % STATES.len()]});
            let kind = "EC2 Instance State-change Notification";
            (Mix::StateChange, envelope(n, "aws.ec2", kind, detail))
        }
    };
    // 7919 is a prime that divides none of the counts.
    (0..messages).map(|n| body(n * 7919 % messages)).collect()
}

/// The one function of this world. Messages to others are taken and forgotten; nothing runs on a schedule.
struct InterruptionAlone {
    /// When claims began to be deleted.
    deletions: Rc<RefCell<Vec<Timestamp>>>,
}

impl Functions for InterruptionAlone {
    fn invoke(&self, run: InvocationSpec, ports: Ports) -> Running {
        Box::pin(async move {
            let InvocationSpec { concern, batch, now, deadline, settings } = run;
            if concern != Concern::Interruption {
                return BatchAnswer::done();
            }
            let cx = Invocation { concern, now, deadline, settings: &settings, journal: &ports };
            spokeshave_interruption_function::handle(&batch, &ports, &ports, &ports, &cx).await
        })
    }

    fn changed(&mut self, change: &ObjectChange, now: Timestamp) {
        if let Some((Some(old), Some(new))) = change.of::<NodeClaim>()
            && !old.metadata.deleting()
            && new.metadata.deleting()
        {
            self.deletions.borrow_mut().push(now);
        }
    }

    fn bridge_due(&self) -> Option<Timestamp> {
        None
    }

    fn bridge_take(&mut self, _: Timestamp) -> Vec<BusEvent> {
        Vec::new()
    }
}

/// A world with its messages in the queue.
pub struct Run {
    pub world: World,
    /// Messages that were sent, each counted once however often it is delivered.
    pub messages: usize,
    start: Timestamp,
    deletions: Rc<RefCell<Vec<Timestamp>>>,
}

impl Run {
    /// `messages` messages about `nodes` nodes.
    pub fn new(messages: usize, nodes: usize) -> Self {
        let mut run = Self::without_messages(nodes);
        let bodies = bodies(messages, nodes, run.start);
        run.send(bodies.into_iter().map(|it| it.1));
        run
    }

    /// Claims and nodes, and an empty queue.
    pub fn without_messages(nodes: usize) -> Self {
        let start: Timestamp = "2026-03-02T08:00:00Z".parse().expect("a time");
        let deletions = Rc::new(RefCell::new(Vec::new()));
        let functions = Box::new(InterruptionAlone { deletions: deletions.clone() });
        let settings = Settings { cluster_name: "load".into(), ..Settings::default() };
        let mut world =
            World::new(1, start, settings, Market::default(), Rc::new(|_, _| None), functions);
        world.change(|inner| {
            for n in 0..nodes {
                let provider_id = format!("aws:///us-east-1a/{}", instance(n));
                let claim = json!({
                    "metadata": {"name": format!("default-{n:05}"), "finalizers": ["karpenter.sh/termination"],
                        "labels": {"node.kubernetes.io/instance-type": "m5.large",
                            "topology.kubernetes.io/zone": "us-east-1a",
                            "karpenter.sh/capacity-type": "spot", "karpenter.sh/nodepool": "default"}},
                    "spec": {"nodeClassRef":
                        {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
                    "status": {"providerID": provider_id, "nodeName": format!("node-{n:05}")}});
                let node = json!({
                    "metadata": {"name": format!("node-{n:05}"), "finalizers": ["karpenter.sh/termination"],
                        "labels": {"karpenter.sh/nodepool": "default"}},
                    "spec": {"providerID": provider_id}});
                inner.store.create(from_value::<NodeClaim>(claim).expect("a claim"), start);
                inner.store.create(from_value::<Node>(node).expect("a node"), start);
            }
        });
        // What is there to begin with is no news to anybody.
        world.run(start, false, &mut |_| {});
        Self { world, messages: 0, start, deletions }
    }

    /// Sends messages, now.
    pub fn send(&mut self, bodies: impl IntoIterator<Item = String>) {
        let mut sent = 0;
        self.world.change(|inner| {
            for body in bodies {
                inner.send(Concern::Interruption, &body, SignedDuration::ZERO, "", false);
                sent += 1;
            }
        });
        self.messages += sent;
    }

    /// Goes on until the queue is empty, at most as long as messages are kept. A message leaves the queue when its claim
    /// is being deleted, or there is none.
    pub fn drain(&mut self) {
        for _ in 0..RETENTION.as_secs() {
            let now = self.world.read(|inner| inner.now);
            self.world.run(now + SignedDuration::from_secs(1), false, &mut |_| {});
            if self.left().0 == 0 {
                return;
            }
        }
    }

    /// Messages in the queue, and claims that are not being deleted.
    pub fn left(&self) -> (usize, usize) {
        self.world.read(|inner| {
            let queue = &inner.queues[&Concern::Interruption];
            let claims = inner.store.list::<NodeClaim>().filter(|it| !it.metadata.deleting());
            (queue.messages.len() + queue.dead.len(), claims.count())
        })
    }

    /// How many claims began to be deleted.
    pub fn reactions(&self) -> usize {
        self.deletions.borrow().len()
    }

    /// What the benchmark reports.
    pub fn report(&self) -> Result<Report, Lost> {
        let reactions: Vec<SignedDuration> =
            self.deletions.borrow().iter().map(|at| at.duration_since(self.start)).collect();
        let end = self.world.read(|inner| {
            let lines = inner.timeline.iter().filter(|it| it.concern == Concern::Interruption);
            lines.map(|it| it.at).max().unwrap_or(inner.now)
        });
        Report::new(self.messages, self.left().0, end.duration_since(self.start), reactions)
    }
}

/// The figures of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub messages: usize,
    pub total_duration_in_seconds: f64,
    pub messages_per_second: f64,
    /// From an event's time to the deletion of its claim, in seconds.
    pub p50: f64,
    pub p99: f64,
}

/// So many messages were not handled before the queue forgot them: such a run is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost(pub usize);

impl Report {
    /// Of `messages` messages that took `duration`, `unhandled` are left.
    pub fn new(
        messages: usize,
        unhandled: usize,
        duration: SignedDuration,
        mut reactions: Vec<SignedDuration>,
    ) -> Result<Self, Lost> {
        let seconds = duration.as_secs_f64();
        // Behind the retention nothing is left in the queue, handled or not.
        let handled_in_time =
            (messages as f64 * (RETENTION.as_secs_f64() / seconds).min(1.0)) as usize;
        let lost = unhandled.max(messages - handled_in_time);
        if lost > 0 {
            return Err(Lost(lost));
        }
        reactions.sort();
        let at = |share: f64| {
            let rank = (share * reactions.len() as f64).ceil() as usize;
            reactions.get(rank.max(1) - 1).map_or(0.0, SignedDuration::as_secs_f64)
        };
        Ok(Self {
            messages,
            total_duration_in_seconds: seconds,
            messages_per_second: messages as f64 / seconds,
            p50: at(0.5),
            p99: at(0.99),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Messages {}  TotalDurationInSeconds {:.3}  Messages/Second {:.1}  p50 {:.3} s  p99 {:.3} s",
            self.messages,
            self.total_duration_in_seconds,
            self.messages_per_second,
            self.p50,
            self.p99
        )
    }
}

/// Processor time of this process so far, where the system tells: user and system, in hundredths of a second.
#[allow(dead_code)] // The tests measure no time.
pub fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, a name in brackets, may hold spaces; user and system time are the 14th and the 15th.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = |n: usize| fields.split_whitespace().nth(n - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / 100.0)
}

/// Runs a future that never really waits.
#[allow(dead_code)] // Where the simulator polls, nobody else does.
pub fn block_on<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits for something"),
    }
}
