//! Topology groups: spread, affinity and anti-affinity as counts per domain (`spec` scheduling 7).

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use spokeshave_model::{
    Kind, LabelSelector, ObjectKey, Requirement, Toleration,
    core::{Pod, PodAffinityTerm, TopologySpreadConstraint},
    labels,
    selectors::LabelSelectorRequirement,
    taints,
};

use crate::{
    bits::Bits,
    daemons::absence,
    domains::Domains,
    repellers::{Leaving, Repellers},
    rows::{Row, Rows},
    sets::{KeyId, SetId, Sets},
    shapes,
    view::ClusterView,
    wishes::Wish,
};

/// What the groups of all solves over one view have in common.
pub(crate) struct Shared<'p, 'a> {
    pub(crate) bases: &'p mut Bases,
    pub(crate) repellers: &'p mut Repellers,
    pub(crate) view: &'a ClusterView,
    pub(crate) rows: &'p Rows,
    pub(crate) sets: &'p mut Sets,
    pub(crate) domains: &'p mut Domains,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    Spread,
    Affinity,
    AntiAffinity,
}

/// Which nodes a spread constraint looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Filter {
    /// One of these has to hold, with the requirement on the host name; empty for all nodes.
    terms: Vec<(SetId, Option<Requirement>)>,
    /// The node's taints have to be tolerated.
    tolerations: Option<Vec<Toleration>>,
}

impl Filter {
    /// What new nodes have to meet one of. Nobody knows their host names yet.
    fn places(&self) -> impl Iterator<Item = SetId> + '_ {
        let possible = |it: &&(SetId, Option<Requirement>)| it.1.as_ref().is_none_or(absence);
        self.terms.iter().filter(possible).map(|it| it.0)
    }

    fn asks_for_hosts(&self) -> bool {
        self.terms.iter().any(|it| it.1.is_some())
    }

    fn takes(
        &self,
        set: SetId,
        host: &str,
        taints: &[spokeshave_model::Taint],
        sets: &mut Sets,
    ) -> bool {
        let affine = self.terms.is_empty()
            || self.terms.iter().any(|(term, on_host)| {
                on_host.as_ref().is_none_or(|it| it.has(host)) && sets.carries(set, *term)
            });
        affine
            && self
                .tolerations
                .as_ref()
                .is_none_or(|list| taints::untolerated(taints, list).is_none())
    }
}

/// What makes two constraints one group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) rule: Rule,
    pub(crate) key: KeyId,
    /// Sorted.
    namespaces: Vec<String>,
    /// Absent selects nothing.
    selector: Option<LabelSelector>,
    max_skew: i64,
    /// DIFFERENCE: Karpenter leaves `minDomains` out, so the first of two constraints that differ in it wins.
    min_domains: Option<i64>,
    filter: Filter,
}

impl Identity {
    /// Whether so many pods on one host are no more than the skew allows.
    pub(crate) fn has_room(&self, n_pods: usize) -> bool {
        i64::try_from(n_pods).is_ok_and(|it| it <= self.max_skew)
    }

    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        self.selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels))
            && self.namespaces.binary_search(&pod.metadata.namespace).is_ok()
    }
}

/// How many pods count in each domain: what all solves begin with, and what this one has changed.
#[derive(Clone, Debug, Default)]
struct Counts {
    base: Arc<Vec<u32>>,
    changed: FxHashMap<usize, u32>,
}

impl Counts {
    fn get(&self, at: usize) -> u32 {
        let changed = if self.changed.is_empty() { None } else { self.changed.get(&at) };
        changed.or_else(|| self.base.get(at)).copied().unwrap_or(0)
    }

    fn set(&mut self, at: usize, n: u32) {
        self.changed.insert(at, n);
    }

    /// Where any pod counts.
    fn inhabited(&self) -> Bits {
        let known = (0..self.base.len()).chain(self.changed.keys().copied());
        known.filter(|at| self.get(*at) > 0).collect()
    }

    /// What has been changed becomes what solves begin with.
    fn settle(&mut self) {
        let mut base = Vec::clone(&self.base);
        for (at, n) in self.changed.drain() {
            if base.len() <= at {
                base.resize(at + 1, 0);
            }
            base[at] = n;
        }
        self.base = Arc::new(base);
    }
}

