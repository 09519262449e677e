//! A schedule's next hit lies ahead, and whether a budget is active never panics.
#![no_main]

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use spokeshave_model::{cron::Schedule, duration::PlainDuration, node_pool::Budget};

fuzz_target!(|input: (&str, &str, &str, i64)| {
    let (schedule, duration, nodes, second) = input;
    let Ok(now) = Timestamp::from_second(second) else { return };
    if let Ok(schedule) = Schedule::parse(schedule)
        && let Some(hit) = schedule.next_after(now)
    {
        assert!(hit > now);
    }
    let budget = Budget {
        nodes: nodes.into(),
        schedule: Some(schedule.into()),
        duration: Some(PlainDuration(duration.into())),
        reasons: None,
    };
    let _ = budget.allowed(100, now);
    let _ = budget.active_until(now);
});
