//! The function `launch`: buys instances for NodeClaims, once each.
//!
//! Work names NodeClaims; without keys all unlaunched ones are looked at. Each is read fresh. Claims that could share a
//! fleet do: one request with as many instances as claims. What may be bought and what an answer means is decided in
//! `spokeshave_catalog::launch`; this crate reads, keeps the record of the attempt, carries out, and writes claims.
//!
//! Every step can be the last one of a process, and two processes can be at the same step. The record of the attempt
//! (`spokeshave_catalog::launch::attempt`) and the annotation on the claim make the next run end right.

mod attempts;
mod claims;
mod group;
mod surroundings;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_catalog::launch::attempt;
use spokeshave_kwok::{
    node::{self, JoinError},
    player,
};
use spokeshave_lambda::{
    BatchAnswer, SqsBatch,
    batch::{Item, stand_by},
};
use spokeshave_model::{ConditionStatus, Kind, NodeClaim, ObjectKey};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Concern, Decision, Ec2, Invocation, Key, Queues, Selector,
    StateError, StateTable, Work, chain,
};

use crate::{claims::Claim, surroundings::Surroundings};

/// How old a claim is before the bridge's word about it counts. Whoever creates claims hands them over in groups that share a
/// fleet, a burst of a thousand within this time; launched one by one as the bridge sees them, they would take a fleet
/// each. The bridge makes good what was never handed over.
const HAND_OVER: SignedDuration = SignedDuration::from_secs(15);
/// The bridge's word for a claim that it saw for the first time.
const SEEN: &str = "NodeClaimCreated";
/// Claims that one wake-up names at most.
const KEYS_PER_WAKE: usize = 100;

/// With less time than this left, no fleet is asked for: a dozen calls of the cluster and the table, and CreateFleet, which
/// takes EC2 up to some seconds. A run that ends before the answer is recorded would leave the finding out to the next one,
/// after [`attempt::EC2_VIEW`].
const FLEET_TAKES: SignedDuration = SignedDuration::from_secs(10);

/// Why something could not be carried out. All of these are tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("cluster")]
    Cluster(#[from] ClusterError),
    #[error("state table")]
    State(#[from] StateError),
    #[error("EC2")]
    Aws(#[from] AwsError),
}

impl Trouble {
    /// The error with its sources, once.
    fn text(&self) -> String {
        chain(self)
    }
}

/// What comes next for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Next {
    Done,
    /// Look again at this time.
    At(Timestamp),
    /// Look again after a pause that grows with the failures in a row.
    BackOff,
}

/// What the messages of a batch say of one claim.
#[derive(Clone, Debug, Default)]
struct Wanted {
    /// Positions of the messages.
    records: Vec<usize>,
    /// How often it failed in a row.
    failures: u32,
    /// Somebody other than the bridge asks for it.
    handed_over: bool,
}

/// Everything a run works with.
pub(crate) struct Run<'a, C, E, S, Q> {
    pub cluster: &'a C,
    pub ec2: &'a E,
    pub state: &'a S,
    pub queues: &'a Q,
    pub cx: &'a Invocation<'a>,
    /// `cx.now` as the API server stores times.
    pub now: Timestamp,
}

