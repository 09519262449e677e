//! Lists of resources by name, and their arithmetic (`spec` scheduling 3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Quantity;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const PODS: &str = "pods";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Pseudo-resource of limits: the number of nodes.
pub const NODES: &str = "nodes";

/// Amounts by resource name. A missing name counts as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Resources(pub BTreeMap<String, Quantity>);

/// A resource as metric labels spell it: in lower case, with `_` for `-`. Source: Karpenter 1.x.
pub fn metric_label(resource: &str) -> String {
    resource.to_lowercase().replace('-', "_")
}

impl Resources {
    /// Nothing.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The amount of `name`, zero when missing.
    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Sets an amount.
    pub fn set(&mut self, name: &str, amount: Quantity) {
        self.0.insert(name.to_owned(), amount);
    }

    /// The same with one more amount.
    #[must_use]
    pub fn with(mut self, name: &str, amount: Quantity) -> Self {
        self.set(name, amount);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and amounts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Adds every amount of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            match self.0.get_mut(name) {
                Some(sum) => *sum += *amount,
                None => {
                    self.0.insert(name.clone(), *amount);
                }
            }
        }
    }

    /// Subtracts the amounts of `other` from the names that are present. May go negative.
    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in &mut self.0 {
            *amount -= other.get(name);
        }
    }

    /// Raises every amount to at least that of `other`, over the union of names.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let mine = self.0.entry(name.clone()).or_insert(*amount);
            *mine = (*mine).max(*amount);
        }
    }

    /// Whether these requests fit `total`. A total with any negative amount takes nothing.
    pub fn fits(&self, total: &Self) -> bool {
        !total.0.values().any(|amount| amount.is_negative())
            && self.0.iter().all(|(name, amount)| *amount <= total.get(name))
    }
}

impl FromIterator<(String, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (String, Quantity)>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(amounts: &[(&str, &str)]) -> Resources {
        amounts
            .iter()
            .map(|(name, text)| ((*name).to_owned(), text.parse().expect("valid")))
            .collect()
    }

    #[test] // scheduling 3, case 6
    fn fits_looks_at_every_total() {
        assert!(!list(&[("cpu", "0")]).fits(&list(&[("cpu", "-100m"), ("memory", "1Gi")])));
        assert!(list(&[("foo", "0")]).fits(&list(&[("cpu", "1")])));
        assert!(!list(&[("foo", "1")]).fits(&list(&[("cpu", "1")])));
    }
}
