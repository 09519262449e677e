//! The loop of a function: events in, partial answers out.
//!
//! A function's main reads [`Startup`] (settings; a setting that does not parse ends it before the first event), makes
//! its clients, and hands a handler to [`Startup::run`]. Panics are caught: the records of a batch that panicked are
//! then handled one by one, so that one bad record is delivered again alone. A handler that comes near its deadline is
//! dropped at the call it waits for, which it must stand like being killed there, and its batch is delivered again.

use std::{
    any::Any,
    future::Future,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    task::Poll,
    time::{Duration, SystemTime},
};

use jiff::{SignedDuration, Timestamp};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;
use spokeshave_model::{Settings, settings::SettingError};
use spokeshave_ports::{Concern, Decision, Invocation, Journal};

use spokeshave_aws::{SqsQueues, meter, trace};

use crate::{
    BatchAnswer, SqsBatch, SqsRecord, drain,
    telemetry::{Current, Stdout, Telemetry},
};

/// What is kept back of Lambda's time to answer and to write logs.
const RESERVE: SignedDuration = SignedDuration::from_millis(500);
/// What `LOG_LEVEL` may say. As in Karpenter 1.x.
const LOG_LEVELS: &[&str] = &["", "debug", "info", "error"];

/// A batch being handled, without its type.
type Handling<'a> = Pin<Box<dyn Future<Output = BatchAnswer> + 'a>>;

/// What a main has before it makes clients.
#[derive(Clone, Debug)]
pub struct Startup {
    pub concern: Concern,
    pub settings: Settings,
    pub telemetry: Telemetry,
}

impl Startup {
    /// Reads settings and starts telemetry.
    ///
    /// # Errors
    /// A setting that does not parse, or no `CLUSTER_NAME`. It has been logged; the caller ends the process, so that
    /// nothing is done by half-understood settings and the messages stay in their queue.
    pub fn from_env(concern: Concern) -> Result<Self, SettingError> {
        let level = std::env::var("LOG_LEVEL").unwrap_or_default();
        let settings = settings(std::env::vars());
        let cluster = settings.as_ref().map_or("", |it| it.cluster_name.as_str());
        let telemetry = Telemetry::new(concern, cluster, Stdout);
        telemetry.install(&level);
        match settings {
            Ok(settings) => {
                if settings.call_metrics {
                    meter::start();
                }
                Ok(Self { concern, settings, telemetry })
            }
            Err(error) => {
                let decision = Decision::new("refuse", "Settings", error.to_string())
                    .with("setting", error.name.as_str())
                    .as_error();
                telemetry.decision(concern, decision);
                Err(error)
            }
        }
    }

