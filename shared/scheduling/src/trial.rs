//! Trying a pod on existing nodes, on claims of this solve, and on new ones (`spec` scheduling 12.3 to 12.5, 13, 14).

use std::sync::Arc;

use smallvec::SmallVec;
use spokeshave_model::{
    Requirement, Resources, labels, resources::NODES, settings::MinValuesPolicy, taints,
};

use crate::{
    bits::Bits,
    daemons::absence,
    dims::Amounts,
    planner::{ReservedMode, one_node},
    ports::conflict,
    run::{Choices, Claim, Fit, Order, PLACEHOLDER, Place, Run, Trial},
    sets::SetId,
    shapes::ShapeId,
    topology::Rule,
    volumes::{self, EBS},
};

impl Run<'_, '_> {
    /// Finds a place for a pod, giving up its preferences one by one.
    pub(crate) fn place(&mut self, at: usize) -> Trial {
        let original = self.entries[at].shape;
        self.current = Some(at);
        self.wait = None;
        self.waiting.remove(&at);
        let movable = self.entries[at].movable;
        if self.shapes[original].failed_at == Some((self.placements, movable)) {
            return Trial::Failed;
        }
        let mut shape = original;
        loop {
            self.refresh(shape);
            if self.explaining() {
                self.tell(shape);
            }
            match self.try_shape(at, shape) {
                Trial::Failed if self.shapes[shape].refusal.is_none() => {}
                Trial::Failed => return Trial::Failed,
                done => return done,
            }
            let Some(next) = self.next_shape(shape, original) else { break };
            if self.explaining() {
                let what = self.shapes[next].given_up.unwrap_or("a preference");
                self.steps.push(format!("no place; giving up {what}"));
            }
            shape = next;
        }
        if let Some(wait) = self.wait.take() {
            self.waiting.extend(wait.until.map(|until| (at, until)));
            return Trial::Deferred(wait.text);
        }
        self.shapes[original].failed_at = Some((self.placements, movable));
        Trial::Failed
    }

    fn try_shape(&mut self, at: usize, shape: ShapeId) -> Trial {
        if self.shapes[shape].refusal.is_some() || self.shapes[shape].impossible {
            return Trial::Failed;
        }
        if let Some(row) = self.try_rows(at, shape) {
            self.commit_row(at, shape, row);
            return Trial::Placed;
        }
        let mut choices = Choices::new();
        if let Some((claim, fit)) = self.try_claims(shape, &mut choices) {
            self.commit_claim(at, shape, claim, fit);
            return Trial::Placed;
        }
        self.try_new(at, shape, &mut choices)
    }

    fn try_rows(&mut self, at: usize, shape: ShapeId) -> Option<usize> {
        if self.planner.rows.len() == 0 {
            return None;
        }
        let wish = Arc::clone(&self.shapes[shape].wish);
        let suitable = self.planner.suitable_rows(&wish);
        if !self.alive.contains_key(&wish.requests_id) {
            let mut alive = self.offered.clone();
            alive.and(&self.planner.roomy_rows(&wish));
            self.alive.insert(wish.requests_id, alive);
        }
        let movable = self.entries[at].movable;
        let mut choices: SmallVec<[(usize, bool); 8]> = SmallVec::new();
        let mut open = (*suitable).clone();
        if let Some(alive) = self.alive.get(&wish.requests_id) {
            open.and(alive);
        }
        self.keep_open_hosts(&mut open, shape);
        if !self.shapes[shape].ports.is_empty() {
            open.and_not(&self.port_holders(shape));
        }
        if movable {
            open.and_not(&self.holding_back);
        }
        for word in 0..open.words().len() {
            let mut rest = open.words()[word];
            while rest != 0 {
                let row = word * 64 + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if !self.room_for(row, shape) {
                    if let Some(alive) = self.alive.get_mut(&wish.requests_id) {
                        alive.clear(row);
                    }
                    continue;
                }
                if self.row_takes(row, shape, &mut choices) {
                    return Some(row);
                }
                // What topology says of a row, it says of all that are alike: the others need not be asked.
                let class = self.planner.rows.get(row).class;
                if choices.contains(&(class, false)) {
                    open.and_not(self.planner.rows.of_class(class));
                    rest &= open.words()[word];
                }
            }
        }
        None
    }

