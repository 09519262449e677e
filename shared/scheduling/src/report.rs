//! From the end of a solve to its answer: claims as they will be written, and reasons in words.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use spokeshave_model::{
    CapacityType, InstanceType, Kind, Operator, Requirement, Requirements, Resources, labels,
    requirements::Incompatible,
    resources::{CPU, NODES},
    settings::MinValuesPolicy,
    taints,
};

use crate::{
    bits::Bits,
    planner::one_node,
    requests::pod_requests,
    run::{Choices, Claim, Order, Run},
    sets::SetId,
    shapes::ShapeId,
    solution::{Cheapest, ExistingPlacement, PlannedClaim, Reason, Solution, json},
    templates::{Priced, Skipped},
    trial::is_simulated,
    volumes::EBS,
};

/// Types on one claim at most. Source: Karpenter after 1.14.
pub const MAX_INSTANCE_TYPES: usize = 600;
/// The pods' reason when the cut to [`MAX_INSTANCE_TYPES`] breaks `minValues`.
pub const MIN_VALUES_AFTER_CUT: &str =
    "pod didn\u{2019}t schedule because NodePool couldn\u{2019}t meet minValues requirements";
/// The pods' reason when there is no pool at all.
pub const NO_POOLS: &str = "no dynamic nodepools found";
/// The pods' reason when pools are there and none has a type.
pub const ALL_FILTERED: &str = "nodepool requirements filtered out all available instance types";
/// Requests of a million cpu are taken for a slip.
const MILLION_CPU: i64 = 1_000_000;

/// What claims of one template, with the same requirements and types left, can be launched as.
#[derive(Clone, Debug)]
pub(crate) struct Launchable {
    types: Arc<[Arc<InstanceType>]>,
    capacity_types: Vec<CapacityType>,
    cheapest: Option<Cheapest>,
    overhead: Resources,
    /// The cut to [`MAX_INSTANCE_TYPES`] leaves fewer values than `minValues` asks for.
    short: bool,
}

impl Run<'_, '_> {
    pub(crate) fn report(
        mut self,
        queue: &VecDeque<usize>,
        deferred: &BTreeMap<usize, String>,
        reached: &[bool],
    ) -> Solution {
        let mut solution = Solution {
            skipped_pools: self.planner.skipped.clone(),
            no_pools: !self.planner.has_pools(),
            pending_by_zone: self.zones(),
            start_up_taints: self.start_up_taints(),
            ..Solution::default()
        };
        let mut reasons: FxHashMap<ShapeId, Reason> = FxHashMap::default();
        for at in queue {
            let key = self.entries[*at].pod.key();
            if !reached[*at] {
                solution.unreached.push(key);
            } else if let Some(why) = deferred.get(at) {
                if let Some(until) = self.waiting.get(at) {
                    solution.waiting.insert(key.clone(), *until);
                }
                solution.deferred.insert(key, why.clone());
            } else {
                let shape = self.entries[*at].shape;
                let reason = match reasons.get(&shape) {
                    Some(known) => known.clone(),
                    None => {
                        let found = self.reason(shape);
                        reasons.insert(shape, found.clone());
                        found
                    }
                };
                if self.explained == Some(*at) {
                    self.steps.push(format!("unschedulable: {}", reason.text));
                }
                solution.unschedulable.insert(key, reason);
            }
        }
        for (row, pods) in std::mem::take(&mut self.row_pods) {
            let state = &self.planner.rows.get(row).state;
            let mut placement = ExistingPlacement {
                name: if state.node.is_some() { state.node_name() } else { state.name() }
                    .to_owned(),
                claim: state.claim_name().to_owned(),
                node: state.node_name().to_owned(),
                initialized: state.is_initialized(),
                pods: Vec::new(),
            };
            for at in pods {
                let entry = &self.entries[at];
                if self.batch.refuse_uninitialized && !placement.initialized && !entry.displaced {
                    let text =
                        format!("would schedule against uninitialized {}", placement.reference());
                    let reason = Reason { uninitialized: true, ..Reason::plain(text) };
                    solution.unschedulable.insert(entry.pod.key(), reason);
                }
                placement.pods.push(Arc::clone(&entry.pod));
            }
            solution.existing.push(placement);
        }
        let untold = self.leaves_claims_untold();
        for claim in std::mem::take(&mut self.claims) {
            if untold && claim.ordered.is_none() {
                solution.untold_claims += 1;
                continue;
            }
            let pods = claim.pods.iter().map(|at| Arc::clone(&self.entries[*at].pod)).collect();
            if let Some(Order { claim: order, .. }) = &claim.ordered {
                let placement = ExistingPlacement {
                    name: order.metadata.name.clone(),
                    claim: order.metadata.name.clone(),
                    node: String::new(),
                    initialized: false,
                    pods,
                };
                if self.batch.refuse_uninitialized {
                    for at in claim.pods.iter().filter(|at| !self.entries[**at].displaced) {
                        let text = format!(
                            "would schedule against uninitialized {}",
                            placement.reference()
                        );
                        let reason = Reason { uninitialized: true, ..Reason::plain(text) };
                        solution.unschedulable.insert(self.entries[*at].pod.key(), reason);
                    }
                }
                if !placement.pods.is_empty() {
                    solution.existing.push(placement);
                }
                continue;
            }
            match self.planned(&claim, pods) {
                Ok(planned) => solution.new_claims.push(planned),
                Err((pool, pods)) => {
                    for pod in pods {
                        let mut reason = Reason::plain(MIN_VALUES_AFTER_CUT);
                        reason.pools.insert(pool.clone(), MIN_VALUES_AFTER_CUT.to_owned());
                        solution.unschedulable.insert(pod.key(), reason);
                    }
                }
            }
        }
        solution.steps = std::mem::take(&mut self.steps);
        solution
    }

