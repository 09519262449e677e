//! Writing claims: the instance they got, or why they got none.

use std::{collections::BTreeMap, sync::Arc};

use jiff::SignedDuration;
use spokeshave_catalog::{
    MarketView,
    launch::{
        attempt::{Attempt, Outcome},
        instance::{self, Launched},
    },
    stored,
};
use spokeshave_lifecycle::metrics;
use spokeshave_model::{
    ConditionStatus, EC2NodeClass, InstanceType, Kind, NodeClaim, ObjectKey, Uid, hash, labels,
};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Decision, Ec2, Precondition, Queues, StateTable,
    cluster::KubeEvent, cut, facts,
};

use crate::{Next, Run, Trouble, surroundings::Surroundings};

pub type Claim = Arc<NodeClaim>;

/// Equal events within this time are published once. Karpenter's default.
const DEDUPE: SignedDuration = SignedDuration::from_mins(2);

/// Why claims are not launched.
pub enum Refusal {
    InsufficientCapacity(String),
    NotReady(String),
    /// It is tried again.
    Create {
        reason: String,
        message: String,
        /// The AWS call that failed, if it was one.
        error: Option<Box<AwsError>>,
    },
}

impl Refusal {
    pub fn create(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Create { reason: reason.into(), message: message.into(), error: None }
    }
}

