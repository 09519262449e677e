//! A simulated world behind the same ports that the adapters implement: an API server with a scheduler,
//! workload controllers and kubelets, EC2 with capacity and prices, IAM, SSM, EKS, queues with at-least-once
//! delivery, a state table, a virtual clock, and faults.
//!
//! Handlers run as futures of the world: every port call takes simulated time and is a point where the handler may be
//! killed ([`faults`]) or overtaken by another one. Same seed, same history. The world knows nothing of what the
//! functions decide; they are handed in through [`Functions`]. [`check`] watches what they do.
//!
//! Read first: [`World`].

pub mod boot;
pub mod check;
pub mod ec2;
pub mod engine;
pub mod faults;
pub mod kubernetes;
pub mod market;
pub mod placement;
pub mod ports;
pub mod queue;
pub mod random;
pub mod store;
pub mod world;

pub use engine::{Functions, InvocationSpec, World};
pub use faults::{Fault, Faults};
pub use market::{Market, NodeShape};
pub use ports::Ports;
pub use store::ObjectChange;

/// Calls the macro `$then` with the kinds of Kubernetes that the simulated cluster has.
#[macro_export]
macro_rules! with_kubernetes_kinds {
    ($then:ident) => {
        $then!(
            Deployment,
            ReplicaSet,
            StatefulSet,
            DaemonSet,
            Job,
            Pod,
            PodDisruptionBudget,
            PersistentVolume,
            PersistentVolumeClaim,
            StorageClass,
            Namespace,
            PriorityClass,
            LimitRange,
            Service,
            PodTemplate,
            ReplicationController,
            Node,
            CSINode,
        )
    };
}
