//! The end of a class (`spec` aws-nodeclass 16).

use spokeshave_model::{EC2NodeClass, Kind, NodeClaim, labels};
use spokeshave_nodeclass::{
    profiles::{self, records},
    reconcile, validation,
};
use spokeshave_ports::{
    Cluster, Decision, Ec2, Eks, Iam, Precondition, Selector, Ssm, StateTable, cluster::KubeEvent,
    ec2::Filter,
};

use crate::{
    Trouble,
    hashes::is_of,
    pass::{EVENTS_ONCE_IN, Pass},
};

/// Without Karpenter's prefix, as its status metrics are.
const TERMINATION_SECONDS: &str = "operator_ec2nodeclass_termination_duration_seconds";
const TERMINATING_SECONDS: &str = "operator_ec2nodeclass_termination_current_time_seconds";

impl<C: Cluster, E2: Ec2, I: Iam, S: Ssm, K: Eks, T: StateTable> Pass<'_, C, E2, I, S, K, T> {
    /// Waits for the class's claims, then cleans up and lets the class go.
    ///
    /// The bridge tells when the last claim is gone, and the schedule looks in any case.
    pub(crate) async fn delete(&self, class: &EC2NodeClass) -> Result<(), Trouble> {
        if !class.metadata.has_finalizer(labels::NODECLASS_FINALIZER) {
            return Ok(());
        }
        if let Some(since) = class.metadata.deletion_timestamp {
            let labels = [("namespace", ""), ("name", class.name())];
            let seconds = self.now.duration_since(since).as_secs_f64().max(0.0);
            self.cx.sample(TERMINATING_SECONDS, seconds, "Seconds", &labels);
        }
        let claims = self.cluster.list::<NodeClaim>(&Selector::all()).await?;
        let waiting: Vec<String> = claims
            .iter()
            .filter(|it| is_of(it, class))
            .map(|it| it.metadata.name.clone())
            .collect();
        if !waiting.is_empty() {
            let message = reconcile::waiting_message(waiting);
            self.cx.decide(Decision::new("wait", class.reference(), message.as_str()));
            let event = KubeEvent::on(class, false, "WaitingOnNodeClaimTermination", message);
            self.cluster.publish(event, EVENTS_ONCE_IN).await;
            return Ok(());
        }
        if !self.cx.settings.isolated_vpc {
            self.delete_profiles(class).await?;
        }
        self.delete_templates(class).await?;
        self.forget(validation::RECORDS, class.metadata.uid.as_str()).await?;
        let mut released = class.clone();
        released.metadata.finalizers.retain(|it| it != labels::NODECLASS_FINALIZER);
        self.cluster.patch(class, &released, Precondition::ResourceVersion).await?;
        self.cx.decide(Decision::new("release", class.reference(), "nothing of it is left"));
        if let Some(since) = class.metadata.deletion_timestamp {
            let seconds = self.now.duration_since(since).as_secs_f64().max(0.0);
            self.cx.sample(TERMINATION_SECONDS, seconds, "Seconds", &[]);
        }
        let text = format!("Finalized {}", labels::NODECLASS_FINALIZER);
        self.cluster.publish(KubeEvent::on(class, false, "Finalized", text), EVENTS_ONCE_IN).await;
        Ok(())
    }

    async fn delete_profiles(&self, class: &EC2NodeClass) -> Result<(), Trouble> {
        let settings = self.cx.settings;
        let (cluster, region) = (settings.cluster_name.as_str(), settings.region.as_str());
        let path = profiles::class_path(region, cluster, class.metadata.uid.as_str());
        let mut names: Vec<String> =
            self.iam.list_instance_profiles(&path).await?.into_iter().map(|it| it.name).collect();
        names.sort();
        let legacy = profiles::legacy_name(cluster, region, &class.metadata.name);
        if profiles::is_valid_name(&legacy) {
            names.push(legacy);
        } else {
            let reason = format!("{legacy:?} can be no profile's name");
            self.cx.decide(Decision::new("skip", class.reference(), reason));
        }
        for name in names {
            let Some(profile) = self.iam.get_instance_profile(&name).await? else { continue };
            for role in &profile.roles {
                self.iam.remove_role(&name, role).await?;
            }
            self.iam.delete_instance_profile(&name).await?;
            self.forget(records::ROLE, &name).await?;
            self.forget(records::PROTECTED, &name).await?;
            let object = format!("InstanceProfile/{name}");
            self.cx.decide(Decision::new("delete", object, "its EC2NodeClass is deleted"));
        }
        Ok(())
    }

    /// Goes on after an error, so that one template does not keep the others.
    async fn delete_templates(&self, class: &EC2NodeClass) -> Result<(), Trouble> {
        let tag = |key: &str, value: &str| Filter::new(&format!("tag:{key}"), &[value]);
        let filters = [
            tag(labels::TAG_CLUSTER_NAME, &self.cx.settings.cluster_name),
            tag(labels::NODECLASS, &class.metadata.name),
        ];
        let mut first: Option<Trouble> = None;
        for template in self.ec2.describe_launch_templates(&filters).await? {
            match self.ec2.delete_launch_template(&template.name).await {
                Ok(()) => {
                    let object = format!("LaunchTemplate/{}", template.name);
                    self.cx.decide(Decision::new("delete", object, "its EC2NodeClass is deleted"));
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => first = first.or(Some(error.into())),
            }
        }
        first.map_or(Ok(()), Err)
    }
}
