//! Carrying commands out, one step at a time, each of which may be done twice (lifecycle 25).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spokeshave_disruption::{
    Command, Method, View,
    candidates::Survey,
    cluster::nomination_window,
    command::{CommandCandidate, Replacement, time_limit},
};
use spokeshave_model::{
    Kind, NodeClaim, NodePool, ObjectKey, Resources,
    conditions::ConditionStatus,
    core::{Node, Pod},
    labels,
    pod_classes::disrupted_taint,
};
use spokeshave_ports::{
    Cluster, ClusterError, Concern, Decision, Invocation, Key, Precondition, Queues, StateKey,
    StateTable, When, Work, cluster::KubeEvent,
};

use crate::{
    backoff,
    record::{Made, Stage, Stored, read_all, replacement_name},
    trouble::Trouble,
    world,
};

/// Tries of one write. Source: Karpenter 1.x.
const TRIES: usize = 4;
/// An equal event is not repeated within this time. Source: Karpenter 1.x.
const DEDUPE: SignedDuration = SignedDuration::from_mins(2);
/// Pods told where they will go, per command. The burst of Karpenter's rate limit.
const NOMINATED_EVENTS: usize = 10;
/// A pod is not told again within this time why it has no place. Source: Karpenter 1.x.
const PENDING_DEDUPE: SignedDuration = SignedDuration::from_mins(5);
/// Names tried for one replacement, should others have taken the first.
const NAMES: u32 = 8;

/// What a command is waiting for after it was advanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is over: done or undone.
    Over,
    /// Its replacements are starting.
    Waiting,
}

/// Carries commands out.
pub struct Executor<'a, C, S, Q> {
    pub cluster: &'a C,
    pub state: &'a S,
    pub queues: &'a Q,
    pub cx: &'a Invocation<'a>,
    pub seen: &'a world::Seen,
}

