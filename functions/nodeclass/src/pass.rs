//! One pass of one class.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_model::{Condition, EC2NodeClass, Kind, conditions, hash, labels};
use spokeshave_nodeclass::{
    facts as rules,
    reconcile::{self, Found},
};
use spokeshave_ports::{
    Cluster, Decision, Ec2, Eks, Iam, Invocation, Precondition, Record, Ssm, StateError, StateKey,
    StateTable, When, cluster::KubeEvent,
};

use crate::{
    Trouble,
    facts::Facts,
    failure::{Failure, Part},
    hashes,
    takeover::may_write_hashes,
};

/// Equal events on one object are published once in so long. As in Karpenter.
pub(crate) const EVENTS_ONCE_IN: SignedDuration = SignedDuration::from_mins(2);

/// Without Karpenter's prefix, as its status metrics are.
const TRANSITIONS: &str = "operator_ec2nodeclass_status_condition_transitions_total";
const TRANSITION_SECONDS: &str = "operator_ec2nodeclass_status_condition_transition_seconds";
const CONDITION_COUNT: &str = "operator_ec2nodeclass_status_condition_count";
const CONDITION_SECONDS: &str = "operator_ec2nodeclass_status_condition_current_status_seconds";

/// Partition of the state table: shorter lists of security groups that were seen once, by class UID. Lost: seen once more.
const LOST_GROUPS: &str = "lost-groups";
/// Two looks further apart than this are not one after the other: twice the schedule's pause.
const LOST_GROUPS_LIFE: SignedDuration = SignedDuration::from_mins(10);

/// What a pass needs.
pub(crate) struct Pass<'a, C, E2, I, S, K, T> {
    pub cluster: &'a C,
    pub ec2: &'a E2,
    pub iam: &'a I,
    pub ssm: &'a S,
    pub state: &'a T,
    pub facts: &'a Facts<'a, C, K>,
    pub cx: &'a Invocation<'a>,
    pub now: Timestamp,
}

/// How a pass ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub failures: Vec<Failure>,
    /// Something that the class asks for was not found.
    pub missing: bool,
    /// Look again after this, whatever else happens.
    pub due: Option<SignedDuration>,
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Self { failures: vec![failure], ..Self::default() }
    }
}

