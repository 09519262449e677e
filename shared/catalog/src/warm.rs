//! What a process has worked out before, by content: the same input gives the same answer, so that remembering it changes
//! nothing but the time that it takes. Whoever calls keeps the [`Memo`], for as long as it likes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use spokeshave_model::{EC2NodeClass, InstanceType, Kind, Quantity};

use crate::{Catalog, CatalogError, MarketView, Shared, SpotPrices, stored::StoredCatalog};

/// Every type of a class, shared.
pub type TypeList = Arc<[Arc<InstanceType>]>;

/// Lists that are remembered: a few classes, each before and after a mark.
const LISTS: usize = 24;
/// Catalogs that are remembered: the newest two.
const CATALOGS: usize = 2;

/// A list is made from another while fewer types than this differ: beyond it the whole costs no more.
const FEW: usize = 200;

/// The newest values by the name of their content.
#[derive(Debug)]
struct Newest<T>(Mutex<VecDeque<(String, T)>>);

impl<T: Clone> Newest<T> {
    const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    fn find(&self, key: &str) -> Option<T> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|it| it.0 == key).map(|it| it.1.clone())
    }

    fn keep(&self, key: String, value: T, most: usize) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.push_front((key, value));
        known.truncate(most);
    }
}

/// Catalogs, spot prices and lists of types that were worked out before. A process that serves one stack has one; an empty
/// one always will do.
#[derive(Debug)]
pub struct Memo {
    lists: Mutex<VecDeque<KnownList>>,
    catalogs: Newest<Arc<Catalog>>,
    spot: Newest<Shared<SpotPrices>>,
}

impl Default for Memo {
    fn default() -> Self {
        Self::new()
    }
}

impl Memo {
    /// One that knows nothing.
    pub const fn new() -> Self {
        Self { lists: Mutex::new(VecDeque::new()), catalogs: Newest::new(), spot: Newest::new() }
    }

    /// A catalog by the name of its content, made by `make` when it is not known.
    pub(crate) fn catalog(
        &self,
        content: &str,
        make: impl FnOnce() -> Option<Catalog>,
    ) -> Option<Arc<Catalog>> {
        if let Some(found) = self.known_catalog(content) {
            return Some(found);
        }
        let made = Arc::new(make()?);
        self.catalogs.keep(content.to_owned(), made.clone(), CATALOGS);
        Some(made)
    }

    /// The same, if it is known.
    pub(crate) fn known_catalog(&self, content: &str) -> Option<Arc<Catalog>> {
        self.catalogs.find(content)
    }

    /// Spot prices by the name of their content, made by `make` when they are not known.
    pub(crate) fn spot(
        &self,
        content: &str,
        make: impl FnOnce() -> Option<SpotPrices>,
    ) -> Option<Shared<SpotPrices>> {
        if let Some(found) = self.spot.find(content) {
            return Some(found);
        }
        let made: Shared<SpotPrices> = make()?.into();
        self.spot.keep(content.to_owned(), made.clone(), CATALOGS);
        Some(made)
    }

    /// [`Catalog::instance_types`], remembered by everything that it depends on. Where little has changed since a list that is
    /// remembered, only the types that this concerns are made anew.
    ///
    /// # Errors
    /// As [`Catalog::instance_types`].
    pub fn instance_types(
        &self,
        stored: &StoredCatalog,
        class: &EC2NodeClass,
        view: &MarketView<'_>,
    ) -> Result<TypeList, CatalogError> {
        if stored.content.is_empty() {
            return Ok(stored
                .catalog
                .instance_types(class, view)?
                .into_iter()
                .map(Arc::new)
                .collect());
        }
        let mut asked = KnownList::question(stored, class, view);
        let alike = {
            let mut known = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = known.iter().position(|it| it.is(&asked)) {
                // Those that are asked for stay the longest.
                if let Some(found) = known.remove(at) {
                    let types = Arc::clone(&found.types);
                    known.push_front(found);
                    return Ok(types);
                }
            }
            let differing = |it: &KnownList| it.differing(&asked).map(|names| names.len());
            known
                .iter()
                .filter(|it| differing(it).is_some())
                .min_by_key(|it| differing(it))
                .cloned()
        };
        let anew = alike.as_ref().and_then(|it| it.differing(&asked)).filter(|it| it.len() < FEW);
        asked.types = match (&alike, anew) {
            (Some(alike), Some(names)) => {
                let made = stored.catalog.resolve(class, view, |name| names.contains(name))?.types;
                let mut made: BTreeMap<String, Arc<InstanceType>> =
                    made.into_iter().map(|it| (it.name.clone(), Arc::new(it))).collect();
                let kept = alike.types.iter();
                kept.map(|it| made.remove(&it.name).unwrap_or_else(|| Arc::clone(it))).collect()
            }
            _ => stored.catalog.instance_types(class, view)?.into_iter().map(Arc::new).collect(),
        };
        let types = Arc::clone(&asked.types);
        let mut known = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        known.push_front(asked);
        known.truncate(LISTS);
        Ok(types)
    }
}

