//! What this process has worked out before, by content: the same input gives the same answer, so that remembering it
//! changes nothing but the time that it takes.

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

static KNOWN_LISTS: Mutex<VecDeque<(String, TypeList)>> = Mutex::new(VecDeque::new());
static KNOWN_CATALOGS: Mutex<VecDeque<(String, Arc<Catalog>)>> = Mutex::new(VecDeque::new());

static KNOWN_SPOT: Mutex<VecDeque<(String, Shared<SpotPrices>)>> = Mutex::new(VecDeque::new());

fn find<T: Clone>(known: &Mutex<VecDeque<(String, T)>>, key: &str) -> Option<T> {
    let known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.iter().find(|it| it.0 == key).map(|it| it.1.clone())
}

fn keep<T>(known: &Mutex<VecDeque<(String, T)>>, key: String, value: T, most: usize) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.push_front((key, value));
    known.truncate(most);
}

/// A catalog by the name of its content, made by `make` when it is not known.
pub(crate) fn catalog(
    content: &str,
    make: impl FnOnce() -> Option<Catalog>,
) -> Option<Arc<Catalog>> {
    if let Some(found) = find(&KNOWN_CATALOGS, content) {
        return Some(found);
    }
    let made = Arc::new(make()?);
    keep(&KNOWN_CATALOGS, content.to_owned(), made.clone(), CATALOGS);
    Some(made)
}

/// Spot prices by the name of their content, made by `make` when they are not known.
pub(crate) fn spot(
    content: &str,
    make: impl FnOnce() -> Option<SpotPrices>,
) -> Option<Shared<SpotPrices>> {
    if let Some(found) = find(&KNOWN_SPOT, content) {
        return Some(found);
    }
    let made: Shared<SpotPrices> = make()?.into();
    keep(&KNOWN_SPOT, content.to_owned(), made.clone(), CATALOGS);
    Some(made)
}

/// Whether a catalog is known by the name of its content.
pub(crate) fn has_catalog(content: &str) -> bool {
    find(&KNOWN_CATALOGS, content).is_some()
}

/// [`Catalog::instance_types`], remembered by everything that it depends on.
///
/// # Errors
/// As [`Catalog::instance_types`].
pub fn instance_types(
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
    if let Some(found) = find(&KNOWN_LISTS, &key) {
        return Ok(found);
    }
    let made = make()?;
    keep(&KNOWN_LISTS, key, made.clone(), LISTS);
    Ok(made)
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
