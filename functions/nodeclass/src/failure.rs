//! What went wrong in a pass, and how the class tells it: a condition that was never settled says why, and an event says it
//! in any case. The log line is written by whoever runs the pass.

use spokeshave_model::{ConditionStatus, EC2NodeClass, conditions};
use spokeshave_nodeclass::reconcile;
use spokeshave_ports::{
    AwsError, Cluster, Decision, Ec2, Eks, Iam, Invocation, Ssm, StateTable, chain,
    cluster::KubeEvent,
    failed_calls::{self, FailedCall},
};

use crate::{
    Trouble,
    pass::{EVENTS_ONCE_IN, Pass},
};

/// A part of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Finalizer and hashes, and writing the status.
    Class,
    Images,
    Reservations,
    Placement,
    Subnets,
    SecurityGroups,
    Profile,
    Validation,
    Deletion,
}

impl Part {
    /// Reason of the event, and of the condition while it is Unknown. The names are those that launches use, where they do.
    const fn reason(self) -> &'static str {
        match self {
            Self::Class => "ReconcileFailed",
            Self::Images => "AMIResolutionFailed",
            Self::Reservations => "CapacityReservationResolutionFailed",
            Self::Placement => "PlacementGroupResolutionFailed",
            Self::Subnets => "SubnetResolutionFailed",
            Self::SecurityGroups => "SecurityGroupResolutionFailed",
            Self::Profile => "InstanceProfileFailed",
            Self::Validation => "ValidationFailed",
            Self::Deletion => "CleanupFailed",
        }
    }

    const fn condition(self) -> Option<&'static str> {
        Some(match self {
            Self::Class | Self::Deletion => return None,
            Self::Images => EC2NodeClass::AMIS_READY,
            Self::Reservations => EC2NodeClass::CAPACITY_RESERVATIONS_READY,
            Self::Placement => EC2NodeClass::PLACEMENT_GROUP_READY,
            Self::Subnets => EC2NodeClass::SUBNETS_READY,
            Self::SecurityGroups => EC2NodeClass::SECURITY_GROUPS_READY,
            Self::Profile => EC2NodeClass::INSTANCE_PROFILE_READY,
            Self::Validation => EC2NodeClass::VALIDATION_SUCCEEDED,
        })
    }

    pub(crate) fn failed(self, error: impl Into<Trouble>) -> Failure {
        Failure { part: self, error: error.into() }
    }
}

/// A part that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub part: Part,
    pub error: Trouble,
}

impl<C: Cluster, E2: Ec2, I: Iam, S: Ssm, K: Eks, T: StateTable> Pass<'_, C, E2, I, S, K, T> {
    /// Says on the condition why it is not settled yet.
    ///
    /// A condition that is True or False stays as it is, whatever fails now, and so does one that waits for a fault that
    /// passes by itself.
    ///
    /// DIFFERENCE: in Karpenter a class whose first look-up is refused says `AwaitingReconciliation` for ever.
    pub(crate) fn blame(&self, class: &mut EC2NodeClass, failure: &Failure) {
        let Some(type_) = failure.part.condition() else { return };
        if failure.error.is_retryable() {
            return;
        }
        let known = conditions::find(&class.status.conditions, type_);
        if known.is_some_and(|it| it.status != ConditionStatus::Unknown) {
            return;
        }
        let text = AwsError::behind(&failure.error)
            .map_or_else(|| chain(&failure.error), AwsError::explain);
        let (gate, reason) = (self.cx.settings.gates.reserved_capacity, failure.part.reason());
        let unknown = ConditionStatus::Unknown;
        reconcile::set_condition(class, gate, type_, unknown, reason, &text, self.now);
    }

    /// Publishes a failed call of AWS on the class.
    pub(crate) async fn warn(&self, class: &EC2NodeClass, failure: &Failure) {
        if let Some(error) = AwsError::behind(&failure.error) {
            self.warn_of(class, failure.part.reason(), error).await;
        }
    }

    pub(crate) async fn warn_of(&self, class: &EC2NodeClass, reason: &str, error: &AwsError) {
        let event = KubeEvent::of_failed_call(class, reason, error);
        self.cluster.publish(event, EVENTS_ONCE_IN).await;
    }
}

/// Calls that failed in functions that have no object to say it on.
pub(crate) async fn elsewhere(state: &impl StateTable, cx: &Invocation<'_>) -> Vec<FailedCall> {
    failed_calls::all(state).await.unwrap_or_else(|error| {
        // Their log has them, too.
        let decision = Decision::new("skip", "StateTable/failed-calls", chain(&error));
        cx.decide(decision.caused_by(&error));
        Vec::new()
    })
}

/// The event on a class that tells one of them.
pub(crate) fn event(class: &EC2NodeClass, failed: &FailedCall) -> KubeEvent {
    KubeEvent::on(class, true, &failed.reason, format!("{}: {}", failed.object, failed.text))
}
