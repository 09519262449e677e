//! Message throughput through the whole function: batches of a queue, the handler of `functions/interruption`, and the
//! simulated API server and state table behind its ports (`spec` aws-nodeclass 25).
//!
//! `cargo bench -p spokeshave-interruption --bench batches`. The bar is 20,000 messages a second on one core for 15,000
//! mixed messages against 1,500 nodes. The time is that of the simulator, too: its queue, its clock, its objects.
//! With `-- --report` it prints what Karpenter's benchmark reports, with p50 and p99 of event to deletion in simulated
//! time, where five functions run at once and every call takes as long as it does in AWS.

#[path = "../tests/load/mod.rs"]
mod load;

use divan::{Bencher, counter::ItemsCount};

fn main() {
    if std::env::args().any(|it| it == "--report") {
        for messages in load::COUNTS {
            let mut run = load::Run::new(messages, load::NODES);
            run.drain();
            println!("{}", run.report().expect("nothing is lost"));
        }
        return;
    }
    divan::main();
}

#[divan::bench(args = load::COUNTS, sample_count = 5, sample_size = 1)]
fn whole_batches(bencher: Bencher, messages: usize) {
    bencher
        .counter(ItemsCount::new(messages))
        .with_inputs(|| load::Run::new(messages, load::NODES))
        .bench_local_refs(|run| {
            run.drain();
            assert_eq!(run.left(), (0, 0), "messages and claims that are left");
        });
}
