//! A small AWS and a cluster with at most one class.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_lambda::{BatchAnswer, SqsBatch, SqsRecord};
use spokeshave_model::{EC2NodeClass, InstanceId, Settings};
use spokeshave_ports::{
    AwsError, Concern, Ec2, Eks, Iam, Invocation, Ssm,
    aws::{ClusterFacts, InstanceProfile, Parameter},
    ec2::{
        CapacityReservation, Filter, FleetAnswer, FleetRequest, Image, Instance, LaunchTemplate,
        LaunchTemplateData, PlacementGroup, SecurityGroup, Subnet, Tags,
    },
    fake::{Fake, block_on},
};

use crate::handle;

#[derive(Default)]
pub(super) struct Aws {
    pub calls: RefCell<Vec<String>>,
    refused: RefCell<BTreeMap<String, String>>,
    pub profiles: RefCell<BTreeMap<String, InstanceProfile>>,
    /// Parameters besides those of the newest release.
    pub parameters: RefCell<BTreeMap<String, String>>,
    /// Kubernetes' version. Empty: 1.34.
    pub kubernetes: RefCell<String>,
    pub templates: RefCell<BTreeMap<String, Tags>>,
    pub tenancies: RefCell<Vec<String>>,
    /// Instance types that dry runs were made with, in order.
    dry_types: RefCell<Vec<String>>,
    groups: RefCell<Vec<PlacementGroup>>,
    /// Security groups besides `sg-1`.
    pub more_security_groups: RefCell<BTreeSet<String>>,
    reservations: RefCell<Vec<CapacityReservation>>,
    instances: RefCell<Vec<Instance>>,
}

impl Aws {
    /// The instance types that dry runs were made with, each once.
    pub fn asked_types(&self) -> Vec<String> {
        let mut types = self.dry_types.borrow().clone();
        types.dedup();
        types
    }

    /// The request id that the last call of this operation had.
    pub fn request_of(&self, operation: &str) -> String {
        let calls = self.calls.borrow();
        let last = calls.iter().rposition(|it| it.split(' ').next() == Some(operation));
        format!("r-{}", last.expect("was called") + 1)
    }

    fn call(&self, operation: &'static str, detail: &str) -> Result<(), AwsError> {
        let text = format!("{operation} {detail}").trim_end().to_owned();
        self.calls.borrow_mut().push(text.clone());
        let refused = self.refused.borrow();
        match refused.get(operation).or_else(|| refused.get(&text)) {
            Some(code) => Err(AwsError {
                request_id: Some(format!("r-{}", self.calls.borrow().len())),
                ..AwsError::new("aws", operation, code, "told to fail")
            }),
            None => Ok(()),
        }
    }

    /// From now on this operation fails, or only the call with this detail.
    pub fn refuse(&self, call: &str, code: &str) {
        self.refused.borrow_mut().insert(call.into(), code.into());
    }

    pub fn mend(&self, call: &str) {
        self.refused.borrow_mut().remove(call);
    }

    /// Calls that change something in IAM.
    pub fn mutations(&self) -> Vec<String> {
        let changes = |it: &&String| {
            ["Create", "Add", "Remove", "Delete"].iter().any(|verb| it.starts_with(verb))
                && it.contains("InstanceProfile")
        };
        self.calls.borrow().iter().filter(changes).cloned().collect()
    }

    pub fn add_template(&self, name: &str, class: &str) {
        let tags = [("eks:eks-cluster-name", "demo"), ("karpenter.k8s.aws/ec2nodeclass", class)];
        let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned()));
        self.templates.borrow_mut().insert(name.into(), tags.into_iter().collect());
    }

    pub fn add_group(&self, name: &str) {
        self.groups.borrow_mut().push(PlacementGroup {
            id: format!("id-of-{name}"),
            name: name.into(),
            state: "available".into(),
            ..PlacementGroup::default()
        });
    }

    pub fn add_block(&self, id: &str, end: Timestamp) {
        self.reservations.borrow_mut().push(CapacityReservation {
            id: id.into(),
            reservation_type: "capacity-block".into(),
            end_date: Some(end),
            ..CapacityReservation::default()
        });
    }

    pub fn add_instance(&self, id: &str) {
        let instance = Instance { id: InstanceId::from(id), ..Instance::default() };
        self.instances.borrow_mut().push(instance);
    }
}