impl<C: Cluster, E2: Ec2, I: Iam, S: Ssm, K: Eks, T: StateTable> Pass<'_, C, E2, I, S, K, T> {
    /// Brings a class as far as it goes now. What was found is written even when something else failed.
    pub(crate) async fn run(&self, read: &EC2NodeClass) -> Outcome {
        let class = match self.prepare(read).await {
            Ok(class) => class,
            Err(error) => return Part::Class.failed(error).into(),
        };
        if class.metadata.deleting() {
            return match self.delete(&class).await {
                Ok(()) => Outcome::default(),
                Err(error) => {
                    let failure = Part::Deletion.failed(error);
                    self.warn(&class, &failure).await;
                    failure.into()
                }
            };
        }
        let mut outcome = Outcome::default();
        let gate = self.cx.settings.gates.reserved_capacity;
        let mut now = class.clone();
        let found = Found {
            images: self.images(&class, &mut outcome.failures).await,
            reservations: self.reservations(&class, &mut outcome.failures).await,
            placement: self.placement(&class, &mut outcome.failures).await,
            subnets: self.subnets(&class, &mut outcome.failures).await,
            security_groups: self.security_groups(&class, &mut outcome.failures).await,
        };
        let (found, held) = match self.hold_lost_groups(&class, found).await {
            Ok(answer) => answer,
            Err(error) => return Part::SecurityGroups.failed(error).into(),
        };
        let again = reconcile::apply(&mut now, found, gate, self.now);
        outcome.missing = held || again == Some(reconcile::NOT_FOUND_AGAIN);
        outcome.due = again.filter(|it| *it != reconcile::NOT_FOUND_AGAIN);
        if let Err(error) = self.profile(&mut now).await {
            outcome.failures.push(Part::Profile.failed(error));
        }
        match self.validate(&mut now).await {
            Ok(true) => {}
            Ok(false) => outcome.missing = true,
            Err(error) => outcome.failures.push(Part::Validation.failed(error)),
        }
        for failure in &outcome.failures {
            self.blame(&mut now, failure);
        }
        if let Err(error) = self.write(&class, &now).await {
            // A fresh look brings up the other errors again.
            outcome.failures = vec![Part::Class.failed(error)];
        }
        for failure in &outcome.failures {
            self.warn(&class, failure).await;
        }
        self.gauge_conditions(&now);
        outcome
    }

    /// One series per condition, as it is now, and how long it has been so.
    ///
    /// DIFFERENCE: without the older twins of the same figures under names that hold no kind.
    fn gauge_conditions(&self, class: &EC2NodeClass) {
        for condition in &class.status.conditions {
            let status = format!("{:?}", condition.status);
            let labels = [
                ("namespace", ""),
                ("name", class.name()),
                ("type", condition.type_.as_str()),
                ("status", status.as_str()),
                ("reason", condition.reason.as_str()),
            ];
            self.cx.sample(CONDITION_COUNT, 1.0, "None", &labels);
            if let Some(since) = condition.last_transition_time {
                let seconds = self.now.duration_since(since).as_secs_f64().max(0.0);
                self.cx.sample(CONDITION_SECONDS, seconds, "Seconds", &labels);
            }
        }
    }

    /// Takes a list of security groups that lost one for unanswered until a second look says the same; whether it did.
    async fn hold_lost_groups(
        &self,
        class: &EC2NodeClass,
        mut found: Found,
    ) -> Result<(Found, bool), Trouble> {
        let Some(groups) = &found.security_groups else { return Ok((found, false)) };
        if !reconcile::loses_groups(class, groups) {
            return Ok((found, false));
        }
        let ids: Vec<&str> = groups.iter().map(|it| it.id.as_str()).collect();
        let uid = class.metadata.uid.as_str();
        let seen = self.recall(LOST_GROUPS, uid).await?.map(|it| it.data);
        let same = seen.as_ref().is_some_and(|it| it["ids"] == json!(ids));
        let since = seen.as_ref().filter(|_| same).and_then(|it| it["since"].as_i64());
        let age = since.map(|it| self.now.as_second().saturating_sub(it));
        if age.is_some_and(|it| it >= reconcile::MISSING_TWICE.as_secs()) {
            self.forget(LOST_GROUPS, uid).await?;
            return Ok((found, false));
        }
        if age.is_none() {
            let data = json!({"ids": ids, "since": self.now.as_second()});
            self.remember(LOST_GROUPS, uid, data, LOST_GROUPS_LIFE).await?;
            let reason = format!("a security group is missing, found: {}", ids.join(", "));
            self.cx.decide(Decision::new("hold", class.reference(), reason));
        }
        found.security_groups = None;
        Ok((found, true))
    }

    /// The finalizer and the hash, before anything is made on behalf of the class.
    async fn prepare(&self, read: &EC2NodeClass) -> Result<EC2NodeClass, Trouble> {
        let mut changed = read.clone();
        if !read.metadata.deleting() && !read.metadata.has_finalizer(labels::NODECLASS_FINALIZER) {
            changed.metadata.finalizers.push(labels::NODECLASS_FINALIZER.into());
        }
        match self.facts.eks().await {
            Ok(facts) => {
                let ca = rules::ca_bundle(self.cx.settings, &facts);
                if may_write_hashes(self.cluster, self.state, ca, self.cx).await? {
                    let new_hash = hash::ec2_node_class(read, ca);
                    hashes::bring_claims_along(self.cluster, read, &new_hash, self.cx).await?;
                    let annotations = &mut changed.metadata.annotations;
                    annotations.insert(labels::NODECLASS_HASH.into(), new_hash);
                    let version = hash::EC2_NODE_CLASS_VERSION;
                    annotations.insert(labels::NODECLASS_HASH_VERSION.into(), version.into());
                }
            }
            // Without the CA there is no hash to write; the pass itself reports the call.
            Err(error) => {
                self.cx.decide(
                    Decision::new("skip", read.reference(), error.to_string()).caused_by(&error),
                );
            }
        }
        if changed == *read {
            return Ok(changed);
        }
        let written = self.cluster.patch(read, &changed, Precondition::ResourceVersion).await?;
        self.cx.decide(Decision::new("annotate", read.reference(), "finalizer and hash"));
        Ok(written.as_ref().clone())
    }

    /// The one write of the status.
    async fn write(&self, before: &EC2NodeClass, after: &EC2NodeClass) -> Result<(), Trouble> {
        if before.status == after.status {
            return Ok(());
        }
        self.cluster.patch_status(before, after, Precondition::ResourceVersion).await?;
        let ready = conditions::find(&after.status.conditions, conditions::READY);
        let reason = ready.map_or_else(String::new, |it| match it.message.as_str() {
            "" => format!("Ready={:?}", it.status),
            message => format!("Ready={:?}: {message}", it.status),
        });
        self.cx.decide(Decision::new("status", before.reference(), reason));
        for (type_, text) in
            reconcile::transitions(&before.status.conditions, &after.status.conditions)
        {
            let event = KubeEvent::on(before, false, &type_, text);
            self.cluster.publish(event, EVENTS_ONCE_IN).await;
        }
        self.count_transitions(&before.status.conditions, &after.status.conditions);
        Ok(())
    }

    /// The metrics of conditions that changed their status: how often, and how long the status lasted that was left.
    fn count_transitions(&self, before: &[Condition], after: &[Condition]) {
        for new in after {
            let old = before.iter().find(|it| it.type_ == new.type_);
            let Some(old) = old.filter(|it| it.status != new.status) else { continue };
            let status = format!("{:?}", new.status);
            let labels = [
                ("type", new.type_.as_str()),
                ("status", status.as_str()),
                ("reason", new.reason.as_str()),
            ];
            self.cx.count(TRANSITIONS, &labels);
            if let Some((from, to)) = old.last_transition_time.zip(new.last_transition_time) {
                let left = format!("{:?}", old.status);
                let labels = [("type", new.type_.as_str()), ("status", left.as_str())];
                let seconds = to.duration_since(from).as_secs_f64().max(0.0);
                self.cx.sample(TRANSITION_SECONDS, seconds, "Seconds", &labels);
            }
        }
    }

    /// A record of the state table.
    pub(crate) async fn recall(
        &self,
        partition: &str,
        sort: &str,
    ) -> Result<Option<Record>, StateError> {
        self.state.read(&StateKey::new(partition, sort)).await
    }

    /// Writes a record that counts for `life`.
    pub(crate) async fn remember(
        &self,
        partition: &str,
        sort: &str,
        data: Value,
        life: SignedDuration,
    ) -> Result<(), StateError> {
        let expires_at = self.now.saturating_add(life).ok();
        let key = StateKey::new(partition, sort);
        self.state.write(&key, data, expires_at, When::Always).await.map(|_| ())
    }

    /// Drops a record.
    pub(crate) async fn forget(&self, partition: &str, sort: &str) -> Result<(), StateError> {
        self.state.remove(&StateKey::new(partition, sort), When::Always).await
    }
}