    /// Rows that hold a port which the shape wants, by pods that were there before: the same for every solve.
    fn port_holders(&mut self, shape: ShapeId) -> Arc<Bits> {
        let ports = &self.shapes[shape].ports;
        if let Some(known) = self.planner.port_holders.get(ports) {
            return Arc::clone(known);
        }
        let rows = self.planner.rows.iter();
        let holders: Bits = rows.filter(|it| conflict(ports, &it.ports)).map(|it| it.at).collect();
        let holders = Arc::new(holders);
        self.planner.port_holders.insert(ports.clone(), Arc::clone(&holders));
        holders
    }

    /// Takes the hosts out that hold as many pods as a constraint between hosts allows: where every node has its share, none
    /// of them is asked.
    fn keep_open_hosts(&self, open: &mut Bits, shape: ShapeId) {
        let it = &self.shapes[shape];
        for group in &it.on_host {
            let selected = it.counted_by.binary_search(group).is_ok();
            let group = &self.topology.groups[*group];
            if let Some(full) = group.full_hosts(selected) {
                open.and_not(full);
            }
            if let Some(peopled) = group.peopled_hosts(selected, it.strict_host.is_none()) {
                open.and(peopled);
            }
        }
    }

    pub(crate) fn room_for(&self, row: usize, shape: ShapeId) -> bool {
        let requests = &self.shapes[shape].requests;
        let filled = if self.filled.get(row) { self.rooms.get(&row) } else { None };
        let room = filled.unwrap_or(&self.planner.rows.get(row).room);
        self.active.iter().all(|dim| requests[*dim] <= room[*dim])
    }

    pub(crate) fn row_takes(
        &mut self,
        row: usize,
        shape: ShapeId,
        choices: &mut SmallVec<[(usize, bool); 8]>,
    ) -> bool {
        let it = &self.shapes[shape];
        let planner = &mut *self.planner;
        let this = planner.rows.get(row);
        if !it.ports.is_empty()
            && (conflict(&it.ports, &this.ports)
                || self.added_ports.get(&row).is_some_and(|held| conflict(&it.ports, held)))
        {
            return false;
        }
        if !it.places.is_empty()
            && !it.places.iter().any(|place| {
                place.host.as_ref().is_none_or(|host| host.has(this.host_name()))
                    && planner.sets.carries(this.set, place.set)
            })
        {
            return false;
        }
        if !self.host_allows(shape, self.planner.rows.get(row).host) {
            return false;
        }
        if !self.shapes[shape].on_keys.is_empty() {
            let class = self.planner.rows.get(row).class;
            let known = choices.iter().find(|it| it.0 == class).map(|it| it.1);
            let allowed = known.unwrap_or_else(|| {
                let answer = self.class_allowed(class, shape);
                choices.push((class, answer));
                answer
            });
            if !allowed {
                return false;
            }
        }
        // Last, since it costs most: it looks at all pods of the node.
        self.can_attach(row, shape)
    }

    fn can_attach(&mut self, row: usize, shape: ShapeId) -> bool {
        let it = &self.shapes[shape];
        if it.attachments.is_empty() {
            return true;
        }
        let view = self.planner.view;
        let row_state = &self.planner.rows.get(row).state;
        let node = row_state.node_name();
        let (held, limits) = self.attached.entry(row).or_insert_with(|| {
            let mut held = volumes::Attachments::new();
            for pod in view.pods_on(node).into_iter().flat_map(|it| it.pods.values()) {
                if !pod.is_terminal() && volumes::has_claims(pod) {
                    for (driver, claims) in volumes::attachments(pod, view) {
                        held.entry(driver).or_default().extend(claims);
                    }
                }
            }
            (held, volumes::limits(row_state, view))
        });
        volumes::can_attach(&it.attachments, held, limits)
    }

