//! Pods are asked to leave, or made to.

use jiff::{SignedDuration, Timestamp};
use spokeshave_lifecycle::{
    action::EVENT_MEMORY,
    drain::{Drain, Step},
    metrics,
};
use spokeshave_model::{
    Kind,
    core::{Node, Pod},
};
use spokeshave_ports::{
    Cluster, ClusterError, Decision,
    cluster::{Eviction, KubeEvent},
};

use crate::{Trouble, run::Run};

impl<C: Cluster, E, A, S, Q> Run<'_, C, E, A, S, Q> {
    /// Carries out the steps of a drain. A pod that cannot be asked now does not keep the others from being asked;
    /// the first error comes last.
    pub async fn drain(
        &self,
        node: &Node,
        drain: &Drain<'_>,
        deadline: Option<Timestamp>,
        reason: &str,
    ) -> Result<(), Trouble> {
        let mut failure = None;
        for step in &drain.steps {
            let result = match step {
                Step::Evict(pod) => self.evict(node, pod, reason).await,
                Step::ForceDelete { pod, grace } => {
                    self.force_delete(pod, *grace, deadline, reason).await
                }
            };
            if let Err(error) = result {
                failure.get_or_insert(error);
            }
        }
        match failure {
            None => Ok(()),
            Some(error) => Err(error.into()),
        }
    }

    async fn evict(&self, node: &Node, pod: &Pod, reason: &str) -> Result<(), ClusterError> {
        let key = pod.key();
        let object = format!("Pod/{key}");
        let (code, complaint) = match self.cluster.evict(&key, &pod.metadata.uid).await {
            Ok(Eviction::Accepted) => {
                let text = format!("Evicted pod: {reason}");
                let event = KubeEvent::on(pod, false, "Evicted", text);
                self.cluster.publish(event, EVENT_MEMORY).await;
                self.cx.count(metrics::PODS_DRAINED, &[("reason", reason)]);
                self.cx.decide(Decision::new("evict", object, reason));
                ("200", None)
            }
            Ok(Eviction::Gone) => ("404", None),
            Ok(Eviction::Replaced) => ("409", None),
            Ok(Eviction::Blocked) => ("429", Some("evicting pod violates a PDB")),
            Ok(Eviction::Misconfigured) => ("500", Some("eviction does not support multiple PDBs")),
            Err(error) => {
                self.cx.count(metrics::EVICTION_REQUESTS, &[("code", "500")]);
                return Err(error);
            }
        };
        self.cx.count(metrics::EVICTION_REQUESTS, &[("code", code)]);
        if let Some(complaint) = complaint {
            let text = format!("Failed to drain node, {complaint} (Pod={key})");
            let event = KubeEvent::on(node, true, "FailedDraining", text);
            self.cluster.publish(event, EVENT_MEMORY).await;
        }
        Ok(())
    }

    async fn force_delete(
        &self,
        pod: &Pod,
        grace: i64,
        deadline: Option<Timestamp>,
        reason: &str,
    ) -> Result<(), ClusterError> {
        let key = pod.key();
        let own = pod.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE.as_secs());
        let by = deadline.map(|it| it.to_string()).unwrap_or_default();
        let text = format!(
            "Deleting the pod to accommodate the terminationTime {by} of the node. \
             The pod was granted {grace} seconds of grace-period of its {own} terminationGracePeriodSeconds"
        );
        let event = KubeEvent::on(pod, false, "Disrupted", text);
        self.cluster.publish(event, EVENT_MEMORY).await;
        self.cluster.delete::<Pod>(&key, &pod.metadata.uid, Some(grace)).await?;
        self.cx.count(metrics::PODS_DRAINED, &[("reason", reason)]);
        let why = format!("the node must be gone by {by}; granted {grace}s of {own}s");
        self.cx.decide(Decision::new("force-delete", format!("Pod/{key}"), why));
        Ok(())
    }
}

/// What the API fills in for a pod without a grace period.
const DEFAULT_GRACE: SignedDuration = SignedDuration::from_secs(30);