/// One constraint, shared by all pods that have it.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) identity: Arc<Identity>,
    /// Its number in [`Bases`].
    question: usize,
    /// The key is the host name: domains are hosts.
    pub(crate) on_host: bool,
    /// By position of the value, or by host.
    counts: Counts,
    /// Domains that exist as far as this group is concerned; hosts always do.
    known: Bits,
    /// By position of the value: how many nodes of the cluster that may receive pods are in that domain.
    givers: Vec<u32>,
    /// Affinity: the domains that suit every pod of the batch which has the constraint, where that says anything. The first
    /// of them goes there.
    wanted: Option<Bits>,
    /// Hosts: those with pods, and those that take no more of the pods that the group selects. So places that cannot be are
    /// passed over a word at a time.
    peopled: Bits,
    full: Bits,
    /// How many domains have pods.
    populated: usize,
    /// The first host that is a claim, and how many claims have pods.
    first_claim: usize,
    populated_claims: usize,
}

impl Group {
    pub(crate) fn count(&self, at: usize) -> u32 {
        self.counts.get(at)
    }

    pub(crate) fn add(&mut self, at: usize, n: u32) {
        let before = self.count(at);
        if n > 0 && before == 0 {
            self.populated += 1;
            self.populated_claims += usize::from(self.on_host && at >= self.first_claim);
        }
        self.counts.set(at, before + n);
        if self.on_host {
            self.note_host(at);
        } else {
            self.known.set(at);
        }
    }

    fn note_host(&mut self, at: usize) {
        let count = self.count(at);
        let note = |bits: &mut Bits, holds: bool| if holds { bits.set(at) } else { bits.clear(at) };
        note(&mut self.peopled, count > 0);
        let full = match self.identity.rule {
            Rule::Spread => i64::from(count) >= self.identity.max_skew,
            Rule::AntiAffinity => count > 0,
            Rule::Affinity => false,
        };
        note(&mut self.full, full);
    }

    /// The hosts that surely take no pod, of those that the group selects or the others: nothing is said of the rest.
    pub(crate) fn full_hosts(&self, selected: bool) -> Option<&Bits> {
        (selected || self.identity.rule == Rule::AntiAffinity).then_some(&self.full)
    }

    /// The hosts of which one has to be taken, where pods have to be together and are somewhere already.
    /// `anywhere`: the pod's own requirements name no host.
    pub(crate) fn peopled_hosts(&self, selected: bool, anywhere: bool) -> Option<&Bits> {
        let bound = !selected || (anywhere && self.populated > 0);
        (self.identity.rule == Rule::Affinity && bound).then_some(&self.peopled)
    }

    fn remove(&mut self, at: usize, n: u32) {
        let before = self.count(at);
        if before == 0 {
            return;
        }
        let after = before.saturating_sub(n);
        self.counts.set(at, after);
        if after == 0 {
            self.populated -= 1;
        }
        if self.on_host {
            self.note_host(at);
        }
    }

    /// The domains that nodes of the cluster or pods that count are in.
    fn inhabited(&self) -> Bits {
        let given = self.givers.iter().enumerate().filter(|(_, n)| **n > 0);
        let mut all: Bits = given.map(|(at, _)| at).collect();
        all.or(&self.counts.inhabited());
        all
    }

    /// The domains that exist for this group.
    pub(crate) fn domains(&self, sets: &Sets) -> Vec<String> {
        let key = sets.key_of(self.identity.key);
        self.known.iter().map(|at| key.value(at).to_owned()).collect()
    }

    /// Whether every one of so many claims has a pod that counts.
    pub(crate) fn fills_claims(&self, n_claims: usize) -> bool {
        self.populated_claims >= n_claims
    }

    /// How many domains have pods that count.
    pub(crate) fn populated(&self) -> usize {
        self.populated
    }

    pub(crate) fn counts_text(&self, sets: &Sets) -> String {
        if self.on_host {
            return format!("{} hosts with pods", self.populated);
        }
        let key = sets.key_of(self.identity.key);
        let by_name: BTreeMap<&str, u32> =
            self.known.iter().map(|at| (key.value(at), self.count(at))).collect();
        let list: Vec<String> = by_name.iter().map(|(name, n)| format!("{name}:{n}")).collect();
        list.join(" ")
    }
}