    fn class_allowed(&mut self, class: usize, shape: ShapeId) -> bool {
        let it = &self.shapes[shape];
        let planner = &mut *self.planner;
        for list in &it.on_keys {
            let question = (class, list.key.0);
            let domain = match self.class_domains.get(&question) {
                Some(known) => *known,
                None => {
                    let set = planner.rows.classes[class].0;
                    let found = planner.sets.listed(set, list.key).first().copied();
                    self.class_domains.insert(question, found);
                    found
                }
            };
            let Some(domain) = domain else { return false };
            let node: Bits = std::iter::once(domain).collect();
            let pod = planner.sets.allowed(it.strict, list.key);
            let selected = |group: usize| it.counted_by.binary_search(&group).is_ok();
            let chosen = self.topology.choose(&list.groups, &node, &pod, selected, &planner.sets);
            if chosen.is_none() {
                return false;
            }
        }
        true
    }

    pub(crate) fn host_allows(&self, shape: ShapeId, host: usize) -> bool {
        let it = &self.shapes[shape];
        it.on_host.iter().all(|group| {
            let selected = it.counted_by.binary_search(group).is_ok();
            self.topology.host_allows(*group, host, selected, |group| match &it.strict_host {
                None => group.populated() > 0,
                Some(wanted) => self
                    .planner
                    .rows
                    .iter()
                    .any(|row| group.count(row.host) > 0 && wanted.has(row.host_name())),
            })
        })
    }

    fn commit_row(&mut self, at: usize, shape: ShapeId, row: usize) {
        let room = self.rooms.entry(row).or_insert_with(|| self.planner.rows.get(row).room.clone());
        for dim in &self.active {
            room[*dim] -= self.shapes[shape].requests[*dim];
        }
        self.filled.set(row);
        let it = &self.shapes[shape];
        if !it.ports.is_empty() {
            self.added_ports.entry(row).or_default().extend(it.ports.iter().cloned());
        }
        if let Some((held, _)) = self.attached.get_mut(&row) {
            for (driver, claims) in &it.attachments {
                held.entry(driver.clone()).or_default().extend(claims.iter().cloned());
            }
        }
        self.row_pods.entry(row).or_default().push(at);
        self.note_placed(at, shape, Place::Row(row));
    }

    fn note_placed(&mut self, at: usize, shape: ShapeId, place: Place) {
        self.refresh(shape);
        let counted = self.shapes[shape].counted_by.clone();
        for group in counted {
            self.count_in(group, place);
        }
        let inverse = self.shapes[shape].inverse_owned.clone();
        for group in inverse {
            self.count_owner(group, place);
        }
        self.placements += 1;
        self.log.push((at, shape, place));
        if self.explaining() {
            let text = match place {
                Place::Row(row) => {
                    format!("placed on {}", self.planner.rows.get(row).state.name())
                }
                Place::Claim(claim) => format!("placed on {}", self.claim_text(claim)),
            };
            self.steps.push(text);
        }
    }

    pub(crate) fn claim_text(&self, claim: usize) -> String {
        let it = &self.claims[claim];
        match &it.ordered {
            Some(order) => format!("claim {}", order.claim.metadata.name),
            None => {
                let pool = &self.planner.templates[it.template].pool.metadata.name;
                format!("new claim {} of pool {pool}", claim + 1 - self.n_orders)
            }
        }
    }