fn ids(filters: &[Filter], name: &str) -> Option<BTreeSet<String>> {
    let filter = filters.iter().find(|it| it.name == name)?;
    Some(filter.values.iter().cloned().collect())
}

impl Ec2 for Aws {
    spokeshave_ports::pass_ec2!(self => Fake::default();
        describe_zones describe_instance_types describe_instance_type_offerings
        describe_spot_prices find_instances describe_instance_status get_launch_template
    );
    async fn describe_subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>, AwsError> {
        self.call("DescribeSubnets", "")?;
        assert_eq!(filters, [Filter::new("tag:karpenter.sh/discovery", &["demo"])]);
        let subnet = |id: &str, zone: &str, free: i64| Subnet {
            id: id.into(),
            zone: zone.into(),
            available_addresses: free,
            ..Subnet::default()
        };
        Ok(vec![subnet("subnet-a", "eu-west-1a", 10), subnet("subnet-b", "eu-west-1b", 20)])
    }
    async fn describe_security_groups(
        &self,
        filters: &[Filter],
    ) -> Result<Vec<SecurityGroup>, AwsError> {
        self.call("DescribeSecurityGroups", "")?;
        let wanted = ids(filters, "group-id").unwrap_or_default();
        let more = self.more_security_groups.borrow();
        let known = more.iter().map(String::as_str).chain(["sg-1"]);
        let group = |id: &str| SecurityGroup {
            id: id.into(),
            name: "nodes".into(),
            ..SecurityGroup::default()
        };
        Ok(known.filter(|it| wanted.contains(*it)).map(group).collect())
    }
    async fn describe_images(
        &self,
        _: &[String],
        _: &[String],
        filters: &[Filter],
    ) -> Result<Vec<Image>, AwsError> {
        self.call("DescribeImages", "")?;
        let wanted = ids(filters, "image-id").unwrap_or_default();
        let image = |id: &str, architecture: &str| Image {
            id: id.into(),
            name: id.into(),
            architecture: architecture.into(),
            creation_date: "2025-01-01T00:00:00Z".parse().ok(),
            ..Image::default()
        };
        let all = vec![
            image("ami-std-x", "x86_64"),
            image("ami-std-a", "arm64"),
            image("ami-gpu-x", "x86_64"),
            image("ami-new-x", "x86_64"),
        ];
        Ok(all.into_iter().filter(|it| wanted.contains(&it.id)).collect())
    }
    async fn describe_capacity_reservations(
        &self,
        ids: &[String],
        _: &[Filter],
    ) -> Result<Vec<CapacityReservation>, AwsError> {
        self.call("DescribeCapacityReservations", "")?;
        let all = self.reservations.borrow();
        Ok(all.iter().filter(|it| ids.contains(&it.id)).cloned().collect())
    }
    async fn describe_placement_groups(
        &self,
        names: &[String],
        _: &[String],
    ) -> Result<Vec<PlacementGroup>, AwsError> {
        self.call("DescribePlacementGroups", "")?;
        let all = self.groups.borrow();
        let found: Vec<_> = all.iter().filter(|it| names.contains(&it.name)).cloned().collect();
        if found.is_empty() {
            let code = "InvalidPlacementGroup.Unknown";
            return Err(AwsError::new("ec2", "DescribePlacementGroups", code, "unknown"));
        }
        Ok(found)
    }
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, AwsError> {
        self.call("CreateFleet", "")?;
        assert!(request.dry_run, "a check launches nothing");
        Err(AwsError::new("ec2", "CreateFleet", "DryRunOperation", "would have succeeded"))
    }
    async fn dry_run_instances(
        &self,
        template: &str,
        instance_type: &str,
        subnet: &str,
        _: &Tags,
    ) -> Result<(), AwsError> {
        assert!(self.templates.borrow().contains_key(template), "the template is there");
        self.dry_types.borrow_mut().push(instance_type.to_owned());
        self.call("RunInstances", subnet)?;
        Err(AwsError::new("ec2", "RunInstances", "DryRunOperation", "would have succeeded"))
    }
    async fn describe_instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, AwsError> {
        let all = self.instances.borrow();
        Ok(all.iter().filter(|it| ids.contains(&it.id)).cloned().collect())
    }
    async fn terminate_instances(&self, _: &[InstanceId]) -> Result<(), AwsError> {
        unreachable!("nodeclass terminates nothing")
    }
    async fn create_tags(&self, _: &[String], _: &Tags) -> Result<(), AwsError> {
        unreachable!("nodeclass tags nothing")
    }
    async fn describe_launch_templates(
        &self,
        filters: &[Filter],
    ) -> Result<Vec<LaunchTemplate>, AwsError> {
        self.call("DescribeLaunchTemplates", "")?;
        let matches = |tags: &Tags| {
            filters.iter().all(|filter| {
                let key = filter.name.strip_prefix("tag:").unwrap_or_default();
                tags.get(key).is_some_and(|value| filter.values.contains(value))
            })
        };
        let all = self.templates.borrow();
        let found = all.iter().filter(|(_, tags)| matches(tags));
        Ok(found
            .map(|(name, _)| LaunchTemplate { name: name.clone(), ..Default::default() })
            .collect())
    }
    async fn create_launch_template(
        &self,
        name: &str,
        data: &LaunchTemplateData,
        tags: &Tags,
        _: bool,
    ) -> Result<LaunchTemplate, AwsError> {
        self.call("CreateLaunchTemplate", name)?;
        assert_eq!(tags["karpenter.sh/nodepool"], "");
        self.tenancies.borrow_mut().push(data.tenancy.clone());
        self.templates.borrow_mut().insert(name.to_owned(), tags.clone());
        Ok(LaunchTemplate::default())
    }
    async fn delete_launch_template(&self, name: &str) -> Result<(), AwsError> {
        self.call("DeleteLaunchTemplate", name)?;
        self.templates.borrow_mut().remove(name);
        Ok(())
    }
}