/// All groups of one solve.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    pub(crate) groups: Vec<Group>,
    /// Groups by the number of their question.
    index: FxHashMap<usize, usize>,
    /// Spread constraints that look at some nodes alone: whether they look at a claim can change as it is narrowed.
    pub(crate) choosy: Vec<usize>,
    /// Inverse groups: their owners are counted, and the pods that they select kept away.
    pub(crate) inverse: Vec<usize>,
    /// Pods of this solve that are bound.
    bound: Vec<Arc<Pod>>,
    /// Those of them that are active, and where: they do not count there. Found when somebody asks: most solves have no
    /// constraint.
    moving: OnceCell<Vec<(Arc<Pod>, usize)>>,
    /// What of the repellers is moving.
    leaving: Vec<Leaving>,
    /// Rows that are taken out for this solve.
    out: Bits,
}

/// What constraints ask, and the groups of those that have been asked with all pods counted where they are: the same for
/// every solve over one view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bases {
    index: FxHashMap<(bool, Identity), usize>,
    list: Vec<Question>,
}

#[derive(Clone, Debug)]
struct Question {
    identity: Arc<Identity>,
    /// Owners are counted, not the pods that are selected.
    inverse: bool,
    base: Option<Group>,
    /// Wishes of which it is known whether their pods are selected, and those that are.
    asked: Bits,
    selected: Bits,
}

impl Bases {
    fn ask(&mut self, inverse: bool, identity: Identity) -> usize {
        let next = self.list.len();
        match self.index.entry((inverse, identity)) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let identity = Arc::new(new.key().1.clone());
                let (asked, selected) = (Bits::default(), Bits::default());
                self.list.push(Question { identity, inverse, base: None, asked, selected });
                *new.insert(next)
            }
        }
    }

    /// What all of a pod's spread constraints and (anti-)affinity terms ask that it still has.
    pub(crate) fn of_constraints(
        &mut self,
        pod: &Pod,
        view: &ClusterView,
        sets: &mut Sets,
    ) -> Vec<usize> {
        let mut asked = Vec::new();
        for constraint in &pod.spec.topology_spread_constraints {
            asked.push(self.ask(false, spread_identity(pod, constraint, sets)));
        }
        let affinity = &pod.spec.affinity;
        for (rule, terms) in [
            (Rule::Affinity, &affinity.pod_affinity),
            (Rule::AntiAffinity, &affinity.pod_anti_affinity),
        ] {
            let preferred = terms.preferred.iter().map(|it| &it.pod_affinity_term);
            for term in terms.required.iter().chain(preferred) {
                asked.push(self.ask(false, term_identity(pod, rule, term, view, sets)));
            }
        }
        asked
    }

    /// What a pod's required anti-affinity asks of those that come later.
    pub(crate) fn of_repulsion(
        &mut self,
        pod: &Pod,
        view: &ClusterView,
        sets: &mut Sets,
    ) -> Vec<usize> {
        let terms = pod.spec.affinity.pod_anti_affinity.required.iter();
        let identity =
            |term, sets: &mut Sets| term_identity(pod, Rule::AntiAffinity, term, view, sets);
        terms.map(|term| self.ask(true, identity(term, sets))).collect()
    }

    /// Whether the group selects the wish's pod.
    pub(crate) fn selects(&mut self, group: &Group, wish: &Wish) -> bool {
        let it = &mut self.list[group.question];
        if !it.asked.get(wish.id) {
            it.asked.set(wish.id);
            if it.identity.selects(&wish.pod) {
                it.selected.set(wish.id);
            }
        }
        it.selected.get(wish.id)
    }
}

impl Topology {
    pub(crate) fn new(
        pods: &[Arc<Pod>],
        out: Bits,
        repellers: &Repellers,
        view: &ClusterView,
        rows: &Rows,
        sets: &mut Sets,
    ) -> Self {
        let bound: Vec<Arc<Pod>> = pods.iter().filter(|it| it.is_bound()).cloned().collect();
        let mut leaving = Vec::new();
        if !view.repellers.is_empty() {
            let keys: BTreeSet<ObjectKey> = bound.iter().map(|it| it.key()).collect();
            leaving = keys
                .iter()
                .filter(|it| view.repellers.contains(*it))
                .filter_map(|it| view.pod(it))
                .flat_map(|it| repellers.leaving(it, view, rows, sets))
                .collect();
        }
        Self { bound, leaving, out, ..Self::default() }
    }