/// Handles a batch.
pub async fn handle(
    batch: &SqsBatch,
    cluster: &impl Cluster,
    ec2: &impl Ec2,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    if let Some(answer) = stand_by(batch, state, cx).await {
        return answer;
    }
    let run = Run { cluster, ec2, state, queues, cx, now: cx.whole_second() };
    let mut answer = BatchAnswer::done();
    let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
    for Item { position, record, work } in batch.works(cx) {
        let failures = work.failures();
        let handed_over = work.keys.is_empty() || work.reason != SEEN;
        match run.names(&work).await {
            Ok(names) => {
                for name in names {
                    let entry = wanted.entry(name).or_default();
                    entry.records.push(position);
                    entry.failures = entry.failures.max(failures);
                    entry.handed_over |= handed_over;
                }
            }
            Err(error) => {
                cx.decide(Decision::new("retry", "NodeClaim/", error.text()));
                answer.retry(record);
            }
        }
    }
    let mut due: BTreeMap<Timestamp, Vec<String>> = BTreeMap::new();
    for (name, next) in run.all(&wanted).await {
        match next {
            Next::Done => {}
            Next::At(at) => due.entry(at).or_default().push(name),
            Next::BackOff => {
                let Wanted { records, failures, .. } =
                    wanted.get(&name).cloned().unwrap_or_default();
                let to = (queues, Concern::Launch);
                answer.come_back(batch, &records, key(&name), failures, to).await;
            }
        }
    }
    for (at, names) in due {
        for names in names.chunks(KEYS_PER_WAKE) {
            if !run.wake(at, names).await {
                let wanted = names.iter().filter_map(|it| wanted.get(it));
                answer.retry_at(batch, wanted.flat_map(|it| &it.records));
            }
        }
    }
    answer
}

