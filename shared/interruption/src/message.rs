//! What a message means.

use jiff::Timestamp;
use spokeshave_model::InstanceId;

/// Kinds of message. Source: the specification, 22 to 24.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// EC2 takes a spot instance back in two minutes.
    SpotInterruption,
    /// A spot instance is at elevated risk.
    RebalanceRecommendation,
    /// The instance is stopping or stopped.
    InstanceStopped,
    /// The instance is shutting down or terminated.
    InstanceTerminated,
    /// AWS Health: maintenance or retirement is scheduled.
    ScheduledChange,
    /// An instance in an interruptible capacity reservation is taken back.
    CapacityReservationInterruption,
    /// A capacity block ends in 40 minutes.
    ///
    /// DIFFERENCE: Karpenter ignores this event and polls each minute.
    CapacityReservationExpiration,
    /// A status check of the instance itself has failed for two minutes.
    InstanceStatus,
    /// A status check of the machine below has failed for two minutes.
    SystemStatus,
    /// EC2 has scheduled an event for the instance.
    EventStatus,
    /// Nothing to do with us.
    NoOp,
}

/// What is done to the claims that a message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    None,
    /// Delete the claim: it drains politely.
    CordonAndDrain,
    /// Delete it with the deadline set to now: the machine is broken.
    ForcefulTermination,
}

/// An event that is published on a claim and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterruptionEvent {
    /// `Warning`, otherwise `Normal`.
    pub warning: bool,
    pub reason: &'static str,
    pub message: &'static str,
}

impl Kind {
    /// Every kind that is acted on.
    pub const ALL: &[Self] = &[
        Self::SpotInterruption,
        Self::RebalanceRecommendation,
        Self::InstanceStopped,
        Self::InstanceTerminated,
        Self::ScheduledChange,
        Self::CapacityReservationInterruption,
        Self::CapacityReservationExpiration,
        Self::InstanceStatus,
        Self::SystemStatus,
        Self::EventStatus,
        Self::NoOp,
    ];

    /// Label `message_type` of the metrics, and the reason of the disruption counter.
    pub const fn metric(self) -> &'static str {
        match self {
            Self::SpotInterruption => "spot_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::InstanceStopped => "instance_stopped",
            Self::InstanceTerminated => "instance_terminated",
            Self::ScheduledChange => "scheduled_change",
            Self::CapacityReservationInterruption => "capacity_reservation_interrupted",
            Self::CapacityReservationExpiration => "capacity_reservation_expiring",
            Self::InstanceStatus => "instance_status",
            Self::SystemStatus => "system_status",
            Self::EventStatus => "event_status",
            Self::NoOp => "no_op",
        }
    }

    /// What is done to the claims.
    pub const fn action(self) -> ActionKind {
        match self {
            Self::RebalanceRecommendation | Self::NoOp => ActionKind::None,
            Self::InstanceStatus | Self::SystemStatus => ActionKind::ForcefulTermination,
            _ => ActionKind::CordonAndDrain,
        }
    }

    /// What is published on the claim and its node before anything is done.
    pub const fn event(self) -> Option<InterruptionEvent> {
        let (warning, reason, message) = match self {
            Self::SpotInterruption => {
                (true, "SpotInterrupted", "Spot interruption warning was triggered")
            }
            Self::RebalanceRecommendation => (
                false,
                "SpotRebalanceRecommendation",
                "Spot rebalance recommendation was triggered",
            ),
            Self::InstanceStopped => (true, "InstanceStopping", "Instance is stopping"),
            Self::InstanceTerminated => (true, "InstanceTerminating", "Instance is terminating"),
            Self::CapacityReservationInterruption => (
                true,
                "CapacityReservationInstanceInterrupted",
                "Capacity Reservation interruption warning was triggered",
            ),
            Self::ScheduledChange
            | Self::InstanceStatus
            | Self::SystemStatus
            | Self::EventStatus => {
                (true, "InstanceUnhealthy", "An unhealthy warning was triggered for the instance")
            }
            Self::CapacityReservationExpiration | Self::NoOp => return None,
        };
        Some(InterruptionEvent { warning, reason, message })
    }
}

/// A message that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// The instances it names, in its own order; none for most `NoOp`.
    pub instance_ids: Vec<InstanceId>,
    /// The capacity reservation that expires.
    pub reservation_id: Option<String>,
    /// When the scheduled change begins, where the sender says so.
    pub starts: Option<Timestamp>,
    /// When it happened, as the sender says. Queue latency is measured from here.
    pub time: Option<Timestamp>,
}

impl Message {
    /// A message that asks for nothing.
    pub fn no_op(time: Option<Timestamp>) -> Self {
        Self {
            kind: Kind::NoOp,
            instance_ids: Vec::new(),
            reservation_id: None,
            starts: None,
            time,
        }
    }
}
