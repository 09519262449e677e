//! What the decisions of this crate ask for, as data.

use jiff::SignedDuration;
use spokeshave_model::{NodeClaim, core::Node};
use spokeshave_ports::{Precondition, cluster::KubeEvent};

/// How long an equal event is not repeated, unless its kind says otherwise. Source: Karpenter 1.x.
pub const EVENT_MEMORY: SignedDuration = SignedDuration::from_mins(2);

/// One thing to carry out. Carrying one out twice is the same as once.
///
/// The order of a list of actions matters: what makes a repeat impossible is written last, so that a run that is
/// killed in between leaves a state from which the next run ends right.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write labels, annotations or finalizers of the claim.
    WriteClaim { claim: Box<NodeClaim>, guard: Precondition },
    /// Write labels, annotations, taints, finalizers or owners of a node.
    WriteNode { node: Box<Node>, guard: Precondition },
    /// Write the claim's status.
    WriteStatus { claim: Box<NodeClaim> },
    /// Delete the claim that was looked at; counted under `reason`, with its pods when `count_pods`.
    DeleteClaim { reason: &'static str, why: String, count_pods: bool },
    /// Delete a node that was looked at.
    DeleteNode { node: Box<Node>, why: &'static str },
    /// Remember for the pool whether one of its claims came up.
    NoteRegistration { healthy: bool },
    /// Publish an event; equal ones within `memory` are dropped.
    Publish { event: Box<KubeEvent>, memory: SignedDuration },
    /// Count one occurrence of a metric.
    Count { name: &'static str, labels: Vec<(&'static str, String)> },
    /// Observe seconds under a metric.
    Observe { name: &'static str, seconds: f64, labels: Vec<(&'static str, String)> },
}

impl Action {
    /// An event with the usual memory.
    pub fn publish(event: KubeEvent) -> Self {
        Self::Publish { event: Box::new(event), memory: EVENT_MEMORY }
    }
}
