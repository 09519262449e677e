//! Requirement sets as numbers: every set that occurs is kept once, and what two of them make together is
//! worked out once. `kubernetes.io/hostname` is kept out of sets: it differs everywhere, and would make every set
//! unique.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use spokeshave_model::{Requirement, Requirements, labels, requirements::Incompatible};

use crate::bits::Bits;

/// A set of requirements without the host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SetId(pub(crate) u32);

/// A topology key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyId(pub(crate) u32);

/// A topology key and the values that it has anywhere.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: Arc<str>,
    pub(crate) values: Vec<Arc<str>>,
    index: FxHashMap<Arc<str>, u32>,
}

impl Key {
    pub(crate) fn value(&self, at: usize) -> &str {
        self.values.get(at).map_or("", |it| it)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Sets {
    sets: Vec<Arc<Requirements>>,
    index: FxHashMap<Arc<Requirements>, SetId>,
    /// Well-known keys may be undefined.
    joined: FxHashMap<(SetId, SetId), Option<SetId>>,
    /// Nothing may be undefined.
    carried: FxHashMap<(SetId, SetId), bool>,
    keys: Vec<Key>,
    key_index: FxHashMap<Arc<str>, KeyId>,
    allowed: FxHashMap<(SetId, KeyId), (usize, Arc<Bits>)>,
    narrowed: FxHashMap<(SetId, KeyId, Bits), Option<SetId>>,
    /// Keys beyond the well-known ones that may be undefined.
    pub(crate) extra_well_known: Vec<String>,
}

/// The set that nothing is required of.
pub(crate) const ANYTHING: SetId = SetId(0);

impl Sets {
    pub(crate) fn new(extra_well_known: Vec<String>) -> Self {
        let mut sets = Self { extra_well_known, ..Self::default() };
        sets.intern(Requirements::new());
        sets
    }

    /// The number of a set; a host name in it is taken out.
    pub(crate) fn intern(&mut self, mut set: Requirements) -> SetId {
        set.remove(labels::HOSTNAME);
        if let Some(id) = self.index.get(&set) {
            return *id;
        }
        let id = SetId(self.sets.len() as u32);
        let set = Arc::new(set);
        self.sets.push(Arc::clone(&set));
        self.index.insert(set, id);
        id
    }

    pub(crate) fn get(&self, id: SetId) -> &Arc<Requirements> {
        &self.sets[id.0 as usize]
    }

    pub(crate) fn is_well_known(&self, key: &str) -> bool {
        labels::is_well_known(key) || self.extra_well_known.iter().any(|it| it == key)
    }

    /// What a thing not made yet becomes when it takes `incoming`; `None` when it cannot.
    pub(crate) fn join(&mut self, base: SetId, incoming: SetId) -> Option<SetId> {
        if incoming == ANYTHING {
            return Some(base);
        }
        if let Some(known) = self.joined.get(&(base, incoming)) {
            return *known;
        }
        let result = self.why_not_joined(base, incoming).is_none().then(|| {
            let mut set = (**self.get(base)).clone();
            set.add_all(&Arc::clone(self.get(incoming)));
            self.intern(set)
        });
        self.joined.insert((base, incoming), result);
        result
    }

    /// Why a thing not made yet cannot take `incoming`.
    pub(crate) fn why_not_joined(&self, base: SetId, incoming: SetId) -> Option<Incompatible> {
        self.get(base).compatible(self.get(incoming), |key| self.is_well_known(key)).err()
    }

    /// Whether a thing that has all the labels it will ever have carries `incoming`.
    pub(crate) fn carries(&mut self, base: SetId, incoming: SetId) -> bool {
        if incoming == ANYTHING {
            return true;
        }
        if let Some(known) = self.carried.get(&(base, incoming)) {
            return *known;
        }
        let result = self.get(base).compatible(self.get(incoming), |_| false).is_ok();
        self.carried.insert((base, incoming), result);
        result
    }

    pub(crate) fn key(&mut self, name: &str) -> KeyId {
        let name = labels::normalize(name);
        if let Some(id) = self.key_index.get(name) {
            return *id;
        }
        let id = KeyId(self.keys.len() as u32);
        let name: Arc<str> = name.into();
        self.key_index.insert(Arc::clone(&name), id);
        self.keys.push(Key { name, values: Vec::new(), index: FxHashMap::default() });
        id
    }

    pub(crate) fn key_of(&self, id: KeyId) -> &Key {
        &self.keys[id.0 as usize]
    }

    /// The position of a value of a key, made if it is new.
    pub(crate) fn value(&mut self, key: KeyId, value: &str) -> usize {
        let key = &mut self.keys[key.0 as usize];
        if let Some(at) = key.index.get(value) {
            return *at as usize;
        }
        let at = key.values.len();
        let value: Arc<str> = value.into();
        key.values.push(Arc::clone(&value));
        key.index.insert(value, at as u32);
        at
    }

    /// Which values of `key` a set allows. A set without the key allows all.
    pub(crate) fn allowed(&mut self, set: SetId, key: KeyId) -> Arc<Bits> {
        let n_values = self.keys[key.0 as usize].values.len();
        if let Some((known, bits)) = self.allowed.get(&(set, key))
            && *known == n_values
        {
            return Arc::clone(bits);
        }
        let values = &self.keys[key.0 as usize];
        let bits = match self.sets[set.0 as usize].get(&values.name) {
            None => Bits::all(n_values),
            Some(requirement) => {
                let mut bits = Bits::none(n_values);
                for (at, value) in values.values.iter().enumerate() {
                    if requirement.has(value) {
                        bits.set(at);
                    }
                }
                bits
            }
        };
        let bits = Arc::new(bits);
        self.allowed.insert((set, key), (n_values, Arc::clone(&bits)));
        bits
    }

    /// The set narrowed to the given values of `key`; `None` when the key is not defined and not well-known.
    pub(crate) fn narrow(&mut self, set: SetId, key: KeyId, values: &Bits) -> Option<SetId> {
        let question = (set, key, values.clone());
        if let Some(known) = self.narrowed.get(&question) {
            return *known;
        }
        let it = &self.keys[key.0 as usize];
        let base = &self.sets[set.0 as usize];
        let defined = base.contains_key(&it.name) || self.is_well_known(&it.name);
        let mut narrowed = (**base).clone();
        let listed = values.iter().map(|at| it.value(at).to_owned());
        narrowed.add(Requirement::new(&it.name, spokeshave_model::Operator::In, listed));
        let result = defined.then(|| self.intern(narrowed));
        self.narrowed.insert(question, result);
        result
    }

    /// The values of `key` that a set leaves, as a list: empty when the set does not limit it to listed values.
    pub(crate) fn listed(&mut self, set: SetId, key: KeyId) -> Vec<usize> {
        let name = Arc::clone(&self.keys[key.0 as usize].name);
        let set = Arc::clone(self.get(set));
        match set.get(&name) {
            Some(requirement) if !requirement.complement => {
                requirement.values.iter().map(|value| self.value(key, value)).collect()
            }
            Some(_) => self.allowed_now(&set, key),
            None => Vec::new(),
        }
    }

    fn allowed_now(&self, set: &Requirements, key: KeyId) -> Vec<usize> {
        let key = self.key_of(key);
        let Some(requirement) = set.get(&key.name) else { return Vec::new() };
        (0..key.values.len()).filter(|at| requirement.has(key.value(*at))).collect()
    }
}