    /// Counts a pod that a group selects.
    pub(crate) fn count_in(&mut self, group: usize, place: Place) {
        let planner = &mut *self.planner;
        let (set, host, takes) = match place {
            Place::Row(row) => {
                let row = planner.rows.get(row);
                let takes = self.topology.filter_takes(
                    group,
                    row.set,
                    row.host_name(),
                    &row.taints,
                    &mut planner.sets,
                );
                (row.set, row.host, takes)
            }
            Place::Claim(claim) => {
                let it = &self.claims[claim];
                let takes = self.topology.filter_takes(
                    group,
                    it.set,
                    PLACEHOLDER,
                    &it.taints,
                    &mut planner.sets,
                );
                (it.set, it.host, takes)
            }
        };
        if !takes {
            return;
        }
        let it = &self.topology.groups[group];
        if it.on_host {
            self.topology.record(group, host);
            return;
        }
        let every = it.identity.rule == Rule::AntiAffinity;
        let values = planner.sets.listed(set, it.identity.key);
        if every || values.len() == 1 {
            for value in values {
                self.topology.record(group, value);
            }
        }
    }

    /// Counts an owner of an inverse group, wherever it might land.
    fn count_owner(&mut self, group: usize, place: Place) {
        let (set, host) = match place {
            Place::Row(row) => {
                let row = self.planner.rows.get(row);
                (row.set, row.host)
            }
            Place::Claim(claim) => (self.claims[claim].set, self.claims[claim].host),
        };
        let it = &self.topology.groups[group];
        if it.on_host {
            self.topology.record(group, host);
            return;
        }
        for value in self.planner.sets.listed(set, it.identity.key) {
            self.topology.record(group, value);
        }
    }

    fn try_claims(&mut self, shape: ShapeId, choices: &mut Choices) -> Option<(usize, Fit)> {
        for at in 0..self.n_orders {
            if let Some(fit) = self.try_order(at, shape, choices) {
                return Some((at, fit));
            }
        }
        // Where one pod per host is wanted and every host has one, there is no need to ask each.
        let n_claims = self.claims.len();
        let full = self.shapes[shape].on_host.iter().any(|group| {
            let group = &self.topology.groups[*group];
            group.identity.rule == Rule::AntiAffinity && group.fills_claims(n_claims)
        });
        if full {
            return None;
        }
        let fit_id = self.shapes[shape].fit;
        let open = std::mem::take(&mut self.open);
        let mut found = None;
        for at in open.values() {
            if self.dead.get(&fit_id).is_some_and(|it| it.get(*at)) {
                continue;
            }
            if let Some(fit) = self.try_claim(*at, shape, choices) {
                found = Some((*at, fit));
                break;
            }
        }
        self.open = open;
        found
    }

    pub(crate) fn try_claim(
        &mut self,
        at: usize,
        shape: ShapeId,
        choices: &mut Choices,
    ) -> Option<Fit> {
        if !self.host_allows(shape, self.claims[at].host) {
            return None;
        }
        let (template, base) = (self.claims[at].template, self.claims[at].set);
        let fit_id = self.shapes[shape].fit;
        if !self.tolerates(template, shape) || !self.placeholder_suits(shape) {
            self.kill(fit_id, at);
            return None;
        }
        let Some(joined) = self.planner.sets.join(base, self.shapes[shape].set) else {
            self.kill(fit_id, at);
            return None;
        };
        if !self.narrowing_allows(at, shape, joined) {
            return None;
        }
        let mut requests = self.claims[at].requests.clone();
        for dim in &self.active {
            requests[*dim] += self.shapes[shape].requests[*dim];
        }
        let mut slots = self.claims[at].slots.clone();
        self.planner.templates[template].keep_fitting(&mut slots, &requests, &self.active);
        if slots.is_empty() {
            self.kill(fit_id, at);
            return None;
        }
        self.without_conflicts(template, shape, &self.claims[at].ports, &mut slots);
        let claim = &self.claims[at];
        if let Some(volumes) = self.shapes[shape].attachments.get(EBS) {
            let n_volumes = claim.volumes.len() + volumes.difference(&claim.volumes).count();
            self.planner.templates[template].keep_attachable(&mut slots, n_volumes);
        }
        let held = claim.held.clone();
        let fit =
            self.fit(template, shape, joined, choices, &slots, requests, &held, false)?.ok()?;
        if !self.batch.holds.is_empty() {
            // A claim must not become one that would not have been opened.
            let before = self.shape_of_claim(template, base, &self.claims[at].requests);
            let after = self.shape_of_claim(template, fit.set, &fit.requests);
            if before != after && self.batch.holds.contains_key(&after) {
                return None;
            }
        }
        Some(fit)
    }

