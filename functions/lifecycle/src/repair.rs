//! Node repair, where its gate is open.

use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_lifecycle::{metrics, repair};
use spokeshave_model::{Kind, NodeClaim, core::Node};
use spokeshave_ports::{
    Cluster, Decision, Ec2, Precondition, Queues, StateTable, cluster::KubeEvent,
};

use crate::{Trouble, reconcile::Reconciler};

impl<C: Cluster, E: Ec2, S: StateTable, Q: Queues> Reconciler<'_, C, E, S, Q> {
    /// Replaces a node that has been broken for too long. Returns when to look again, and whether that was the end of
    /// the claim.
    ///
    /// A claim that is being deleted already only loses what is left of its grace.
    pub async fn repair(
        &self,
        claim: &Arc<NodeClaim>,
        nodes: &[Arc<Node>],
    ) -> Result<(Option<Timestamp>, bool), Trouble> {
        let [node] = nodes else { return Ok((None, false)) };
        let Some(fault) = repair::fault(node) else { return Ok((None, false)) };
        if self.now < fault.due {
            return Ok((Some(fault.due), false));
        }
        let peers = self.world.peers(claim.nodepool()).await?;
        if !repair::allows(&peers.iter().map(AsRef::as_ref).collect::<Vec<_>>()) {
            let pool = self.world.pool_of(claim).await?;
            let text = repair::blocked_message(pool.as_deref());
            self.cx.decide(Decision::new("skip", node.reference(), text));
            if claim.nodepool().is_none() || pool.is_some() {
                let event = KubeEvent::on(&**node, true, "NodeRepairBlocked", text);
                self.cluster.publish(event, repair::BLOCKED_MEMORY).await;
            }
            return Ok((self.now.checked_add(repair::BLOCKED_RETRY).ok(), false));
        }
        if let Some(changed) = repair::without_grace(claim, self.now) {
            self.cluster.patch(&**claim, &changed, Precondition::Uid).await?;
            let object = format!("NodeClaim/{}", claim.metadata.name);
            self.cx.decide(Decision::new("set-deadline", object, "its node is unhealthy"));
        }
        if claim.metadata.deleting() {
            return Ok((None, true));
        }
        let condition = fault.policy.condition;
        let why = format!("{condition} has been {} for too long", fault.policy.status);
        self.delete(claim, nodes, "unhealthy", &why, true).await?;
        let labels = repair::labels_of(claim, &fault);
        let labels: Vec<_> = labels.iter().map(|(key, value)| (*key, value.as_str())).collect();
        self.cx.count(metrics::CLAIMS_UNHEALTHY_DISRUPTED, &labels);
        Ok((None, true))
    }
}
