//! One subnet per zone, and counting the addresses of launches in flight (`spec` aws-capacity 9.3).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use spokeshave_model::{EC2NodeClass, resources::PODS};

use super::Selected;

/// Free addresses of subnets as EC2 told, less what launches since then may take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FreeAddresses {
    pub read_at: Option<Timestamp>,
    /// By subnet id. A missing one counts as 0.
    pub free: BTreeMap<String, i64>,
    /// What remains after deductions, for subnets that launches were sent to.
    pub in_flight: BTreeMap<String, i64>,
}

impl FreeAddresses {
    /// Whether the numbers still count: they are read again after 5 minutes, or later where subnets are.
    pub fn is_fresh(&self, subnet_refresh: SignedDuration, now: Timestamp) -> bool {
        let lifetime =
            SignedDuration::from_mins(5).max(subnet_refresh + SignedDuration::from_mins(4));
        self.read_at.is_some_and(|at| now.duration_since(at) < lifetime)
    }

    /// What EC2 told; deductions of these subnets are forgotten.
    pub fn set(&mut self, read: impl IntoIterator<Item = (String, i64)>, now: Timestamp) {
        for (subnet, free) in read {
            self.in_flight.remove(&subnet);
            self.free.insert(subnet, free);
        }
        self.read_at = Some(now);
    }

    fn remaining(&self, subnet: &str) -> i64 {
        let free = || self.free.get(subnet).copied().unwrap_or(0);
        self.in_flight.get(subnet).copied().unwrap_or_else(free)
    }

    /// The subnet with most addresses left in each zone; the earlier one in status order of equals.
    pub fn choose(&self, class: &EC2NodeClass) -> BTreeMap<String, String> {
        let mut chosen: BTreeMap<String, String> = BTreeMap::new();
        for subnet in &class.status.subnets {
            let better = chosen
                .get(&subnet.zone)
                .is_none_or(|known| self.remaining(&subnet.id) > self.remaining(known));
            if better {
                chosen.insert(subnet.zone.clone(), subnet.id.clone());
            }
        }
        chosen
    }

    /// Takes the addresses that `count` instances may use from every chosen subnet.
    pub fn deduct(
        &mut self,
        chosen: &BTreeMap<String, String>,
        predicted: &BTreeMap<String, i64>,
        count: i64,
    ) {
        for (zone, subnet) in chosen {
            let by = predicted.get(zone).copied().unwrap_or(0).saturating_mul(count);
            let remaining = self.remaining(subnet).saturating_sub(by);
            self.in_flight.insert(subnet.clone(), remaining);
        }
    }

    /// Gives back what was taken from the chosen subnets that got no instance. `before` is the state in which they were
    /// chosen: a subnet that has been read since is left alone.
    pub fn give_back(
        &mut self,
        before: &Self,
        chosen: &BTreeMap<String, String>,
        predicted: &BTreeMap<String, i64>,
        count: i64,
        used: impl Fn(&str) -> i64,
    ) {
        for (zone, subnet) in chosen {
            let by = predicted.get(zone).copied().unwrap_or(0);
            let unused = count.saturating_sub(used(subnet)).max(0);
            if before.free.get(subnet) == self.free.get(subnet)
                && let Some(remaining) = self.in_flight.get_mut(subnet)
            {
                *remaining = remaining.saturating_add(by.saturating_mul(unused));
            }
        }
    }

    /// EC2 says that the subnet is full.
    pub fn exhausted(&mut self, subnet: &str) {
        self.free.insert(subnet.to_owned(), 0);
        self.in_flight.remove(subnet);
    }
}

/// The least pods of any candidate by zone: every pod may take an address, and the smallest type is the least that will
/// be used.
pub fn predicted(selected: &Selected) -> BTreeMap<String, i64> {
    let mut least: BTreeMap<String, i64> = BTreeMap::new();
    for it in &selected.types {
        let pods = it.capacity.get(PODS).value();
        for offering in &it.offerings {
            if offering.available && offering.capacity_type == selected.capacity_type {
                let known = least.entry(offering.zone.clone()).or_insert(pods);
                *known = (*known).min(pods);
            }
        }
    }
    least
}