    /// Whether the number of new claims is all that is asked for. Where the cut to [`MAX_INSTANCE_TYPES`] may refuse a claim,
    /// the number is known only once all are worked out.
    fn leaves_claims_untold(&self) -> bool {
        let is_cut = |at: usize| {
            let template = &self.planner.templates[at];
            template.has_min_values && template.types.len() > MAX_INSTANCE_TYPES
        };
        let mut new = self.claims.iter().filter(|it| it.ordered.is_none());
        self.batch.one_claim && new.clone().nth(1).is_some() && !new.any(|it| is_cut(it.template))
    }

    fn planned(
        &mut self,
        claim: &Claim,
        pods: Vec<Arc<spokeshave_model::core::Pod>>,
    ) -> Result<PlannedClaim, (String, Vec<Arc<spokeshave_model::core::Pod>>)> {
        let mut requirements = (**self.planner.sets.get(claim.set)).clone();
        let held: Vec<String> =
            claim.held.iter().map(|id| self.reservations[*id].0.clone()).collect();
        if !held.is_empty() {
            requirements.add(Requirement::equals(labels::CAPACITY_TYPE, "reserved"));
            let ids = held.iter().map(String::as_str);
            requirements.add(Requirement::new(labels::CAPACITY_RESERVATION_ID, Operator::In, ids));
        }
        let launchable = self.launchable(claim, &requirements);
        let template = &self.planner.templates[claim.template];
        if launchable.short {
            return Err((template.pool.metadata.name.clone(), pods));
        }
        let mut requests = Resources::new();
        for at in &claim.pods {
            requests.add(&self.shapes[self.entries[*at].shape].asked);
        }
        requests.add(&launchable.overhead);
        Ok(PlannedClaim {
            nodepool: Arc::clone(&template.pool),
            hash: template.hash.clone(),
            requirements,
            instance_types: Arc::clone(&launchable.types),
            capacity_types: launchable.capacity_types.clone(),
            pods,
            requests,
            min_values_relaxed: claim.min_values_relaxed,
            wanted: Arc::clone(self.planner.sets.get(claim.set)),
            extended: self.extended(&claim.requests).map(str::to_owned).collect(),
            reservations: held,
            cheapest: launchable.cheapest.clone(),
        })
    }

    /// What the claim, of these requirements, can be launched as.
    fn launchable(&mut self, claim: &Claim, requirements: &Requirements) -> Arc<Launchable> {
        let question = (claim.template, claim.set, claim.held.clone(), claim.slots.clone());
        if let Some(known) = self.planner.launchables.get(&question) {
            return Arc::clone(known);
        }
        let made = Arc::new(self.make_launchable(claim, requirements));
        self.planner.launchables.insert(question, Arc::clone(&made));
        made
    }