    /// The bound pods that do not count where they are, as the view has them.
    fn moving(&self, view: &ClusterView, rows: &Rows) -> &[(Arc<Pod>, usize)] {
        self.moving.get_or_init(|| {
            let keys: BTreeSet<ObjectKey> = self.bound.iter().map(|it| it.key()).collect();
            keys.iter()
                .filter_map(|it| view.pod(it))
                .filter(|it| spokeshave_model::pod_classes::is_active(it))
                .filter_map(|it| Some((Arc::clone(it), rows.by_node(&it.spec.node_name)?.at)))
                .collect()
        })
    }

    /// The groups of a pod's questions.
    pub(crate) fn own(
        &mut self,
        questions: &[usize],
        pod: &Pod,
        shared: &mut Shared<'_, '_>,
    ) -> Vec<usize> {
        let mut owned: Vec<usize> =
            questions.iter().map(|it| self.group(*it, pod, shared)).collect();
        owned.sort_unstable();
        owned.dedup();
        owned
    }

    /// Inverse groups of the anti-affinity of bound pods, as far as they select any of `pods`.
    pub(crate) fn repel(&mut self, pods: &[Arc<Pod>], shared: &mut Shared<'_, '_>) {
        let wanted: BTreeSet<usize> =
            pods.iter().flat_map(|it| shared.repellers.selecting(it).to_vec()).collect();
        for at in wanted {
            let identity = shared.repellers.list[at].identity.clone();
            let question = shared.bases.ask(true, identity);
            for (n, (owner, count)) in shared.repellers.list[at].owners.clone().iter().enumerate() {
                let leaving = self.leaving.iter().filter(|it| (it.repeller, it.owner) == (at, n));
                if leaving.count() < *count {
                    self.group(question, owner, shared);
                }
            }
        }
    }

    fn group(&mut self, question: usize, owner: &Pod, shared: &mut Shared<'_, '_>) -> usize {
        let Shared { bases, repellers, view, rows, sets, domains } = shared;
        let asked = &mut bases.list[question];
        let identity = Arc::clone(&asked.identity);
        let on_host = &*sets.key_of(identity.key).name == labels::HOSTNAME;
        let honours = match identity.rule {
            Rule::Spread => identity.filter.tolerations.is_some(),
            Rule::Affinity | Rule::AntiAffinity => true,
        };
        let tolerations = honours.then_some(owner.spec.tolerations.as_slice());
        if let Some(at) = self.index.get(&question) {
            // DIFFERENCE: owners joining later add the domains that they tolerate; Karpenter keeps the first owner's.
            let group = &mut self.groups[*at];
            if !on_host && honours {
                let found = domains.of(identity.key, identity.filter.places(), tolerations, sets);
                group.known.or(&found);
            }
            return *at;
        }
        let inverse = asked.inverse;
        let base = asked.base.get_or_insert_with(|| {
            let mut base = Group {
                on_host,
                question,
                counts: Counts::default(),
                known: Bits::default(),
                givers: Vec::new(),
                wanted: None,
                peopled: Bits::default(),
                full: Bits::default(),
                populated: 0,
                first_claim: rows.len(),
                populated_claims: 0,
                identity: Arc::clone(&identity),
            };
            count(&mut base, inverse, view, rows, sets);
            if inverse {
                repellers.count_owners(&mut base);
            }
            base.counts.settle();
            base
        });
        let mut group = base.clone();
        self.take_moving_away(&mut group, inverse, shared);
        if !on_host {
            let Shared { rows, sets, domains, .. } = shared;
            self.take_nodes_out(&mut group, rows, sets);
            // A domain that only nodes and pods on their way out had is none any more.
            group.known = group.inhabited();
            let found = domains.of(identity.key, identity.filter.places(), tolerations, sets);
            group.known.or(&found);
        }
        let at = self.groups.len();
        if !group.identity.filter.terms.is_empty() {
            self.choosy.push(at);
        }
        self.groups.push(group);
        self.index.insert(question, at);
        if inverse {
            self.inverse.push(at);
        }
        at
    }

