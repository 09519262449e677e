//! What the calls of AWS cost: how many there were, how often each was tried, how long it took and how it ended, by service
//! and operation.
//!
//! [`Meter`] is an interceptor of every client. It counts nothing until [`start`] is called, and [`take`] hands over what
//! was counted. A process serves one invocation at a time, so one count for all clients will do.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{
            Intercept,
            context::{
                BeforeSerializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
                FinalizerInterceptorContextRef,
            },
        },
        orchestrator::Metadata,
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use spokeshave_ports::Metric;

static COUNTS: AtomicBool = AtomicBool::new(false);
static CALLS: Mutex<Vec<Measured>> = Mutex::new(Vec::new());
/// Calls that are kept until somebody takes them: without anybody the list is not to grow for ever.
const KEPT: usize = 10_000;

/// One try of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Try {
    pub seconds: f64,
    /// HTTP status, 0 when there was no answer.
    pub status: u16,
}

/// One call, all its tries included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    pub service: String,
    pub operation: String,
    /// From the first try to the end of the last, pauses included.
    pub seconds: f64,
    pub tries: Vec<Try>,
}

/// Starts to count.
pub fn start() {
    COUNTS.store(true, Ordering::Relaxed);
}

/// What was counted since the last time, in the order in which the calls ended.
pub fn take() -> Vec<Measured> {
    std::mem::take(&mut *CALLS.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Measured {
    /// The same as metrics, under the names of Karpenter's client (`spec` aws-capacity 23).
    pub fn metrics(&self) -> Vec<Metric> {
        let status = |it: u16| if it == 0 { String::new() } else { it.to_string() };
        let metric = |name, value, unit, of: Option<u16>| {
            let mut labels =
                vec![("service", self.service.clone()), ("operation", self.operation.clone())];
            labels.extend(of.map(|it| ("status_code", status(it))));
            Metric { name, value, unit, labels }
        };
        let last = self.tries.last().map_or(0, |it| it.status);
        let again = self.tries.len().saturating_sub(1) as f64;
        let mut all = vec![
            metric("aws_sdk_go_request_total", 1.0, "Count", Some(last)),
            metric("aws_sdk_go_request_duration_seconds", self.seconds, "Seconds", None),
        ];
        if again > 0.0 {
            all.push(metric("aws_sdk_go_request_retry_count", again, "Count", None));
        }
        for it in &self.tries {
            all.push(metric("aws_sdk_go_request_attempt_total", 1.0, "Count", Some(it.status)));
            let name = "aws_sdk_go_request_attempt_duration_seconds";
            all.push(metric(name, it.seconds, "Seconds", None));
        }
        all
    }
}

/// A call that is under way.
#[derive(Debug)]
struct UnderWay {
    since: Instant,
    /// When the try that is under way began, and the tries before it.
    tries: Mutex<(Instant, Vec<Try>)>,
}

impl Storable for UnderWay {
    type Storer = StoreReplace<Self>;
}

impl UnderWay {
    fn tries(&self) -> MutexGuard<'_, (Instant, Vec<Try>)> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the calls of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter;

impl Intercept for Meter {
    fn name(&self) -> &'static str {
        "Meter"
    }

    fn read_before_execution(
        &self,
        _: &BeforeSerializationInterceptorContextRef<'_>,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if COUNTS.load(Ordering::Relaxed) {
            let now = Instant::now();
            let call = UnderWay { since: now, tries: Mutex::new((now, Vec::new())) };
            bag.interceptor_state().store_put(call);
        }
        Ok(())
    }

    fn read_before_attempt(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(call) = bag.load::<UnderWay>() {
            call.tries().0 = Instant::now();
        }
        Ok(())
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let status = context.response().map_or(0, |it| it.status().as_u16());
        if let Some(call) = bag.load::<UnderWay>() {
            let mut tries = call.tries();
            let seconds = tries.0.elapsed().as_secs_f64();
            tries.1.push(Try { seconds, status });
        }
        Ok(())
    }

    fn read_after_execution(
        &self,
        _: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let (service, operation) = bag
            .load::<Metadata>()
            .map(|it| (it.service().to_owned(), it.name().to_owned()))
            .unwrap_or_default();
        if let Some(call) = bag.load::<UnderWay>() {
            let seconds = call.since.elapsed().as_secs_f64();
            let tries = std::mem::take(&mut call.tries().1);
            let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
            if calls.len() < KEPT {
                calls.push(Measured { service, operation, seconds, tries });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_ports::Ssm;

    use super::*;
    use crate::{ParameterStore, replay::Replay};

    const PARAMETER: &str = r#"{"Parameter": {"Name": "/x", "Value": "ami-1"}}"#;

    #[tokio::test] // aws-capacity 23: how many calls, how often tried, how long, and how they ended
    async fn every_call_is_counted_with_its_tries() {
        start();
        let refused = r#"{"__type": "AccessDeniedException", "Message": "no"}"#;
        let replay = Replay::of([(503, ""), (200, PARAMETER), (400, refused)]);
        let store = ParameterStore::new(&replay.connection());
        let value = store.get_parameter("/x").await.expect("answers");
        assert_eq!(value.as_deref(), Some("ami-1"));
        store.get_parameter("/y").await.expect_err("is refused");
        let calls: Vec<Measured> =
            take().into_iter().filter(|it| it.operation == "GetParameter").collect();
        let ends = |it: &Measured| it.tries.iter().map(|it| it.status).collect::<Vec<_>>();
        assert_eq!(calls.iter().map(ends).collect::<Vec<_>>(), [vec![503, 200], vec![400]]);
        assert!(calls.iter().all(|it| it.service == "SSM" && it.seconds >= 0.0));
        let told = calls[0].metrics().into_iter().map(|it| {
            let labels: Vec<&str> = it.labels.iter().map(|(_, value)| value.as_str()).collect();
            let value = if it.unit == "Count" { it.value } else { 0.0 };
            format!("{} {} {value}", it.name, labels.join("/"))
        });
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                "aws_sdk_go_request_total SSM/GetParameter/200 1",
                "aws_sdk_go_request_duration_seconds SSM/GetParameter 0",
                "aws_sdk_go_request_retry_count SSM/GetParameter 1",
                "aws_sdk_go_request_attempt_total SSM/GetParameter/503 1",
                "aws_sdk_go_request_attempt_duration_seconds SSM/GetParameter 0",
                "aws_sdk_go_request_attempt_total SSM/GetParameter/200 1",
                "aws_sdk_go_request_attempt_duration_seconds SSM/GetParameter 0",
            ]
        );
    }
}