impl<C: Cluster, E: Ec2, S: StateTable, Q: Queues> Run<'_, C, E, S, Q> {
    /// Ends or keeps a claim that got no instance.
    pub async fn refuse(&self, claim: &NodeClaim, refusal: &Refusal) -> Result<Next, Trouble> {
        let error = match refusal {
            Refusal::InsufficientCapacity(_) => "InsufficientCapacityError",
            Refusal::NotReady(_) => "NodeClassNotReadyError",
            Refusal::Create { .. } => "",
        };
        let labels = [
            ("controller", "nodeclaim.lifecycle"),
            ("method", "Create"),
            ("provider", "aws"),
            ("error", error),
        ];
        self.cx.count("karpenter_cloudprovider_errors_total", &labels);
        let (reason, text) = match refusal {
            Refusal::InsufficientCapacity(text) => ("insufficient_capacity", text),
            Refusal::NotReady(text) => ("nodeclass_not_ready", text),
            Refusal::Create { reason, message, error } => {
                return self.keep(claim, reason, message, error.as_deref()).await;
            }
        };
        if claim.metadata.deleting() {
            return Ok(Next::Done);
        }
        if matches!(refusal, Refusal::InsufficientCapacity(_)) {
            let message = format!("NodeClaim {} event: {}", claim.name(), cut(text));
            let event = KubeEvent::on(claim, true, "InsufficientCapacityError", message);
            self.cluster.publish(event, DEDUPE).await;
        }
        self.cluster.delete::<NodeClaim>(&claim.key(), &claim.metadata.uid, None).await?;
        if matches!(refusal, Refusal::InsufficientCapacity(_))
            && let Some(shape) = claim.metadata.annotation(labels::SHAPE)
            && let Err(error) = stored::note_shortage(self.state, shape, self.now).await
        {
            // What is lost with it is a pause.
            let reason = format!("could not be written down: {error}");
            self.cx.decide(Decision::new("skip", "StateTable/shortage", reason).as_error());
        }
        let labels = metrics::disrupted(claim, reason, "");
        let labels: Vec<_> = labels.iter().map(|(key, it)| (*key, it.as_str())).collect();
        self.cx.count(metrics::CLAIMS_DISRUPTED, &labels);
        self.cx.decide(Decision::new("delete", claim.reference(), format!("{reason}: {text}")));
        Ok(Next::Done)
    }

    /// Says on the claim why it is not launched yet.
    async fn keep(
        &self,
        claim: &NodeClaim,
        reason: &str,
        message: &str,
        error: Option<&AwsError>,
    ) -> Result<Next, Trouble> {
        if claim.metadata.deleting() {
            return Ok(Next::Done);
        }
        let mut changed = claim.clone();
        let mut conditions = changed.conditions_mut();
        conditions.initialize();
        conditions.set(NodeClaim::LAUNCHED, ConditionStatus::Unknown, reason, message, self.now);
        match self.cluster.patch_status(claim, &changed, Precondition::ResourceVersion).await {
            // Somebody else wrote the status; the next try writes it.
            Ok(_) | Err(ClusterError::Conflict { .. }) => {}
            Err(ClusterError::NotFound { .. }) => return Ok(Next::Done),
            Err(error) => return Err(error.into()),
        }
        let mut decision =
            Decision::new("retry", claim.reference(), format!("{reason}: {message}"));
        if let Some(error) = error {
            decision = decision.with_error(error);
            let event = KubeEvent::on(claim, true, reason, message);
            self.cluster.publish(event, DEDUPE).await;
        }
        self.cx.decide(decision);
        Ok(Next::BackOff)
    }

    /// Brings the outcomes of an attempt to its claims. `only`: these claims; else all.
    pub async fn settle(
        &self,
        attempt: &Attempt,
        only: Option<&[Claim]>,
        known: &mut Surroundings,
    ) -> Result<BTreeMap<String, Next>, Trouble> {
        let mut next = BTreeMap::new();
        let mut types: BTreeMap<String, Option<InstanceType>> = BTreeMap::new();
        let class = self.class_of(attempt).await?;
        for (uid, name) in &attempt.claims {
            if only.is_some_and(|claims| !claims.iter().any(|it| it.metadata.uid == *uid)) {
                continue;
            }
            let Some(outcome) = attempt.outcome(uid) else { continue };
            let claim = self.cluster.get::<NodeClaim>(&ObjectKey::cluster(name)).await?;
            let claim = claim.filter(|it| it.metadata.uid == *uid);
            let result = match (outcome, claim) {
                (Outcome::Instance { instance }, Some(claim)) => {
                    if !types.contains_key(&instance.instance_type) {
                        let found =
                            self.type_of(class.as_deref(), &instance.instance_type, known).await?;
                        types.insert(instance.instance_type.clone(), found);
                    }
                    let found = types.get(&instance.instance_type).and_then(Option::as_ref);
                    self.fill_in(&claim, class.as_deref(), found, instance, attempt).await?
                }
                (Outcome::Instance { instance }, None) => {
                    self.orphan(instance, uid, name).await?;
                    Next::Done
                }
                (_, None) => Next::Done,
                (Outcome::InsufficientCapacity { message }, Some(claim)) => {
                    self.refuse(&claim, &Refusal::InsufficientCapacity(message.clone())).await?
                }
                (Outcome::Failed { reason, message }, Some(claim)) => {
                    let error = attempt.error().map(Box::new);
                    let (reason, message) = (reason.clone(), message.clone());
                    let refusal = Refusal::Create { reason, message, error };
                    self.refuse(&claim, &refusal).await?
                }
            };
            next.insert(name.clone(), result);
        }
        Ok(next)
    }

    /// The claim was removed before its instance was known: nobody will ever own it.
    async fn orphan(&self, launched: &Launched, uid: &Uid, name: &str) -> Result<(), Trouble> {
        self.ec2.terminate_instances(std::slice::from_ref(&launched.id)).await?;
        let reason = format!("its NodeClaim {name} ({uid}) is gone");
        let object = format!("Instance/{}", launched.id);
        self.cx.decide(Decision::new("terminate", object, reason));
        Ok(())
    }

    async fn class_of(&self, attempt: &Attempt) -> Result<Option<Arc<EC2NodeClass>>, Trouble> {
        Ok(self.cluster.get(&ObjectKey::cluster(&attempt.class)).await?)
    }

    /// The type as the class uses it; `None` when either is not known any more.
    async fn type_of(
        &self,
        class: Option<&EC2NodeClass>,
        name: &str,
        known: &mut Surroundings,
    ) -> Result<Option<InstanceType>, Trouble> {
        let Some(class) = class else { return Ok(None) };
        let catalog = self.catalog(known).await?;
        // Size and labels do not depend on marks; what nodes reported does count.
        let mut view = MarketView::new(self.cx.settings, self.cx.now);
        view.memory = stored::load_memory(self.state).await.unwrap_or_default();
        let resolved = catalog.resolve(class, &view, |it| it == name);
        Ok(resolved.ok().and_then(|it| it.types.into_iter().next()))
    }

    /// Writes a launched instance to its claim: labels and annotations first, then the status.
    async fn fill_in(
        &self,
        claim: &NodeClaim,
        class: Option<&EC2NodeClass>,
        instance_type: Option<&InstanceType>,
        launched: &Launched,
        attempt: &Attempt,
    ) -> Result<Next, Trouble> {
        if !claim.status.provider_id.is_empty() {
            return Ok(Next::Done);
        }
        let kwok = self.cx.settings.ec2_mode == "kwok";
        let parts = instance::claim_parts(
            claim,
            class,
            &attempt.class_hash,
            instance_type,
            launched,
            &attempt.facts,
            kwok,
        );
        let merged = instance::merge_metadata(claim, &parts);
        let written = match self.cluster.patch(claim, &merged, Precondition::Uid).await {
            Ok(written) => written,
            Err(ClusterError::NotFound { .. }) => {
                self.orphan(launched, &claim.metadata.uid, claim.name()).await?;
                return Ok(Next::Done);
            }
            Err(error) => return Err(error.into()),
        };
        let mut changed = (*written).clone();
        changed.status.provider_id = parts.provider_id.clone();
        changed.status.image_id = parts.image_id.clone();
        changed.status.capacity = parts.capacity.clone();
        changed.status.allocatable = parts.allocatable.clone();
        let mut conditions = changed.conditions_mut();
        conditions.initialize();
        conditions.set_true(NodeClaim::LAUNCHED, self.now);
        match self.cluster.patch_status(&*written, &changed, Precondition::ResourceVersion).await {
            Ok(_) => {}
            Err(ClusterError::NotFound { .. }) => {
                self.orphan(launched, &claim.metadata.uid, claim.name()).await?;
                return Ok(Next::Done);
            }
            Err(error) => return Err(error.into()),
        }
        let reason = format!(
            "{} {} in {} as {}",
            launched.instance_type, launched.capacity_type, launched.zone, launched.id
        );
        self.cx.decide(
            Decision::new("launch", claim.reference(), reason)
                .with("nodeclaim", claim.name())
                .with("instance_id", launched.id.as_str())
                .with("instance_type", launched.instance_type.as_str())
                .with("zone", launched.zone.as_str())
                .with("capacity_type", launched.capacity_type.as_str())
                .with("attempt", attempt.id.as_str()),
        );
        if kwok {
            // Its Node is made by us.
            let look = self.cx.now.saturating_add(spokeshave_kwok::node::FIRST_LOOK);
            return Ok(Next::At(look.unwrap_or(self.cx.now)));
        }
        Ok(Next::Done)
    }

    /// The hash of a class: its annotation if that is of our version, else worked out.
    pub async fn class_hash(&self, class: &EC2NodeClass) -> Result<String, Trouble> {
        let annotation = |key: &str| class.metadata.annotation(key);
        if annotation(labels::NODECLASS_HASH_VERSION) == Some(instance::NODECLASS_HASH_VERSION)
            && let Some(hash) = annotation(labels::NODECLASS_HASH)
        {
            return Ok(hash.to_owned());
        }
        let settings = self.cx.settings;
        let ca = if settings.cluster_ca_bundle.is_empty() {
            facts::load(self.state).await?.unwrap_or_default().certificate_authority
        } else {
            settings.cluster_ca_bundle.clone()
        };
        Ok(hash::ec2_node_class(class, &ca))
    }
}
