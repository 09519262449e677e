//! Queues, one per concern, and the custom bus.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spokeshave_model::{Kind, Uid};

use crate::AwsError;

/// A function and its queue; the names are the folder names under `functions/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Concern {
    ClusterBridge,
    Provision,
    Launch,
    Lifecycle,
    Tagging,
    Interruption,
    Disruption,
    Termination,
    Nodeclass,
    Nodepool,
    InstanceGc,
    InstanceProfileGc,
    CatalogRefresh,
}

impl Concern {
    pub const ALL: &[Self] = &[
        Self::ClusterBridge,
        Self::Provision,
        Self::Launch,
        Self::Lifecycle,
        Self::Tagging,
        Self::Interruption,
        Self::Disruption,
        Self::Termination,
        Self::Nodeclass,
        Self::Nodepool,
        Self::InstanceGc,
        Self::InstanceProfileGc,
        Self::CatalogRefresh,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterBridge => "cluster-bridge",
            Self::Provision => "provision",
            Self::Launch => "launch",
            Self::Lifecycle => "lifecycle",
            Self::Tagging => "tagging",
            Self::Interruption => "interruption",
            Self::Disruption => "disruption",
            Self::Termination => "termination",
            Self::Nodeclass => "nodeclass",
            Self::Nodepool => "nodepool",
            Self::InstanceGc => "instance-gc",
            Self::InstanceProfileGc => "instance-profile-gc",
            Self::CatalogRefresh => "catalog-refresh",
        }
    }

    /// Solvers have FIFO queues: one run at a time.
    pub const fn is_fifo(self) -> bool {
        matches!(self, Self::Provision | Self::Disruption)
    }
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names an object in a message. Consumers read the object fresh.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Key {
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    #[serde(skip_serializing_if = "Uid::is_empty")]
    pub uid: Uid,
    /// Consumers with a cache have not caught up before they have seen this version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

impl Key {
    /// The key of an object.
    pub fn of<K: Kind>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            kind: K::KIND.to_owned(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        }
    }
}

/// What a concern is asked to look at. No keys: look at everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Work {
    /// Why, in one constant word or phrase: `NodeClaimChanged`, `Wake`, `Schedule`, `PodsPending`, ...
    pub reason: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Key>,
    /// How many wake-ups in a row led here; bounded, so that nothing wakes itself for ever.
    #[serde(skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// When this became due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// What only the concern itself understands, such as a command's id.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub payload: Value,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Work {
    pub fn new(reason: &str, keys: Vec<Key>) -> Self {
        Self { reason: reason.to_owned(), keys, ..Self::default() }
    }

    /// How often what it asks for has failed in a row; 0 unless it repeats after a failure.
    pub fn failures(&self) -> u32 {
        if self.reason == crate::wakes::RETRY { self.depth } else { 0 }
    }

    /// How many wake-ups in a row led here; 0 when it repeats after a failure.
    pub fn wakes(&self) -> u32 {
        self.depth - self.failures()
    }
}

/// Sends work to concerns.
pub trait Queues {
    /// Sends `work` to the queue of `to`, visible after `delay` (at most 15 minutes; 0 for at once).
    ///
    /// Delivered at least once, in any order. For solvers, delayed work goes to their wake queue, and `group` is the
    /// FIFO message group (`pass` when empty).
    async fn send(
        &self,
        to: Concern,
        work: &Work,
        delay: SignedDuration,
        group: &str,
    ) -> Result<(), AwsError>;
}

/// An event for the custom bus: what changed, by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusEvent {
    /// `NodeClaimChanged`, `PodsPending`, ...: rules route by this.
    pub detail_type: &'static str,
    pub work: Work,
}

/// The custom bus.
pub trait Bus {
    /// Puts events on the bus; returns the positions of those that were *not* accepted.
    async fn put(&self, events: &[BusEvent]) -> Result<Vec<usize>, AwsError>;
}
