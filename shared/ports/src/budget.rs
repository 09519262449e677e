//! How many calls of EC2 one environment may make: a token bucket for each operation.
//!
//! The SDK bounds what repeats of failed calls cost; this bounds the calls themselves, so that a burst of work in one
//! environment leaves the rest of the account its share. Pure: time is an argument, and nothing waits here. A call beyond
//! the budget is not sent; its error is [`AwsError::is_throttled`], so whoever asked gives its message back to the queue, or
//! comes back after a pause that grows, by when tokens have come in.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::AwsError;

/// Code of a call that was not sent because the budget of its operation is used up.
pub const USED_UP: &str = "CallBudgetUsedUp";

/// A bucket that fills up again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Operations of the same name share EC2's own rate.
    pub family: &'static str,
    /// Tokens that come in per second.
    pub per_second: f64,
    /// Tokens that it holds at most: calls at once after a pause.
    pub burst: f64,
}

/// What EC2 grants an account. Source: EC2's developer guide on request throttling, in the classes that Karpenter's own
/// fabricated EC2 has.
pub fn limit(operation: &str) -> Limit {
    let (family, per_second, burst) = match operation {
        "RunInstances" => ("run", 2.0, 5.0),
        "TerminateInstances" => ("terminate", 5.0, 100.0),
        "CreateTags" => ("tag", 10.0, 100.0),
        name if name.starts_with("Describe") => ("read", 20.0, 100.0),
        _ => ("change", 5.0, 50.0),
    };
    Limit { family, per_second, burst }
}

/// What is left in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bucket {
    pub tokens: f64,
    /// When that was so. `None`: a new bucket, which is full.
    pub at: Option<Timestamp>,
    /// Calls that were taken out and whose first request is still to be sent.
    pub admitted: u32,
}

impl Bucket {
    fn tokens(self, limit: Limit, now: Timestamp) -> f64 {
        match self.at {
            None => limit.burst,
            Some(at) => {
                let seconds = now.duration_since(at).as_secs_f64().max(0.0);
                (self.tokens + seconds * limit.per_second).min(limit.burst)
            }
        }
    }

    /// The bucket after a call at `now`; `None`: one call too many. A clock that goes back brings no tokens.
    pub fn take(self, limit: Limit, now: Timestamp) -> Option<Self> {
        let tokens = self.tokens(limit, now);
        (tokens >= 1.0).then_some(Self { tokens: tokens - 1.0, at: Some(now), ..self })
    }

    /// The bucket after a request at `now` that nobody was asked for: another try, or another page. It may leave a debt, at
    /// most as large as the bucket.
    pub fn owe(self, limit: Limit, now: Timestamp) -> Self {
        let tokens = (self.tokens(limit, now) - 1.0).max(-limit.burst);
        Self { tokens, at: Some(now), ..self }
    }
}

/// The budgets of one environment, by operation. Copies share them.
#[derive(Clone, Debug, Default)]
pub struct CallBudget {
    buckets: Arc<Mutex<BTreeMap<&'static str, Bucket>>>,
}

impl CallBudget {
    /// Takes a call of `operation` at `now` out of its budget.
    ///
    /// # Errors
    /// [`USED_UP`], which is throttling: the call is not to be sent now.
    pub fn take(&self, operation: &'static str, now: Timestamp) -> Result<(), AwsError> {
        let limit = limit(operation);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(operation).or_default();
        match bucket.take(limit, now) {
            Some(left) => {
                *bucket = Bucket { admitted: left.admitted.saturating_add(1), ..left };
                Ok(())
            }
            None => {
                let message = format!(
                    "not sent: this environment has made its {} calls, and {} more a second",
                    limit.burst, limit.per_second
                );
                Err(AwsError { status: 0, ..AwsError::new("ec2", operation, USED_UP, &message) })
            }
        }
    }
}

