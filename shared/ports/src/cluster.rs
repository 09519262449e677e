//! The Kubernetes API.

use std::sync::Arc;

use jiff::SignedDuration;
use spokeshave_model::{Kind, LabelSelector, ObjectKey, Uid};

use crate::{AwsError, without_request_ids};

/// Why the API server did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// The object changed since it was read, or it is not the one that was meant (another UID). Read again.
    #[error("{object} changed meanwhile")]
    Conflict { object: String },
    /// An object of this name is there already.
    #[error("{object} exists already")]
    AlreadyExists { object: String },
    /// The object is gone.
    #[error("{object} not found")]
    NotFound { object: String },
    /// The API server refuses the content (422) or the caller (403). Trying again does not help.
    #[error("{object} refused: {message}")]
    Refused { object: String, message: String },
    /// No answer, throttled, or the server's own fault. Try again.
    #[error("the API server did not answer: {message}")]
    Unavailable { message: String },
}

impl ClusterError {
    /// Whether trying again later may help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::Unavailable { .. })
    }
}

/// How a patch guards against what others wrote meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The `resourceVersion` of the object that was read. Use it whenever a list is written.
    ResourceVersion,
    /// The same object (UID), whatever else changed: for single labels, annotations and the like.
    Uid,
}

/// What to list. Lists are sorted by namespace and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selector {
    /// Empty: all namespaces.
    pub namespace: String,
    pub labels: LabelSelector,
    /// Pods only: bound to this node.
    pub node_name: Option<String>,
}

impl Selector {
    pub fn all() -> Self {
        Self::default()
    }

    pub fn label(key: &str, value: &str) -> Self {
        Self { labels: LabelSelector::label(key, value), ..Self::default() }
    }

    /// Pods on a node.
    pub fn on_node(name: &str) -> Self {
        Self { node_name: Some(name.to_owned()), ..Self::default() }
    }
}

/// Up to where somebody has followed the objects of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Which history of which cluster: places of another one mean nothing. 0 is none, and everything is read.
    pub history: u64,
    /// The resource version up to which every change has been read.
    pub version: u64,
    /// How many objects there were.
    pub count: usize,
}

/// What has become of the objects of one kind since a [`Place`].
#[derive(Clone, Debug, PartialEq)]
pub struct Changes<K> {
    /// `objects` is all that there is: whatever else was known is gone.
    pub whole: bool,
    /// Created or changed, as they are at `place`; each once.
    pub objects: Vec<Arc<K>>,
    /// Gone.
    pub gone: Vec<ObjectKey>,
    /// Up to where this tells.
    pub place: Place,
}

impl<K: Kind> Changes<K> {
    /// Everything there is, of unknown age: the newest version among the objects says how old it is at most.
    pub fn all(objects: Vec<Arc<K>>) -> Self {
        let version = |it: &Arc<K>| it.meta().resource_version.parse().unwrap_or(0);
        let version = objects.iter().map(version).max().unwrap_or(0);
        let place = Place { history: 0, version, count: objects.len() };
        Self { whole: true, objects, gone: Vec::new(), place }
    }
}

/// The answer to an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// 201: the pod is being deleted.
    Accepted,
    /// 429: a PodDisruptionBudget does not allow it now.
    Blocked,
    /// 500: more than one PodDisruptionBudget selects the pod; it can never be evicted so.
    Misconfigured,
    /// 404: there is no such pod any more.
    Gone,
    /// 409: another pod has the name by now, and nothing was asked of it.
    Replaced,
}

/// An event on an object, for `kubectl describe`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubeEvent {
    pub kind: &'static str,
    pub api_version: String,
    pub key: ObjectKey,
    pub uid: Uid,
    /// `Normal` or `Warning`.
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

impl KubeEvent {
    /// An event on `object`.
    pub fn on<K: Kind>(
        object: &K,
        warning: bool,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind: K::KIND,
            api_version: K::api_version(),
            key: object.key(),
            uid: object.meta().uid.clone(),
            warning,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// A warning on `object` about a call of AWS that failed, with all that is known of it.
    pub fn of_failed_call<K: Kind>(object: &K, reason: &str, error: &AwsError) -> Self {
        Self::on(object, true, reason, error.explain())
    }

    /// What makes two events equal: everything but the request ids that the message quotes; of events about where pods go,
    /// everything but the message, which changes with every plan (`spec` scheduling 17).
    pub fn identity(&self) -> Self {
        let of_a_plan = matches!(
            self.reason.as_str(),
            "FailedScheduling" | "Nominated" | "NoCompatibleInstanceTypes"
        );
        let message =
            if of_a_plan { String::new() } else { without_request_ids(&self.message).into_owned() };
        Self { message, ..self.clone() }
    }
}

/// Reads and writes of one cluster. Every kind of `spokeshave-model` can be used.
pub trait Cluster {
    /// `None` when there is no such object.
    async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClusterError>;

    /// All objects that `selector` takes, sorted by namespace and name.
    async fn list<K: Kind>(&self, selector: &Selector) -> Result<Vec<Arc<K>>, ClusterError>;

    /// What has changed of a kind since a place that an earlier answer gave, up to `reach` at least where that can be had;
    /// everything if `since` is from elsewhere or too long ago, or if there is any doubt.
    ///
    /// Only speed may depend on `since`. Asking again does no harm.
    async fn changes<K: Kind>(&self, since: Place, reach: u64) -> Result<Changes<K>, ClusterError> {
        let _ = (since, reach);
        self.list(&Selector::all()).await.map(Changes::all)
    }

    /// Creates an object; with `generateName` the server names it. Returns it as stored.
    ///
    /// A repeat makes a second object, or fails with `AlreadyExists` where the name is given.
    async fn create<K: Kind>(&self, object: &K) -> Result<Arc<K>, ClusterError>;

    /// Writes the difference between `old` and `new` outside `status` as a merge patch. No difference, no call.
    ///
    /// Removing the last finalizer of an object that is being deleted makes it go.
    async fn patch<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError>;

    /// The same for `status`, through the status subresource.
    async fn patch_status<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError>;

    /// Deletes the object if it still has `uid`. One that is gone, or another of the same name, is `Ok`.
    ///
    /// `grace` in seconds is for pods; `None` takes the object's own.
    async fn delete<K: Kind>(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        grace: Option<i64>,
    ) -> Result<(), ClusterError>;

    /// Evicts a pod through its eviction subresource, with its UID as precondition.
    async fn evict(&self, pod: &ObjectKey, uid: &Uid) -> Result<Eviction, ClusterError>;

    /// Publishes an event; those of equal [`KubeEvent::identity`] within `dedupe` are dropped. Never fails the caller.
    async fn publish(&self, event: KubeEvent, dedupe: SignedDuration);
}