    /// The same for a claim that was ordered before and can be narrowed no more.
    pub(crate) fn try_order(
        &mut self,
        at: usize,
        shape: ShapeId,
        choices: &mut Choices,
    ) -> Option<Fit> {
        let Order { asked, .. } = self.claims[at].ordered.as_ref()?;
        let Some(asked) = asked else {
            let fit = self.try_claim(at, shape, choices)?;
            let claim = &self.claims[at];
            return (fit.set == claim.set && fit.slots == claim.slots).then_some(fit);
        };
        let (claim, it) = (&self.claims[at], &self.shapes[shape]);
        let requests: Amounts =
            claim.requests.iter().zip(&it.requests).map(|(held, wanted)| held + wanted).collect();
        let fits = requests.iter().zip(asked).all(|(wanted, room)| wanted <= room);
        if !fits
            || taints::untolerated(&claim.taints, &it.pod.spec.tolerations).is_some()
            || conflict(&it.ports, &claim.ports)
            || !self.host_allows(shape, claim.host)
            || !self.placeholder_suits(shape)
        {
            return None;
        }
        let (base, held) = (claim.set, claim.held.clone());
        let wanted = self.shapes[shape].set;
        let suits = |run: &mut Self, set: SetId| run.planner.sets.join(base, set) == Some(base);
        let places: Vec<SetId> = self.shapes[shape]
            .places
            .iter()
            .filter(|it| it.host.as_ref().is_none_or(absence))
            .map(|it| it.set)
            .collect();
        let anywhere = self.shapes[shape].places.is_empty();
        if !suits(self, wanted)
            || !(anywhere || places.into_iter().any(|it| suits(self, it)))
            || self.choose(base, shape, choices) != Some(base)
        {
            return None;
        }
        let slots = Bits::default();
        Some(Fit { set: base, slots, requests, held, min_values_relaxed: false })
    }

    /// Whether the pods that are on a claim already leave room for one more where a spread constraint between hosts comes
    /// to look at the claim only because this pod narrows it.
    ///
    /// DIFFERENCE: Karpenter does not count them, and kube-scheduler then refuses some of the pods.
    pub(crate) fn narrowing_allows(&mut self, at: usize, shape: ShapeId, joined: SetId) -> bool {
        let claim = &self.claims[at];
        if joined == claim.set || self.topology.choosy.is_empty() {
            return true;
        }
        let it = &self.shapes[shape];
        let planner = &mut *self.planner;
        it.on_host.iter().filter(|group| self.topology.choosy.contains(group)).all(|group| {
            let change = (claim.set, joined);
            if !self.topology.comes_under(
                *group,
                change,
                PLACEHOLDER,
                &claim.taints,
                &mut planner.sets,
            ) {
                return true;
            }
            let selects = |at: &&usize| {
                self.topology.groups[*group].identity.selects(&self.entries[**at].pod)
            };
            let there = claim.pods.iter().filter(selects).count();
            let own = usize::from(it.counted_by.binary_search(group).is_ok());
            self.topology.groups[*group].identity.has_room(there + own)
        })
    }

