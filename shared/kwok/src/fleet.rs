//! What a fleet request gets: the cheapest offer that is not sold out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use spokeshave_catalog::Catalog;
use spokeshave_model::InstanceId;
use spokeshave_ports::ec2::{
    FleetAnswer, FleetError, FleetInstances, FleetOverride, FleetRequest, Instance,
    LaunchTemplateData,
};

use crate::Profile;

/// Tag of an instance: when its Node appears.
pub(crate) const JOINS: &str = "spokeshave.dev/kwok-joins";

/// The answer to a fleet request and the instances in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Fleet {
    pub request: FleetRequest,
    pub answer: FleetAnswer,
    pub instances: Vec<Instance>,
}

/// What a fleet is made of besides its request.
pub(crate) struct Surroundings<'a> {
    pub catalog: &'a Catalog,
    pub profile: &'a Profile,
    /// Templates by name.
    pub templates: &'a BTreeMap<String, LaunchTemplateData>,
    /// Instances left by reservation id.
    pub left: BTreeMap<String, i64>,
    pub now: Timestamp,
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The `n`-th instance of a token: a repeat that finds nothing written down makes the same ones.
fn id(token: &str, n: i64) -> InstanceId {
    let hash = hash(&format!("{token}/{n}"));
    InstanceId(format!("i-{}", hash.get(..17).unwrap_or_default()))
}

impl Surroundings<'_> {
    fn price(&self, capacity_type: &str, offer: &FleetOverride) -> f64 {
        let name = offer.instance_type.as_str();
        let known = match capacity_type {
            "spot" => self.catalog.spot_price(name, &offer.zone),
            _ => self.catalog.on_demand.get(name).copied(),
        };
        // Types given in the plain form have their prices in their offerings, which the caller knows.
        known.unwrap_or(if self.catalog.fixed.is_empty() { f64::MAX } else { offer.priority })
    }

    /// Deals out the request. The same surroundings give the same fleet.
    pub fn fleet(mut self, request: &FleetRequest) -> Fleet {
        let market = if request.capacity_type == "spot" { "spot" } else { "on-demand" };
        let mut offers: Vec<(f64, &FleetOverride, &LaunchTemplateData)> = Vec::new();
        for config in &request.configs {
            let Some(template) = self.templates.get(&config.launch_template) else { continue };
            offers.extend(config.overrides.iter().map(|it| (self.price(market, it), it, template)));
        }
        offers.sort_by(|a, b| {
            let place = |it: &FleetOverride| (it.instance_type.clone(), it.zone.clone());
            a.0.total_cmp(&b.0).then_with(|| place(a.1).cmp(&place(b.1)))
        });
        let mut fleet = Fleet { request: request.clone(), ..Fleet::default() };
        fleet.answer.fleet_id = format!("fleet-{}", id(&request.client_token, -1).0);
        for (_, offer, template) in offers {
            let reservation = template.reservation_id.as_deref();
            let capacity_type = if reservation.is_some() { "reserved" } else { market };
            let wanted = request.target - fleet.instances.len() as i64;
            if wanted <= 0 {
                break;
            }
            let sold_out = self.profile.short.iter().any(|it| it.covers(capacity_type, offer));
            let left = reservation.map(|id| self.left.get(id).copied().unwrap_or(0).max(0));
            let count = if sold_out { 0 } else { wanted.min(left.unwrap_or(wanted)) };
            if count < wanted {
                fleet.answer.errors.push(refused(reservation.is_some(), offer));
            }
            if count == 0 {
                continue;
            }
            if let Some(id) = reservation {
                *self.left.entry(id.to_owned()).or_default() -= count;
            }
            let first = fleet.instances.len() as i64;
            let made: Vec<Instance> = (first..first + count)
                .map(|n| self.instance(id(&request.client_token, n), request, offer, template))
                .collect();
            fleet.answer.instances.push(FleetInstances {
                ids: made.iter().map(|it| it.id.clone()).collect(),
                instance_type: offer.instance_type.clone(),
                zone: offer.zone.clone(),
                subnet_id: offer.subnet_id.clone(),
                image_id: offer.image_id.clone(),
                spot: capacity_type == "spot",
            });
            fleet.instances.extend(made);
        }
        fleet
    }

    fn instance(
        &self,
        id: InstanceId,
        request: &FleetRequest,
        offer: &FleetOverride,
        template: &LaunchTemplateData,
    ) -> Instance {
        let joins = self.now.saturating_add(self.profile.join).unwrap_or(self.now);
        let mut tags = request.tags.clone();
        tags.insert(JOINS.to_owned(), joins.to_string());
        let efa = |it: &Option<String>| it.as_deref().is_some_and(|kind| kind.starts_with("efa"));
        Instance {
            private_dns_name: format!("kwok-{id}"),
            id,
            instance_type: offer.instance_type.clone(),
            image_id: offer.image_id.clone(),
            zone: offer.zone.clone(),
            subnet_id: offer.subnet_id.clone(),
            security_groups: template
                .network_interfaces
                .first()
                .map(|it| it.groups.clone())
                .unwrap_or_default(),
            state: "running".into(),
            launch_time: Some(self.now),
            spot: request.capacity_type == "spot",
            capacity_reservation_id: template.reservation_id.clone().unwrap_or_default(),
            capacity_reservation_type: match template.market_type.as_deref() {
                Some("capacity-block") => "capacity-block".into(),
                _ => String::new(),
            },
            capacity_reservation_preference: template
                .reservation_preference
                .clone()
                .unwrap_or_default(),
            interruptible_reservation: template.market_type.as_deref()
                == Some("interruptible-capacity-reservation"),
            tenancy: template.tenancy.clone(),
            placement_group_id: template.placement_group_id.clone().unwrap_or_default(),
            partition: template.partition,
            efa_enabled: template.network_interfaces.iter().any(|it| efa(&it.interface_type)),
            tags,
        }
    }
}

fn refused(reserved: bool, offer: &FleetOverride) -> FleetError {
    let code =
        if reserved { "ReservationCapacityExceeded" } else { "InsufficientInstanceCapacity" };
    FleetError {
        code: code.to_owned(),
        message: format!("no {} left in {} (made up)", offer.instance_type, offer.zone),
        instance_type: offer.instance_type.clone(),
        zone: offer.zone.clone(),
        subnet_id: offer.subnet_id.clone(),
    }
}