impl<C: Cluster, S: StateTable, Q: Queues> Executor<'_, C, S, Q> {
    /// Takes a stored command as far as it goes now.
    ///
    /// `view` is needed to mark candidates; without one, the world is read when it comes to that.
    ///
    /// # Errors
    /// What does not pass within this run; the command stays as it is stored.
    pub async fn advance(
        &self,
        mut stored: Stored,
        mut version: u64,
        view: Option<&View>,
    ) -> Result<Progress, Trouble> {
        loop {
            let next = match stored.stage {
                Stage::Validating => return Ok(Progress::Waiting),
                Stage::Done => return Ok(Progress::Over),
                Stage::Marking => match view {
                    Some(view) => self.mark(&mut stored, &mut version, view).await?,
                    None => {
                        let (settings, now) = (self.cx.settings, self.cx.now);
                        let read = world::read(self.cluster, self.state, self.seen, settings, now);
                        let Some(world) = read.await? else { return Ok(Progress::Waiting) };
                        let marked = self.mark(&mut stored, &mut version, &world.view).await;
                        world.leave();
                        marked?
                    }
                },
                Stage::Waiting => {
                    let before = stored.made.clone();
                    match self.wait(&mut stored).await? {
                        Some(stage) => stage,
                        None => {
                            if stored.made != before {
                                stored
                                    .write(self.state, When::Version(version), self.cx.now)
                                    .await?;
                            }
                            return Ok(Progress::Waiting);
                        }
                    }
                }
                Stage::Deleting => {
                    self.delete(&stored).await?;
                    if stored.command.method == Method::Drift {
                        backoff::succeeded(self.state, &stored.command.pools()).await?;
                    }
                    Stage::Done
                }
                Stage::RollingBack => {
                    self.roll_back(&stored).await?;
                    self.state.remove(&stored.key(), When::Version(version)).await?;
                    return Ok(Progress::Over);
                }
            };
            stored.stage = next;
            version = stored.write(self.state, When::Version(version), self.cx.now).await?;
        }
    }

    /// Taints the candidates, looks at them once more, and makes the replacements.
    async fn mark(
        &self,
        stored: &mut Stored,
        version: &mut u64,
        view: &View,
    ) -> Result<Stage, Trouble> {
        let mut failed = Vec::new();
        for candidate in &stored.command.candidates {
            if let Err(error) = self.taint(candidate, stored.command.reason().as_str()).await {
                if matches!(error, ClusterError::Unavailable { .. }) {
                    return Err(error.into());
                }
                failed.push((candidate.node.clone(), error));
            }
        }
        // From here on provisioning sees the taint or we see its nominations: one of the two gives way.
        let fresh = world::reread(self.cluster, self.state, stored, view).await?;
        let survey = Survey::new(&fresh);
        let still = survey.collect(stored.command.method).candidates;
        let is_failed = |it: &CommandCandidate| failed.iter().any(|(node, _)| *node == it.node);
        let is_lost = |it: &CommandCandidate| {
            is_failed(it) || !still.iter().any(|found| found.name == it.node)
        };
        let lost: Vec<CommandCandidate> =
            stored.command.candidates.iter().filter(|it| is_lost(it)).cloned().collect();
        // What could not be marked of a plain deletion stays out of it; the rest can go all the more. But a
        // consolidation of which a node has become busy is not the one that was found.
        let needs_all = stored.command.decision() == "replace"
            || (stored.command.method != Method::Emptiness && !lost.iter().all(is_failed));
        if !lost.is_empty() && (needs_all || lost.len() == stored.command.candidates.len()) {
            let names: Vec<&str> = lost.iter().map(|it| it.node.as_str()).collect();
            stored.failure = Some(format!("{} cannot be disrupted any more", names.join(", ")));
            return Ok(Stage::RollingBack);
        }
        if !lost.is_empty() {
            // What a failed write has left half done, the next pass takes back.
            for candidate in lost.iter().filter(|it| !is_failed(it)) {
                self.untaint(candidate).await?;
            }
            stored.command.candidates.retain(|it| !lost.iter().any(|lost| lost.node == it.node));
            stored.command.saving = stored.command.candidates.iter().map(|it| it.price).sum();
            stored.nodes.retain(|it| !lost.iter().any(|lost| lost.node == *it));
            *version = stored.write(self.state, When::Version(*version), self.cx.now).await?;
        }
        self.make_replacements(stored, version, view).await?;
        if stored.failure.is_some() {
            return Ok(Stage::RollingBack);
        }
        self.nominate(stored, view).await?;
        self.tell_pending(stored).await?;
        stored.started_at.get_or_insert(self.cx.now);
        self.report_start(stored);
        Ok(Stage::Waiting)
    }

    /// The nodes that are to receive the candidates' pods are left alone for a while; the pods are told.
    async fn nominate(&self, stored: &Stored, view: &View) -> Result<(), Trouble> {
        let now = self.cx.now;
        let until = now.checked_add(nomination_window(self.cx.settings)).ok();
        let mut n_events = 0;
        for placement in &stored.command.placements {
            let key = StateKey::new(world::NOMINATIONS, &placement.node);
            let data = serde_json::json!({"at": now, "until": until});
            self.state.write(&key, data, until, When::Always).await?;
            let Some(target) = view.nodes.iter().find(|it| it.name() == placement.node) else {
                continue;
            };
            let claim = target.claim.as_ref().map(|it| format!("nodeclaim/{}", it.name()));
            let node = target.node.as_ref().map(|it| format!("node/{}", it.name()));
            let parts: Vec<String> = claim.into_iter().chain(node).collect();
            let text = format!("Pod should schedule on: {}", parts.join(", "));
            let moving = view
                .nodes
                .iter()
                .filter(|it| stored.nodes.iter().any(|name| name == it.name()))
                .flat_map(|it| &it.pods)
                .filter(|it| placement.pods.contains(&it.key().to_string()));
            for pod in moving {
                if n_events < NOMINATED_EVENTS {
                    n_events += 1;
                    self.publish_on(&**pod, "Nominated", text.clone()).await;
                }
            }
        }
        Ok(())
    }

    /// Pods that waited before and still find no place are told why.
    async fn tell_pending(&self, stored: &Stored) -> Result<(), ClusterError> {
        for it in stored.command.pending.iter().take(NOMINATED_EVENTS) {
            let (namespace, name) = it.pod.split_once('/').unwrap_or_default();
            let key = ObjectKey::namespaced(namespace, name);
            let Some(pod) = self.cluster.get::<Pod>(&key).await?.filter(|it| !it.is_bound()) else {
                continue;
            };
            let text = format!("Failed to schedule pod, {}", it.error);
            let event = KubeEvent::on(&*pod, true, "FailedScheduling", text);
            self.cluster.publish(event, PENDING_DEDUPE).await;
        }
        Ok(())
    }

    async fn taint(&self, candidate: &CommandCandidate, reason: &str) -> Result<(), ClusterError> {
        let taint = disrupted_taint();
        self.change_node(candidate, |node| {
            if !node.spec.taints.iter().any(|it| it.matches(&taint)) {
                node.spec.taints.push(taint.clone());
            }
        })
        .await?;
        let now = self.cx.now;
        self.change_claim_status(candidate, |claim| {
            claim.conditions_mut().set(
                NodeClaim::DISRUPTION_REASON,
                ConditionStatus::True,
                reason,
                reason,
                now,
            );
        })
        .await
    }

    async fn untaint(&self, candidate: &CommandCandidate) -> Result<(), ClusterError> {
        let taint = disrupted_taint();
        self.change_node(candidate, |node| {
            if !node.metadata.deleting() {
                node.spec.taints.retain(|it| !it.matches(&taint));
            }
        })
        .await?;
        self.change_claim_status(candidate, |claim| {
            if !claim.metadata.deleting() {
                claim.conditions_mut().clear(NodeClaim::DISRUPTION_REASON);
            }
        })
        .await
    }

    /// Changes a candidate's Node; one that is gone, or another of the same name, is left alone.
    async fn change_node(
        &self,
        candidate: &CommandCandidate,
        change: impl Fn(&mut Node),
    ) -> Result<(), ClusterError> {
        for last in (0..TRIES).map(|n| n + 1 == TRIES) {
            let key = ObjectKey::cluster(&candidate.node);
            let Some(old) = self.cluster.get::<Node>(&key).await? else { return Ok(()) };
            if old.metadata.uid != candidate.node_uid {
                return Ok(());
            }
            let mut new = Node::clone(&old);
            change(&mut new);
            match self.cluster.patch(&*old, &new, Precondition::ResourceVersion).await {
                Ok(_) | Err(ClusterError::NotFound { .. }) => return Ok(()),
                Err(ClusterError::Conflict { .. }) if !last => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn change_claim_status(
        &self,
        candidate: &CommandCandidate,
        change: impl Fn(&mut NodeClaim),
    ) -> Result<(), ClusterError> {
        for last in (0..TRIES).map(|n| n + 1 == TRIES) {
            let key = ObjectKey::cluster(&candidate.claim);
            let Some(old) = self.cluster.get::<NodeClaim>(&key).await? else { return Ok(()) };
            if old.metadata.uid != candidate.claim_uid {
                return Ok(());
            }
            let mut new = NodeClaim::clone(&old);
            change(&mut new);
            match self.cluster.patch_status(&*old, &new, Precondition::ResourceVersion).await {
                Ok(_) | Err(ClusterError::NotFound { .. }) => return Ok(()),
                Err(ClusterError::Conflict { .. }) if !last => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Creates what is missing of the replacements. A failure that will stay is written into `stored.failure`.
    async fn make_replacements(
        &self,
        stored: &mut Stored,
        version: &mut u64,
        view: &View,
    ) -> Result<(), Trouble> {
        let replacements = stored.command.replacements.clone();
        if replacements.is_empty() {
            return Ok(());
        }
        if stored.made.is_empty() {
            stored.made = replacements
                .iter()
                .enumerate()
                .map(|(n, it)| Made {
                    name: replacement_name(&stored.id, n, &it.pool, 0),
                    ..Made::default()
                })
                .collect();
            *version = stored.write(self.state, When::Version(*version), self.cx.now).await?;
        }
        let mut keys = Vec::new();
        for (n, replacement) in replacements.iter().enumerate() {
            if stored.made.get(n).is_some_and(|it| !it.uid.is_empty()) {
                continue;
            }
            if let Some(why) = self.refusal(replacement, view).await? {
                stored.failure = Some(why);
                return Ok(());
            }
            match self.make(&stored.id, n, replacement).await {
                Ok(claim) => {
                    keys.push(Key::of(&*claim));
                    if let Some(made) = stored.made.get_mut(n) {
                        made.name = claim.name().to_owned();
                        made.uid = claim.metadata.uid.clone();
                    }
                    *version =
                        stored.write(self.state, When::Version(*version), self.cx.now).await?;
                }
                Err(ClusterError::Refused { message, .. }) => {
                    stored.failure = Some(format!("replacement refused: {message}"));
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        for (made, replacement) in stored.made.iter().zip(&replacements) {
            let relaxed = replacement
                .claim
                .metadata
                .annotation(labels::MIN_VALUES_RELAXED)
                .unwrap_or("false");
            if keys.iter().any(|it| it.name == made.name) {
                self.cx.count(
                    "karpenter_nodeclaims_created_total",
                    &[
                        ("reason", stored.command.reason().lower()),
                        ("nodepool", &replacement.pool),
                        ("min_values_relaxed", relaxed),
                    ],
                );
                let why = format!("replaces {}", stored.nodes.join(", "));
                self.cx.decide(Decision::new("create", format!("NodeClaim/{}", made.name), why));
            }
        }
        if !keys.is_empty() {
            let work = Work::new("NodeClaimsCreated", keys);
            self.queues.send(Concern::Launch, &work, SignedDuration::ZERO, "").await?;
        }
        Ok(())
    }

    /// Creates the `n`-th replacement, or finds the one that an earlier run created.
    async fn make(
        &self,
        id: &str,
        n: usize,
        replacement: &Replacement,
    ) -> Result<Arc<NodeClaim>, ClusterError> {
        let owner = format!("{id}/{n}");
        for attempt in 0..NAMES {
            let mut claim = replacement.claim.clone();
            claim.metadata.name = replacement_name(id, n, &replacement.pool, attempt);
            claim.metadata.generate_name.clear();
            claim.metadata.annotations.insert(labels::COMMAND.to_owned(), owner.clone());
            match self.cluster.create(&claim).await {
                Err(ClusterError::AlreadyExists { .. }) => {
                    let key = ObjectKey::cluster(&claim.metadata.name);
                    let there = self.cluster.get::<NodeClaim>(&key).await?;
                    if let Some(it) = there
                        && it.metadata.annotation(labels::COMMAND) == Some(&owner)
                    {
                        return Ok(it);
                    }
                }
                answer => return answer,
            }
        }
        Err(ClusterError::Unavailable { message: "no free name for a replacement".into() })
    }

    /// Why a replacement may not be made: its pool is gone, or uses more than its limits allow already.
    async fn refusal(
        &self,
        replacement: &Replacement,
        view: &View,
    ) -> Result<Option<String>, Trouble> {
        let key = ObjectKey::cluster(&replacement.pool);
        let Some(pool) =
            self.cluster.get::<NodePool>(&key).await?.filter(|it| !it.metadata.deleting())
        else {
            return Ok(Some(format!("NodePool {} is gone", replacement.pool)));
        };
        let Some(limits) = &pool.spec.limits else { return Ok(None) };
        let usage = usage(view, &replacement.pool);
        let exceeded = limits.iter().find(|(name, limit)| usage.get(name) > *limit);
        Ok(exceeded.map(|(name, limit)| {
            format!(
                "NodePool {} uses {} {name} of {limit} already",
                replacement.pool,
                usage.get(name)
            )
        }))
    }

    fn report_start(&self, stored: &Stored) {
        let Command { method, candidates, .. } = &stored.command;
        let decision = stored.command.decision();
        let reason = method.reason();
        let labels = [
            ("decision", decision),
            ("reason", reason.lower()),
            ("consolidation_type", method.consolidation_type()),
        ];
        self.cx.count("karpenter_voluntary_disruption_decisions_total", &labels);
        for pool in stored.command.pools() {
            let mut labels = labels.to_vec();
            labels.insert(0, ("nodepool", pool));
            self.cx.count("karpenter_voluntary_disruption_decisions_by_nodepool_total", &labels);
        }
        for candidate in candidates {
            self.cx.decide(
                Decision::new(
                    "disrupt",
                    format!("Node/{}", candidate.node),
                    format!("{reason}: {}", stored.command.text_for(&candidate.node)),
                )
                .with("command", stored.id.as_str())
                .with("method", method.as_str())
                .with("nodeclaim", candidate.claim.as_str())
                .with("price_per_hour", candidate.price)
                .with("saving_per_hour", stored.command.saving),
            );
        }
    }

    /// Looks after the replacements: `None` while they are starting.
    async fn wait(&self, stored: &mut Stored) -> Result<Option<Stage>, Trouble> {
        let mut problem = None;
        for made in stored.made.iter_mut().filter(|it| !it.initialized) {
            let claim = self.cluster.get::<NodeClaim>(&ObjectKey::cluster(&made.name)).await?;
            let Some(claim) = claim.filter(|it| it.metadata.uid == made.uid) else {
                problem = Some(format!("replacement {} was deleted", made.name));
                continue;
            };
            if claim.metadata.deleting() {
                problem = Some(format!("replacement {} is being deleted", made.name));
                continue;
            }
            let reason = stored.command.method.reason();
            self.publish_on(
                &*claim,
                "DisruptionLaunching",
                format!("Launching NodeClaim: {reason}"),
            )
            .await;
            if claim.is_true(NodeClaim::INITIALIZED) {
                made.initialized = true;
            } else {
                self.publish_on(
                    &*claim,
                    "DisruptionWaitingReadiness",
                    "Waiting on readiness to continue disruption".to_owned(),
                )
                .await;
            }
        }
        if stored.made.iter().all(|it| it.initialized) {
            return Ok(Some(Stage::Deleting));
        }
        if problem.is_none() {
            let n_candidates: usize = read_all(self.state)
                .await?
                .iter()
                .filter(|(it, _)| it.is_running())
                .map(|(it, _)| it.command.candidates.len())
                .sum();
            let started = stored.started_at.unwrap_or(stored.computed_at);
            if self.cx.now.duration_since(started) > time_limit(n_candidates) {
                problem = Some("command reached timeout".to_owned());
            }
        }
        let Some(problem) = problem else { return Ok(None) };
        let n_open = stored.made.iter().filter(|it| !it.initialized).count();
        // DIFFERENCE: Karpenter writes the decision into the label `consolidation_type` as well.
        self.cx.sample(
            "karpenter_voluntary_disruption_queue_failures_total",
            n_open as f64,
            "Count",
            &[
                ("decision", stored.command.decision()),
                ("reason", stored.command.reason().lower()),
                ("consolidation_type", stored.command.method.consolidation_type()),
            ],
        );
        if stored.command.method == Method::Drift {
            backoff::failed(self.state, &stored.command.pools(), &stored.id, self.cx.now).await?;
        }
        stored.failure = Some(problem);
        Ok(Some(Stage::RollingBack))
    }

    /// Deletes the candidates. Those that are going or gone are not counted again.
    async fn delete(&self, stored: &Stored) -> Result<(), Trouble> {
        let reason = stored.command.reason();
        for candidate in &stored.command.candidates {
            let key = ObjectKey::cluster(&candidate.claim);
            let claim = self.cluster.get::<NodeClaim>(&key).await?;
            let Some(claim) = claim
                .filter(|it| it.metadata.uid == candidate.claim_uid && !it.metadata.deleting())
            else {
                continue;
            };
            self.cluster.delete::<NodeClaim>(&key, &candidate.claim_uid, None).await?;
            self.cx.decide(
                Decision::new(
                    "delete",
                    format!("NodeClaim/{}", candidate.claim),
                    format!("{reason}: {}", stored.command.text_for(&candidate.node)),
                )
                .with("command", stored.id.as_str())
                .with("node", candidate.node.as_str()),
            );
            self.publish_on(
                &*claim,
                "DisruptionTerminating",
                format!("Disrupting NodeClaim: {reason}"),
            )
            .await;
            let node = self.cluster.get::<Node>(&ObjectKey::cluster(&candidate.node)).await?;
            if let Some(node) = node.filter(|it| it.metadata.uid == candidate.node_uid) {
                self.publish_on(
                    &*node,
                    "DisruptionTerminating",
                    format!("Disrupting Node: {reason}"),
                )
                .await;
            }
            let labels = [
                ("reason", reason.lower()),
                ("nodepool", candidate.pool.as_str()),
                ("capacity_type", candidate.capacity_type.as_str()),
                ("consolidation_policy", candidate.consolidation_policy.as_str()),
                ("termination_mode", candidate.termination_mode.as_str()),
            ];
            self.cx.count("karpenter_nodeclaims_disrupted_total", &labels);
            if candidate.n_pods > 0 {
                self.cx.sample(
                    "karpenter_pods_disruption_initiated_total",
                    candidate.n_pods as f64,
                    "Count",
                    &labels,
                );
            }
        }
        Ok(())
    }

    /// Takes taints and conditions back, and deletes replacements that have no instance yet.
    ///
    /// DIFFERENCE: Karpenter leaves such replacements to themselves. Those that have an instance stay here too, as
    /// ordinary nodes.
    async fn roll_back(&self, stored: &Stored) -> Result<(), Trouble> {
        let why = stored.failure.clone().unwrap_or_default();
        for candidate in &stored.command.candidates {
            self.untaint(candidate).await?;
            self.cx.decide(
                Decision::new("roll-back", format!("Node/{}", candidate.node), why.clone())
                    .with("command", stored.id.as_str()),
            );
        }
        for (n, replacement) in stored.command.replacements.iter().enumerate() {
            let owner = format!("{}/{n}", stored.id);
            for attempt in 0..NAMES {
                let name = replacement_name(&stored.id, n, &replacement.pool, attempt);
                let key = ObjectKey::cluster(&name);
                let Some(claim) = self.cluster.get::<NodeClaim>(&key).await? else { break };
                if claim.metadata.annotation(labels::COMMAND) != Some(&owner) {
                    continue;
                }
                if claim.status.provider_id.is_empty() && !claim.metadata.deleting() {
                    self.cluster.delete::<NodeClaim>(&key, &claim.metadata.uid, None).await?;
                    self.cx.decide(Decision::new("delete", claim.reference(), why.clone()));
                }
                break;
            }
        }
        Ok(())
    }

    /// Takes back what commands that nobody knows of left on nodes (lifecycle 13, step 3).
    ///
    /// # Errors
    /// A lost race: the pass begins again.
    pub async fn clean_up(&self, view: &View) -> Result<(), Trouble> {
        for node in view.nodes.iter().filter(|it| !it.in_command && !it.is_marked_for_deletion()) {
            let (Some(object), Some(claim)) = (&node.node, &node.claim) else { continue };
            if node.has_disrupted_taint() && !object.metadata.deleting() {
                let mut new = Node::clone(object);
                let taint = disrupted_taint();
                new.spec.taints.retain(|it| !it.matches(&taint));
                match self.cluster.patch(&**object, &new, Precondition::ResourceVersion).await {
                    Ok(_) | Err(ClusterError::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                let why = "no disruption command has to do with it";
                self.cx.decide(Decision::new("untaint", object.reference(), why));
            }
            if node.is_initialized() && claim.condition(NodeClaim::DISRUPTION_REASON).is_some() {
                let mut new = NodeClaim::clone(claim);
                new.conditions_mut().clear(NodeClaim::DISRUPTION_REASON);
                match self.cluster.patch_status(&**claim, &new, Precondition::ResourceVersion).await
                {
                    Ok(_) | Err(ClusterError::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    async fn publish_on<K: Kind>(&self, object: &K, reason: &str, message: String) {
        self.cluster.publish(KubeEvent::on(object, false, reason, message), DEDUPE).await;
    }
}

/// What the pool's nodes that are not on their way out have, `nodes` included. Candidates of this command count.
fn usage(view: &View, pool: &str) -> Resources {
    let mut usage = Resources::new();
    for node in view.nodes.iter().filter(|it| it.pool() == pool && !it.is_marked_for_deletion()) {
        let capacity = match (&node.node, &node.claim) {
            (Some(node), _) if !node.status.capacity.is_empty() => &node.status.capacity,
            (_, Some(claim)) => &claim.status.capacity,
            (Some(node), None) => &node.status.capacity,
            (None, None) => continue,
        };
        usage.add(capacity);
        usage.add(
            &Resources::new()
                .with(spokeshave_model::resources::NODES, spokeshave_model::Quantity::units(1)),
        );
    }
    usage
}

/// How long a command has been waiting for its replacements.
pub fn waited(stored: &Stored, now: Timestamp) -> SignedDuration {
    now.duration_since(stored.started_at.unwrap_or(stored.computed_at))
}
