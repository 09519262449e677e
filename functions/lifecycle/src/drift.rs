//! Drift of one claim: by its pool, by its instance type, by its class, by its instance.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use spokeshave_catalog::{
    Memo,
    stored::{self, StoredCatalog},
};
use spokeshave_lifecycle::{claim::Drift, drift};
use spokeshave_model::{
    EC2NodeClass, InstanceId, NodeClaim, NodePool, ObjectKey, Requirement, Requirements, labels,
};
use spokeshave_nodeclass::{
    drift::{Drift as Provider, Group, ami_drift, instance_drift, static_drift},
    resources, selectors,
};
use spokeshave_ports::{
    Cluster, Ec2, Queues, StateTable,
    ec2::{Filter, Instance, PlacementGroup},
};

use crate::{Trouble, reconcile::Reconciler, targets::Target};

/// What this process has read and worked out before.
static MEMO: Memo = Memo::new();

/// Instances asked for by id at once: EC2 takes this many values in a filter. More are cheaper listed, 1,000 to a page.
const BY_ID: usize = 200;

/// States of instances that are still there.
const NOT_GONE: &[&str] = &["pending", "running", "stopping", "stopped", "shutting-down"];

/// What drift detection has read in this run.
#[derive(Default)]
pub struct Evidence {
    catalog: RefCell<Option<Arc<StoredCatalog>>>,
    classes: RefCell<BTreeMap<String, Option<Arc<EC2NodeClass>>>>,
    groups: RefCell<BTreeMap<String, FoundGroup>>,
    instances: RefCell<BTreeMap<InstanceId, Instance>>,
}

/// What EC2 said of the placement group of a class.
#[derive(Clone)]
enum FoundGroup {
    None,
    Found(Arc<PlacementGroup>),
    Unknown,
}

