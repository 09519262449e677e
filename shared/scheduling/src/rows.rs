//! The nodes of the cluster as rows of a table: what the solver compares pods with.

use rustc_hash::FxHashMap;
use spokeshave_model::{Requirements, Resources, Taint, labels};

use crate::{
    bits::Bits,
    dims::{Amounts, Dims},
    ports::HostPort,
    sets::{SetId, Sets},
    view::{ClusterView, StateNode},
};

/// One node, or claim whose node has not joined yet.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) at: usize,
    pub(crate) state: StateNode,
    /// May receive pods: not going away and not taken out.
    pub(crate) offered: bool,
    pub(crate) initialized: bool,
    /// Domain of the host name.
    pub(crate) host: usize,
    /// Its labels, as far as any pod or daemon of this plan asks about them.
    pub(crate) set: SetId,
    /// Rows with equal labels (as above) and taints.
    pub(crate) class: usize,
    pub(crate) taints: Vec<Taint>,
    /// The Node's own, for counting pods that are there.
    pub(crate) node_taints: Vec<Taint>,
    pub(crate) room: Amounts,
    /// Some resource is promised more than once: nothing more fits.
    pub(crate) overcommitted: bool,
    pub(crate) ports: Vec<HostPort>,
}

impl Row {
    /// The value of a label; an empty one counts as none.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        if key == labels::HOSTNAME {
            return Some(self.state.host_name());
        }
        let list = self.state.labels();
        let aliased =
            || list.iter().find(|(name, _)| labels::normalize(name) == key).map(|it| it.1);
        list.get(key).or_else(aliased).map(String::as_str).filter(|it| !it.is_empty())
    }

    pub(crate) fn host_name(&self) -> &str {
        self.state.host_name()
    }

    /// Whether topology knows domains from it: a Node that may receive pods.
    pub(crate) fn gives_domains(&self) -> bool {
        self.offered && self.state.node.is_some()
    }
}

/// All rows: first those that are initialized, then the others, each by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    by_node: FxHashMap<String, usize>,
    by_claim: FxHashMap<String, usize>,
    /// Rows by the view's numbers of their Nodes.
    by_number: FxHashMap<u32, usize>,
    /// Label keys that have been asked about.
    keys: Vec<String>,
    /// Taints and labels of each class.
    pub(crate) classes: Vec<(SetId, Vec<Taint>)>,
    /// The rows of each class.
    by_class: Vec<Bits>,
}

impl Rows {
    pub(crate) fn new(states: Vec<StateNode>, view: &ClusterView) -> Self {
        let mut rows: Vec<Row> = states
            .into_iter()
            .map(|state| Row {
                at: 0,
                offered: !state.is_marked_for_deletion(),
                initialized: state.is_initialized(),
                host: 0,
                set: crate::sets::ANYTHING,
                class: 0,
                taints: state.taints(),
                node_taints: state.node.as_ref().map_or_else(Vec::new, |it| it.spec.taints.clone()),
                room: Amounts::new(),
                overcommitted: false,
                ports: Vec::new(),
                state,
            })
            .collect();
        rows.sort_by(|a, b| {
            (!a.initialized, a.state.name()).cmp(&(!b.initialized, b.state.name()))
        });
        let mut by_node = FxHashMap::default();
        let mut by_claim = FxHashMap::default();
        let mut by_number = FxHashMap::default();
        for (at, row) in rows.iter_mut().enumerate() {
            row.at = at;
            row.host = at;
            if let Some(claim) = &row.state.claim {
                by_claim.insert(claim.metadata.name.clone(), at);
            }
            if let Some(node) = &row.state.node {
                by_node.insert(node.metadata.name.clone(), at);
                if let Some(number) = view.number_of(&node.metadata.name) {
                    by_number.insert(number, at);
                }
            }
        }
        Self { rows, by_node, by_claim, by_number, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    pub(crate) fn get(&self, at: usize) -> &Row {
        &self.rows[at]
    }

    pub(crate) fn by_node(&self, name: &str) -> Option<&Row> {
        self.by_node.get(name).map(|at| &self.rows[*at])
    }

    /// The rows whose Node or claim has this name.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = usize> {
        [self.by_node.get(name).copied(), self.by_claim.get(name).copied()].into_iter().flatten()
    }

    pub(crate) fn by_number(&self, number: u32) -> Option<&Row> {
        self.by_number.get(&number).map(|at| &self.rows[*at])
    }

    /// Whether rows of one class agree in the label, too.
    pub(crate) fn looks_at(&self, key: &str) -> bool {
        !self.classes.is_empty() && self.keys.iter().any(|it| it == key)
    }

    /// Makes sure that the rows' sets answer questions about these keys; whether their classes are others now.
    pub(crate) fn look_at(
        &mut self,
        keys: impl IntoIterator<Item = String>,
        sets: &mut Sets,
    ) -> bool {
        let before = self.keys.len();
        for key in keys {
            let key = labels::normalize(&key).to_owned();
            if key != labels::HOSTNAME && !self.keys.contains(&key) {
                self.keys.push(key);
            }
        }
        if self.keys.len() == before && (!self.classes.is_empty() || self.rows.is_empty()) {
            return false;
        }
        self.classes.clear();
        let mut seen: FxHashMap<(Vec<Option<&str>>, &[Taint]), usize> = FxHashMap::default();
        let mut found = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let list = row.state.labels();
            let values: Vec<Option<&str>> =
                self.keys.iter().map(|key| label_of(list, key)).collect();
            let next = seen.len();
            let class = *seen.entry((values, row.taints.as_slice())).or_insert(next);
            if class == self.classes.len() {
                let set: Requirements = self
                    .keys
                    .iter()
                    .filter_map(|key| {
                        Some(spokeshave_model::Requirement::equals(key, label_of(list, key)?))
                    })
                    .collect();
                self.classes.push((sets.intern(set), row.taints.clone()));
            }
            found.push(class);
        }
        self.by_class = vec![Bits::default(); self.classes.len()];
        for (row, class) in self.rows.iter_mut().zip(found) {
            row.class = class;
            row.set = self.classes[class].0;
            self.by_class[class].set(row.at);
        }
        true
    }

    /// The rows of a class.
    pub(crate) fn of_class(&self, class: usize) -> &Bits {
        &self.by_class[class]
    }

    /// What is left on each row, once the daemons that are still to come are counted.
    pub(crate) fn measure(
        &mut self,
        view: &ClusterView,
        dims: &Dims,
        expected: impl Fn(&Row) -> Resources,
    ) {
        for row in &mut self.rows {
            let mut room = row.state.allocatable();
            let none = Resources::new();
            let pods = view.pods_on(row.state.node_name());
            let (used, daemons) =
                pods.map_or((&none, &none), |it| (&it.requests, &it.daemon_requests));
            room.subtract(used);
            let mut coming = expected(row);
            coming.subtract(daemons);
            coming.0.retain(|_, amount| !amount.is_negative() && !amount.is_zero());
            room.subtract(&coming);
            row.overcommitted = room.iter().any(|(_, amount)| amount.is_negative());
            row.room = dims.amounts(&room).0;
            row.ports = pods.map_or_else(Vec::new, |it| it.ports.clone());
        }
    }
}

fn label_of<'a>(list: &'a spokeshave_model::meta::StringMap, key: &str) -> Option<&'a str> {
    match list.get(key) {
        Some(value) => Some(value),
        None => {
            list.iter().find(|(name, _)| labels::normalize(name) == key).map(|it| it.1.as_str())
        }
    }
}