impl Iam for Aws {
    async fn get_instance_profile(&self, name: &str) -> Result<Option<InstanceProfile>, AwsError> {
        self.call("GetInstanceProfile", name)?;
        Ok(self.profiles.borrow().get(name).cloned())
    }
    async fn create_instance_profile(
        &self,
        name: &str,
        path: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<InstanceProfile, AwsError> {
        self.call("CreateInstanceProfile", &format!("{name} {path}"))?;
        assert_eq!(tags["eks:eks-cluster-arn"], "arn:aws:eks:eu-west-1:111122223333:cluster/demo");
        let profile = InstanceProfile {
            name: name.into(),
            path: path.into(),
            tags: tags.clone(),
            ..InstanceProfile::default()
        };
        self.profiles.borrow_mut().insert(name.into(), profile.clone());
        Ok(profile)
    }
    async fn tag_instance_profile(
        &self,
        _: &str,
        _: &BTreeMap<String, String>,
    ) -> Result<(), AwsError> {
        unreachable!("tags are given at creation")
    }
    async fn add_role(&self, profile: &str, role: &str) -> Result<(), AwsError> {
        self.call("AddRoleToInstanceProfile", &format!("{profile} {role}"))?;
        if role == "gone" {
            let message = "The role with name gone cannot be found.";
            return Err(AwsError::new("iam", "AddRoleToInstanceProfile", "NoSuchEntity", message));
        }
        if let Some(it) = self.profiles.borrow_mut().get_mut(profile) {
            it.roles = vec![role.into()];
        }
        Ok(())
    }
    async fn remove_role(&self, profile: &str, role: &str) -> Result<(), AwsError> {
        self.call("RemoveRoleFromInstanceProfile", &format!("{profile} {role}"))?;
        if let Some(it) = self.profiles.borrow_mut().get_mut(profile) {
            it.roles.clear();
        }
        Ok(())
    }
    async fn delete_instance_profile(&self, name: &str) -> Result<(), AwsError> {
        self.call("DeleteInstanceProfile", name)?;
        self.profiles.borrow_mut().remove(name);
        Ok(())
    }
    async fn list_instance_profiles(&self, path: &str) -> Result<Vec<InstanceProfile>, AwsError> {
        self.call("ListInstanceProfiles", path)?;
        let all = self.profiles.borrow();
        Ok(all.values().filter(|it| it.path.starts_with(path)).cloned().collect())
    }
    async fn get_role(&self, _: &str) -> Result<Option<String>, AwsError> {
        unreachable!("no role is read")
    }
}

impl Ssm for Aws {
    async fn get_parameter(&self, name: &str) -> Result<Option<String>, AwsError> {
        self.call("GetParameter", name)?;
        let of_release = [
            ("x86_64/standard/recommended", "ami-std-x"),
            ("arm64/standard/recommended", "ami-std-a"),
        ];
        let released = of_release.into_iter().find(|(part, _)| name.contains(part));
        let given = self.parameters.borrow().get(name).cloned();
        Ok(given.or_else(|| released.map(|(_, id)| id.to_owned())))
    }
    async fn get_parameters_by_path(&self, _: &str) -> Result<Vec<Parameter>, AwsError> {
        Ok(Vec::new())
    }
}

impl Eks for Aws {
    async fn describe_cluster(&self, _: &str) -> Result<ClusterFacts, AwsError> {
        self.call("DescribeCluster", "")?;
        let version = match self.kubernetes.borrow().as_str() {
            "" => "1.34".to_owned(),
            given => given.to_owned(),
        };
        Ok(ClusterFacts {
            arn: "arn:aws:eks:eu-west-1:111122223333:cluster/demo".into(),
            endpoint: "https://demo".into(),
            certificate_authority: "QUJD".into(),
            version,
            service_ipv4_cidr: "10.100.0.0/16".into(),
            ..ClusterFacts::default()
        })
    }
}

pub(super) struct World {
    pub fake: Fake,
    pub aws: Aws,
    settings: Settings,
}

impl World {
    /// Without dry runs.
    pub fn new() -> Self {
        let mut world = Self::with_dry_run();
        world.settings.disable_dry_run = true;
        world
    }

