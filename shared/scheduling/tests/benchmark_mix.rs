//! Packing of the reproducible mix (`spec` scheduling 25).

// Fields are written where they are used.
#![allow(clippy::needless_pass_by_value)]

mod common;

use common::{Draws, benchmark_pool, catalogue_f, diverse, input, options, preference};
use spokeshave_model::settings::PreferencePolicy;
use spokeshave_scheduling::{Batch, ClusterView, ReservedMode, Solution};

fn solve(pods: Vec<spokeshave_model::core::Pod>, policy: PreferencePolicy) -> Solution {
    let mut options = options();
    options.preference_policy = policy;
    let pools = [input(benchmark_pool(), &catalogue_f(400))];
    let batch = Batch { reserved: ReservedMode::Fallback, ..common::batch(pods) };
    spokeshave_scheduling::solve(&ClusterView::default(), &pools, &batch, &options, common::now())
}

#[test] // scheduling 25, cases 1-6
fn diverse_pods_need_a_fifth_of_the_claims() {
    for (count, claims) in [(1, 1), (50, 10), (100, 20), (500, 100), (1000, 200), (2000, 400)] {
        let pods = diverse(count, &mut Draws::new(common::DRAWS));
        let solution = solve(pods, PreferencePolicy::Respect);
        assert!(solution.unschedulable.is_empty(), "{count}");
        assert_eq!(solution.new_claims.len(), claims, "{count}");
    }
}

#[test] // scheduling 25, case 7
fn preferences() {
    let respected = solve(preference(50), PreferencePolicy::Respect);
    assert_eq!(respected.new_claims.len(), 50);
    let ignored = solve(preference(600), PreferencePolicy::Ignore);
    let sizes: Vec<usize> = ignored.new_claims.iter().map(|it| it.pods.len()).collect();
    assert_eq!(sizes, [199, 199, 199, 3]);
}

#[test] // scheduling 25.2, the table of totals
fn the_mix_is_the_one_that_is_meant() {
    for (count, cpu, memory, own) in [
        (1, 500, 512, 0),
        (50, 39300, 63888, 4),
        (1000, 663_350, 1_341_084, 48),
        (20000, 13_399_850, 26_928_028, 1150),
    ] {
        let pods = diverse(count, &mut Draws::new(common::DRAWS));
        let sum = |name: &str| -> i128 {
            pods.iter().map(|it| it.spec.containers[0].resources.requests.get(name).nanos()).sum()
        };
        assert_eq!(sum("cpu") / 1_000_000, cpu, "{count}");
        assert_eq!(sum("memory") / 1_000_000_000 / (1 << 20), memory, "{count}");
        let selves = pods.iter().filter(|it| {
            it.spec.topology_spread_constraints.iter().any(|spread| {
                spread.label_selector.as_ref().is_some_and(|of| of.matches(&it.metadata.labels))
            })
        });
        assert_eq!(selves.count(), own, "{count}");
    }
}