    /// Counts the pods that were on a claim before it was narrowed, where that brings them under the eyes of a group.
    fn recount(&mut self, claim: usize, before: SetId) {
        if self.topology.choosy.is_empty() || before == self.claims[claim].set {
            return;
        }
        for group in self.topology.choosy.clone() {
            let it = &self.claims[claim];
            let planner = &mut *self.planner;
            let change = (before, it.set);
            let sets = &mut planner.sets;
            if self.topology.comes_under(group, change, PLACEHOLDER, &it.taints, sets) {
                let selects = |at: &&usize| {
                    self.topology.groups[group].identity.selects(&self.entries[**at].pod)
                };
                for _ in 0..it.pods.iter().filter(selects).count() {
                    self.count_in(group, Place::Claim(claim));
                }
            }
        }
    }

    fn kill(&mut self, fit: usize, claim: usize) {
        self.dead.entry(fit).or_default().set(claim);
    }

    pub(crate) fn tolerates(&mut self, template: usize, shape: ShapeId) -> bool {
        self.planner.tolerates(template, &self.shapes[shape].wish)
    }

    /// Nodes that do not exist yet have no host name that anybody could ask for.
    pub(crate) fn placeholder_suits(&self, shape: ShapeId) -> bool {
        self.shapes[shape].host.as_ref().is_none_or(absence)
    }

    pub(crate) fn without_conflicts(
        &self,
        template: usize,
        shape: ShapeId,
        held: &[crate::ports::HostPort],
        slots: &mut Bits,
    ) {
        let ports = &self.shapes[shape].ports;
        if ports.is_empty() {
            return;
        }
        for group in &self.planner.templates[template].daemon_groups {
            if conflict(ports, held) || conflict(ports, &group.ports) {
                slots.and_not(&group.slots);
            }
        }
    }

    /// Volumes, topology, instance types and reservations, in this order, for the first volume place that passes.
    /// `None`: nothing fits; `Err`: reserved capacity would fit and is all put aside.
    pub(crate) fn fit(
        &mut self,
        template: usize,
        shape: ShapeId,
        joined: SetId,
        choices: &mut Choices,
        slots: &Bits,
        requests: Amounts,
        held: &[usize],
        relaxing: bool,
    ) -> Option<Result<Fit, String>> {
        let n_places = self.shapes[shape].places.len().max(1);
        let mut refusal = None;
        for place in 0..n_places {
            let mut set = joined;
            if let Some(place) = self.shapes[shape].places.get(place).cloned() {
                if !place.host.as_ref().is_none_or(absence) {
                    continue;
                }
                let Some(with) = self.planner.sets.join(set, place.set) else { continue };
                set = with;
            }
            let Some(mut set) = self.choose(set, shape, choices) else { continue };
            let planner = &mut *self.planner;
            let it = &mut planner.templates[template];
            let left = it.left(set, &planner.sets);
            let mut slots = slots.clone();
            slots.and(&left.slots);
            if slots.is_empty() {
                continue;
            }
            let mut min_values_relaxed = false;
            let short = it.short_of_values(set, &slots, &planner.sets);
            if !short.is_empty() {
                if !relaxing || planner.options.min_values_policy == MinValuesPolicy::Strict {
                    continue;
                }
                let mut lowered = (**planner.sets.get(set)).clone();
                for (key, n_values) in short {
                    if let Some(requirement) = lowered.get(&key).cloned() {
                        let n_values = i32::try_from(n_values).unwrap_or(i32::MAX);
                        lowered.replace(Requirement { min_values: Some(n_values), ..requirement });
                    }
                }
                set = planner.sets.intern(lowered);
                min_values_relaxed = true;
            }
            match self.reserve(template, set, &slots, held) {
                Ok(held) => {
                    return Some(Ok(Fit { set, slots, requests, held, min_values_relaxed }));
                }
                Err(why) => refusal = Some(why),
            }
        }
        refusal.map(Err)
    }