    pub fn with_dry_run() -> Self {
        Self {
            fake: Fake::at("2025-01-01T12:00:00Z".parse().expect("a time")),
            aws: Aws::default(),
            settings: Settings {
                cluster_name: "demo".into(),
                region: "eu-west-1".into(),
                ..Settings::default()
            },
        }
    }

    /// The class `default` with these fields over the usual ones.
    #[allow(clippy::needless_pass_by_value)] // `json!` reads best in place.
    pub fn add_class(&self, changes: Value) {
        let mut spec = json!({
            "role": "R",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
        });
        spokeshave_model::meta::apply_merge_patch(&mut spec, &changes);
        self.fake.add_json::<EC2NodeClass>(json!({
            "metadata": {
                "name": "default",
                "uid": "uid-1",
                "generation": 1,
                "creationTimestamp": "2025-01-01T11:59:00Z",
            },
            "spec": spec,
        }));
    }

    pub fn class(&self) -> EC2NodeClass {
        self.fake.object("default").expect("the class")
    }

    pub fn edit_class(&self, edit: impl FnOnce(&mut EC2NodeClass)) {
        let mut class = self.class();
        edit(&mut class);
        self.fake.add(&class);
    }

    pub fn later(&self, seconds: i64) {
        let now = self.fake.now.get().saturating_add(SignedDuration::from_secs(seconds));
        self.fake.now.set(now.expect("in range"));
    }

    pub fn run(&self, name: &str) {
        self.run_bodies(&[&named(name, "NodeClassChanged", 0)]);
    }

    pub fn run_wake(&self, name: &str, depth: u32) {
        self.run_bodies(&[&named(name, "Wake", depth)]);
    }

    pub fn run_all(&self) {
        self.run_bodies(&["{\"reason\": \"Schedule\"}"]);
    }

    pub fn run_bodies(&self, bodies: &[&str]) -> BatchAnswer {
        let now = self.fake.now.get();
        let cx = Invocation {
            concern: Concern::Nodeclass,
            now,
            deadline: now,
            settings: &self.settings,
            journal: &self.fake,
        };
        let record = |(n, body): (usize, &&str)| SqsRecord {
            message_id: format!("m-{n}"),
            body: (*body).to_owned(),
            ..SqsRecord::default()
        };
        let batch = SqsBatch { records: bodies.iter().enumerate().map(record).collect() };
        let (fake, aws) = (&self.fake, &self.aws);
        block_on(handle(&batch, fake, aws, aws, aws, aws, fake, fake, &cx))
    }
}

/// A message that names a class.
pub(super) fn named(name: &str, reason: &str, depth: u32) -> String {
    json!({"reason": reason, "depth": depth, "keys": [{"kind": "EC2NodeClass", "name": name}]})
        .to_string()
}

/// A claim of the class `default`.
pub(super) fn claim(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-of-{name}")},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
    })
}
