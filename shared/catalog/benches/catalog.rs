//! How long it takes to load a region and to work out its types for a class, and what a loaded region occupies: the column
//! `max alloc` of `load_stored_cold`, which counts what is needed on the way, too.
//!
//! `cargo bench -p spokeshave-catalog --bench catalog`. Bars, for over 900 types in six zones: 10 ms from the stored form, 350 KB
//! compressed, 20 MB in memory.

use std::io::Write;

use divan::Bencher;
use spokeshave_catalog::{Catalog, MarketView, Memo, builtin, stored};
use spokeshave_model::{EC2NodeClass, Settings, Timestamp};
use spokeshave_ports::fake::{Fake, block_on};

/// The region that sells most.
const REGION: &str = "us-east-1";

/// Counts what each run takes of memory.
#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    print_size();
    divan::main();
}

/// What the stored form holds, and its size.
fn print_size() {
    let loaded = block_on(stored::load_catalog(&stored_region(), REGION, &Memo::new()));
    let Ok(loaded) = loaded else { return };
    let (types, zones) = (loaded.catalog.types.len(), loaded.catalog.zones.len());
    let line = format!("{types} types, {zones} zones: {} bytes compressed\n", loaded.index.bytes);
    let _ = std::io::stdout().write_all(line.as_bytes());
}

fn full() -> Catalog {
    Catalog::builtin(REGION).unwrap_or_default().with_estimated_spot_prices()
}

/// A table that holds the region.
fn stored_region() -> Fake {
    let fake = Fake::at(Timestamp::UNIX_EPOCH);
    let catalog = full();
    let spot = catalog.spot.clone().unwrap_or_default();
    let known = stored::StoredCatalog { catalog, ..stored::StoredCatalog::default() };
    let _ = block_on(stored::save_catalog(&fake, &known, Timestamp::UNIX_EPOCH));
    let _ = block_on(stored::save_spot_prices(&fake, &spot, Timestamp::UNIX_EPOCH));
    fake
}

/// As a process loads it that has loaded it before.
#[divan::bench]
fn load_stored_warm(bencher: Bencher<'_, '_>) {
    let (fake, memo) = (stored_region(), Memo::new());
    bencher.bench_local(|| block_on(stored::load_catalog(&fake, REGION, &memo)));
}

/// As a new process loads it.
#[divan::bench]
fn load_stored_cold(bencher: Bencher<'_, '_>) {
    let fake = stored_region();
    bencher.bench_local(|| block_on(stored::load_catalog(&fake, REGION, &Memo::new())));
}

#[divan::bench]
fn load_builtin() -> Option<Catalog> {
    Catalog::builtin(REGION)
}

#[divan::bench]
fn limits() -> builtin::Limits {
    builtin::limits("m5.large")
}

#[divan::bench]
fn resolve_all(bencher: Bencher<'_, '_>) {
    let (catalog, settings) = (full(), Settings::default());
    let view = MarketView::new(&settings, Timestamp::UNIX_EPOCH);
    let class = EC2NodeClass::default();
    bencher.bench_local(|| catalog.instance_types(&class, &view));
}
