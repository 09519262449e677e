//! EC2's port over the records.

use std::{collections::BTreeMap, future::Future, pin::Pin};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use spokeshave_catalog::{Memo, stored};
use spokeshave_model::InstanceId;
use spokeshave_ports::{
    AwsError, Ec2, Invocation, StateTable, When,
    budget::{self, Bucket},
    ec2::{
        CapacityReservation, Filter, FleetAnswer, FleetRequest, Image, Instance, InstanceStatus,
        InstanceTypeInfo, LaunchTemplate, LaunchTemplateData, PlacementGroup, SecurityGroup,
        SpotPrice, Subnet, Tags, TypeOffering, Zone,
    },
    filters::passes,
};

use crate::{
    KEPT, Profile,
    fleet::{Fleet, Surroundings},
    records::{self, BUCKET, FLEET, INSTANCE, TEMPLATE, as_aws},
};

/// What this process has read and worked out before.
static MEMO: Memo = Memo::new();

/// Waits as long as a call takes.
pub type Pause = fn(SignedDuration) -> Pin<Box<dyn Future<Output = ()>>>;

/// Waits by tokio's clock.
#[cfg(feature = "sleep")]
fn pause(length: SignedDuration) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(tokio::time::sleep(length.unsigned_abs()))
}

/// Does not wait.
#[cfg(not(feature = "sleep"))]
fn pause(_: SignedDuration) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(std::future::ready(()))
}

/// EC2 of which only what reads the account is real. Without a profile all of it is.
pub struct Kwok<'a, E, S> {
    pub real: &'a E,
    pub state: &'a S,
    /// `None`: everything goes to the real EC2.
    pub profile: Option<&'a Profile>,
    pub region: &'a str,
    pub now: Timestamp,
    pub pause: Pause,
}

impl<'a, E, S> Kwok<'a, E, S> {
    /// For one run of a handler.
    pub fn new(
        real: &'a E,
        state: &'a S,
        profile: Option<&'a Profile>,
        cx: &'a Invocation<'_>,
    ) -> Self {
        Self { real, state, profile, region: &cx.settings.region, now: cx.now, pause }
    }
}

/// A launch template and what it holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Template {
    template: LaunchTemplate,
    data: LaunchTemplateData,
}

/// So many instances are read one by one; more are cheaper to pick from all.
const BY_RECORD: usize = 8;
const NO_TEMPLATE: &str = "InvalidLaunchTemplateName.NotFoundException";

fn dry_run(operation: &'static str) -> AwsError {
    let message = "Request would have succeeded, but DryRun flag is set.";
    AwsError::new("ec2", operation, "DryRunOperation", message)
}

