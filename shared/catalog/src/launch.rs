//! How a claim is launched: which types, as which capacity type, from which templates, and what the answer means
//! (`spec` aws-capacity 13 to 19). Pure: the launch function carries it out.
//!
//! Read first: [`plan`], which turns a claim and a class into a [`Plan`], and [`attempt::Attempt`], the record that keeps
//! one launch from happening twice.

pub mod answer;
pub mod attempt;
pub mod filters;
pub mod instance;
pub mod interfaces;
pub mod offering;
pub mod subnets;
pub mod tags;
pub mod template;

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::{
    AmiFamily, CapacityType, EC2NodeClass, InstanceType, NodeClaim, Requirements, Settings, labels,
};
use spokeshave_ports::ec2::{
    FleetConfig, FleetOverride, FleetRequest, LaunchTemplateData, PlacementGroup, Tags,
};

use crate::{
    RenderUserData,
    capacity::EFA,
    kubelet::KubeletError,
    launch::{filters::NoCapacity, offering::allowed},
};

/// Resource that asks for Nitro Enclaves.
pub const NITRO_SANDBOX: &str = "eks.amazonaws.com/nitro-sandbox";

/// EC2 takes at most this many launch specifications in an instant fleet.
///
/// DIFFERENCE: Karpenter sends all (60 types x 6 zones are 360) and fails; we leave out the dearest.
pub const MAX_OVERRIDES: usize = 300;

/// Fewer types than this for on-demand although spot is allowed is worth a log line.
pub const FEW_TYPES: usize = 5;

/// What a launch is planned from.
pub struct LaunchInput<'a> {
    pub claim: &'a NodeClaim,
    pub class: &'a EC2NodeClass,
    /// Of the class, with availability as it is now, overlays applied.
    pub types: Vec<InstanceType>,
    /// Kubelet entries that were left out of the types, by type.
    pub dropped: &'a [(String, KubeletError)],
    pub settings: &'a Settings,
    pub placement_group: Option<&'a PlacementGroup>,
    /// All tags of fleet, instances, volumes and templates (13.1).
    pub tags: &'a Tags,
    /// Chosen subnet by zone.
    pub subnets: &'a dyn Fn(&Selected) -> BTreeMap<String, String>,
    pub render: RenderUserData<'a>,
    /// The cluster's nodes have IPv6 addresses.
    pub ipv6: bool,
}

/// What passed the filters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selected {
    /// Cheapest first, at most 60.
    pub types: Vec<InstanceType>,
    pub capacity_type: CapacityType,
    /// `default` or `dedicated`.
    pub tenancy: &'static str,
}

/// A launch that is ready to be sent, except for its token, target and attempt tag.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub selected: Selected,
    /// By name.
    pub templates: BTreeMap<String, LaunchTemplateData>,
    pub request: FleetRequest,
    /// Chosen subnet by zone, of all zones.
    pub subnets: BTreeMap<String, String>,
    pub facts: PlanFacts,
}

/// What is needed to read the answer and to fill in the claim, also by a run that did not make the plan.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanFacts {
    pub capacity_type: CapacityType,
    pub tenancy: String,
    /// Reservations by `type/zone`.
    pub reservations: BTreeMap<String, ReservationFacts>,
    pub placement_group: Option<String>,
    pub has_partitions: bool,
    pub partition: Option<i64>,
    /// The claim asks for EFA, or the class lists interfaces.
    pub efa: bool,
    /// Zone ids by zone.
    pub zone_ids: BTreeMap<String, String>,
    /// Names of all candidate types.
    pub types: Vec<String>,
    /// The smallest pod capacity by zone: addresses that one instance may take.
    pub predicted: BTreeMap<String, i64>,
}

/// The reservation that an offering launches into.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationFacts {
    pub id: String,
    #[serde(rename = "type")]
    pub type_: String,
    pub interruptible: bool,
}

