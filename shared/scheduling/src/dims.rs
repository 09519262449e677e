//! Amounts as vectors: one position per resource name, in billionths of the unit, so nothing is ever rounded.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use spokeshave_model::{
    Resources,
    resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS},
};

/// Amounts by position.
pub(crate) type Amounts = SmallVec<[i128; 6]>;

/// The resource names that anything offers.
#[derive(Clone, Debug)]
pub(crate) struct Dims {
    names: Vec<String>,
    index: FxHashMap<String, usize>,
}

impl Dims {
    pub(crate) fn new() -> Self {
        let mut dims = Self { names: Vec::new(), index: FxHashMap::default() };
        for name in [CPU, MEMORY, PODS, EPHEMERAL_STORAGE] {
            dims.add(name);
        }
        dims
    }

    pub(crate) fn add(&mut self, name: &str) -> usize {
        if let Some(at) = self.index.get(name) {
            return *at;
        }
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }

    pub(crate) fn add_all(&mut self, resources: &Resources) {
        for (name, _) in resources.iter() {
            self.add(name);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    pub(crate) fn name(&self, at: usize) -> &str {
        &self.names[at]
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The amounts of known names; whether nothing more than zero is asked of unknown ones.
    pub(crate) fn amounts(&self, resources: &Resources) -> (Amounts, bool) {
        let mut amounts: Amounts = SmallVec::from_elem(0, self.names.len());
        let mut known = true;
        for (name, amount) in resources.iter() {
            match self.get(name) {
                Some(at) => amounts[at] = amount.nanos(),
                None => known &= amount.nanos() <= 0,
            }
        }
        (amounts, known)
    }
}