    /// Pods of this solve that are bound do not count where they are.
    fn take_moving_away(&self, group: &mut Group, inverse: bool, shared: &mut Shared<'_, '_>) {
        if inverse {
            let known = shared.repellers.index.get(&*group.identity);
            for it in self.leaving.iter().filter(|it| Some(&it.repeller) == known) {
                it.domain.into_iter().for_each(|domain| group.remove(domain, 1));
            }
            return;
        }
        for (pod, row) in self.moving(shared.view, shared.rows) {
            if group.identity.selects(pod)
                && let Some(at) = place(group, shared.rows.get(*row), shared.sets)
            {
                group.remove(at, 1);
            }
        }
    }

    /// Nodes that are taken out for this solve give no domains.
    fn take_nodes_out(&self, group: &mut Group, rows: &Rows, sets: &mut Sets) {
        for at in self.out.iter() {
            let row = rows.get(at);
            if let Some(domain) = given(group, row, sets)
                && let Some(n) = group.givers.get_mut(domain)
            {
                *n = n.saturating_sub(1);
            }
        }
    }

    /// Notes which domains one pod with an affinity constraint can be in.
    ///
    /// DIFFERENCE: Karpenter lets the first pod of a group choose by itself; where that is a pod without a volume, the one with
    /// a volume in another zone never gets a place.
    pub(crate) fn want(&mut self, at: usize, allowed: &Bits) {
        let group = &mut self.groups[at];
        if group.identity.rule != Rule::Affinity || group.on_host {
            return;
        }
        group.wanted.get_or_insert_with(|| group.known.clone()).and(allowed);
    }

    /// All pods have said where they can be. Those that can never be together do not wait for each other.
    pub(crate) fn settle_wanted(&mut self) {
        for group in &mut self.groups {
            let says_something = |it: &Bits| !it.is_empty() && *it != group.known;
            group.wanted = group.wanted.take().filter(says_something);
        }
    }

    /// Lets every group begin anywhere; whether any could not.
    pub(crate) fn want_nothing(&mut self) -> bool {
        let taken = self.groups.iter_mut().filter_map(|group| group.wanted.take());
        taken.count() > 0
    }

    /// Whether the group's filter takes a claim with these requirements, or a node with these labels.
    pub(crate) fn filter_takes(
        &self,
        at: usize,
        set: SetId,
        host: &str,
        taints: &[spokeshave_model::Taint],
        sets: &mut Sets,
    ) -> bool {
        let group = &self.groups[at];
        group.identity.rule != Rule::Spread || group.identity.filter.takes(set, host, taints, sets)
    }

    /// Whether narrowing a claim from one set to another brings it under the eyes of the group.
    pub(crate) fn comes_under(
        &self,
        at: usize,
        (from, to): (SetId, SetId),
        host: &str,
        taints: &[spokeshave_model::Taint],
        sets: &mut Sets,
    ) -> bool {
        from != to
            && !self.filter_takes(at, from, host, taints, sets)
            && self.filter_takes(at, to, host, taints, sets)
    }

    /// Counts a pod in one more domain.
    pub(crate) fn record(&mut self, at: usize, domain: usize) {
        self.groups[at].add(domain, 1);
    }

    /// Whether one host can take the pod, as far as this group is concerned. `allowed` tells whether the pod's strict
    /// requirements allow a host.
    pub(crate) fn host_allows(
        &self,
        at: usize,
        host: usize,
        selected: bool,
        populated_allowed: impl FnOnce(&Group) -> bool,
    ) -> bool {
        let group = &self.groups[at];
        let count = i64::from(group.count(host));
        match group.identity.rule {
            Rule::Spread => count + i64::from(selected) <= group.identity.max_skew,
            Rule::AntiAffinity => count == 0,
            Rule::Affinity => count > 0 || (selected && !populated_allowed(group)),
        }
    }