    /// Serves a function that an SQS queue triggers, until Lambda ends the process. An event that is no batch of messages
    /// has the function look into its queues itself: see [`drain`](crate::drain).
    ///
    /// # Errors
    /// When the Lambda Runtime API cannot be reached.
    pub async fn run<H>(&self, queues: &SqsQueues, handler: H) -> Result<(), Error>
    where
        H: AsyncFn(&SqsBatch, &Invocation<'_>) -> BatchAnswer,
    {
        let handler = &handler;
        lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
            let cx = self.begin(&event.context);
            let trace_id = event.context.xray_trace_id.clone().unwrap_or_default();
            if event.payload.get("Records").is_none() {
                let wait = drain::wait(&event.payload);
                let urls = std::env::var(drain::OWN_QUEUES).unwrap_or_default();
                let has_time = || cx.deadline.duration_since(Timestamp::now()) > drain::LEAST_TIME;
                let one = async |batch: &SqsBatch| {
                    let cx = self.begin(&event.context);
                    let handling: Handling<'_> =
                        Box::pin(self.handle(batch, &trace_id, &cx, handler));
                    handling.await
                };
                let done = drain::drain(queues, &urls, self.concern, wait, has_time, one).await;
                let answer = done.told(&cx);
                self.flush();
                return Ok(answer);
            }
            let batch = match serde_json::from_value::<SqsBatch>(event.payload) {
                Ok(batch) => batch,
                Err(error) => {
                    cx.decide(Decision::new("drop", "Event", error.to_string()).as_error());
                    return Err(Error::from(error));
                }
            };
            let handling: Handling<'_> = Box::pin(self.handle(&batch, &trace_id, &cx, handler));
            let answer = handling.await;
            Ok(serde_json::to_value(answer)?)
        }))
        .await
    }

    /// Answers one batch, and tells what happened.
    async fn handle<H>(
        &self,
        batch: &SqsBatch,
        trace_id: &str,
        cx: &Invocation<'_>,
        handler: &H,
    ) -> BatchAnswer
    where
        H: AsyncFn(&SqsBatch, &Invocation<'_>) -> BatchAnswer,
    {
        let correlation = batch.correlation();
        self.telemetry.correlate(&correlation);
        trace::begin(&correlation, trace_id);
        let answer = answer(self.concern, batch, cx, handler).await;
        self.flush();
        answer
    }

    /// The same for a solver: what comes from its wake queue is due, and goes on to its FIFO queue.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub async fn run_solver<H>(&self, queues: &SqsQueues, handler: H) -> Result<(), Error>
    where
        H: AsyncFn(&SqsBatch, &Invocation<'_>) -> BatchAnswer,
    {
        self.run(queues, async |batch, cx| {
            let (due, own) = batch.records.iter().cloned().partition(SqsRecord::is_wake);
            let due: Vec<SqsRecord> = due;
            let own = SqsBatch { records: own };
            let mut answer =
                if own.records.is_empty() { BatchAnswer::done() } else { handler(&own, cx).await };
            for record in due {
                let (id, group) = (record.message_id.as_str(), record.group());
                if let Err(error) = queues.forward(self.concern, &record.body, group, id).await {
                    let object = format!("Message/{id}");
                    cx.decide(Decision::new("retry", object, error.to_string()).as_error());
                    answer.retry(&record);
                }
            }
            answer
        })
        .await
    }

    /// Serves a function that is invoked directly, with the event as it is and the id of the request.
    ///
    /// # Errors
    /// When the Lambda Runtime API cannot be reached.
    pub async fn run_direct<H>(&self, handler: H) -> Result<(), Error>
    where
        H: AsyncFn(Value, &str, &Invocation<'_>) -> Result<Value, String>,
    {
        let handler = &handler;
        lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
            let cx = self.begin(&event.context);
            let request_id = event.context.request_id.as_str();
            let handling: Pin<Box<dyn Future<Output = Result<Value, String>> + '_>> =
                Box::pin(handler(event.payload, request_id, &cx));
            let outcome = caught(handling).await;
            let outcome = outcome.unwrap_or_else(|panic| Err(format!("panic: {panic}")));
            if let Err(reason) = &outcome {
                cx.decide(Decision::new("fail", "Event", reason.as_str()).as_error());
            }
            self.flush();
            outcome.map_err(Error::from)
        }))
        .await
    }

    /// Writes the metrics of the invocation, with those of its calls of AWS where they are asked for.
    fn flush(&self) {
        for metric in meter::take().iter().flat_map(meter::Measured::metrics) {
            self.telemetry.metric(metric);
        }
        self.telemetry.flush(Timestamp::now());
    }

    fn begin(&self, context: &lambda_runtime::Context) -> Invocation<'_> {
        let now = Timestamp::now();
        let trace_id = context.xray_trace_id.clone().unwrap_or_default();
        self.telemetry.begin(Current {
            request_id: context.request_id.clone(),
            trace_id: trace_id.clone(),
            correlation: String::new(),
        });
        trace::begin("", &trace_id);
        let deadline = i64::try_from(context.deadline).ok();
        let deadline = deadline.and_then(|it| Timestamp::from_millisecond(it).ok());
        Invocation {
            concern: self.concern,
            now,
            deadline: deadline.unwrap_or(now) - RESERVE,
            settings: &self.settings,
            journal: &self.telemetry,
        }
    }
}

