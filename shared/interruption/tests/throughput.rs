//! What the benchmark of messages counts and reports (`spec` aws-nodeclass 25).

mod load;

use jiff::SignedDuration;
use load::{COUNTS, Lost, Mix, NODES, Report, Run, STATES, bodies};
use spokeshave_model::{NodeClaim, ObjectKey};
use spokeshave_sim::Fault;

const fn secs(n: i64) -> SignedDuration {
    SignedDuration::from_secs(n)
}

#[test] // nodeclass 25, cases 1 and 2
fn a_third_each_and_the_rest_state_changes() {
    let expected = [(33, 33, 34), (333, 333, 334), (1_666, 1_666, 1_668), (5_000, 5_000, 5_000)];
    for (messages, (health, spot, state)) in COUNTS.into_iter().zip(expected) {
        let wanted = [(Mix::ScheduledChange, health), (Mix::Spot, spot), (Mix::StateChange, state)];
        let now = "2026-03-02T08:00:00Z".parse().expect("a time");
        let made = bodies(messages, NODES, now);
        for (kind, n) in wanted {
            assert_eq!(made.iter().filter(|it| it.0 == kind).count(), n, "{messages} {kind:?}");
        }
        for state in STATES {
            assert!(made.iter().any(|it| it.1.contains(&format!("\"state\":\"{state}\""))));
        }
    }
}

#[test] // nodeclass 25, case 3
fn the_rate_is_messages_by_seconds() {
    let report = Report::new(15_000, 0, secs(100), vec![secs(3), secs(1), secs(2), secs(4)]);
    let report = report.expect("nothing is lost");
    assert_eq!(report.messages_per_second, 150.0);
    assert_eq!((report.p50, report.p99), (2.0, 4.0));
    assert_eq!(
        report.to_string(),
        "Messages 15000  TotalDurationInSeconds 100.000  Messages/Second 150.0  p50 2.000 s  p99 4.000 s"
    );
}

#[test] // nodeclass 25, case 6
fn a_run_that_loses_messages_is_not_reported() {
    let of = |duration, unhandled| Report::new(15_000, unhandled, duration, Vec::new());
    assert_eq!(of(secs(1_200), 0).map(|it| it.messages_per_second), Ok(12.5));
    // At 12 a second, 14,400 are handled before the rest is forgotten.
    assert_eq!(of(secs(1_250), 0), Err(Lost(600)));
    assert_eq!(of(secs(100), 3), Err(Lost(3)));
}

#[test] // nodeclass 25, case 4
fn a_message_whose_claim_is_missing_counts_once_it_is_gone_from_the_queue() {
    let mut run = Run::without_messages(100);
    let now = run.world.read(|inner| inner.now);
    run.world.change(|inner| {
        inner.store.remove::<NodeClaim>(&ObjectKey::cluster("default-00007"), now);
    });
    run.send(bodies(100, 100, now).into_iter().map(|it| it.1));
    run.drain();
    assert_eq!(run.left(), (0, 0));
    let report = run.report().expect("nothing is lost");
    assert_eq!(report.messages, 100);
    assert_eq!(run.reactions(), 99);
}

#[test] // nodeclass 25, case 5
fn a_duplicate_is_no_further_message() {
    let mut run = Run::without_messages(100);
    let now = run.world.read(|inner| inner.now);
    run.world.set_faults(vec![Fault::Duplicate], now + secs(60));
    run.send(bodies(1_000, 100, now).into_iter().map(|it| it.1));
    let queued = run.left().0;
    assert!(queued > 1_000, "{queued}");
    run.drain();
    assert_eq!(run.left(), (0, 0));
    assert_eq!(run.report().map(|it| it.messages), Ok(1_000));
    // And every claim is deleted once.
    assert_eq!(run.reactions(), 100);
}

#[test] // nodeclass 25: the same bytes of a report from the same load
fn figures_of_a_simulated_run() {
    let report = || {
        let mut run = Run::new(1_000, 1_000);
        run.drain();
        assert_eq!(run.left(), (0, 0));
        assert_eq!(run.reactions(), 1_000);
        run.report().expect("nothing is lost")
    };
    let first = report();
    assert_eq!(first, report());
    assert_eq!(first.messages, 1_000);
    assert!(first.messages_per_second > 67.0, "Karpenter's ceiling: {first}");
}