/// Why nothing can be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Nothing to buy: the claim is given up, another plan is made.
    #[error(transparent)]
    NoCapacity(#[from] NoCapacity),
    /// The class cannot be used as it is.
    #[error("{0}")]
    NotReady(String),
    /// It may pass: the claim is kept and tried again. Reason and message of the condition.
    #[error("{message}")]
    Create { reason: &'static str, message: String },
}

impl PlanError {
    pub(crate) fn create(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Create { reason, message: message.into() }
    }
}

/// The requirements of a claim.
pub fn requirements_of(claim: &NodeClaim) -> Requirements {
    Requirements::from_api(&claim.spec.requirements)
}

/// Chooses types, capacity type, templates and overrides for one claim.
///
/// # Errors
/// See [`PlanError`].
pub fn plan(input: LaunchInput<'_>) -> Result<Plan, PlanError> {
    let LaunchInput { claim, class, types, settings, placement_group, .. } = input;
    let requirements = requirements_of(claim);
    let requests = &claim.spec.resources.requests;
    let selected = filters::select(types, &requirements, requests, settings.min_values_policy)?;
    let chosen = (input.subnets)(&selected);
    if chosen.is_empty() {
        return Err(PlanError::create(
            "SubnetResolutionFailed",
            "the EC2NodeClass has no subnets in its status",
        ));
    }
    let requested = |name: &str| !requests.get(name).is_zero();
    let wants_efa = requested(EFA);
    let partition = placement_group
        .filter(|it| it.strategy == "partition" && it.partition_count > 0)
        .and_then(|_| partition_of(&requirements));

    let surroundings = template::Surroundings {
        class,
        settings,
        capacity_type: selected.capacity_type,
        tenancy: selected.tenancy,
        placement_group: placement_group.map(|it| it.id.as_str()),
        partition,
        tags: input.tags,
        enclave: requested(NITRO_SANDBOX),
        wants_efa,
        ipv6: input.ipv6,
        render: input.render,
    };
    let groups = template::groups(
        class,
        &selected,
        wants_efa,
        settings.gates.node_class_cel,
        input.dropped,
    )?;
    let mut templates = BTreeMap::new();
    let mut configs: Vec<FleetConfig> = Vec::new();
    let mut reservations = BTreeMap::new();
    for group in &groups {
        let data = surroundings.template(group)?;
        let name = template::name(&data, class, selected.capacity_type);
        let mut overrides = Vec::new();
        let mut seen = BTreeSet::new();
        for it in selected.types.iter().filter(|it| group.types.contains(&it.name)) {
            for offering in &it.offerings {
                let fits_group = match (&group.reservation, &offering.reservation) {
                    (Some(wanted), Some(its)) => wanted.id == its.id,
                    (None, None) => true,
                    _ => false,
                };
                if !offering.available
                    || offering.capacity_type != selected.capacity_type
                    || !fits_group
                    || !allowed(offering, &requirements)
                {
                    continue;
                }
                let Some(subnet) = chosen.get(&offering.zone) else { continue };
                if !seen.insert((it.name.clone(), offering.zone.clone())) {
                    continue;
                }
                if let Some(its) = &offering.reservation {
                    reservations.insert(
                        format!("{}/{}", it.name, offering.zone),
                        ReservationFacts {
                            id: its.id.clone(),
                            type_: its.type_.clone(),
                            interruptible: its.interruptible,
                        },
                    );
                }
                overrides.push(FleetOverride {
                    instance_type: it.name.clone(),
                    subnet_id: subnet.clone(),
                    image_id: group.image.clone(),
                    zone: offering.zone.clone(),
                    // Unknown prices come last, never first.
                    priority: offering.price.unwrap_or(UNKNOWN_PRICE),
                });
            }
        }
        if !overrides.is_empty() {
            templates.insert(name.clone(), data);
            configs.push(FleetConfig { launch_template: name, overrides });
        }
    }
    cap_overrides(&mut configs);
    templates.retain(|name, _| configs.iter().any(|it| it.launch_template == *name));
    if configs.is_empty() {
        return Err(PlanError::create(
            "LaunchFailed",
            "no launch template has an offering in a zone with a subnet",
        ));
    }
    let zone_ids =
        class.status.subnets.iter().map(|it| (it.zone.clone(), it.zone_id.clone())).collect();
    let facts = PlanFacts {
        capacity_type: selected.capacity_type,
        tenancy: selected.tenancy.to_owned(),
        reservations,
        placement_group: placement_group.map(|it| it.id.clone()),
        has_partitions: placement_group.is_some_and(|it| it.strategy == "partition"),
        partition,
        efa: wants_efa || !class.spec.network_interfaces.is_empty(),
        zone_ids,
        types: selected.types.iter().map(|it| it.name.clone()).collect(),
        predicted: subnets::predicted(&selected),
    };
    let request = FleetRequest {
        target: 1,
        tags: input.tags.clone(),
        configs,
        ..fleet_options(claim, class, &selected)
    };
    Ok(Plan { selected, templates, request, subnets: chosen, facts })
}

/// Dollars per hour that no instance costs.
const UNKNOWN_PRICE: f64 = 1_000_000.0;

/// The partition that a claim asks for: the lowest of several.
///
/// DIFFERENCE: Karpenter takes the first in text order (10 before 2) for the template and any for the label.
fn partition_of(requirements: &Requirements) -> Option<i64> {
    let wanted = requirements.get(labels::PLACEMENT_GROUP_PARTITION)?;
    if wanted.complement {
        return None;
    }
    wanted.values.iter().filter_map(|it| it.parse().ok()).min()
}

/// Leaves out the dearest overrides beyond [`MAX_OVERRIDES`], and configs that are left with none.
fn cap_overrides(configs: &mut Vec<FleetConfig>) {
    let total: usize = configs.iter().map(|it| it.overrides.len()).sum();
    if total <= MAX_OVERRIDES {
        return;
    }
    let mut ranked: Vec<(usize, usize)> = configs
        .iter()
        .enumerate()
        .flat_map(|(at, config)| (0..config.overrides.len()).map(move |nth| (at, nth)))
        .collect();
    let of = |(at, nth): (usize, usize)| configs.get(at).and_then(|it| it.overrides.get(nth));
    ranked.sort_by(|a, b| match (of(*a), of(*b)) {
        (Some(a), Some(b)) => a
            .priority
            .total_cmp(&b.priority)
            .then_with(|| (&a.instance_type, &a.zone).cmp(&(&b.instance_type, &b.zone))),
        _ => a.cmp(b),
    });
    let kept: BTreeSet<(usize, usize)> = ranked.into_iter().take(MAX_OVERRIDES).collect();
    for (at, config) in configs.iter_mut().enumerate() {
        let mut nth = 0;
        config.overrides.retain(|_| {
            nth += 1;
            kept.contains(&(at, nth - 1))
        });
    }
    configs.retain(|it| !it.overrides.is_empty());
}

/// Context, capacity type and allocation strategies of the request (17).
fn fleet_options(claim: &NodeClaim, class: &EC2NodeClass, selected: &Selected) -> FleetRequest {
    let annotation = |key: &str| claim.metadata.annotation(key);
    let overlaid = annotation(labels::PRICE_OVERLAY_APPLIED).is_some();
    let relaxed = annotation(labels::MIN_VALUES_RELAXED) == Some("true");
    let mut request = FleetRequest {
        context: class.spec.context.clone().filter(|_| !relaxed),
        ..FleetRequest::default()
    };
    let reservation = selected
        .types
        .iter()
        .flat_map(|it| &it.offerings)
        .find_map(|it| it.reservation.as_ref().filter(|_| it.available));
    let on_demand = Some(if overlaid { "prioritized" } else { "lowest-price" }.to_owned());
    match (selected.capacity_type, reservation) {
        (CapacityType::Spot, _) => {
            request.capacity_type = "spot".to_owned();
            request.spot_allocation = Some(
                if overlaid {
                    "capacity-optimized-prioritized"
                } else {
                    "price-capacity-optimized"
                }
                .to_owned(),
            );
        }
        (CapacityType::Reserved, Some(it)) if it.type_ == "capacity-block" => {
            request.capacity_type = "capacity-block".to_owned();
        }
        (CapacityType::Reserved, Some(it)) if it.interruptible => {
            request.capacity_type = "reserved-capacity".to_owned();
            request.reservation_types = vec!["interruptible-capacity-reservation".to_owned()];
        }
        _ => {
            request.capacity_type = "on-demand".to_owned();
            request.on_demand_allocation = on_demand;
        }
    }
    request
}

/// Whether user data of this family needs the cluster's service range.
pub fn needs_service_cidr(class: &EC2NodeClass) -> bool {
    class.ami_family() == AmiFamily::Al2023
}
