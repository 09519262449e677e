//! Changes of objects, as the bridge sees them, and the watches that bring them.

use std::{any::Any, collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    CapacityBuffer, EC2NodeClass, Kind, NodeClaim, NodeOverlay, NodePool,
    core::{
        DaemonSet, Node, PersistentVolumeClaim, Pod, PodDisruptionBudget, ResourceSlice,
        StorageClass, VolumeAttachment,
    },
};

use crate::ClusterError;

macro_rules! changes {
    ($($kind:ident),* $(,)?) => {
        /// One object changed. `old` is what was known of it before, `new` is how it is now.
        ///
        /// Only `new`: the object was created, or is seen for the first time. Only `old`: it is gone, and `old` is its
        /// last state. A watch that keeps no objects gives `old` only on deletion; the bridge then goes by its own marks.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Change {
            $(
                #[allow(missing_docs)]
                $kind { old: Option<Arc<$kind>>, new: Option<Arc<$kind>> },
            )*
        }

        impl Change {
            /// The change of an object; `None` for kinds that wake nobody.
            pub fn of<K: Kind>(old: Option<Arc<K>>, new: Option<Arc<K>>) -> Option<Self> {
                let both: Box<dyn Any> = Box::new((old, new));
                $(
                    let both = match both.downcast::<(Option<Arc<$kind>>, Option<Arc<$kind>>)>() {
                        Ok(it) => {
                            let (old, new) = *it;
                            return Some(Self::$kind { old, new });
                        }
                        Err(other) => other,
                    };
                )*
                drop(both);
                None
            }

            /// The kind of the object.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind { .. } => <$kind as Kind>::KIND,)*
                }
            }

            /// The name of the position of the watch that brings it.
            pub fn position(&self) -> &'static str {
                match self {
                    Self::Pod { old, new } if is_bound(new.as_ref().or(old.as_ref())) => BOUND_PODS,
                    other => other.kind(),
                }
            }

            /// The newest resource version in it; empty when there is none.
            pub fn resource_version(&self) -> &str {
                match self {
                    $(Self::$kind { old, new } => {
                        new.as_ref().or(old.as_ref()).map_or("", |it| &it.meta().resource_version)
                    })*
                }
            }
        }
    };
}

changes!(
    Pod,
    Node,
    NodeClaim,
    NodePool,
    EC2NodeClass,
    NodeOverlay,
    CapacityBuffer,
    DaemonSet,
    PodDisruptionBudget,
    PersistentVolumeClaim,
    ResourceSlice,
    StorageClass,
    VolumeAttachment,
);

fn is_bound(pod: Option<&Arc<Pod>>) -> bool {
    pod.is_some_and(|it| it.is_bound())
}

/// Up to which resource version a watch has been followed, by kind.
pub type Positions = BTreeMap<String, String>;

/// The name under which the watch of bound pods keeps its position. That of pending pods goes by the kind, `Pod`: the two
/// come on at their own pace.
pub const BOUND_PODS: &str = "Pod/bound";

/// What a watch brings.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// An object of a first list: it was there before the watch began. `old` is absent.
    Listed(Change),
    /// An object changed.
    Changed(Change),
    /// Nothing changed, but the watch of this kind has come so far: a bookmark, or the end of a list.
    ///
    /// `kind` is the name of its position: the kind, or [`BOUND_PODS`].
    Bookmark { kind: &'static str, resource_version: String },
    /// The API server no longer knows where the watch of this kind left off (410), and a list follows. What was deleted
    /// in between is never reported. `kind` as for a bookmark.
    Restarted { kind: &'static str },
}

/// Watches of all kinds that [`Change`] knows. Pods come without `old` unless they are gone, and by two watches: a pod that
/// is bound is gone from that of the pending ones, as it was before, and appears in the other; which of these comes first
/// is open.
pub trait Watch {
    /// Begins to watch. Kinds in `from` are resumed there, all others listed first. A second call starts anew.
    async fn start(&self, from: &Positions) -> Result<(), ClusterError>;

    /// The next event of any kind; `None` when none came within `timeout`. A watch that broke is taken up again by
    /// itself.
    async fn next(&self, timeout: SignedDuration) -> Result<Option<WatchEvent>, ClusterError>;
}

/// The time, for what runs longer than one decision.
pub trait Clock {
    fn now(&self) -> Timestamp;
}

/// The time of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_model::core::Namespace;

    use super::*;

    #[test]
    fn a_change_is_made_from_any_kind_that_wakes_somebody() {
        let pod = Arc::new(Pod::default());
        assert_eq!(
            Change::of(None, Some(pod.clone())),
            Some(Change::Pod { old: None, new: Some(pod) })
        );
        assert_eq!(Change::of(None, Some(Arc::new(Namespace::default()))), None);
    }
}
