//! EC2's usual request rates, as token buckets.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Calls that share a bucket: tokens per second, and how many it holds. Source: EC2's API reference, as Karpenter's own
/// fabricated EC2 has them.
pub(crate) fn limits(operation: &str) -> (&'static str, f64, f64) {
    match operation {
        "RunInstances" => ("run", 2.0, 5.0),
        "TerminateInstances" => ("terminate", 5.0, 100.0),
        "CreateTags" => ("tag", 10.0, 100.0),
        name if name.starts_with("Describe") => ("read", 20.0, 100.0),
        _ => ("change", 5.0, 50.0),
    }
}

/// What is left in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Bucket {
    pub tokens: f64,
    pub at: Option<Timestamp>,
}

impl Bucket {
    /// The bucket after a call at `now`; `None`: one call too many. A new bucket is full.
    pub fn take(self, rate: f64, burst: f64, now: Timestamp) -> Option<Self> {
        let tokens = match self.at {
            None => burst,
            Some(at) => {
                let seconds = now.duration_since(at).as_secs_f64().max(0.0);
                (self.tokens + seconds * rate).min(burst)
            }
        };
        (tokens >= 1.0).then_some(Self { tokens: tokens - 1.0, at: Some(now) })
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test] // aws-capacity 24: rate limits
    fn a_burst_then_the_rate() {
        let start = Timestamp::UNIX_EPOCH;
        let (_, rate, burst) = limits("RunInstances");
        let mut bucket = Bucket::default();
        for _ in 0..5 {
            bucket = bucket.take(rate, burst, start).expect("within the burst");
        }
        assert_eq!(bucket.take(rate, burst, start), None);
        let later = start + SignedDuration::from_millis(500);
        let bucket = bucket.take(rate, burst, later).expect("one more after half a second");
        assert_eq!(bucket.take(rate, burst, later), None);
        assert_eq!(limits("DescribeInstances").0, "read");
        assert_eq!(limits("CreateFleet").0, "change");
    }
}