impl<C: Cluster, E: Ec2, S: StateTable, Q: Queues> Run<'_, C, E, S, Q> {
    /// The claims that a message names; all of them when it names nothing.
    async fn names(&self, work: &Work) -> Result<Vec<String>, Trouble> {
        if !work.keys.is_empty() {
            let claims = work.keys.iter().filter(|it| it.kind == NodeClaim::KIND);
            return Ok(claims.map(|it| it.name.clone()).collect());
        }
        let claims = self.cluster.list::<NodeClaim>(&Selector::all()).await?;
        let open = claims.iter().filter(|it| is_open(it) || node::is_made_up(it));
        Ok(open.map(|it| it.metadata.name.clone()).collect())
    }

    /// Brings every claim as far as possible.
    async fn all(&self, wanted: &BTreeMap<String, Wanted>) -> BTreeMap<String, Next> {
        let mut results: BTreeMap<String, Next> = BTreeMap::new();
        let mut fresh: Vec<Claim> = Vec::new();
        let mut under_way: BTreeMap<String, (Vec<Claim>, bool)> = BTreeMap::new();
        for (name, asked) in wanted {
            match self.cluster.get::<NodeClaim>(&ObjectKey::cluster(name)).await {
                Ok(Some(claim)) if is_open(&claim) => match attempt::of_claim(&claim) {
                    Some(id) => {
                        let (claims, handed_over) = under_way.entry(id.to_owned()).or_default();
                        claims.push(claim);
                        *handed_over |= asked.handed_over;
                    }
                    // A claim that is being deleted is not launched any more.
                    None if claim.metadata.deleting() => {}
                    None => match self.still_handed_over(&claim, asked) {
                        Some(at) => {
                            results.insert(name.clone(), Next::At(at));
                        }
                        None => fresh.push(claim),
                    },
                },
                Ok(Some(claim)) if node::is_made_up(&claim) => {
                    results.insert(name.clone(), self.make_up(&claim).await);
                }
                Ok(_) => {}
                Err(error) => {
                    self.note_trouble(name, &error.into());
                    results.insert(name.clone(), Next::BackOff);
                }
            }
        }
        // The first is never put off: with a limit that is too short nothing would come of any run.
        let mut begun = false;
        for (id, (claims, handed_over)) in under_way {
            let names: Vec<String> = claims.iter().map(|it| it.metadata.name.clone()).collect();
            if begun && let Some(at) = self.out_of_time(&names) {
                results.extend(names.into_iter().map(|it| (it, Next::At(at))));
                continue;
            }
            begun = true;
            match self.resume(&id, claims, handed_over).await {
                Ok(resumed) => {
                    results.extend(resumed.next);
                    fresh.extend(resumed.released.into_iter().filter(|it| !it.metadata.deleting()));
                }
                Err(error) => {
                    for name in names {
                        self.note_trouble(&name, &error);
                        results.insert(name, Next::BackOff);
                    }
                }
            }
        }
        if !fresh.is_empty() {
            let mut surroundings = Surroundings::default();
            for claims in group::alike(fresh) {
                let names: Vec<String> = claims.iter().map(|it| it.metadata.name.clone()).collect();
                if begun && let Some(at) = self.out_of_time(&names) {
                    results.extend(names.into_iter().map(|it| (it, Next::At(at))));
                    continue;
                }
                begun = true;
                match self.launch(claims, &mut surroundings).await {
                    Ok(next) => results.extend(next),
                    Err(error) => {
                        for name in names {
                            self.note_trouble(&name, &error);
                            results.insert(name, Next::BackOff);
                        }
                    }
                }
            }
        }
        results
    }

    /// Makes the Node of a made-up instance once it has booted, and is its kubelet from there on.
    async fn make_up(&self, claim: &NodeClaim) -> Next {
        let now = self.cx.now;
        let next = match node::join(self.cluster, self.ec2, claim, now).await {
            Ok(None) => player::play(self.cluster, self.ec2, claim, now).await,
            waits_or_failed => waits_or_failed,
        };
        match next {
            Ok(Some(at)) => Next::At(at),
            Ok(None) => Next::Done,
            Err(error) => {
                let error = match error {
                    JoinError::Cluster(error) => Trouble::from(error),
                    JoinError::Aws(error) => Trouble::from(error),
                };
                self.note_trouble(claim.name(), &error);
                Next::BackOff
            }
        }
    }

    fn note_trouble(&self, name: &str, error: &Trouble) {
        let decision = Decision::new("retry", format!("NodeClaim/{name}"), error.text());
        self.cx.decide(match error {
            Trouble::Aws(error) => decision.with_error(error),
            Trouble::Cluster(_) | Trouble::State(_) => decision,
        });
    }

    /// When these claims are looked at instead, by a run of their own, if this one ends too soon for a fleet.
    fn out_of_time(&self, names: &[String]) -> Option<Timestamp> {
        if self.cx.has_time(FLEET_TAKES) {
            return None;
        }
        let reason = format!("less than {} s are left", FLEET_TAKES.as_secs());
        for name in names {
            self.cx.decide(Decision::new("postpone", format!("NodeClaim/{name}"), reason.as_str()));
        }
        Some(self.cx.now)
    }

    /// Until when whoever created the claim may still hand it over; `None`: it is launched now.
    fn still_handed_over(&self, claim: &NodeClaim, asked: &Wanted) -> Option<Timestamp> {
        if asked.handed_over {
            return None;
        }
        let until = claim.metadata.creation_timestamp?.saturating_add(HAND_OVER).ok()?;
        (until > self.now).then_some(until)
    }

    /// Has these claims looked at again at `due`. `false`: give their messages back instead.
    async fn wake(&self, due: Timestamp, names: &[String]) -> bool {
        let wait = due.duration_since(self.cx.now).max(SignedDuration::from_secs(1));
        let seconds = wait.as_secs() + i64::from(wait.subsec_nanos() > 0);
        let delay = SignedDuration::from_secs(seconds.min(900));
        let keys = names.iter().map(|it| key(it)).collect();
        let work = Work { due: Some(due), ..Work::new("Wake", keys) };
        self.queues.send(Concern::Launch, &work, delay, "").await.is_ok()
    }
}

fn key(name: &str) -> Key {
    Key { kind: NodeClaim::KIND.to_owned(), name: name.to_owned(), ..Key::default() }
}

/// Whether a claim is ours to launch: of our class, without an instance, and neither launched nor given up.
fn is_open(claim: &NodeClaim) -> bool {
    claim.is_managed()
        && claim.status.provider_id.is_empty()
        && claim
            .condition(NodeClaim::LAUNCHED)
            .is_none_or(|it| it.status == ConditionStatus::Unknown)
}
