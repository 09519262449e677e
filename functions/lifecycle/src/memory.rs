//! What a new node reports as its memory, kept for the next node of its type and image.

use jiff::Timestamp;
use spokeshave_catalog::{memory, stored};
use spokeshave_model::{NodeClaim, Requirements, core::Node, labels, resources::MEMORY};
use spokeshave_ports::{Cluster, Decision, Ec2, Queues, StateTable};

use crate::reconcile::Reconciler;

impl<C: Cluster, E: Ec2, S: StateTable, Q: Queues> Reconciler<'_, C, E, S, Q> {
    /// Takes in the memory of a node that is being registered, if it runs the image that its class would pick for it
    /// now: only then does it say anything about the next one.
    ///
    /// Called before the label is written, so that a run that dies in between is repeated whole. Nothing that goes wrong
    /// here stops a registration: the next node of the type reports again.
    pub async fn observe_memory(&self, claim: &NodeClaim, node: &Node) {
        let seen = node.status.capacity.get(MEMORY);
        let (Some(instance_type), false) =
            (claim.metadata.label(labels::INSTANCE_TYPE), seen.is_zero())
        else {
            return;
        };
        let name = &claim.spec.node_class_ref.name;
        let Ok(Some(class)) = self.class_named(name).await else { return };
        let labels = Requirements::from_labels(&node.metadata.labels);
        if !memory::is_current_image(&class, &labels, &claim.status.image_id) {
            return;
        }
        let now: Timestamp = self.now;
        let stored = stored::observe_memory(self.state, &class, instance_type, seen, now).await;
        if let Err(error) = stored {
            let object = format!("InstanceType/{instance_type}");
            let reason = format!("memory of a node could not be written down: {error}");
            self.cx.decide(Decision::new("skip", object, reason));
        }
    }
}