    fn make_launchable(&mut self, claim: &Claim, requirements: &Requirements) -> Launchable {
        let template = &self.planner.templates[claim.template];
        let question = (claim.template, claim.set, claim.held.clone());
        let order = if template.has_overrides() {
            // The cheapest offering of a type may be one of those that do not hold the pods.
            Arc::new(template.by_price(requirements, &claim.slots, &self.planner.sets))
        } else if let Some(known) = self.planner.price_orders.get(&question) {
            Arc::clone(known)
        } else {
            let all = Bits::all(template.slots.len());
            let found = Arc::new(template.by_price(requirements, &all, &self.planner.sets));
            self.planner.price_orders.insert(question, Arc::clone(&found));
            found
        };
        let mut there = vec![false; template.types.len()];
        for slot in claim.slots.iter() {
            there[template.slots[slot].type_at] = true;
        }
        let mut priced = order.iter().filter(|it| there[it.type_at]);
        let listed: Vec<Priced> = priced.by_ref().take(MAX_INSTANCE_TYPES).copied().collect();
        let cut = priced.next().is_some();
        let short = cut
            && self.planner.options.min_values_policy == MinValuesPolicy::Strict
            && requirements.iter().any(|it| {
                it.min_values.is_some_and(|least| {
                    let values: BTreeSet<&str> = listed
                        .iter()
                        .filter_map(|listed| {
                            template.types[listed.type_at].requirements.get(&it.key)
                        })
                        .filter(|it| !it.complement)
                        .flat_map(|it| it.values.iter().map(String::as_str))
                        .collect();
                    i64::try_from(values.len()).unwrap_or(i64::MAX) < i64::from(least)
                })
            });
        let cheapest = listed.first().and_then(|first| {
            let type_ = &template.types[first.type_at];
            let offering = type_.offerings.get(first.offering?)?;
            Some(Cheapest {
                instance_type: type_.name.clone(),
                zone: offering.zone.clone(),
                capacity_type: offering.capacity_type,
                price: offering.price,
            })
        });
        Launchable {
            types: listed.iter().map(|it| Arc::clone(&template.types[it.type_at])).collect(),
            capacity_types: template.capacity_types(
                requirements,
                &claim.slots,
                &listed,
                &self.planner.sets,
            ),
            cheapest,
            overhead: template.least_overhead(&claim.slots),
            short,
        }
    }

    /// Why a pod of this shape has no place, with everything that it could give up given up.
    fn reason(&mut self, shape: ShapeId) -> Reason {
        if let Some(refusal) = &self.shapes[shape].refusal {
            return Reason::plain(refusal.clone());
        }
        if self.planner.pools.is_empty() {
            let mut reason = Reason::plain(NO_POOLS);
            reason.pools = self.skipped();
            return reason;
        }
        let mut last = shape;
        while let Some(next) = self.next_shape(last, shape) {
            last = next;
        }
        self.refresh(last);
        let mut reason = Reason::default();
        let mut texts = Vec::new();
        for template in 0..self.planner.templates.len() {
            let name = self.planner.templates[template].pool.metadata.name.clone();
            let text = self.why_not(template, last);
            texts.push(text.clone());
            reason.pools.insert(name, text);
        }
        for (pool, why) in &self.planner.skipped {
            if matches!(why, Skipped::NoCatalog(_)) {
                texts.push(why.text());
            }
            reason.pools.insert(pool.clone(), why.text());
        }
        if texts.is_empty() {
            texts.push(ALL_FILTERED.to_owned());
        }
        reason.text = texts.join("; ");
        reason
    }

    fn skipped(&self) -> BTreeMap<String, String> {
        self.planner.skipped.iter().map(|(pool, why)| (pool.clone(), why.text())).collect()
    }

    pub(crate) fn why_not(&mut self, template: usize, shape: ShapeId) -> String {
        let remaining = self.remaining[template].clone();
        let mut slots = self.planner.templates[template].base.clone();
        let scope = {
            let it = &self.planner.templates[template];
            let mut scope = Bits::all(it.slots.len());
            if let Some(remaining) = &remaining {
                if one_node(remaining).is_some_and(spokeshave_model::Quantity::is_zero) {
                    return "node limits have been exhausted for nodepool".to_owned();
                }
                it.keep_within(&mut slots, remaining);
                it.keep_within(&mut scope, remaining);
                let over = remaining.get(NODES).is_negative();
                if scope.is_empty() || over {
                    return "all available instance types exceed limits for nodepool".to_owned();
                }
            }
            scope
        };
        let tolerations = &self.shapes[shape].pod.spec.tolerations;
        if let Some(taint) =
            taints::untolerated(&self.planner.templates[template].taints, tolerations)
        {
            return format!("did not tolerate taint {taint}");
        }
        if let Some(host) =
            self.shapes[shape].host.clone().filter(|it| !crate::daemons::absence(it))
        {
            let base = Requirement::equals(labels::HOSTNAME, crate::run::PLACEHOLDER);
            return Incompatible::Disjoint {
                key: labels::HOSTNAME.to_owned(),
                incoming: Box::new(host),
                base: Box::new(base),
            }
            .to_string();
        }
        let base = self.planner.templates[template].set;
        let wanted = self.shapes[shape].set;
        let Some(joined) = self.planner.sets.join(base, wanted) else {
            return self
                .planner
                .sets
                .why_not_joined(base, wanted)
                .map_or_else(String::new, |it| it.to_string());
        };
        let places = self.shapes[shape].places.clone();
        let mut set = joined;
        if !places.is_empty() {
            let suits = places.iter().find_map(|place| {
                let joined = self.planner.sets.join(joined, place.set)?;
                place.host.as_ref().is_none_or(crate::daemons::absence).then_some(joined)
            });
            match suits {
                Some(with) => set = with,
                None => {
                    let why = places
                        .first()
                        .and_then(|it| self.planner.sets.why_not_joined(joined, it.set))
                        .map_or_else(
                            || "its volumes are on another host".to_owned(),
                            |it| it.to_string(),
                        );
                    return format!("{why} (where its volumes can be)");
                }
            }
        }
        let host = self.planner.rows.len() + self.claims.len();
        let mut choices = Choices::new();
        let chosen = if self.host_allows(shape, host) {
            let mut found = None;
            let n_places = places.len().max(1);
            for at in 0..n_places {
                let with = match places.get(at) {
                    Some(place) => self.planner.sets.join(joined, place.set),
                    None => Some(joined),
                };
                let Some(with) = with else { continue };
                found = self.choose(with, shape, &mut choices);
                if found.is_some() {
                    break;
                }
            }
            found
        } else {
            None
        };
        let Some(set) = chosen else {
            return self.topology_text(shape, set);
        };
        self.types_text(template, shape, set, &scope)
    }