    /// The values of one key that all of `groups` leave: `node` what the node allows, `pod` what the pod's strict
    /// requirements allow. One value where spread or a first affine pod has to choose.
    ///
    /// DIFFERENCE: Karpenter lets each group choose by itself and intersects the choices; two groups on one key can so
    /// miss a domain that suits both. Here the sets are intersected before anything is chosen.
    pub(crate) fn choose(
        &self,
        groups: &[usize],
        node: &Bits,
        pod: &Bits,
        selected: impl Fn(usize) -> bool,
        sets: &Sets,
    ) -> Option<Bits> {
        let mut left = node.clone();
        let mut choose_one = false;
        let mut loads: smallvec::SmallVec<[usize; 4]> = smallvec::SmallVec::new();
        for at in groups {
            let group = &self.groups[*at];
            let mut known = group.known.clone();
            match group.identity.rule {
                Rule::Spread => {
                    known.and(pod);
                    let mut least = known.iter().map(|it| group.count(it)).min().unwrap_or(0);
                    if let Some(min_domains) = group.identity.min_domains
                        && i64::try_from(known.count()).unwrap_or(i64::MAX) < min_domains
                    {
                        least = 0;
                    }
                    let own = i64::from(selected(*at));
                    let room = group.identity.max_skew + i64::from(least) - own;
                    let mut candidates = group.known.clone();
                    candidates.and(&left);
                    left = candidates
                        .iter()
                        .filter(|it| i64::from(group.count(*it)) <= room)
                        .collect();
                    choose_one = true;
                    loads.push(*at);
                }
                Rule::Affinity => {
                    known.and(pod);
                    let mut populated = known.clone();
                    let empty: Bits = populated.iter().filter(|it| group.count(*it) == 0).collect();
                    populated.and_not(&empty);
                    let mut options = populated.clone();
                    options.and(node);
                    if !options.is_empty() {
                        left.and(&options);
                    } else if selected(*at) && populated.is_empty() {
                        left.and(&known);
                        if let Some(wanted) = &group.wanted {
                            left.and(wanted);
                        }
                        choose_one = true;
                    } else {
                        return None;
                    }
                }
                Rule::AntiAffinity => {
                    known.and(pod);
                    let taken: Bits = known.iter().filter(|it| group.count(*it) > 0).collect();
                    known.and_not(&taken);
                    left.and(&known);
                }
            }
            if left.is_empty() {
                return None;
            }
        }
        if !choose_one {
            return Some(left);
        }
        let key = sets.key_of(self.groups[*groups.first()?].identity.key);
        let best = left.iter().min_by(|a, b| {
            for at in &loads {
                let order = self.groups[*at].count(*a).cmp(&self.groups[*at].count(*b));
                if order.is_ne() {
                    return order;
                }
            }
            key.value(*a).cmp(key.value(*b))
        })?;
        Some(std::iter::once(best).collect())
    }
}

/// Fills in the domains and counts of the cluster as it is.
fn count(group: &mut Group, inverse: bool, view: &ClusterView, rows: &Rows, sets: &mut Sets) {
    let key = group.identity.key;
    let name = Arc::clone(&sets.key_of(key).name);
    // Rows of one class have equal labels and taints: one of them speaks for all, unless somebody asks for hosts by name.
    let alike = rows.looks_at(&name) && !group.identity.filter.asks_for_hosts();
    if !group.on_host {
        let mut by_class: FxHashMap<usize, Option<usize>> = FxHashMap::default();
        for row in rows.iter().filter(|it| it.gives_domains()) {
            let domain = match by_class.get(&row.class) {
                Some(known) if alike => *known,
                _ => given(group, row, sets),
            };
            by_class.insert(row.class, domain);
            let Some(at) = domain else { continue };
            if group.givers.len() <= at {
                group.givers.resize(at + 1, 0);
            }
            group.givers[at] += 1;
        }
    }
    if inverse || group.identity.selector.is_none() {
        return;
    }
    // Here the Node's own taints count, which are no part of the class.
    let by_class = alike && !group.on_host && group.identity.filter.tolerations.is_none();
    let mut places: FxHashMap<usize, Option<usize>> = FxHashMap::default();
    for class in view.label_classes() {
        if class.by_node.is_empty()
            || group.identity.namespaces.binary_search(&class.namespace).is_err()
            || !group.identity.selector.as_ref().is_some_and(|it| it.matches(&class.labels))
        {
            continue;
        }
        for (node, n) in &class.by_node {
            if let Some(row) = rows.by_number(*node)
                && let Some(at) = *places
                    .entry(if by_class { row.class } else { row.at })
                    .or_insert_with(|| place(group, row, sets))
            {
                group.add(at, *n);
            }
        }
    }
}