impl<E: Ec2, S: StateTable> Kwok<'_, E, S> {
    /// One made-up call: it takes its time, and may be one too many.
    async fn enter(&self, profile: &Profile, operation: &'static str) -> Result<(), AwsError> {
        if !profile.latency.is_zero() {
            (self.pause)(profile.latency).await;
        }
        if !profile.throttle {
            return Ok(());
        }
        let limit = budget::limit(operation);
        let name = limit.family;
        let read = records::read::<Bucket>(self.state, BUCKET, name).await;
        let (bucket, when) = match read.map_err(|it| as_aws(operation, &it))? {
            Some((bucket, version)) => (bucket, When::Version(version)),
            None => (Bucket::default(), When::Absent),
        };
        let left = bucket.take(limit, self.now);
        // Somebody else took a token at the same time: that it was this one may stay open.
        if let Some(left) = left {
            let written = records::write(self.state, BUCKET, name, &left, None, when).await;
            return written.map(|_| ()).map_err(|it| as_aws(operation, &it));
        }
        let message = "Request limit exceeded (made up).";
        Err(AwsError {
            status: 503,
            ..AwsError::new("ec2", operation, "RequestLimitExceeded", message)
        })
    }

    async fn template(
        &self,
        operation: &'static str,
        name: &str,
    ) -> Result<Option<Template>, AwsError> {
        let read = records::read::<Template>(self.state, TEMPLATE, name).await;
        Ok(read.map_err(|it| as_aws(operation, &it))?.map(|it| it.0))
    }

    async fn instances(&self) -> Result<Vec<Instance>, AwsError> {
        records::instances(self.state).await.map_err(|it| as_aws("DescribeInstances", &it))
    }

    async fn fleet(
        &self,
        profile: &Profile,
        request: &FleetRequest,
    ) -> Result<FleetAnswer, AwsError> {
        const CALL: &str = "CreateFleet";
        let token = request.client_token.as_str();
        let first = records::read::<Fleet>(self.state, FLEET, token).await;
        let mut fleet = match first.map_err(|it| as_aws(CALL, &it))? {
            Some((fleet, _)) => fleet,
            None => {
                let mut templates = BTreeMap::new();
                for config in &request.configs {
                    let name = config.launch_template.as_str();
                    let Some(it) = self.template(CALL, name).await? else {
                        let message = format!("The launch template {name} does not exist.");
                        return Err(AwsError::new("ec2", CALL, NO_TEMPLATE, &message));
                    };
                    templates.insert(name.to_owned(), it.data);
                }
                let stored = stored::load_catalog(self.state, self.region, &MEMO).await;
                let catalog = stored.map_err(|it| as_aws(CALL, &it))?.catalog;
                let left = self.left_in_reservations(&templates).await?;
                let (templates, now) = (&templates, self.now);
                let around = Surroundings { catalog: &catalog, profile, templates, left, now };
                let made = around.fleet(request);
                let expires_at = self.now.saturating_add(KEPT).ok();
                let written =
                    records::write(self.state, FLEET, token, &made, expires_at, When::Absent).await;
                if written.map_err(|it| as_aws(CALL, &it))? {
                    made
                } else {
                    // Another run with the same token was first: its answer counts.
                    let first = records::read::<Fleet>(self.state, FLEET, token).await;
                    first.map_err(|it| as_aws(CALL, &it))?.map_or(made, |it| it.0)
                }
            }
        };
        if fleet.request != *request {
            let message = "The client token was used before with another request.";
            return Err(AwsError::new("ec2", CALL, "IdempotentParameterMismatch", message));
        }
        // Again and again: a run may have died after the fleet's record. What has ended since stays ended.
        for instance in std::mem::take(&mut fleet.instances) {
            let id = instance.id.clone();
            let (state, when) = (self.state, When::Absent);
            let written = records::write(state, INSTANCE, id.as_str(), &instance, None, when).await;
            written.map_err(|it| as_aws(CALL, &it))?;
        }
        Ok(fleet.answer)
    }

    /// What the account's reservations have left, less the made-up instances in them.
    async fn left_in_reservations(
        &self,
        templates: &BTreeMap<String, LaunchTemplateData>,
    ) -> Result<BTreeMap<String, i64>, AwsError> {
        let ids: Vec<String> =
            templates.values().filter_map(|it| it.reservation_id.clone()).collect();
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let used = self.instances().await?;
        let used = |id: &str| used.iter().filter(|it| it.capacity_reservation_id == id).count();
        let found = self.real.describe_capacity_reservations(&ids, &[]).await?;
        Ok(found
            .into_iter()
            .map(|it| (it.id.clone(), it.available - used(&it.id) as i64))
            .collect())
    }
}

