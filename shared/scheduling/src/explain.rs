//! The way of one pod in words. Only the pod that is to be explained pays for it.

use std::collections::BTreeMap;

use spokeshave_model::taints;

use crate::{
    ports::conflict,
    run::{Choices, Run},
    shapes::ShapeId,
};

/// Places named one by one; more of them are counted by reason.
const NAMED: usize = 12;

/// What to do about taints that keep pods off nodes only while those start.
pub const START_UP_HINT: &str =
    "if the taint goes away while nodes start, list it in startupTaints of the NodePool";

impl Run<'_, '_> {
    /// Nodes that still start and keep a pod of a new claim away by a taint alone, with the taint: each may be a node too
    /// many, which `startupTaints` would have saved.
    pub(crate) fn start_up_taints(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let new = self.claims.iter().filter(|it| it.ordered.is_none()).flat_map(|it| &it.pods);
        let mut shapes: Vec<ShapeId> = new.map(|at| self.entries[*at].shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        for row in self.planner.rows.iter() {
            if row.initialized || !row.state.is_managed() || !self.offered.get(row.at) {
                continue;
            }
            let kept = shapes.iter().find_map(|shape| {
                let tolerations = &self.shapes[*shape].pod.spec.tolerations;
                let taint = taints::untolerated(&row.taints, tolerations)?;
                self.room_for(row.at, *shape).then(|| taint.to_string())
            });
            if let Some(taint) = kept {
                found.insert(row.state.name().to_owned(), taint);
            }
        }
        found
    }

    /// Notes what stands between a pod of this shape and each place, in the order in which they are tried.
    pub(crate) fn tell(&mut self, shape: ShapeId) {
        let wanted = self.planner.sets.get(self.shapes[shape].set).to_string();
        let wanted = if wanted.is_empty() { "anything".to_owned() } else { wanted };
        self.steps.push(format!("asks for {wanted}"));
        if let Some(refusal) = self.shapes[shape].refusal.clone() {
            self.steps.push(refusal);
            return;
        }
        let mut tried = Vec::new();
        for row in 0..self.planner.rows.len() {
            let name = self.planner.rows.get(row).state.name().to_owned();
            match self.why_not_row(row, shape) {
                Some(why) => tried.push((format!("existing node {name}"), why)),
                None => {
                    self.told(tried);
                    self.steps.push(format!("existing node {name}: takes it"));
                    return;
                }
            }
        }
        let mut choices = Choices::new();
        let open: Vec<usize> =
            (0..self.n_orders).chain(self.open.values().copied().collect::<Vec<_>>()).collect();
        for claim in open {
            let text = self.claim_text(claim);
            if self.try_claim(claim, shape, &mut choices).is_some() {
                self.told(tried);
                self.steps.push(format!("{text}: takes it"));
                return;
            }
            tried.push((text, self.why_not_claim(claim, shape)));
        }
        self.told(tried);
        for template in 0..self.planner.templates.len() {
            let pool = self.planner.templates[template].pool.metadata.name.clone();
            let Some((slots, joined)) = self.new_slots(template, shape) else {
                let why = self.why_not(template, shape);
                self.steps.push(format!("new claim of pool {pool}: {why}"));
                continue;
            };
            let requests = self.shapes[shape].requests.clone();
            let found =
                self.fit(template, shape, joined, &mut choices, &slots, requests, &[], true);
            match found {
                Some(Ok(fit)) => {
                    let n_types = self.planner.templates[template].types_of(&fit.slots).len();
                    self.steps
                        .push(format!("new claim of pool {pool}: {n_types} instance types fit"));
                    return;
                }
                Some(Err(why)) => {
                    self.steps.push(format!("new claim of pool {pool}: waits: {why}"));
                    return;
                }
                None => {
                    let why = self.why_not(template, shape);
                    self.steps.push(format!("new claim of pool {pool}: {why}"));
                }
            }
        }
    }

    /// Notes the places that do not do: the first ones by name, the rest by reason.
    fn told(&mut self, tried: Vec<(String, String)>) {
        let mut rest: BTreeMap<String, usize> = BTreeMap::new();
        for (at, (place, why)) in tried.into_iter().enumerate() {
            if at < NAMED {
                self.steps.push(format!("{place}: {why}"));
            } else {
                *rest.entry(why).or_default() += 1;
            }
        }
        for (why, n) in rest {
            self.steps.push(format!("{n} more: {why}"));
        }
    }

    fn why_not_row(&mut self, row: usize, shape: ShapeId) -> Option<String> {
        let it = &self.shapes[shape];
        let this = self.planner.rows.get(row);
        if !self.offered.get(row) {
            return Some(if this.overcommitted {
                "more is promised than it has".to_owned()
            } else {
                "is going away".to_owned()
            });
        }
        if let Some(taint) = taints::untolerated(&this.taints, &it.pod.spec.tolerations) {
            let why = format!("did not tolerate taint {taint}");
            if this.state.is_managed() && !this.initialized {
                return Some(format!("{why}; {START_UP_HINT}"));
            }
            return Some(why);
        }
        if !self.room_for(row, shape) {
            return Some("not enough room".to_owned());
        }
        if !it.ports.is_empty()
            && (conflict(&it.ports, &this.ports)
                || self.added_ports.get(&row).is_some_and(|held| conflict(&it.ports, held)))
        {
            return Some("a host port is taken".to_owned());
        }
        let labels = self.planner.sets.get(this.set);
        if let Err(why) = labels.compatible(self.planner.sets.get(it.set), |_| false) {
            return Some(why.to_string());
        }
        if it.host.as_ref().is_some_and(|host| !host.has(this.host_name())) {
            return Some("is another host than it asks for".to_owned());
        }
        let mut choices = smallvec::SmallVec::new();
        (!self.row_takes(row, shape, &mut choices))
            .then(|| "topology or volumes do not allow it".to_owned())
    }

    fn why_not_claim(&mut self, claim: usize, shape: ShapeId) -> String {
        let (template, base) = (self.claims[claim].template, self.claims[claim].set);
        if !self.tolerates(template, shape) {
            return "did not tolerate its taints".to_owned();
        }
        if let Some(why) = self.planner.sets.why_not_joined(base, self.shapes[shape].set) {
            return why.to_string();
        }
        if !self.host_allows(shape, self.claims[claim].host) {
            return "topology does not allow its host".to_owned();
        }
        let mut requests = self.claims[claim].requests.clone();
        for dim in &self.active {
            requests[*dim] += self.shapes[shape].requests[*dim];
        }
        let mut slots = self.claims[claim].slots.clone();
        self.planner.templates[template].keep_fitting(&mut slots, &requests, &self.active);
        if slots.is_empty() {
            return "no instance type has room for it, too".to_owned();
        }
        if self.claims[claim].ordered.is_some() {
            return "the order cannot be narrowed any more".to_owned();
        }
        "topology, volumes, ports or reservations do not allow it".to_owned()
    }
}
