//! A failed call of AWS, told on the object that it keeps from ending: an event, and on a claim a condition.

use std::sync::Arc;

use spokeshave_lifecycle::action::EVENT_MEMORY;
use spokeshave_model::{ConditionStatus, Kind, NodeClaim, ObjectKey, core::Node};
use spokeshave_ports::{
    AutoScaling, AwsError, Cluster, Decision, Ec2, Precondition, Queues, StateTable,
    cluster::KubeEvent, without_request_ids,
};

use crate::{Trouble, run::Run, targets::Object};

/// What may pass by itself is told after so many failures in a row.
const TELL_AFTER: u32 = 5;
/// Reason of the event and of the condition.
const REASON: &str = "FailedTermination";

impl<C: Cluster, E: Ec2, A: AutoScaling, S: StateTable, Q: Queues> Run<'_, C, E, A, S, Q> {
    /// Tells a person, where one has to act or it lasts. `failures`: how often in a row it failed before.
    pub async fn tell(&self, object: &Object, trouble: &Trouble, failures: u32) {
        let Some(error) = AwsError::behind(trouble) else { return };
        if error.is_retryable() && failures < TELL_AFTER {
            return;
        }
        let (text, its_claim) = match trouble {
            Trouble::Refused(id, claim, _) => {
                let text = format!("Instance {id} cannot be terminated: {}", error.explain());
                (text, claim.as_deref())
            }
            _ => (error.explain(), None),
        };
        let claim = match object {
            Object::Claim(name) => Some(name.as_str()),
            Object::Node(name) => {
                if let Some(node) = self.fresh::<Node>(name).await {
                    self.publish(&*node, &text).await;
                }
                its_claim
            }
        };
        if let Some(name) = claim
            && let Some(claim) = self.fresh::<NodeClaim>(name).await
        {
            self.publish(&*claim, &text).await;
            self.write_condition(&claim, &text).await;
        }
    }

    async fn fresh<K: Kind>(&self, name: &str) -> Option<Arc<K>> {
        self.cluster.get::<K>(&ObjectKey::cluster(name)).await.ok().flatten()
    }

    async fn publish<K: Kind>(&self, object: &K, text: &str) {
        let event = KubeEvent::on(object, true, REASON, text);
        self.cluster.publish(event, EVENT_MEMORY).await;
    }

    /// `InstanceTerminating` is Unknown until the call is accepted. One that differs in a request id alone stays.
    ///
    /// DIFFERENCE: Karpenter's NodeClaim does not say why its instance stays.
    async fn write_condition(&self, claim: &NodeClaim, text: &str) {
        let type_ = NodeClaim::INSTANCE_TERMINATING;
        let known = claim.condition(type_);
        let is_said = |it: &spokeshave_model::Condition| {
            it.status == ConditionStatus::True
                || without_request_ids(&it.message) == without_request_ids(text)
        };
        if known.is_some_and(is_said) {
            return;
        }
        let mut changed = claim.clone();
        let unknown = ConditionStatus::Unknown;
        changed.conditions_mut().set(type_, unknown, REASON, text, self.now);
        let guard = Precondition::ResourceVersion;
        if let Err(error) = self.cluster.patch_status(claim, &changed, guard).await {
            // The next try says it.
            let decision = Decision::new("skip", claim.reference(), error.to_string());
            self.cx.decide(decision);
        }
    }
}