    pub(crate) fn topology_text(&self, shape: ShapeId, set: SetId) -> String {
        let it = &self.shapes[shape];
        let groups = it.on_host.iter().chain(it.on_keys.iter().flat_map(|it| &it.groups));
        let mut texts: Vec<String> = groups
            .map(|at| {
                let group = &self.topology.groups[*at];
                let key = self.planner.sets.key_of(group.identity.key);
                let rule = match group.identity.rule {
                    crate::topology::Rule::Spread => "topology spread",
                    crate::topology::Rule::Affinity => "pod affinity",
                    crate::topology::Rule::AntiAffinity => "pod anti-affinity",
                };
                let of = |set: SetId| {
                    self.planner
                        .sets
                        .get(set)
                        .get(&key.name)
                        .map_or_else(|| format!("{} Exists", key.name), ToString::to_string)
                };
                format!(
                    "{rule}, key={} (counts = {}, podDomains = {}, nodeDomains = {})",
                    key.name,
                    group.counts_text(&self.planner.sets),
                    of(it.strict),
                    of(set),
                )
            })
            .collect();
        // A pod's own anti-affinity is there twice: it keeps away from others, and they from it.
        let mut seen = BTreeSet::new();
        texts.retain(|it| seen.insert(it.clone()));
        format!("unsatisfiable topology constraint for {}", texts.join("; "))
    }