impl<E: Ec2, S: StateTable> Ec2 for Kwok<'_, E, S> {
    async fn describe_subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>, AwsError> {
        self.real.describe_subnets(filters).await
    }
    async fn describe_security_groups(
        &self,
        filters: &[Filter],
    ) -> Result<Vec<SecurityGroup>, AwsError> {
        self.real.describe_security_groups(filters).await
    }
    async fn describe_images(
        &self,
        ids: &[String],
        owners: &[String],
        filters: &[Filter],
    ) -> Result<Vec<Image>, AwsError> {
        self.real.describe_images(ids, owners, filters).await
    }
    async fn describe_zones(&self) -> Result<Vec<Zone>, AwsError> {
        self.real.describe_zones().await
    }
    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeInfo>, AwsError> {
        self.real.describe_instance_types().await
    }
    async fn describe_instance_type_offerings(&self) -> Result<Vec<TypeOffering>, AwsError> {
        self.real.describe_instance_type_offerings().await
    }
    async fn describe_spot_prices(&self) -> Result<Vec<SpotPrice>, AwsError> {
        self.real.describe_spot_prices().await
    }
    async fn describe_capacity_reservations(
        &self,
        ids: &[String],
        filters: &[Filter],
    ) -> Result<Vec<CapacityReservation>, AwsError> {
        self.real.describe_capacity_reservations(ids, filters).await
    }
    async fn describe_placement_groups(
        &self,
        names: &[String],
        ids: &[String],
    ) -> Result<Vec<PlacementGroup>, AwsError> {
        self.real.describe_placement_groups(names, ids).await
    }

    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, AwsError> {
        let Some(profile) = self.profile else { return self.real.create_fleet(request).await };
        self.enter(profile, "CreateFleet").await?;
        if request.dry_run {
            return Err(dry_run("CreateFleet"));
        }
        self.fleet(profile, request).await
    }

    async fn dry_run_instances(
        &self,
        launch_template: &str,
        instance_type: &str,
        subnet_id: &str,
        tags: &Tags,
    ) -> Result<(), AwsError> {
        const CALL: &str = "RunInstances";
        let Some(profile) = self.profile else {
            return self
                .real
                .dry_run_instances(launch_template, instance_type, subnet_id, tags)
                .await;
        };
        self.enter(profile, CALL).await?;
        match self.template(CALL, launch_template).await? {
            Some(_) => Err(dry_run(CALL)),
            None => Err(AwsError::new("ec2", CALL, NO_TEMPLATE, "no such launch template")),
        }
    }

    async fn describe_instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, AwsError> {
        let Some(profile) = self.profile else { return self.real.describe_instances(ids).await };
        const CALL: &str = "DescribeInstances";
        self.enter(profile, CALL).await?;
        if ids.len() > BY_RECORD {
            return Ok(self
                .instances()
                .await?
                .into_iter()
                .filter(|it| ids.contains(&it.id))
                .collect());
        }
        let mut found = Vec::new();
        for id in ids {
            let read = records::read::<Instance>(self.state, INSTANCE, id.as_str()).await;
            let read = read.map_err(|it| as_aws(CALL, &it))?;
            found.extend(read.map(|it| it.0).filter(|it| it.state != "terminated"));
        }
        Ok(found)
    }

    async fn find_instances(&self, filters: &[Filter]) -> Result<Vec<Instance>, AwsError> {
        let Some(profile) = self.profile else { return self.real.find_instances(filters).await };
        self.enter(profile, "DescribeInstances").await?;
        let wanted = |it: &Instance| {
            let fields = [
                ("instance-id", it.id.as_str()),
                ("instance-state-name", it.state.as_str()),
                ("instance-type", it.instance_type.as_str()),
                ("image-id", it.image_id.as_str()),
                ("availability-zone", it.zone.as_str()),
                ("subnet-id", it.subnet_id.as_str()),
            ];
            passes(filters, &it.tags, &fields)
        };
        Ok(self.instances().await?.into_iter().filter(wanted).collect())
    }

    async fn describe_instance_status(
        &self,
        ids: &[InstanceId],
    ) -> Result<Vec<InstanceStatus>, AwsError> {
        let Some(profile) = self.profile else {
            return self.real.describe_instance_status(ids).await;
        };
        // Made-up machines are never ill.
        self.enter(profile, "DescribeInstanceStatus").await.map(|()| Vec::new())
    }

    async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<(), AwsError> {
        const CALL: &str = "TerminateInstances";
        let Some(profile) = self.profile else { return self.real.terminate_instances(ids).await };
        self.enter(profile, CALL).await?;
        for id in ids {
            let end = |it: &mut Instance| it.state = "terminated".into();
            let ended = records::change(self.state, id, self.now, end).await;
            ended.map_err(|it| as_aws(CALL, &it))?;
        }
        Ok(())
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), AwsError> {
        const CALL: &str = "CreateTags";
        let Some(profile) = self.profile else { return self.real.create_tags(ids, tags).await };
        self.enter(profile, CALL).await?;
        for id in ids {
            let id = InstanceId::from(id.as_str());
            let add = |it: &mut Instance| it.tags.extend(tags.clone());
            let tagged = records::change(self.state, &id, self.now, add).await;
            if !tagged.map_err(|it| as_aws(CALL, &it))? {
                let message = format!("The ID '{id}' does not exist");
                return Err(AwsError::new("ec2", CALL, "InvalidInstanceID.NotFound", &message));
            }
        }
        Ok(())
    }

    async fn describe_launch_templates(
        &self,
        filters: &[Filter],
    ) -> Result<Vec<LaunchTemplate>, AwsError> {
        const CALL: &str = "DescribeLaunchTemplates";
        let Some(profile) = self.profile else {
            return self.real.describe_launch_templates(filters).await;
        };
        self.enter(profile, CALL).await?;
        let all = self.state.query(TEMPLATE, "").await.map_err(|it| as_aws(CALL, &it))?;
        let all = all.into_iter().filter_map(|it| serde_json::from_value(it.1.data).ok());
        let wanted = |it: &LaunchTemplate| {
            passes(filters, &it.tags, &[("launch-template-name", it.name.as_str())])
        };
        Ok(all.map(|it: Template| it.template).filter(wanted).collect())
    }

    async fn get_launch_template(&self, name: &str) -> Result<Option<LaunchTemplate>, AwsError> {
        const CALL: &str = "DescribeLaunchTemplates";
        let Some(profile) = self.profile else { return self.real.get_launch_template(name).await };
        self.enter(profile, CALL).await?;
        Ok(self.template(CALL, name).await?.map(|it| it.template))
    }

    async fn create_launch_template(
        &self,
        name: &str,
        data: &LaunchTemplateData,
        tags: &Tags,
        dry: bool,
    ) -> Result<LaunchTemplate, AwsError> {
        const CALL: &str = "CreateLaunchTemplate";
        let Some(profile) = self.profile else {
            return self.real.create_launch_template(name, data, tags, dry).await;
        };
        self.enter(profile, CALL).await?;
        if dry {
            return Err(dry_run(CALL));
        }
        let template = LaunchTemplate {
            id: format!("lt-{name}"),
            name: name.to_owned(),
            created: Some(self.now),
            tags: tags.clone(),
        };
        let record = Template { template, data: data.clone() };
        let written = records::write(self.state, TEMPLATE, name, &record, None, When::Absent).await;
        if written.map_err(|it| as_aws(CALL, &it))? {
            return Ok(record.template);
        }
        let code = "InvalidLaunchTemplateName.AlreadyExistsException";
        Err(AwsError::new("ec2", CALL, code, "Launch template name already in use."))
    }

    async fn delete_launch_template(&self, name: &str) -> Result<(), AwsError> {
        const CALL: &str = "DeleteLaunchTemplate";
        let Some(profile) = self.profile else {
            return self.real.delete_launch_template(name).await;
        };
        self.enter(profile, CALL).await?;
        let key = spokeshave_ports::StateKey::new(TEMPLATE, name);
        self.state.remove(&key, When::Always).await.map_err(|it| as_aws(CALL, &it))
    }
}
