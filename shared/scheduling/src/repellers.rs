//! The required anti-affinity of bound pods, put together once for all solves over one view: thousands of pods have the
//! same few terms, and a solve looks at those terms alone that select its own pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use spokeshave_model::{core::Pod, labels, meta::StringMap};

use crate::{
    rows::Rows,
    sets::Sets,
    topology::{Group, Identity, Rule, term_identity},
    view::ClusterView,
};

/// One term, and the bound pods that have it.
#[derive(Clone, Debug)]
pub(crate) struct Repeller {
    pub(crate) identity: Identity,
    /// One pod of each list of tolerations, and how many have that list.
    pub(crate) owners: Vec<(Arc<Pod>, usize)>,
    /// How many are in each domain.
    counts: BTreeMap<usize, u32>,
}

/// All terms, in the order of the first pods that have them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repellers {
    pub(crate) list: Vec<Repeller>,
    pub(crate) index: FxHashMap<Identity, usize>,
    /// Topology keys of the terms.
    pub(crate) keys: BTreeSet<String>,
    /// Which of them select pods of a namespace with such labels, as far as that was asked.
    selecting: FxHashMap<(String, StringMap), Arc<[usize]>>,
    is_made: bool,
}

/// A term of a bound pod that is being moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaving {
    pub(crate) repeller: usize,
    pub(crate) owner: usize,
    pub(crate) domain: Option<usize>,
}

impl Repellers {
    /// Looks at all bound pods with such terms, the first time that it is called.
    pub(crate) fn make(&mut self, view: &ClusterView, rows: &Rows, sets: &mut Sets) {
        if std::mem::replace(&mut self.is_made, true) {
            return;
        }
        for pod in view.repellers.iter().filter_map(|it| view.pod(it)) {
            for term in &pod.spec.affinity.pod_anti_affinity.required {
                self.keys.insert(term.topology_key.clone());
                let identity = term_identity(pod, Rule::AntiAffinity, term, view, sets);
                let domain = domain_of(&identity, pod, rows, sets);
                let next = self.list.len();
                let at = *self.index.entry(identity.clone()).or_insert(next);
                if at == next {
                    let (owners, counts) = (Vec::new(), BTreeMap::new());
                    self.list.push(Repeller { identity, owners, counts });
                }
                let it = &mut self.list[at];
                match it.owner_like(pod) {
                    Some(owner) => it.owners[owner].1 += 1,
                    None => it.owners.push((Arc::clone(pod), 1)),
                }
                if let Some(domain) = domain {
                    *it.counts.entry(domain).or_default() += 1;
                }
            }
        }
    }

    /// The terms of one pod of those.
    pub(crate) fn leaving(
        &self,
        pod: &Arc<Pod>,
        view: &ClusterView,
        rows: &Rows,
        sets: &mut Sets,
    ) -> Vec<Leaving> {
        let terms = pod.spec.affinity.pod_anti_affinity.required.iter();
        terms
            .filter_map(|term| {
                let identity = term_identity(pod, Rule::AntiAffinity, term, view, sets);
                let repeller = *self.index.get(&identity)?;
                let owner = self.list[repeller].owner_like(pod)?;
                Some(Leaving { repeller, owner, domain: domain_of(&identity, pod, rows, sets) })
            })
            .collect()
    }

    /// The terms that keep such a pod away, ascending.
    pub(crate) fn selecting(&mut self, pod: &Pod) -> Arc<[usize]> {
        if self.list.is_empty() {
            return Arc::default();
        }
        let question = (pod.metadata.namespace.clone(), pod.metadata.labels.clone());
        if let Some(known) = self.selecting.get(&question) {
            return Arc::clone(known);
        }
        let found: Arc<[usize]> =
            (0..self.list.len()).filter(|at| self.list[*at].identity.selects(pod)).collect();
        self.selecting.insert(question, Arc::clone(&found));
        found
    }

    /// Counts the owners of the group's term where they are.
    pub(crate) fn count_owners(&self, group: &mut Group) {
        let known = self.index.get(&group.identity).map(|at| &self.list[*at]);
        for (domain, n) in known.into_iter().flat_map(|it| &it.counts) {
            group.add(*domain, *n);
        }
    }
}

impl Repeller {
    fn owner_like(&self, pod: &Pod) -> Option<usize> {
        self.owners.iter().position(|(it, _)| it.spec.tolerations == pod.spec.tolerations)
    }
}

fn domain_of(identity: &Identity, pod: &Pod, rows: &Rows, sets: &mut Sets) -> Option<usize> {
    let row = rows.by_node(&pod.spec.node_name)?;
    let name = Arc::clone(&sets.key_of(identity.key).name);
    if *name == *labels::HOSTNAME {
        return Some(row.host);
    }
    row.value(&name).map(|value| sets.value(identity.key, value))
}