/// The domain that a node gives to the group, if it may receive pods and the group looks at it.
fn given(group: &Group, row: &Row, sets: &mut Sets) -> Option<usize> {
    let identity = &group.identity;
    if !row.gives_domains()
        || identity.rule == Rule::Spread
            && !identity.filter.takes(row.set, row.host_name(), &row.taints, sets)
    {
        return None;
    }
    let name = Arc::clone(&sets.key_of(identity.key).name);
    row.value(&name).map(|value| sets.value(identity.key, value))
}

/// The domain in which pods of a node count; `None` when the group does not look at the node.
fn place(group: &Group, row: &Row, sets: &mut Sets) -> Option<usize> {
    let identity = &group.identity;
    if identity.rule == Rule::Spread
        && !identity.filter.takes(row.set, row.host_name(), &row.node_taints, sets)
    {
        return None;
    }
    if group.on_host {
        return Some(row.host);
    }
    let name = Arc::clone(&sets.key_of(identity.key).name);
    row.value(&name).map(|value| sets.value(identity.key, value))
}

fn spread_identity(pod: &Pod, constraint: &TopologySpreadConstraint, sets: &mut Sets) -> Identity {
    let honours_affinity = constraint.node_affinity_policy.as_deref() != Some("Ignore");
    let honours_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
    let mut filter = Filter::default();
    if honours_affinity {
        let selector = spokeshave_model::Requirements::from_labels(&pod.spec.node_selector);
        let terms = shapes::required_terms(pod);
        let mut add = |set: spokeshave_model::Requirements| {
            let host = shapes::host_requirement(&set);
            filter.terms.push((sets.intern(set), host));
        };
        if terms.is_empty() {
            if !selector.is_empty() {
                add(selector);
            }
        } else {
            for term in terms {
                let mut set = selector.clone();
                set.add_all(&spokeshave_model::Requirements::from_api(&term.match_expressions));
                add(set);
            }
        }
    }
    if honours_taints {
        filter.tolerations = Some(pod.spec.tolerations.clone());
    }
    Identity {
        rule: Rule::Spread,
        key: sets.key(&constraint.topology_key),
        namespaces: vec![pod.metadata.namespace.clone()],
        selector: with_label_keys(
            pod,
            constraint.label_selector.as_ref(),
            &constraint.match_label_keys,
        ),
        max_skew: i64::from(constraint.max_skew),
        min_domains: constraint.min_domains.map(i64::from),
        filter,
    }
}

pub(crate) fn term_identity(
    pod: &Pod,
    rule: Rule,
    term: &PodAffinityTerm,
    view: &ClusterView,
    sets: &mut Sets,
) -> Identity {
    let mut namespaces = term.namespaces.clone();
    match &term.namespace_selector {
        Some(selector) => namespaces.extend(
            view.namespaces
                .values()
                .filter(|it| selector.matches(&it.metadata.labels))
                .map(|it| it.metadata.name.clone()),
        ),
        None if namespaces.is_empty() => namespaces.push(pod.metadata.namespace.clone()),
        None => {}
    }
    if term.namespace_selector.as_ref().is_some_and(LabelSelector::is_empty) {
        // All namespaces, also those whose objects are not in the view.
        namespaces.extend(view.label_classes().iter().map(|it| it.namespace.clone()));
        namespaces.extend(view.unbound.keys().map(|it| it.namespace.clone()));
        namespaces.push(pod.metadata.namespace.clone());
    }
    namespaces.sort();
    namespaces.dedup();
    Identity {
        rule,
        key: sets.key(&term.topology_key),
        namespaces,
        selector: normalized(term.label_selector.clone()),
        max_skew: i64::from(i32::MAX),
        min_domains: None,
        filter: Filter::default(),
    }
}

fn normalized(selector: Option<LabelSelector>) -> Option<LabelSelector> {
    selector.map(|mut it| {
        it.match_expressions.sort();
        it.match_expressions.dedup();
        it
    })
}

/// The selector with `key In [pod's value]` for each listed key that the pod has.
fn with_label_keys(
    pod: &Pod,
    selector: Option<&LabelSelector>,
    keys: &[String],
) -> Option<LabelSelector> {
    let mut selector = selector?.clone();
    for key in keys {
        if let Some(value) = pod.metadata.labels.get(key) {
            selector.match_expressions.push(LabelSelectorRequirement {
                key: key.clone(),
                operator: "In".into(),
                values: vec![value.clone()],
            });
        }
    }
    normalized(Some(selector))
}