    /// What topology makes of a claim with these requirements.
    pub(crate) fn choose(
        &mut self,
        set: SetId,
        shape: ShapeId,
        choices: &mut Choices,
    ) -> Option<SetId> {
        if self.shapes[shape].on_keys.is_empty() {
            return Some(set);
        }
        if let Some((_, answer)) = choices.iter().find(|it| it.0 == set) {
            return *answer;
        }
        let answer = self.choose_now(set, shape);
        choices.push((set, answer));
        answer
    }

    fn choose_now(&mut self, set: SetId, shape: ShapeId) -> Option<SetId> {
        let it = &self.shapes[shape];
        let sets = &mut self.planner.sets;
        let mut result = set;
        for list in &it.on_keys {
            let node = sets.allowed(set, list.key);
            let pod = sets.allowed(it.strict, list.key);
            let selected = |group: usize| it.counted_by.binary_search(&group).is_ok();
            let chosen = self.topology.choose(&list.groups, &node, &pod, selected, sets)?;
            result = sets.narrow(result, list.key, &chosen)?;
        }
        Some(result)
    }

    /// The reservations that a claim would hold.
    fn reserve(
        &self,
        template: usize,
        set: SetId,
        slots: &Bits,
        held: &[usize],
    ) -> Result<Vec<usize>, String> {
        let it = &self.planner.templates[template];
        if it.reservations.is_empty() {
            return Ok(Vec::new());
        }
        let left = it.left_known(set);
        let mut compatible = false;
        let mut holds: Vec<usize> = Vec::new();
        for (slot, reservation) in left.iter().flat_map(|it| &it.reserved) {
            if !slots.get(*slot) {
                continue;
            }
            compatible = true;
            let id = self.reservation_ids[template][*reservation];
            if (held.contains(&id) || self.reservations[id].1 > 0) && !holds.contains(&id) {
                holds.push(id);
            }
        }
        holds.sort_unstable();
        if self.batch.reserved == ReservedMode::Strict {
            if compatible && holds.is_empty() {
                return Err(
                    "reserved offerings are compatible, but every one of them is set aside \
                            for another claim"
                        .to_owned(),
                );
            }
            if !held.is_empty() && holds.is_empty() {
                return Err("the claim would lose every reserved offering".to_owned());
            }
        }
        Ok(holds)
    }

    fn hold(&mut self, before: &[usize], after: &[usize]) {
        for id in before.iter().filter(|id| !after.contains(id)) {
            self.reservations[*id].1 += 1;
        }
        for id in after.iter().filter(|id| !before.contains(id)) {
            self.reservations[*id].1 -= 1;
        }
    }

    fn commit_claim(&mut self, at: usize, shape: ShapeId, claim: usize, fit: Fit) {
        let before = std::mem::take(&mut self.claims[claim].held);
        self.hold(&before, &fit.held);
        let set_before = std::mem::replace(&mut self.claims[claim].set, fit.set);
        self.recount(claim, set_before);
        let it = &mut self.claims[claim];
        it.slots = fit.slots;
        it.requests = fit.requests;
        it.held = fit.held;
        it.volumes.extend(self.shapes[shape].attachments.get(EBS).into_iter().flatten().cloned());
        it.min_values_relaxed |= fit.min_values_relaxed;
        it.ports.extend(self.shapes[shape].ports.iter().cloned());
        it.pods.push(at);
        if it.ordered.is_none() {
            // What a stable sort by number of pods would do: in front of those that had as many already.
            if it.open {
                self.open.remove(&it.position);
            }
            it.position = (it.pods.len() as u32, self.front);
            self.front -= 1;
            let mut slots = it.slots.clone();
            let mut requests = it.requests.clone();
            for dim in &self.active {
                requests[*dim] += self.least[*dim];
            }
            self.planner.templates[it.template].keep_fitting(&mut slots, &requests, &self.active);
            it.open = !slots.is_empty();
            if it.open {
                self.open.insert(it.position, claim);
            }
        }
        self.note_placed(at, shape, Place::Claim(claim));
    }

