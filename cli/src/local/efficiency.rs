//! What a run cost, against what it could have cost at best, and how much it disturbed.

use spokeshave_model::InstanceType;
use spokeshave_sim::world::{Inner, Sample};

/// One thing that the pools may buy: what it holds and costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Cores that pods can have.
    pub cpu: f64,
    /// GiB that pods can have.
    pub memory: f64,
    /// Dollars per hour.
    pub price: f64,
}

impl Offer {
    /// The type at this price; `None` when it holds nothing.
    pub fn new(it: &InstanceType, price: f64) -> Option<Self> {
        let room = it.allocatable();
        let cpu = room.get("cpu").as_f64();
        let memory = room.get("memory").as_f64() / GIB;
        (cpu > 0.0 && memory > 0.0 && price > 0.0).then_some(Self { cpu, memory, price })
    }
}

/// Bytes in a GiB.
pub const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Dollars per hour below which no fleet of `offers` can hold so many cores and GiB.
///
/// A price per core and one per GiB under which every offer is worth no more than it costs price the pods too low; the
/// dearest such pair is looked for along the quarter circle of their proportions, on which the bound has one summit.
pub fn least(offers: &[Offer], cpu: f64, memory: f64) -> f64 {
    if offers.is_empty() || (cpu <= 0.0 && memory <= 0.0) {
        return 0.0;
    }
    let bound = |angle: f64| {
        let (per_gib, per_core) = angle.sin_cos();
        let worth = |cpu: f64, memory: f64| per_core * cpu + per_gib * memory;
        let best = offers.iter().map(|it| worth(it.cpu, it.memory) / it.price).fold(0.0, f64::max);
        if best > 0.0 { worth(cpu, memory) / best } else { 0.0 }
    };
    let (mut from, mut to) = (0.0, std::f64::consts::FRAC_PI_2);
    for _ in 0..60 {
        let third = (to - from) / 3.0;
        if bound(from + third) < bound(to - third) {
            from += third;
        } else {
            to -= third;
        }
    }
    bound(f64::midpoint(from, to))
}

/// A run in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Efficiency {
    /// Paid for all instances.
    pub dollars: f64,
    /// At the cheapest possible fleet of every moment.
    pub least_dollars: f64,
    /// Hours of all running pods together.
    pub pod_hours: f64,
    /// Pods that were evicted or deleted while they ran, for whatever reason.
    pub moved: usize,
    /// Those of them that were moved to save money or for drift.
    pub moved_voluntarily: usize,
}

impl Efficiency {
    /// Adds up what was sampled until the end of the run.
    pub fn of(world: &Inner, offers: &[Offer]) -> Self {
        let mut sum = Self::default();
        let ends = world.samples.iter().skip(1).map(|it| it.at).chain([world.now]);
        for (sample, end) in world.samples.iter().zip(ends) {
            let hours = end.duration_since(sample.at).as_secs_f64() / 3_600.0;
            sum.dollars += hours * sample.price;
            sum.least_dollars += hours * least_at(sample, offers);
            sum.pod_hours += hours * sample.running as f64;
        }
        for line in &world.timeline {
            let it = &line.decision;
            if matches!(it.action, "evict" | "force-delete") {
                sum.moved += 1;
                sum.moved_voluntarily += usize::from(matches!(
                    it.reason.as_str(),
                    "Empty" | "Drifted" | "Underutilized"
                ));
            }
        }
        sum
    }

    /// Pods moved voluntarily per pod and hour.
    pub fn disruptions_per_pod_hour(&self) -> f64 {
        if self.pod_hours > 0.0 { self.moved_voluntarily as f64 / self.pod_hours } else { 0.0 }
    }
}

/// The bound for what pods asked for at one moment.
pub fn least_at(sample: &Sample, offers: &[Offer]) -> f64 {
    least(offers, sample.cpu, sample.memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_that_of_the_best_mix() {
        let offers = [
            Offer { cpu: 4.0, memory: 8.0, price: 0.2 },
            Offer { cpu: 4.0, memory: 32.0, price: 0.4 },
            Offer { cpu: 4.0, memory: 8.0, price: 0.9 },
        ];
        for (cpu, memory, expected) in [
            (4.0, 8.0, 0.2),
            (4.0, 32.0, 0.4),
            // Half of each of the first two.
            (4.0, 20.0, 0.3),
            // Memory costs nothing extra up to what comes with the cores.
            (8.0, 1.0, 0.4),
            (1.0, 32.0, 0.4),
            (0.0, 0.0, 0.0),
        ] {
            let found = least(&offers, cpu, memory);
            assert!((found - expected).abs() < 1e-6, "{cpu} {memory}: {found}");
        }
        assert_eq!(least(&[], 1.0, 1.0), 0.0);
    }
}
