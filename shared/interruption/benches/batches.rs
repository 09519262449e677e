//! Message throughput through the whole function: batches of a queue, the handler of `functions/interruption`, and the
//! simulated API server and state table behind its ports (`spec` aws-nodeclass 25).
//!
//! `cargo bench -p spokeshave-interruption --bench batches`. The bar is 20,000 messages a second on one core for 15,000
//! mixed messages against 1,500 nodes. The time is that of the simulator, too: its queue, its clock, its objects.
//!
//! With `-- --report` it prints what Karpenter's benchmark reports, in simulated time, where five functions run at once
//! and every call takes as long as it does in AWS; and how much processor time that took, which other load on the machine
//! does not change.

#![allow(clippy::print_stdout)] // A report is for people.

#[path = "../tests/load/mod.rs"]
mod load;

use divan::{Bencher, counter::ItemsCount};

fn main() {
    if std::env::args().any(|it| it == "--report") {
        load::COUNTS.into_iter().for_each(report);
        return;
    }
    divan::main();
}

fn report(messages: usize) {
    let mut run = load::Run::new(messages, load::NODES);
    let before = load::processor_seconds();
    run.drain();
    let after = load::processor_seconds();
    let report = run.report().expect("nothing is lost");
    println!("{report}");
    if let (Some(before), Some(after)) = (before, after) {
        let spent = after - before;
        println!("  processor {spent:.2} s, {:.0} messages/s on one core", messages as f64 / spent);
    }
}

#[divan::bench(args = load::COUNTS, sample_count = 5, sample_size = 1)]
fn whole_batches(bencher: Bencher, messages: usize) {
    bencher
        .counter(ItemsCount::new(messages))
        .with_inputs(|| load::Run::new(messages, load::NODES))
        .bench_local_refs(|run| {
            run.drain();
            assert_eq!(run.left().0, 0, "messages that are left");
            assert_eq!(run.reactions(), messages.min(load::NODES));
        });
}
