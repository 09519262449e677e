//! Records of the state table.

mod common;

use common::{at, class, now};
use serde_json::json;
use spokeshave_catalog::{
    Catalog, Mark, Memo, memory,
    stored::{self, CatalogIndex, ReservationEvent, StoredCatalog},
};
use spokeshave_model::{CapacityType, Quantity, Settings};
use spokeshave_ports::{
    StateKey, StateTable, When,
    fake::{Fake, block_on},
};

fn keep(fake: &Fake, catalog: Catalog) -> CatalogIndex {
    let known = StoredCatalog { catalog, ..StoredCatalog::default() };
    block_on(stored::save_catalog(fake, &known, now())).expect("saved")
}

fn load(fake: &Fake) -> StoredCatalog {
    block_on(stored::load_catalog(fake, "us-east-1", &Memo::new())).expect("loaded")
}

#[test]
fn a_region_survives_the_table() {
    let fake = Fake::at(now());
    // A fresh stack works at once.
    assert_eq!(load(&fake).catalog, Catalog::builtin("us-east-1").expect("known"));
    let catalog = Catalog::builtin("us-east-1").expect("known").with_estimated_spot_prices();
    let index = keep(&fake, catalog.clone());
    // Under the 350 KB that a full region may take, in chunks that fit an item.
    assert!(index.bytes < 200_000, "{} bytes", index.bytes);
    let records = fake.records.borrow().clone();
    for (key, record) in &records {
        assert!(record.data.to_string().len() < 350_000, "{key:?}");
    }
    let spot = catalog.spot.clone().expect("estimated");
    assert!(block_on(stored::save_spot_prices(&fake, &spot, now())).expect("saved"));
    assert!(!block_on(stored::save_spot_prices(&fake, &spot, at(60))).expect("unchanged"));
    assert_eq!(load(&fake).catalog, catalog);
    assert_eq!(load(&fake).spot_read_at, Some(now()));
    // Another region's catalog is none of ours.
    let other = block_on(stored::load_catalog(&fake, "eu-west-1", &Memo::new())).expect("loaded");
    assert_eq!(other.catalog.types, Catalog::builtin("eu-west-1").expect("known").types);
}

#[test]
fn the_same_content_is_written_once_and_old_chunks_go() {
    let fake = Fake::at(now());
    let mut catalog = Catalog::builtin("us-east-1").expect("known");
    let first = keep(&fake, catalog.clone());
    let writes = fake.calls.borrow().len();
    assert_eq!(keep(&fake, catalog.clone()), first);
    assert_eq!(fake.calls.borrow().len(), writes);
    catalog.on_demand.insert("m5.large".into(), 1.0);
    let second = keep(&fake, catalog.clone());
    assert_ne!(first.version, second.version);
    let chunks = |version: &str| {
        let records = fake.records.borrow();
        let of = records.iter().filter(|(key, _)| key.sort.starts_with(version));
        of.map(|(_, record)| record.expires_at).collect::<Vec<_>>()
    };
    assert!(chunks(&first.version).iter().all(|it| *it == Some(at(3600))));
    assert!(chunks(&second.version).iter().all(Option::is_none));
    assert_eq!(load(&fake).catalog.on_demand["m5.large"], 1.0);
}

#[test]
fn what_cannot_be_read_counts_as_missing() {
    let fake = Fake::at(now());
    // Content that nobody in this process has read yet.
    let mut catalog = Catalog::builtin("us-east-1").expect("known");
    catalog.on_demand.insert("m5.large".into(), 7.0);
    let index = keep(&fake, catalog);
    let chunk = StateKey::new("catalog", &format!("{}/000", index.version));
    block_on(fake.write(&chunk, json!("no base64"), None, When::Always)).expect("written");
    assert_eq!(load(&fake).catalog, Catalog::builtin("us-east-1").expect("known"));
    assert_eq!(load(&fake).index, CatalogIndex::default());
}

#[test] // aws-capacity 25, case 2; 7, cases 1-2, 6
fn marks_outlive_the_process() {
    let fake = Fake::at(now());
    let mark = Mark::offering(CapacityType::Spot, "m5.large", "test-zone-1a");
    block_on(stored::mark_unavailable(&fake, &mark, "none left", now())).expect("written");
    block_on(stored::mark_unavailable(&fake, &mark, "none left", at(120))).expect("written");
    assert_eq!(block_on(stored::unavailable_sequence(&fake)).expect("read"), 2);
    for (seconds, marked) in [(1, true), (299, true), (300, false)] {
        fake.now.set(at(seconds));
        let marks = block_on(stored::load_unavailable(&fake, at(seconds))).expect("read");
        assert_eq!(marks.has("spot:m5.large:test-zone-1a"), marked, "{seconds}");
    }
}

#[test] // aws-capacity 10, cases 4-5; 25, case 4
fn reservations_are_counted() {
    let fake = Fake::at(now());
    let event = |id: &str, event: ReservationEvent, seconds: i64| {
        block_on(stored::count_reservation(&fake, id, event, at(seconds))).expect("counted");
        block_on(stored::load_reservations(&fake)).expect("read").get(id).copied()
    };
    use ReservationEvent::{Exhausted, Launched, Read, Terminated};
    assert_eq!(event("cr-1", Read(10), 0), Some(10));
    for left in [9, 8, 7] {
        assert_eq!(event("cr-1", Launched(at(1)), 1), Some(left));
    }
    assert_eq!(event("cr-1", Terminated, 2), Some(8));
    assert_eq!(event("cr-1", Exhausted, 3), Some(0));
    assert_eq!(event("cr-1", Read(9), 4), Some(9));
    // A launch before the last read is in it already.
    assert_eq!(event("cr-1", Launched(at(3)), 5), Some(9));
    assert_eq!(event("cr-1", Exhausted, 6), Some(0));
    assert_eq!(event("cr-1", Launched(at(6)), 6), Some(0));
    assert_eq!(event("cr-2", Launched(at(6)), 6), None);
    assert_eq!(event("cr-2", Terminated, 6), None);
}

#[test] // aws-capacity 2, case 7; bug report B-043
fn observed_memory_outlives_the_process() {
    let fake = Fake::at(now());
    let class = class("AL2023");
    let amount = |text: &str| text.parse::<Quantity>().expect("valid");
    for text in ["15513136Ki", "15600000Ki", "15400000Ki"] {
        block_on(stored::observe_memory(&fake, &class, "m5.xlarge", amount(text), now()))
            .expect("kept");
    }
    let settings = Settings::default();
    let (view, problem) = block_on(stored::load_view(&fake, &settings, now()));
    assert_eq!(problem, None);
    let images = memory::image_set(&class);
    assert_eq!(view.memory.get("m5.xlarge", &images, now()), Some(amount("15400000Ki")));
}

#[test] // aws-capacity 11; 25
fn placement_groups_are_those_that_were_found_last() {
    let fake = Fake::at(now());
    let key = StateKey::new("placement-group", "mine");
    let group = json!({"id": "pg-1", "name": "mine", "strategy": "partition", "partitionCount": 7});
    block_on(fake.write(&key, group, None, When::Always)).expect("written");
    let settings = Settings::default();
    let (view, _) = block_on(stored::load_view(&fake, &settings, now()));
    let mut class = class("AL2023");
    assert_eq!(view.placement_group(&class), None);
    class.spec.placement_group_selector =
        serde_json::from_value(json!({"name": "mine"})).expect("valid");
    assert_eq!(view.placement_group(&class).map(|it| it.id.as_str()), Some("pg-1"));
}
