//! How long it takes to load a region and to work out its types for a class.

use std::io::Write;

use divan::Bencher;
use spokeshave_catalog::{Catalog, MarketView, builtin, stored};
use spokeshave_model::{EC2NodeClass, Settings, Timestamp};
use spokeshave_ports::fake::{Fake, block_on};

/// The region that sells most.
const REGION: &str = "us-east-1";

fn main() {
    print_memory();
    divan::main();
}

/// MB that this process occupies; 0 where the system does not tell.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    pages * 4096.0 / 1e6
}

/// What a loaded region occupies. Bar: 20 MB.
fn print_memory() {
    let fake = stored_in(0);
    let before = resident();
    let loaded = block_on(stored::load_catalog(&fake, REGION));
    let grown = resident() - before;
    let (types, bytes) = loaded.map_or((0, 0), |it| (it.catalog.types.len(), it.index.bytes));
    let line = format!("{types} types: {grown:.1} MB in memory, {bytes} bytes compressed\n");
    let _ = std::io::stdout().write_all(line.as_bytes());
}

fn full() -> Catalog {
    Catalog::builtin(REGION).unwrap_or_default().with_estimated_spot_prices()
}

/// A table that holds the region; `variant` makes its content another one.
fn stored_in(variant: u32) -> Fake {
    let fake = Fake::at(Timestamp::UNIX_EPOCH);
    let mut catalog = full();
    catalog.on_demand.insert("m5.large".into(), 0.096 + f64::from(variant));
    let spot = catalog.spot.clone().unwrap_or_default();
    let known = stored::StoredCatalog { catalog, ..stored::StoredCatalog::default() };
    let _ = block_on(stored::save_catalog(&fake, &known, Timestamp::UNIX_EPOCH));
    let _ = block_on(stored::save_spot_prices(&fake, &spot, Timestamp::UNIX_EPOCH));
    fake
}

/// As a process loads it that has loaded it before.
#[divan::bench]
fn load_stored_warm(bencher: Bencher<'_, '_>) {
    let fake = stored_in(0);
    bencher.bench_local(|| block_on(stored::load_catalog(&fake, REGION)));
}

/// As a new process loads it: the last two contents are remembered, so that three in turn never are.
#[divan::bench]
fn load_stored_cold(bencher: Bencher<'_, '_>) {
    let fakes = [1, 2, 3].map(stored_in);
    let mut turn = fakes.iter().cycle();
    bencher.bench_local(|| turn.next().map(|fake| block_on(stored::load_catalog(fake, REGION))));
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