impl<C: Cluster, E: Ec2, S: StateTable, Q: Queues> Reconciler<'_, C, E, S, Q> {
    /// The first reason for which the claim is to be replaced. Whatever cannot be found out now leaves the condition
    /// as it is.
    ///
    /// DIFFERENCE: Karpenter looks at everything every five minutes. Here pool, class and claim are looked at when one of
    /// them changes, instances and instance types also with the sweep.
    pub async fn drift(
        &self,
        claim: &NodeClaim,
        pool: Option<&NodePool>,
        target: &Target,
    ) -> Result<Drift, Trouble> {
        if !claim.is_true(NodeClaim::LAUNCHED) {
            return Ok(Drift::None);
        }
        let Some(pool) = pool.filter(|it| it.is_managed() && target.drift) else {
            return Ok(Drift::Unjudged);
        };
        if let Some(reason) = drift::pool_reason(claim, pool) {
            return Ok(Drift::Drifted(reason.into()));
        }
        let class = self.class_of(pool).await?.filter(|it| !it.metadata.deleting());
        // DIFFERENCE: without its class Karpenter takes the instance type of an old claim for gone.
        let Some(class) = class else { return Ok(Drift::None) };
        if target.sweep && drift::wants_type_check(claim, self.now) {
            match self.type_is_gone(claim, &class).await? {
                Some(true) => return Ok(Drift::Drifted(drift::INSTANCE_TYPE_NOT_FOUND.into())),
                Some(false) => {}
                None => return Ok(Drift::Unjudged),
            }
        }
        if static_drift(&class, claim) {
            return Ok(drifted(Provider::NodeClass));
        }
        match ami_drift(&class, claim, described(claim).as_ref()) {
            Ok(true) => return Ok(drifted(Provider::Ami)),
            Ok(false) => {}
            Err(_) => return Ok(Drift::Unjudged),
        }
        let said = claim.condition(NodeClaim::DRIFTED).map(|it| it.reason.as_str());
        if !target.instance && !said.is_some_and(is_told_by_instance) {
            return Ok(match said {
                Some(drift::INSTANCE_TYPE_NOT_FOUND) => Drift::Unjudged,
                _ => Drift::None,
            });
        }
        let Some(instance) = self.described_instance(claim).await? else {
            return Ok(Drift::Unjudged);
        };
        let group = self.group_of(&class).await;
        let group = match &group {
            FoundGroup::None => Group::None,
            FoundGroup::Found(group) => Group::Found(group),
            FoundGroup::Unknown => Group::Unknown,
        };
        let reserved = self.cx.settings.gates.reserved_capacity;
        Ok(match instance_drift(&class, claim, &instance, group, reserved) {
            Ok(Some(reason)) => drifted(reason),
            Ok(None) => Drift::None,
            Err(_) => Drift::Unjudged,
        })
    }

    /// Reads the instances of many claims at once. Best effort: what is missing leaves conditions as they are.
    pub async fn prefetch(&self, claims: &[Arc<NodeClaim>]) {
        let ids: Vec<InstanceId> =
            claims.iter().filter_map(|it| it.status.provider_id.instance_id()).collect();
        let found = if ids.len() > BY_ID {
            let cluster = Filter::new(
                &format!("tag:{}", labels::TAG_CLUSTER_NAME),
                &[&self.cx.settings.cluster_name],
            );
            let states = Filter::new("instance-state-name", NOT_GONE);
            self.ec2.find_instances(&[cluster, states]).await
        } else {
            self.ec2.describe_instances(&ids).await
        };
        let Ok(found) = found else { return };
        let mut known = self.evidence.instances.borrow_mut();
        known.extend(found.into_iter().map(|it| (it.id.clone(), it)));
    }

    async fn described_instance(&self, claim: &NodeClaim) -> Result<Option<Instance>, Trouble> {
        let Some(id) = claim.status.provider_id.instance_id() else { return Ok(None) };
        if let Some(known) = self.evidence.instances.borrow().get(&id) {
            return Ok(Some(known.clone()));
        }
        let found = self.ec2.describe_instances(std::slice::from_ref(&id)).await?;
        Ok(found.into_iter().find(|it| it.id == id))
    }

    async fn class_of(&self, pool: &NodePool) -> Result<Option<Arc<EC2NodeClass>>, Trouble> {
        self.class_named(&pool.spec.template.spec.node_class_ref.name).await
    }

    /// A class by name, read at most once per run.
    pub async fn class_named(&self, name: &str) -> Result<Option<Arc<EC2NodeClass>>, Trouble> {
        let known = self.evidence.classes.borrow().get(name).cloned();
        if let Some(class) = known {
            return Ok(class);
        }
        let class = self.cluster.get::<EC2NodeClass>(&ObjectKey::cluster(name)).await?;
        self.evidence.classes.borrow_mut().insert(name.to_owned(), class.clone());
        Ok(class)
    }

    async fn group_of(&self, class: &EC2NodeClass) -> FoundGroup {
        let Some(selector) = &class.spec.placement_group_selector else { return FoundGroup::None };
        let name = &class.metadata.name;
        if let Some(known) = self.evidence.groups.borrow().get(name) {
            return known.clone();
        }
        let (names, ids) = selectors::placement_group(selector);
        let group = match self.ec2.describe_placement_groups(&names, &ids).await {
            Ok(found) => match resources::placement_group(found) {
                Some(group) => FoundGroup::Found(Arc::new(group)),
                None => FoundGroup::None,
            },
            Err(error) if error.is_not_found() => FoundGroup::None,
            Err(_) => FoundGroup::Unknown,
        };
        self.evidence.groups.borrow_mut().insert(name.clone(), group.clone());
        group
    }

    /// `None` when the class cannot resolve its types. As long as none have been read from EC2 no type is gone.
    async fn type_is_gone(
        &self,
        claim: &NodeClaim,
        class: &EC2NodeClass,
    ) -> Result<Option<bool>, Trouble> {
        let Some(name) = claim.metadata.label(labels::INSTANCE_TYPE) else { return Ok(None) };
        let known = self.evidence.catalog.borrow().clone();
        let catalog = match known {
            Some(catalog) => catalog,
            None => {
                let region = &self.cx.settings.region;
                let read = Arc::new(stored::load_catalog(self.state, region, &MEMO).await?);
                self.evidence.catalog.replace(Some(read.clone()));
                read
            }
        };
        if catalog.index.types_read_at.is_none() {
            return Ok(Some(false));
        }
        let market = spokeshave_catalog::MarketView::new(self.cx.settings, self.now);
        let resolved = catalog.catalog.resolve(class, &market, |it| it == name);
        Ok(resolved.ok().map(|it| drift::type_is_gone(claim, &it.types)))
    }
}

fn drifted(reason: Provider) -> Drift {
    Drift::Drifted(reason.as_str().into())
}

fn is_told_by_instance(reason: &str) -> bool {
    [
        Provider::SecurityGroup,
        Provider::Subnet,
        Provider::CapacityReservation,
        Provider::PlacementGroup,
    ]
    .iter()
    .any(|it| it.as_str() == reason)
}

/// The claim's instance type as its labels tell it: every well-known label of instance types that it lacks has no
/// value for its type. `None` when the claim does not even name the type.
fn described(claim: &NodeClaim) -> Option<Requirements> {
    claim.metadata.label(labels::INSTANCE_TYPE)?;
    let mut described = Requirements::from_labels(&claim.metadata.labels);
    let of_types = |it: &&&str| it.starts_with("karpenter.k8s.aws/instance-");
    for key in labels::WELL_KNOWN.iter().filter(of_types) {
        if !described.contains_key(key) {
            described.add(Requirement::does_not_exist(key));
        }
    }
    Some(described)
}