    fn try_new(&mut self, at: usize, shape: ShapeId, choices: &mut Choices) -> Trial {
        let host = self.planner.rows.len() + self.claims.len();
        if !self.host_allows(shape, host) || !self.placeholder_suits(shape) {
            return Trial::Failed;
        }
        for template in 0..self.planner.templates.len() {
            let Some((slots, joined)) = self.new_slots(template, shape) else { continue };
            let requests = self.shapes[shape].requests.clone();
            let fit = self.fit(template, shape, joined, choices, &slots, requests, &[], true);
            match fit {
                None => {}
                Some(Err(why)) => return Trial::Deferred(why),
                Some(Ok(fit)) => {
                    if let Some(wait) = self.held_back(template, fit.set, &fit.requests) {
                        self.wait.get_or_insert(wait);
                        continue;
                    }
                    self.open_claim(at, shape, template, host, fit);
                    return Trial::Placed;
                }
            }
        }
        Trial::Failed
    }

    /// Slots of a new claim that taints, limits, requirements, ports and requests leave.
    pub(crate) fn new_slots(&mut self, template: usize, shape: ShapeId) -> Option<(Bits, SetId)> {
        if !self.tolerates(template, shape) {
            return None;
        }
        let base = self.planner.templates[template].set;
        let joined = self.planner.sets.join(base, self.shapes[shape].set)?;
        let it = &self.planner.templates[template];
        let mut slots = it.base.clone();
        if let Some(remaining) = &self.remaining[template] {
            if one_node(remaining).is_some_and(|it| it <= spokeshave_model::Quantity::ZERO) {
                return None;
            }
            it.keep_within(&mut slots, remaining);
        }
        self.without_conflicts(template, shape, &[], &mut slots);
        it.keep_fitting(&mut slots, &self.shapes[shape].requests, &self.active);
        if let Some(volumes) = self.shapes[shape].attachments.get(EBS) {
            it.keep_attachable(&mut slots, volumes.len());
        }
        (!slots.is_empty()).then_some((slots, joined))
    }

    fn open_claim(&mut self, at: usize, shape: ShapeId, template: usize, host: usize, fit: Fit) {
        let claim = self.claims.len();
        if let Some(remaining) = self.remaining[template].as_mut() {
            take_from(remaining, &self.planner.templates[template].most(&fit.slots));
        }
        self.hold(&[], &fit.held);
        if !self.batch.holds.is_empty() {
            let shape = self.shape_of_claim(template, fit.set, &fit.requests);
            *self.opened.entry(shape).or_insert(0) += 1;
        }
        self.claims.push(Claim {
            template,
            taints: Arc::clone(&self.planner.templates[template].taints),
            set: fit.set,
            slots: fit.slots,
            requests: fit.requests,
            pods: vec![at],
            ports: self.shapes[shape].ports.clone(),
            volumes: self.shapes[shape].attachments.get(EBS).cloned().unwrap_or_default(),
            held: fit.held,
            host,
            min_values_relaxed: fit.min_values_relaxed,
            ordered: None,
            position: (1, self.back),
            open: true,
        });
        self.open.insert((1, self.back), claim);
        self.back += 1;
        self.note_placed(at, shape, Place::Claim(claim));
    }
}

/// Takes one more node off a pool's limits, of the largest kind that it may become.
pub(crate) fn take_from(remaining: &mut Resources, most: &[(&str, i128)]) {
    for (name, amount) in most {
        if let Some(left) = remaining.0.get_mut(*name) {
            *left -= spokeshave_model::Quantity::from_nanos(*amount, left.format());
        }
    }
    if let Some(left) = remaining.0.get_mut(NODES) {
        *left -= spokeshave_model::Quantity::units(1);
    }
}

/// Whether a key is kept out of messages: true only inside a plan.
pub(crate) fn is_simulated(key: &str) -> bool {
    matches!(key, labels::REGISTERED | labels::INITIALIZED | labels::HOSTNAME)
}