/// Settings from environment variables; names that are not ours are passed over.
///
/// # Errors
/// The first variable that does not parse, or an empty `CLUSTER_NAME`.
pub fn settings(
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Settings, SettingError> {
    let mut variables: Vec<(String, String)> = variables.into_iter().collect();
    // AWS_FEATURE_GATES is merged over FEATURE_GATES, whatever the order of the environment.
    variables.sort_by_key(|(name, _)| (name == "AWS_FEATURE_GATES", name.clone()));
    let mut settings = Settings::default();
    for (name, value) in &variables {
        settings.set(name, value)?;
        if name == "LOG_LEVEL" && !LOG_LEVELS.contains(&value.as_str()) {
            return Err(SettingError {
                name: name.clone(),
                value: value.clone(),
                problem: "must be debug, info or error".into(),
            });
        }
    }
    if settings.cluster_name.is_empty() {
        return Err(SettingError {
            name: "CLUSTER_NAME".into(),
            value: String::new(),
            problem: "must be set".into(),
        });
    }
    Ok(settings)
}

/// Answers a batch: the handler's own answer, or what can be saved of it after a panic or at the deadline.
async fn answer<H>(
    concern: Concern,
    batch: &SqsBatch,
    cx: &Invocation<'_>,
    handler: &H,
) -> BatchAnswer
where
    H: AsyncFn(&SqsBatch, &Invocation<'_>) -> BatchAnswer,
{
    let mut answer = match guarded(batch, cx, handler).await {
        Outcome::Answered(answer) => answer,
        Outcome::OutOfTime => all_of(batch),
        Outcome::Panicked(_) if batch.records.len() <= 1 => all_of(batch),
        Outcome::Panicked(_) => {
            let mut answer = BatchAnswer::done();
            for record in &batch.records {
                let alone = SqsBatch { records: vec![record.clone()] };
                match guarded(&alone, cx, handler).await {
                    Outcome::Answered(one) => answer.failures.extend(one.failures),
                    Outcome::Panicked(_) | Outcome::OutOfTime => answer.retry(record),
                }
            }
            answer
        }
    };
    if concern.is_fifo() {
        keep_order(batch, &mut answer);
    }
    answer
}

/// On a FIFO queue everything from the first failure on is delivered again, or later messages would overtake it.
fn keep_order(batch: &SqsBatch, answer: &mut BatchAnswer) {
    let failed = |id: &str| answer.failures.iter().any(|it| it.message_id == id);
    if let Some(first) = batch.records.iter().position(|it| failed(&it.message_id)) {
        let mut ordered = BatchAnswer::done();
        batch.records.iter().skip(first).for_each(|record| ordered.retry(record));
        *answer = ordered;
    }
}

fn all_of(batch: &SqsBatch) -> BatchAnswer {
    let mut answer = BatchAnswer::done();
    batch.records.iter().for_each(|record| answer.retry(record));
    answer
}

enum Outcome {
    Answered(BatchAnswer),
    Panicked(#[allow(dead_code, reason = "read by tests")] String),
    OutOfTime,
}

async fn guarded<H>(batch: &SqsBatch, cx: &Invocation<'_>, handler: &H) -> Outcome
where
    H: AsyncFn(&SqsBatch, &Invocation<'_>) -> BatchAnswer,
{
    let left = time_left(cx.deadline, SystemTime::now());
    // Boxed without its type: futures of futures of clients are too deep for the compiler otherwise.
    let handling: Handling<'_> = Box::pin(handler(batch, cx));
    match tokio::time::timeout(left, caught(handling)).await {
        Ok(Ok(answer)) => Outcome::Answered(answer),
        Ok(Err(panic)) => {
            let ids: Vec<&str> = batch.records.iter().map(|it| it.message_id.as_str()).collect();
            cx.decide(
                Decision::new("panic", "Batch", panic.as_str()).with("message_ids", ids).as_error(),
            );
            Outcome::Panicked(panic)
        }
        Err(_) => {
            let reason = "the time limit came before the batch was done";
            cx.decide(
                Decision::new("retry", "Batch", reason)
                    .with("records", batch.records.len())
                    .as_error(),
            );
            Outcome::OutOfTime
        }
    }
}

/// Time until `deadline`; never negative.
fn time_left(deadline: Timestamp, now: SystemTime) -> Duration {
    SystemTime::from(deadline).duration_since(now).unwrap_or_default()
}

#[cfg(panic = "abort")]
compile_error!("a panic over one record must not end the others: build with `panic = \"unwind\"`");

/// Runs a future; a panic becomes its message.
async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = pin!(future);
    std::future::poll_fn(move |cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(text_of(panic.as_ref()))),
        }
    })
    .await
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|it| (*it).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use spokeshave_ports::Metric;

    use super::*;
    use crate::SqsRecord;

    #[derive(Default)]
    struct Kept(RefCell<Vec<(String, bool)>>);

    impl Journal for Kept {
        fn decision(&self, _: Concern, decision: Decision) {
            self.0.borrow_mut().push((decision.action.to_owned(), decision.error));
        }

        fn metric(&self, _: Metric) {}
    }

    fn batch(ids: &[&str]) -> SqsBatch {
        let record = |id: &&str| SqsRecord { message_id: (*id).to_owned(), ..SqsRecord::default() };
        SqsBatch { records: ids.iter().map(record).collect() }
    }

    fn failed(answer: &BatchAnswer) -> Vec<&str> {
        answer.failures.iter().map(|it| it.message_id.as_str()).collect()
    }

    #[allow(clippy::needless_pass_by_value, reason = "closures are written in place")]
    fn run<H>(
        concern: Concern,
        ids: &[&str],
        left: SignedDuration,
        handler: H,
    ) -> (BatchAnswer, Kept)
    where
        H: AsyncFn(&SqsBatch, &Invocation<'_>) -> BatchAnswer,
    {
        let kept = Kept::default();
        let settings = Settings::default();
        let now = Timestamp::now();
        let cx =
            Invocation { concern, now, deadline: now + left, settings: &settings, journal: &kept };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let answer =
            runtime.expect("a runtime").block_on(answer(concern, &batch(ids), &cx, &handler));
        (answer, kept)
    }

    const MINUTE: SignedDuration = SignedDuration::from_secs(60);

    #[test]
    fn a_panic_costs_only_its_record() {
        let done = RefCell::new(Vec::new());
        let (answer, kept) = run(Concern::Lifecycle, &["a", "b", "c"], MINUTE, async |batch, _| {
            for record in &batch.records {
                assert!(record.message_id != "b", "b is broken");
                done.borrow_mut().push(record.message_id.clone());
            }
            BatchAnswer::done()
        });
        assert_eq!(failed(&answer), ["b"]);
        // `a` was done twice: handlers stand that.
        assert_eq!(*done.borrow(), ["a", "a", "c"]);
        assert_eq!(*kept.0.borrow(), [("panic".to_owned(), true), ("panic".to_owned(), true)]);
    }

    #[test] // B-093: what leaves the function, as JSON
    fn one_failure_of_three_is_told_at_the_top_level() {
        let handler = async |batch: &SqsBatch, _: &Invocation<'_>| {
            let mut answer = BatchAnswer::done();
            answer.retry(&batch.records[1]);
            answer
        };
        let (answer, _) = run(Concern::Launch, &["a", "b", "c"], MINUTE, handler);
        assert_eq!(
            serde_json::to_string(&answer).expect("plain data"),
            r#"{"batchItemFailures":[{"itemIdentifier":"b"}]}"#
        );
    }

    #[test]
    fn a_fifo_batch_fails_from_the_first_failure_on() {
        let handler = async |batch: &SqsBatch, _: &Invocation<'_>| {
            let mut answer = BatchAnswer::done();
            answer.retry(&batch.records[1]);
            answer
        };
        let (answer, _) = run(Concern::Provision, &["a", "b", "c"], MINUTE, handler);
        assert_eq!(failed(&answer), ["b", "c"]);
        let (answer, _) = run(Concern::Launch, &["a", "b", "c"], MINUTE, handler);
        assert_eq!(failed(&answer), ["b"]);
    }

    #[test]
    fn a_batch_that_runs_out_of_time_is_delivered_again() {
        let (answer, kept) =
            run(Concern::Launch, &["a", "b"], SignedDuration::ZERO, async |_, _| {
                std::future::pending::<()>().await;
                BatchAnswer::done()
            });
        assert_eq!(failed(&answer), ["a", "b"]);
        assert_eq!(*kept.0.borrow(), [("retry".to_owned(), true)]);
    }

    #[test]
    fn settings_come_by_their_environment_names() {
        let read = |variables: &[(&str, &str)]| {
            settings(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())))
        };
        let good = read(&[
            ("AWS_FEATURE_GATES", "NodeRepair=false"),
            ("CLUSTER_NAME", "prod"),
            ("FEATURE_GATES", "NodeRepair=true,SpotToSpotConsolidation=true"),
            ("PATH", "/bin"),
        ]);
        let good = good.expect("valid");
        assert_eq!(good.cluster_name, "prod");
        assert!(good.gates.spot_to_spot_consolidation && !good.gates.node_repair);

        let name = |variables| read(variables).expect_err("refused").name;
        // aws-capacity 1, case 2
        assert_eq!(name(&[]), "CLUSTER_NAME");
        assert_eq!(name(&[("CLUSTER_NAME", "prod"), ("RESERVED_ENIS", "-1")]), "RESERVED_ENIS");
        // aws-capacity 1.2: what is none of the levels stops the start; empty is allowed.
        for level in ["", "debug", "info", "error"] {
            assert!(read(&[("CLUSTER_NAME", "prod"), ("LOG_LEVEL", level)]).is_ok(), "{level}");
        }
        for level in ["loud", "INFO", "trace"] {
            let error = read(&[("CLUSTER_NAME", "prod"), ("LOG_LEVEL", level)]);
            assert_eq!(error.expect_err("refused").name, "LOG_LEVEL", "{level}");
        }
    }
}
