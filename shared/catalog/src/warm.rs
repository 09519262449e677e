//! What a process has worked out before, by content: the same input gives the same answer, so that remembering it changes
//! nothing but the time that it takes. Whoever calls keeps the [`Memo`], for as long as it likes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use spokeshave_model::{EC2NodeClass, InstanceType, Kind};

use crate::{Catalog, CatalogError, MarketView, Shared, SpotPrices, stored::StoredCatalog};

/// Every type of a class, shared.
pub type TypeList = Arc<[Arc<InstanceType>]>;

/// Lists that are remembered: a few classes, each before and after a mark.
const LISTS: usize = 24;
/// Catalogs that are remembered: the newest two.
const CATALOGS: usize = 2;

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
    lists: Newest<TypeList>,
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
        Self { lists: Newest::new(), catalogs: Newest::new(), spot: Newest::new() }
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

    /// [`Catalog::instance_types`], remembered by everything that it depends on.
    ///
    /// # Errors
    /// As [`Catalog::instance_types`].
    pub fn instance_types(
        &self,
        stored: &StoredCatalog,
        class: &EC2NodeClass,
        view: &MarketView<'_>,
    ) -> Result<TypeList, CatalogError> {
        let make = || -> Result<TypeList, CatalogError> {
            Ok(stored.catalog.instance_types(class, view)?.into_iter().map(Arc::new).collect())
        };
        if stored.content.is_empty() {
            return make();
        }
        let key = key(stored, class, view);
        if let Some(found) = self.lists.find(&key) {
            return Ok(found);
        }
        let made = make()?;
        self.lists.keep(key, made.clone(), LISTS);
        Ok(made)
    }
}

/// Everything that a list of instance types depends on, as text.
fn key(stored: &StoredCatalog, class: &EC2NodeClass, view: &MarketView<'_>) -> String {
    let marks: BTreeMap<&str, bool> =
        view.unavailable.iter().map(|it| (it.0, it.1 > view.now)).collect();
    let memory: Vec<_> = view.memory.0.iter().filter(|it| it.1.expires_at > view.now).collect();
    let text = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
    format!(
        "{}|{}|{}|{}|{marks:?}|{:?}|{memory:?}|{:?}|{:?}|{:?}|{:?}|{}|{}",
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
