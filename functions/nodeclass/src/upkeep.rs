//! Reserved capacity: claims of blocks that end, and reserved claims whose instance has become on-demand
//! (`spec` aws-nodeclass 21). Runs with every look at everything, and while there are such claims every minute.

use std::collections::BTreeSet;

use jiff::Timestamp;
use spokeshave_model::{InstanceId, Kind, NodeClaim, core::Node, labels};
use spokeshave_nodeclass::reservations;
use spokeshave_ports::{Cluster, ClusterError, Decision, Ec2, Invocation, Precondition, Selector};

use crate::Trouble;

pub(crate) struct Upkeep<'a, C, E2> {
    pub cluster: &'a C,
    pub ec2: &'a E2,
    pub cx: &'a Invocation<'a>,
    pub now: Timestamp,
}

impl<C: Cluster, E2: Ec2> Upkeep<'_, C, E2> {
    /// Whether there are reserved claims.
    pub(crate) async fn run(&self) -> Result<bool, Trouble> {
        let claims = self.cluster.list::<NodeClaim>(&Selector::all()).await?;
        let reserved: Vec<_> = claims
            .iter()
            .filter(|it| it.is_managed() && !it.metadata.deleting())
            .filter(|it| {
                it.metadata.label(labels::CAPACITY_TYPE) == Some("reserved")
                    || it.metadata.label(labels::CAPACITY_RESERVATION_ID).is_some()
            })
            .collect();
        if reserved.is_empty() {
            return Ok(false);
        }
        let ids: BTreeSet<String> = reserved
            .iter()
            .filter_map(|it| it.metadata.label(labels::CAPACITY_RESERVATION_ID))
            .map(str::to_owned)
            .collect();
        let mut known = Vec::new();
        for id in ids {
            let asked = [id];
            match self.ec2.describe_capacity_reservations(&asked, &[]).await {
                Ok(found) => known.extend(found),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        for claim in &reserved {
            if reservations::is_ending(claim, &known, self.now) {
                let (key, uid) = (claim.key(), &claim.metadata.uid);
                self.cluster.delete::<NodeClaim>(&key, uid, None).await?;
                let reason = "its capacity block ends in 40 minutes or less";
                self.cx.decide(Decision::new("delete", claim.reference(), reason));
            }
        }
        let instance_ids: Vec<InstanceId> =
            reserved.iter().filter_map(|it| it.status.provider_id.instance_id()).collect();
        let instances = self.ec2.describe_instances(&instance_ids).await?;
        let gate = self.cx.settings.gates.reserved_capacity;
        let reason = "its reservation has ended, the instance is on-demand now";
        for claim in &reserved {
            let id = claim.status.provider_id.instance_id();
            let Some(instance) = instances.iter().find(|it| Some(&it.id) == id.as_ref()) else {
                continue;
            };
            if let Some(demoted) = reservations::demoted_claim(claim, instance, gate) {
                let patched = self.cluster.patch(claim.as_ref(), &demoted, Precondition::Uid).await;
                match patched {
                    Ok(_) => self.cx.decide(Decision::new("demote", claim.reference(), reason)),
                    Err(ClusterError::NotFound { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.demote_nodes(&claims, reason).await?;
        Ok(true)
    }

    /// Nodes that still say `reserved` although their claim does not: a run may have ended between the two writes.
    async fn demote_nodes(
        &self,
        claims: &[std::sync::Arc<NodeClaim>],
        reason: &str,
    ) -> Result<(), Trouble> {
        let selector = Selector::label(labels::CAPACITY_TYPE, "reserved");
        let nodes = self.cluster.list::<Node>(&selector).await?;
        if nodes.is_empty() {
            return Ok(());
        }
        let gate = self.cx.settings.gates.reserved_capacity;
        let ids: Vec<InstanceId> =
            nodes.iter().filter_map(|it| it.spec.provider_id.instance_id()).collect();
        let instances = self.ec2.describe_instances(&ids).await?;
        for node in &nodes {
            let id = node.spec.provider_id.instance_id();
            let claim = claims.iter().find(|it| it.status.provider_id == node.spec.provider_id);
            let instance = instances.iter().find(|it| Some(&it.id) == id.as_ref());
            let (Some(claim), Some(instance)) = (claim, instance) else { continue };
            if let Some(demoted) = reservations::demoted_node(claim, node, instance, gate) {
                match self.cluster.patch(node.as_ref(), &demoted, Precondition::Uid).await {
                    Ok(_) => self.cx.decide(Decision::new("demote", node.reference(), reason)),
                    Err(ClusterError::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}
