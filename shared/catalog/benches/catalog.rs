//! How long it takes to load a region and to work out its types for a class.

use divan::Bencher;
use spokeshave_catalog::{Catalog, MarketView, builtin, stored};
use spokeshave_model::{EC2NodeClass, Settings, Timestamp};
use spokeshave_ports::fake::{Fake, block_on};

/// The region that sells most.
const REGION: &str = "us-east-1";

fn main() {
    divan::main();
}

fn full() -> Catalog {
    Catalog::builtin(REGION).unwrap_or_default().with_estimated_spot_prices()
}

fn stored_in() -> Fake {
    let fake = Fake::at(Timestamp::UNIX_EPOCH);
    let catalog = full();
    let spot = catalog.spot.clone().unwrap_or_default();
    let known = stored::StoredCatalog { catalog, ..stored::StoredCatalog::default() };
    let _ = block_on(stored::save_catalog(&fake, &known, Timestamp::UNIX_EPOCH));
    let _ = block_on(stored::save_spot_prices(&fake, &spot, Timestamp::UNIX_EPOCH));
    fake
}

#[divan::bench]
fn load_stored(bencher: Bencher<'_, '_>) {
    let fake = stored_in();
    bencher.bench_local(|| block_on(stored::load_catalog(&fake, REGION)));
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
