//! Changes of objects, as the bridge sees them.

use std::{any::Any, sync::Arc};

use spokeshave_model::{
    CapacityBuffer, EC2NodeClass, Kind, NodeClaim, NodeOverlay, NodePool,
    core::{
        DaemonSet, Node, PersistentVolumeClaim, Pod, PodDisruptionBudget, StorageClass,
        VolumeAttachment,
    },
};

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
    StorageClass,
    VolumeAttachment,
);

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