    fn types_text(&mut self, template: usize, shape: ShapeId, set: SetId, scope: &Bits) -> String {
        let requirements = Arc::clone(self.planner.sets.get(set));
        let shape_requests = self.shapes[shape].requests.clone();
        let impossible = self.shapes[shape].impossible;
        let mut scope = scope.clone();
        self.without_conflicts(template, shape, &[], &mut scope);
        let it = &mut self.planner.templates[template];
        let mut meets = it.meeting(&requirements);
        meets.and(&scope);
        let mut offered = it.offered(&requirements, &self.planner.sets);
        offered.and(&scope);
        let mut fits = offered.clone();
        fits.and(&it.base);
        if impossible {
            fits = Bits::default();
        } else {
            let dims: Vec<usize> = (0..shape_requests.len()).collect();
            it.keep_fitting(&mut fits, &shape_requests, &dims);
            it.keep_attachable(
                &mut fits,
                self.shapes[shape].attachments.get(EBS).map_or(0, BTreeSet::len),
            );
        }
        let mut all = meets.clone();
        all.and(&fits);
        let pod = Arc::clone(&self.shapes[shape].pod);
        let it = &mut self.planner.templates[template];
        let short = if all.is_empty() {
            Vec::new()
        } else {
            it.short_of_values(set, &all, &self.planner.sets)
        };
        let (req, fit, off) = (!meets.is_empty(), !fits.is_empty(), !offered.is_empty());
        let mut fit_off = fits.clone();
        fit_off.and_not(&meets);
        let requests = pod_requests(&pod);
        let text = match (req, fit, off) {
            _ if !all.is_empty() => {
                let keys: Vec<String> = short.into_iter().map(|it| it.0).collect();
                let keys = keys.join(" ");
                format!("minValues requirement is not met for label(s) (label(s)=[{keys}])")
            }
            (false, false, false) => {
                "no instance type met the scheduling requirements or had enough resources or had a \
                 required offering"
                    .to_owned()
            }
            (false, false, true) => {
                "no instance type met the scheduling requirements or had enough resources"
                    .to_owned()
            }
            (false, true, false) => {
                "no instance type met the scheduling requirements or had a required offering"
                    .to_owned()
            }
            (true, false, false) => {
                "no instance type had enough resources or had a required offering".to_owned()
            }
            (false, true, true) => "no instance type met all requirements".to_owned(),
            (true, false, true) => {
                let slip = requests.get(CPU) >= spokeshave_model::Quantity::units(MILLION_CPU);
                let suffix = if slip { " (CPU request >= 1 Million, m vs M typo?)" } else { "" };
                format!("no instance type has enough resources{suffix}")
            }
            (true, true, false) => "no instance type has the required offering".to_owned(),
            (true, true, true) if !fit_off.is_empty() => {
                "no instance type which had enough resources and the required offering met the \
                 scheduling requirements"
                    .to_owned()
            }
            (true, true, true) => {
                "no instance type met the requirements/resources/offering tuple".to_owned()
            }
        };
        let totals: Vec<Resources> = it
            .daemon_groups
            .iter()
            .map(|group| {
                let mut total = requests.clone();
                total.add(&group.overhead);
                total
            })
            .collect();
        let resources = match totals.first() {
            None => json(&requests),
            Some(first) if totals.iter().all(|it| it == first) => json(first),
            Some(first) => {
                let (mut least, mut most) = (first.clone(), first.clone());
                for total in &totals {
                    most.raise_to(total);
                    least.0.retain(|name, amount| {
                        if let Some(theirs) = total.0.get(name) {
                            *amount = (*amount).min(*theirs);
                        }
                        total.0.contains_key(name)
                    });
                }
                format!("min={}, max={}", json(&least), json(&most))
            }
        };
        format!("{text}, requirements={}, resources={resources}", shown(&requirements))
    }

    /// The zone that each pending pod is bound to, or `flexible`, or `none` (`spec` scheduling 7.8).
    fn zones(&mut self) -> BTreeMap<String, usize> {
        let key = self.planner.sets.key(labels::ZONE);
        let mut by_shape: FxHashMap<ShapeId, String> = FxHashMap::default();
        let mut all: BTreeMap<String, usize> = BTreeMap::new();
        for at in 0..self.entries.len() {
            if self.entries[at].pod.status.phase != "Pending" {
                continue;
            }
            let shape = self.entries[at].shape;
            let zone = by_shape.entry(shape).or_insert_with(|| self.zone_of(shape, key));
            *all.entry(zone.clone()).or_default() += 1;
        }
        all
    }

    fn zone_of(&self, shape: ShapeId, key: crate::sets::KeyId) -> String {
        let it = &self.shapes[shape];
        let sets = &self.planner.sets;
        let listed = |set: SetId| {
            let requirement = sets.get(set).get(labels::ZONE)?.clone();
            (!requirement.complement).then_some(requirement.values)
        };
        let strict = listed(it.strict);
        let volumes = (!it.places.is_empty())
            .then(|| it.places.iter().map(|place| listed(place.set)).collect::<Option<Vec<_>>>())
            .flatten()
            .map(|all| all.into_iter().flatten().collect::<BTreeSet<_>>());
        let groups = it.on_keys.iter().find(|list| list.key == key);
        let (start, rest) = match (strict, volumes) {
            (Some(strict), volumes) => (strict, volumes),
            (None, Some(volumes)) => (volumes, None),
            (None, None) => {
                let Some(list) = groups else { return "flexible".to_owned() };
                let mut all = BTreeSet::new();
                for group in list.groups.iter().filter(|at| it.owned.contains(at)) {
                    all.extend(self.topology.groups[*group].domains(sets));
                }
                if !list.groups.iter().any(|at| it.owned.contains(at)) {
                    return "flexible".to_owned();
                }
                (all, None)
            }
        };
        let left: Vec<&String> =
            start.iter().filter(|zone| rest.as_ref().is_none_or(|it| it.contains(*zone))).collect();
        match left.as_slice() {
            [] => "none".to_owned(),
            [one] => (*one).clone(),
            _ => "flexible".to_owned(),
        }
    }
}

/// Requirements as messages show them.
fn shown(requirements: &Requirements) -> String {
    let shown: Requirements =
        requirements.iter().filter(|it| !is_simulated(&it.key)).cloned().collect();
    shown.to_string()
}