/// A list of types and what it was made from.
#[derive(Clone, Debug)]
struct KnownList {
    /// Everything that concerns all types, as text.
    base: String,
    /// What is marked as not to be had.
    marks: BTreeSet<String>,
    /// What nodes were seen with, by type and images.
    memory: BTreeMap<(String, String), Quantity>,
    types: TypeList,
}

impl KnownList {
    fn question(stored: &StoredCatalog, class: &EC2NodeClass, view: &MarketView<'_>) -> Self {
        let standing = view.unavailable.iter().filter(|it| it.1 > view.now);
        let seen = view.memory.0.iter().filter(|it| it.1.expires_at > view.now);
        Self {
            base: base(stored, class, view),
            marks: standing.map(|it| it.0.to_owned()).collect(),
            memory: seen.map(|(key, it)| (key.clone(), it.memory)).collect(),
            types: TypeList::default(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        self.base == other.base && self.marks == other.marks && self.memory == other.memory
    }

    /// The types that differ from those of `other`; `None` when all may.
    fn differing<'a>(&'a self, other: &'a Self) -> Option<BTreeSet<&'a str>> {
        if self.base != other.base {
            return None;
        }
        let mut names = BTreeSet::new();
        for mark in self.marks.symmetric_difference(&other.marks) {
            // The type is the second part; other marks have one part.
            names.insert(mark.split(':').nth(1)?);
        }
        for (one, two) in [(&self.memory, &other.memory), (&other.memory, &self.memory)] {
            let changed = one.iter().filter(|(key, it)| two.get(*key) != Some(*it));
            names.extend(changed.map(|(key, _)| key.0.as_str()));
        }
        Some(names)
    }
}

/// Everything that all types of a list depend on, as text.
fn base(stored: &StoredCatalog, class: &EC2NodeClass, view: &MarketView<'_>) -> String {
    let text = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
    format!(
        "{}|{}|{}|{}|{:?}|{:?}|{:?}|{:?}|{:?}|{}|{}",
        stored.content,
        class.name(),
        text(serde_json::to_string(&class.spec)),
        text(serde_json::to_string(&(
            &class.status.subnets,
            &class.status.amis,
            &class.status.capacity_reservations
        ))),
        view.reservations,
        view.overlay_prices,
        view.shifted_zones,
        view.placement_groups,
        view.settings.gates,
        view.settings.vm_memory_overhead_percent,
        view.settings.reserved_enis,
    )
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use spokeshave_model::{CapacityType, Settings, meta::from_value};

    use super::*;
    use crate::{
        Mark, UnavailableOfferings,
        memory::{self, DiscoveredMemory},
    };

    type Step<'a> = &'a dyn Fn(&mut UnavailableOfferings, &mut DiscoveredMemory);

    #[test]
    fn a_list_made_from_another_is_what_it_would_be_made_anew() {
        let catalog = Catalog::builtin("us-east-1").expect("facts are built in");
        let stored = StoredCatalog { catalog, content: "a test".into(), ..Default::default() };
        let class: EC2NodeClass = from_value(serde_json::json!({"metadata": {"name": "default"},
            "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}]},
            "status": {"subnets": [{"id": "subnet-1", "zone": "us-east-1a", "zoneID": "use1-az1"}]}}))
        .expect("a class");
        let settings = Settings::default();
        let memo = Memo::new();
        let now = Timestamp::from_second(1_767_261_600).expect("in range");
        let spot = |name| Mark::offering(CapacityType::Spot, name, "us-east-1a");
        let mut marks = UnavailableOfferings::default();
        let mut seen = DiscoveredMemory::default();
        let steps: [Step<'_>; 6] = [
            &|_, _| {},
            &|marks, _| marks.mark(&spot("m5.large"), now),
            &|_, seen| {
                let memory = "7000Mi".parse().expect("a quantity");
                seen.observe("m5.xlarge", &memory::image_set(&class), memory, now);
            },
            &|marks, _| marks.remove(&spot("m5.large")),
            &|marks, _| marks.mark(&Mark::CapacityType(CapacityType::Spot), now),
            &|marks, _| marks.mark(&Mark::Subnet("subnet-1".into()), now),
        ];
        for (n, step) in steps.into_iter().enumerate() {
            step(&mut marks, &mut seen);
            marks.set_now(now);
            let view = MarketView {
                unavailable: marks.clone(),
                memory: seen.clone(),
                ..MarketView::new(&settings, now)
            };
            let list = memo.instance_types(&stored, &class, &view).expect("types");
            let anew = stored.catalog.instance_types(&class, &view).expect("types");
            assert!(list.len() > 500, "step {n}");
            assert!(list.iter().map(|it| &**it).eq(anew.iter()), "step {n}");
        }
    }
}
