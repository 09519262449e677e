//! The way of one pod in words. Only the pod that is to be explained pays for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

use spokeshave_model::{Quantity, Requirements, taints};

use crate::{
    bits::Bits,
    dims::Amounts,
    planner::one_node,
    ports::conflict,
    run::{Choices, Order, Run},
    shapes::ShapeId,
    templates::Template,
    topology::Rule,
    volumes::EBS,
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
            let is_order = claim < self.n_orders;
            let fit = if is_order {
                self.try_order(claim, shape, &mut choices)
            } else {
                self.try_claim(claim, shape, &mut choices)
            };
            if fit.is_some() {
                self.told(tried);
                self.steps.push(format!("{text}: takes it"));
                return;
            }
            tried.push((text, self.why_not_claim(claim, shape)));
        }
        self.told(tried);
        for template in 0..self.planner.templates.len() {
            let pool = self.planner.templates[template].pool.metadata.name.clone();
            let possible = !self.shapes[shape].impossible;
            let slots = self.new_slots(template, shape).filter(|_| possible);
            let Some((slots, joined)) = slots else {
                self.tell_refusal(template, shape, &pool);
                continue;
            };
            let requests = self.shapes[shape].requests.clone();
            let found =
                self.fit(template, shape, joined, &mut choices, &slots, requests, &[], true);
            match found {
                Some(Ok(fit)) => {
                    if let Some(wait) = self.held_back(template, fit.set, &fit.requests) {
                        self.steps.push(format!("new claim of pool {pool}: {}", wait.text));
                        continue;
                    }
                    let n_types = self.planner.templates[template].types_of(&fit.slots).len();
                    self.steps
                        .push(format!("new claim of pool {pool}: {n_types} instance types fit"));
                    return;
                }
                Some(Err(why)) => {
                    self.steps.push(format!("new claim of pool {pool}: waits: {why}"));
                    return;
                }
                None => self.tell_refusal(template, shape, &pool),
            }
        }
        for (pool, why) in &self.planner.skipped {
            self.steps.push(format!("new claim of pool {pool}: {}", why.text()));
        }
    }

    /// Why a pool makes no node for the pod, what each filter takes away, and what would make the pod fit.
    fn tell_refusal(&mut self, template: usize, shape: ShapeId, pool: &str) {
        let why = self.why_not(template, shape);
        self.steps.push(format!("new claim of pool {pool}: {why}"));
        let filters = self.filters(template, shape);
        self.steps.push(format!("pool {pool}: {filters}"));
        for remedy in self.remedies(template, shape) {
            self.steps.push(format!("pool {pool}: it would fit {remedy}"));
        }
    }

    /// How many instance types each filter leaves, in a row.
    fn filters(&mut self, template: usize, shape: ShapeId) -> String {
        let base = self.planner.templates[template].set;
        let joined = self.planner.sets.join(base, self.shapes[shape].set);
        let it = &mut self.planner.templates[template];
        let count = |slots: &Bits, it: &Template| it.types_of(slots).len();
        let mut slots = Bits::all(it.slots.len());
        let mut text = format!("{} instance types", count(&slots, it));
        if let Some(remaining) = &self.remaining[template] {
            it.keep_within(&mut slots, remaining);
            let _ = write!(text, ", limits leave {}", count(&slots, it));
        }
        let Some(joined) = joined else {
            text.push_str(", requirements leave 0");
            return text;
        };
        let requirements = Arc::clone(self.planner.sets.get(joined));
        slots.and(&it.meeting(&requirements));
        let _ = write!(text, ", requirements leave {}", count(&slots, it));
        slots.and(&it.offered(&requirements, &self.planner.sets));
        let _ = write!(text, ", offerings leave {}", count(&slots, it));
        slots.and(&it.base);
        it.keep_fitting(&mut slots, &self.shapes[shape].requests, &self.active);
        let n_volumes = self.shapes[shape].attachments.get(EBS).map_or(0, BTreeSet::len);
        it.keep_attachable(&mut slots, n_volumes);
        let n = if self.shapes[shape].impossible { 0 } else { count(&slots, it) };
        let _ = write!(text, ", requests leave {n}");
        text
    }

    /// Single changes after which the pool could make a node for the pod, as far as there are any.
    fn remedies(&mut self, template: usize, shape: ShapeId) -> Vec<String> {
        let mut remedies = Vec::new();
        let fits =
            |run: &mut Self, set: Requirements, requests: bool, limits: bool| -> Option<Bits> {
                let set = run.planner.sets.intern(set);
                let base = run.planner.templates[template].set;
                let joined = run.planner.sets.join(base, set)?;
                let it = &mut run.planner.templates[template];
                let mut slots = it.base.clone();
                if let Some(remaining) = run.remaining[template].as_ref().filter(|_| limits) {
                    let none_left = one_node(remaining).is_some_and(|it| it <= Quantity::ZERO);
                    if none_left {
                        return None;
                    }
                    it.keep_within(&mut slots, remaining);
                }
                slots.and(&it.left(joined, &run.planner.sets).slots);
                if requests {
                    it.keep_fitting(&mut slots, &run.shapes[shape].requests, &run.active);
                }
                (!slots.is_empty()).then_some(slots)
            };
        let wanted = (**self.planner.sets.get(self.shapes[shape].set)).clone();
        let tolerations = &self.shapes[shape].pod.spec.tolerations;
        let taints: Vec<String> = self.planner.templates[template]
            .taints
            .iter()
            .filter(|it| taints::untolerated(std::slice::from_ref(*it), tolerations).is_some())
            .map(ToString::to_string)
            .collect();
        let possible = !self.shapes[shape].impossible;
        if !taints.is_empty() {
            if possible && fits(self, wanted, true, true).is_some() {
                remedies.push(format!("with a toleration of {}", taints.join(" and ")));
            }
            return remedies;
        }
        if possible && fits(self, wanted.clone(), true, true).is_none() {
            if fits(self, wanted.clone(), true, false).is_some() {
                remedies.push("with higher limits of the NodePool".to_owned());
            }
            for requirement in wanted.iter() {
                let mut less = wanted.clone();
                less.remove(&requirement.key);
                if fits(self, less, true, true).is_some() {
                    remedies.push(format!("without {requirement}"));
                }
            }
        }
        let holding = fits(self, wanted.clone(), true, true);
        if (!possible || holding.is_none())
            && let Some(slots) = fits(self, wanted, false, true)
        {
            let most = self.most_room(template, &slots, shape);
            if !most.is_empty() {
                let most = most.join(", ");
                remedies
                    .push(format!("with requests of at most {most} (the most that a type leaves)"));
            }
        }
        if possible && holding.is_some() {
            remedies.extend(self.remedies_of_place(template, shape));
        }
        remedies
    }

    /// The same where types are left and it is volumes or topology that forbid them.
    fn remedies_of_place(&mut self, template: usize, shape: ShapeId) -> Vec<String> {
        let saved = self.shapes[shape].clone();
        let mut remedies = Vec::new();
        let groups: BTreeSet<usize> = saved
            .on_host
            .iter()
            .chain(saved.on_keys.iter().flat_map(|it| &it.groups))
            .copied()
            .collect();
        for group in groups.iter().filter(|it| saved.owned.contains(it)) {
            let less = &mut self.shapes[shape];
            // The pod's own anti-affinity keeps others away as well: both go with the term.
            let identity = &self.topology.groups[*group].identity;
            let like: BTreeSet<usize> = groups
                .iter()
                .filter(|it| self.topology.groups[**it].identity == *identity)
                .copied()
                .collect();
            less.on_host.retain(|it| !like.contains(it));
            less.on_keys.iter_mut().for_each(|it| it.groups.retain(|it| !like.contains(it)));
            less.on_keys.retain(|it| !it.groups.is_empty());
            if self.takes_new(template, shape) {
                remedies.push(format!("without {}", self.rule_text(*group)));
            }
            self.shapes[shape] = saved.clone();
        }
        if !saved.places.is_empty() {
            Arc::make_mut(&mut self.shapes[shape].wish).places.clear();
            if self.takes_new(template, shape) {
                remedies.push("if its volumes were where the pool makes nodes".to_owned());
            }
            self.shapes[shape] = saved;
        }
        remedies
    }

    /// Whether the pool would make a node for the pod as it stands now.
    fn takes_new(&mut self, template: usize, shape: ShapeId) -> bool {
        let host = self.planner.rows.len() + self.claims.len();
        if !self.host_allows(shape, host) || !self.placeholder_suits(shape) {
            return false;
        }
        let Some((slots, joined)) = self.new_slots(template, shape) else { return false };
        let requests = self.shapes[shape].requests.clone();
        let mut choices = Choices::new();
        self.fit(template, shape, joined, &mut choices, &slots, requests, &[], true).is_some()
    }

    /// `pod affinity on zone`, say.
    fn rule_text(&self, group: usize) -> String {
        let identity = &self.topology.groups[group].identity;
        let key = &self.planner.sets.key_of(identity.key).name;
        match identity.rule {
            Rule::Spread => format!("its topology spread over {key}"),
            Rule::Affinity => format!("its pod affinity on {key}"),
            Rule::AntiAffinity => format!("its pod anti-affinity on {key}"),
        }
    }

    /// The most that any of the types leaves of what the pod asks too much of.
    fn most_room(&self, template: usize, slots: &Bits, shape: ShapeId) -> Vec<String> {
        let it = &self.planner.templates[template];
        let asked = &self.shapes[shape].asked;
        let mut most = Vec::new();
        for (name, amount) in asked.iter().filter(|it| !it.1.is_zero()) {
            let room = slots
                .iter()
                .map(|at| {
                    let slot = &it.slots[at];
                    let of = it.types[slot.type_at].allocatable().get(name);
                    let overhead = it.daemon_groups[slot.daemon_group].overhead.get(name);
                    let left = of.nanos() - overhead.nanos();
                    Quantity::from_nanos(left.max(0), of.format())
                })
                .max();
            if let Some(room) = room.filter(|room| *room < amount) {
                most.push(format!("{name} {room}"));
            }
        }
        most
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
        if it.impossible || !self.room_for(row, shape) {
            return Some(self.missing_room(row, shape));
        }
        let added = self.added_ports.get(&row).map_or(&[][..], Vec::as_slice);
        if let Some(taken) = it.ports.iter().find(|wanted| {
            let one = std::slice::from_ref(*wanted);
            conflict(one, &this.ports) || conflict(one, added)
        }) {
            return Some(format!("host port {taken} is taken"));
        }
        let labels = self.planner.sets.get(this.set);
        if let Err(why) = labels.compatible(self.planner.sets.get(it.set), |_| false) {
            return Some(why.to_string());
        }
        if it.host.as_ref().is_some_and(|host| !host.has(this.host_name())) {
            return Some("is another host than it asks for".to_owned());
        }
        let (set, host) = (this.set, this.host);
        let places = &it.places;
        if !places.is_empty()
            && !places.iter().any(|place| {
                place.host.as_ref().is_none_or(|it| it.has(this.host_name()))
                    && self.planner.sets.carries(set, place.set)
            })
        {
            return Some("its volumes are elsewhere".to_owned());
        }
        if !self.host_allows(shape, host) {
            return Some(self.topology_text(shape, set));
        }
        let mut choices = smallvec::SmallVec::new();
        if self.row_takes(row, shape, &mut choices) {
            return None;
        }
        if choices.iter().any(|it| !it.1) {
            return Some(self.topology_text(shape, set));
        }
        Some(self.missing_attachments(row, shape))
    }

    /// Of what a node has too little left.
    fn missing_room(&self, row: usize, shape: ShapeId) -> String {
        let filled = if self.filled.get(row) { self.rooms.get(&row) } else { None };
        let room = filled.unwrap_or(&self.planner.rows.get(row).room);
        let asked = &self.shapes[shape].asked;
        let short: Vec<String> = asked
            .iter()
            .filter_map(|(name, amount)| {
                let left = self.planner.dims.get(name).map_or(0, |dim| room[dim]);
                let left = Quantity::from_nanos(left.max(0), amount.format());
                (left < amount).then(|| format!("{name} {amount} of {left}"))
            })
            .collect();
        if short.is_empty() {
            return "not enough room".to_owned();
        }
        format!("not enough room: asks for {}", short.join(", "))
    }

    /// The driver that attaches no more volumes to a node.
    fn missing_attachments(&self, row: usize, shape: ShapeId) -> String {
        let none = BTreeSet::new();
        let full = self.attached.get(&row).and_then(|(held, limits)| {
            self.shapes[shape].attachments.iter().find_map(|(driver, wanted)| {
                let held = held.get(driver).unwrap_or(&none);
                let (limit, added) = (limits.get(driver)?, wanted.difference(held).count());
                (added > 0 && held.len() + added > *limit).then(|| {
                    format!(
                        "{driver} attaches at most {limit} volumes: {} are there, and {added} would come",
                        held.len()
                    )
                })
            })
        });
        full.unwrap_or_else(|| "its volumes cannot be attached".to_owned())
    }

    fn why_not_claim(&mut self, claim: usize, shape: ShapeId) -> String {
        let (template, base) = (self.claims[claim].template, self.claims[claim].set);
        let tolerations = &self.shapes[shape].pod.spec.tolerations;
        if let Some(taint) = taints::untolerated(&self.claims[claim].taints, tolerations) {
            return format!("did not tolerate taint {taint}");
        }
        if let Some(why) = self.planner.sets.why_not_joined(base, self.shapes[shape].set) {
            return why.to_string();
        }
        if !self.host_allows(shape, self.claims[claim].host) {
            return self.topology_text(shape, base);
        }
        let mut requests = self.claims[claim].requests.clone();
        for dim in &self.active {
            requests[*dim] += self.shapes[shape].requests[*dim];
        }
        if let Some(Order { asked: Some(asked), .. }) = &self.claims[claim].ordered {
            return if requests.iter().zip(asked).any(|(wanted, room)| wanted > room) {
                "none of its instance types is on sale now, and it was ordered for less".to_owned()
            } else {
                "the order cannot be narrowed any more".to_owned()
            };
        }
        let mut slots = self.claims[claim].slots.clone();
        self.planner.templates[template].keep_fitting(&mut slots, &requests, &self.active);
        if slots.is_empty() {
            return "no instance type has room for it, too".to_owned();
        }
        if self.claims[claim].ordered.is_some() {
            return "the order cannot be narrowed any more".to_owned();
        }
        self.why_not_narrowed(claim, shape, slots, requests)
    }

    /// Why a claim that has room and suits in every other way is not narrowed for the pod.
    fn why_not_narrowed(
        &mut self,
        claim: usize,
        shape: ShapeId,
        mut slots: Bits,
        requests: Amounts,
    ) -> String {
        let (template, base) = (self.claims[claim].template, self.claims[claim].set);
        let held = self.claims[claim].held.clone();
        self.without_conflicts(template, shape, &self.claims[claim].ports, &mut slots);
        if slots.is_empty() {
            return "a host port is taken".to_owned();
        }
        if let Some(volumes) = self.shapes[shape].attachments.get(EBS) {
            let there = &self.claims[claim].volumes;
            let n_volumes = there.len() + volumes.difference(there).count();
            self.planner.templates[template].keep_attachable(&mut slots, n_volumes);
            if slots.is_empty() {
                return format!("no instance type attaches {n_volumes} volumes");
            }
        }
        let Some(joined) = self.planner.sets.join(base, self.shapes[shape].set) else {
            return "its requirements do not suit".to_owned();
        };
        let places = self.shapes[shape].places.clone();
        let mut suiting = places.iter().filter_map(|place| {
            let free = place.host.as_ref().is_none_or(crate::daemons::absence);
            self.planner.sets.join(joined, place.set).filter(|_| free)
        });
        let with_volumes = if places.is_empty() { Some(joined) } else { suiting.next() };
        let Some(with_volumes) = with_volumes else {
            return "its volumes are elsewhere".to_owned();
        };
        let mut choices = Choices::new();
        if self.choose(with_volumes, shape, &mut choices).is_none()
            || !self.narrowing_allows(claim, shape, joined)
        {
            return self.topology_text(shape, with_volumes);
        }
        match self.fit(template, shape, joined, &mut choices, &slots, requests, &held, false) {
            Some(Err(why)) => why,
            Some(Ok(_)) => "it would become a claim for which capacity is short".to_owned(),
            None => "no instance type is left with it, too".to_owned(),
        }
    }
}