impl CallBudget {
    /// Notes a request of `operation` that is sent at `now`. The first one of a call is paid for by [`CallBudget::take`];
    /// what the client sends again, and pages after the first, come out of the same budget: they are sent whatever is left,
    /// and the next call waits for longer.
    pub fn sent(&self, operation: &str, now: Timestamp) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        // An operation that nobody takes calls of has no budget.
        let Some(bucket) = buckets.get_mut(operation) else { return };
        *bucket = match bucket.admitted.checked_sub(1) {
            Some(admitted) => Bucket { admitted, ..*bucket },
            None => bucket.owe(limit(operation), now),
        };
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test] // aws-capacity 24: rate limits
    fn a_burst_then_the_rate() {
        let start = Timestamp::UNIX_EPOCH;
        let limit = limit("RunInstances");
        let mut bucket = Bucket::default();
        for _ in 0..5 {
            bucket = bucket.take(limit, start).expect("within the burst");
        }
        assert_eq!(bucket.take(limit, start), None);
        let later = start + SignedDuration::from_millis(500);
        let bucket = bucket.take(limit, later).expect("one more after half a second");
        assert_eq!(bucket.take(limit, later), None);
        assert_eq!(bucket.take(limit, start), None, "a clock that goes back");
    }

    #[test]
    fn every_operation_has_a_budget_of_its_own() {
        let start = Timestamp::UNIX_EPOCH;
        let budget = CallBudget::default();
        let taken = |operation, at| (0..500).filter(|_| budget.take(operation, at).is_ok()).count();
        assert_eq!(taken("CreateFleet", start), 50);
        // The same rate, but not the same bucket.
        assert_eq!(taken("CreateLaunchTemplate", start), 50);
        assert_eq!(taken("DescribeInstances", start), 100);
        assert_eq!(taken("TerminateInstances", start), 100);
        assert_eq!(taken("RunInstances", start), 5);
        // Copies share it, as the clients of one environment do.
        assert!(budget.clone().take("CreateFleet", start).is_err());
        assert_eq!(taken("CreateFleet", start + SignedDuration::from_secs(3)), 15);
        assert_eq!(taken("CreateFleet", start + SignedDuration::from_hours(1)), 50);
    }

    #[test]
    fn a_call_too_many_is_throttling_that_passes() {
        let budget = CallBudget::default();
        let at = Timestamp::UNIX_EPOCH;
        let error =
            (0..6).find_map(|_| budget.take("RunInstances", at).err()).expect("one too many");
        assert!(error.is_throttled() && error.is_retryable());
        assert_eq!(
            error.to_string(),
            "ec2:RunInstances: CallBudgetUsedUp: not sent: this environment has made its 5 calls, and 2 more a second"
        );
        assert_eq!(error.advice(), "it is tried again when the environment may make more calls");
    }

    #[test]
    fn tries_and_pages_come_out_of_the_same_budget() {
        let (start, budget) = (Timestamp::UNIX_EPOCH, CallBudget::default());
        let later = |seconds| start + SignedDuration::from_secs(seconds);
        let tokens = |budget: &CallBudget| {
            let buckets = budget.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            buckets["RunInstances"].tokens
        };
        budget.sent("RunInstances", start);
        budget.take("RunInstances", start).expect("is full");
        assert_eq!(tokens(&budget), 4.0);
        budget.sent("RunInstances", start);
        assert_eq!(tokens(&budget), 4.0, "the first request is the call");
        for _ in 0..4 {
            budget.sent("RunInstances", start);
        }
        assert_eq!(tokens(&budget), 0.0);
        budget.take("RunInstances", start).expect_err("tries have used it up");
        budget.sent("RunInstances", start);
        assert_eq!(tokens(&budget), -1.0);
        // Two a second: the debt first.
        budget.take("RunInstances", start + SignedDuration::from_millis(999)).expect_err("owes");
        budget.take("RunInstances", later(1)).expect("has one again");
        // However many were sent, the debt has an end.
        for _ in 0..100 {
            budget.sent("RunInstances", later(1));
        }
        assert_eq!(tokens(&budget), -5.0);
        budget.take("RunInstances", later(4)).expect("6 tokens in 3 s");
    }
}
