//! What a function says on standard output: one JSON object per line, decisions and metrics alike.
//!
//! CloudWatch Logs takes the lines as they are. Metrics are lines in CloudWatch's embedded metric format, so no
//! metrics client is needed and nothing is sent while nothing happens.

use std::{
    collections::BTreeMap,
    fmt,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use spokeshave_ports::{Concern, Decision, Journal, Metric};
use tracing::{Event, Level, Subscriber, field::Field};
use tracing_subscriber::{
    Layer, filter::Targets, layer::Context, prelude::*, registry::LookupSpan,
};

/// CloudWatch's name for where our metrics live.
pub const NAMESPACE: &str = "Spokeshave";

/// Values that one metric of one embedded-format line may have. Source: the format's specification.
const MAX_VALUES: usize = 100;

/// Metrics that one embedded-format line may have. Source: the format's specification.
const MAX_METRICS: usize = 100;

/// Where finished lines go.
pub trait Lines: Send + Sync + 'static {
    fn write(&self, line: &str);
}

/// Standard output.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stdout;

impl Lines for Stdout {
    fn write(&self, line: &str) {
        let mut out = std::io::stdout().lock();
        // Nobody is left to tell when standard output is gone.
        let _ = writeln!(out, "{line}");
    }
}

/// What every line of one invocation carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Current {
    pub request_id: String,
    pub trace_id: String,
    /// What the run's messages go back to, see [`crate::SqsBatch::correlation`].
    pub correlation: String,
}

/// Shared by the log layer and the journal.
#[derive(Clone)]
pub struct Telemetry {
    inner: Arc<Inner>,
}

struct Inner {
    concern: Concern,
    cluster: String,
    current: Mutex<Current>,
    samples: Mutex<Vec<Metric>>,
    lines: Box<dyn Lines>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("concern", &self.inner.concern).finish_non_exhaustive()
    }
}

impl Telemetry {
    pub fn new(concern: Concern, cluster: &str, lines: impl Lines) -> Self {
        let inner = Inner {
            concern,
            cluster: cluster.to_owned(),
            current: Mutex::default(),
            samples: Mutex::default(),
            lines: Box::new(lines),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Makes these the telemetry of the process. A second call changes nothing.
    ///
    /// `level` is `error`, `warn`, `info` (also for unknown words), `debug` or `trace`, and is for our own crates:
    /// libraries are heard from `warn` on.
    pub fn install(&self, level: &str) {
        let _ = tracing_subscriber::registry().with(self.layer(level)).try_init();
    }

    fn layer<S>(&self, level: &str) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let level = level.parse().unwrap_or(Level::INFO);
        let filter = Targets::new().with_default(Level::WARN).with_target("spokeshave", level);
        JsonLines { telemetry: self.clone() }.with_filter(filter)
    }

    /// Names the invocation that begins.
    pub fn begin(&self, current: Current) {
        *self.inner.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
    }

    /// Names what the current invocation's messages go back to.
    pub fn correlate(&self, correlation: &str) {
        let mut current = self.inner.current.lock().unwrap_or_else(PoisonError::into_inner);
        correlation.clone_into(&mut current.correlation);
    }

    /// Writes the metrics gathered since the last flush, stamped `now`.
    pub fn flush(&self, now: Timestamp) {
        let samples =
            std::mem::take(&mut *self.inner.samples.lock().unwrap_or_else(PoisonError::into_inner));
        for line in embedded_metrics(&self.inner.cluster, &samples, now) {
            self.inner.lines.write(&line.to_string());
        }
    }

    fn line(&self, level: &str, message: &str, fields: Map<String, Value>) {
        let current = self.inner.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut line = Map::new();
        line.insert("timestamp".into(), Timestamp::now().to_string().into());
        line.insert("level".into(), level.into());
        line.insert("message".into(), message.into());
        line.insert("concern".into(), self.inner.concern.as_str().into());
        line.insert("cluster".into(), self.inner.cluster.clone().into());
        if !current.request_id.is_empty() {
            line.insert("lambda_request_id".into(), current.request_id.into());
        }
        if !current.trace_id.is_empty() {
            line.insert("trace_id".into(), current.trace_id.into());
        }
        if !current.correlation.is_empty() {
            line.insert("correlation".into(), current.correlation.into());
        }
        for (name, value) in fields {
            line.entry(name).or_insert(value);
        }
        self.inner.lines.write(&Value::Object(line).to_string());
    }
}

impl Journal for Telemetry {
    fn decision(&self, _concern: Concern, decision: Decision) {
        let mut fields = Map::new();
        fields.insert("action".into(), decision.action.into());
        fields.insert("object".into(), decision.object.into());
        fields.insert("reason".into(), decision.reason.into());
        fields.extend(decision.fields);
        self.line(if decision.error { "error" } else { "info" }, "decision", fields);
    }

    fn metric(&self, metric: Metric) {
        self.inner.samples.lock().unwrap_or_else(PoisonError::into_inner).push(metric);
    }

    fn clock(&self) -> Option<Timestamp> {
        Some(Timestamp::now())
    }
}

/// Dimensions by name.
type Labels<'a> = BTreeMap<&'a str, String>;

/// Samples as lines in CloudWatch's embedded metric format: one line per set of labels, values of one metric together.
///
/// A dimension's value must not be empty, so an empty label becomes `-`.
pub fn embedded_metrics(cluster: &str, samples: &[Metric], now: Timestamp) -> Vec<Value> {
    let mut by_labels: BTreeMap<Labels<'_>, BTreeMap<&str, (&str, Vec<f64>)>> = BTreeMap::new();
    for sample in samples.iter().filter(|it| it.value.is_finite()) {
        let mut labels: Labels<'_> = sample
            .labels
            .iter()
            .map(|(name, value)| {
                (*name, if value.is_empty() { "-".to_owned() } else { value.clone() })
            })
            .collect();
        labels.insert("cluster", cluster.to_owned());
        let metric = by_labels.entry(labels).or_default().entry(sample.name);
        metric.or_insert_with(|| (sample.unit, Vec::new())).1.push(sample.value);
    }
    let mut lines = Vec::new();
    for (labels, metrics) in by_labels {
        // Counts are summed; every other value is kept, so that percentiles can be asked for.
        let pieces: Vec<(&str, &str, Vec<f64>)> = metrics
            .into_iter()
            .flat_map(|(name, (unit, values))| {
                let values = if unit == "Count" { vec![values.iter().sum()] } else { values };
                let pieces = values.chunks(MAX_VALUES).map(<[f64]>::to_vec).collect::<Vec<_>>();
                pieces.into_iter().map(move |values| (name, unit, values))
            })
            .collect();
        let mut rest = pieces.as_slice();
        while !rest.is_empty() {
            // A name may occur once in a line: a second piece of the same metric begins the next line.
            let repeated =
                rest.windows(2).position(|pair| matches!(pair, [(a, ..), (b, ..)] if a == b));
            let end = repeated.map_or(rest.len(), |it| it + 1).min(MAX_METRICS);
            let (now_written, later) = rest.split_at(end);
            lines.push(embedded_line(&labels, now_written, now));
            rest = later;
        }
    }
    lines
}

fn embedded_line(labels: &Labels<'_>, metrics: &[(&str, &str, Vec<f64>)], now: Timestamp) -> Value {
    let definitions: Vec<Value> =
        metrics.iter().map(|(name, unit, _)| json!({"Name": name, "Unit": unit})).collect();
    let dimensions: Vec<&str> = labels.keys().copied().collect();
    let mut line = Map::new();
    line.insert(
        "_aws".into(),
        json!({
            "Timestamp": now.as_millisecond(),
            "CloudWatchMetrics": [{
                "Namespace": NAMESPACE,
                "Dimensions": [dimensions],
                "Metrics": definitions,
            }],
        }),
    );
    for (name, value) in labels {
        line.insert((*name).to_owned(), value.clone().into());
    }
    for (name, _, values) in metrics {
        let value = match values.as_slice() {
            [one] => json!(one),
            many => json!(many),
        };
        line.insert((*name).to_owned(), value);
    }
    Value::Object(line)
}

/// Turns `tracing` events into lines.
struct JsonLines {
    telemetry: Telemetry,
}

impl<S: Subscriber> Layer<S> for JsonLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = match *event.metadata().level() {
            Level::ERROR if speaks_for_the_run(event.metadata().target()) => "error",
            Level::ERROR | Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        let message = fields.0.remove("message");
        let message = message.as_ref().and_then(Value::as_str).unwrap_or_default();
        self.telemetry.line(level, message, fields.0);
    }
}

/// Whether whoever logs under `target` knows that a person must act: we do, and the runtime, which sees panics. What a client
/// calls an error is one request that failed: we have it as an answer, and most of them pass by themselves.
fn speaks_for_the_run(target: &str) -> bool {
    ["spokeshave", "lambda_runtime"].iter().any(|it| target.starts_with(it))
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl tracing::field::Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), json!(format!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl Lines for Kept {
        fn write(&self, line: &str) {
            self.0.lock().expect("no panic").push(line.to_owned());
        }
    }

    fn sample(name: &'static str, value: f64, unit: &'static str, reason: &str) -> Metric {
        Metric { name, value, unit, labels: vec![("reason", reason.to_owned())] }
    }

    #[test]
    fn metrics_of_the_same_labels_share_a_line() {
        let samples = [
            sample("karpenter_nodeclaims_created_total", 1.0, "Count", "provisioned"),
            sample("karpenter_nodeclaims_created_total", 1.0, "Count", "provisioned"),
            sample("karpenter_nodeclaims_created_total", 1.0, "Count", ""),
            sample(
                "karpenter_scheduler_scheduling_duration_seconds",
                0.25,
                "Seconds",
                "provisioned",
            ),
            sample(
                "karpenter_scheduler_scheduling_duration_seconds",
                0.5,
                "Seconds",
                "provisioned",
            ),
            sample("karpenter_scheduler_scheduling_duration_seconds", f64::NAN, "Seconds", "x"),
        ];
        let now = Timestamp::from_second(1_700_000_000).expect("valid");
        let lines = embedded_metrics("prod", &samples, now);
        assert_eq!(
            lines,
            [
                json!({
                    "_aws": {"Timestamp": 1_700_000_000_000_i64, "CloudWatchMetrics": [{
                        "Namespace": "Spokeshave",
                        "Dimensions": [["cluster", "reason"]],
                        "Metrics": [{"Name": "karpenter_nodeclaims_created_total", "Unit": "Count"}],
                    }]},
                    "cluster": "prod", "reason": "-", "karpenter_nodeclaims_created_total": 1.0,
                }),
                json!({
                    "_aws": {"Timestamp": 1_700_000_000_000_i64, "CloudWatchMetrics": [{
                        "Namespace": "Spokeshave",
                        "Dimensions": [["cluster", "reason"]],
                        "Metrics": [
                            {"Name": "karpenter_nodeclaims_created_total", "Unit": "Count"},
                            {"Name": "karpenter_scheduler_scheduling_duration_seconds", "Unit": "Seconds"},
                        ],
                    }]},
                    "cluster": "prod", "reason": "provisioned",
                    "karpenter_nodeclaims_created_total": 2.0,
                    "karpenter_scheduler_scheduling_duration_seconds": [0.25, 0.5],
                }),
            ]
        );
    }

    #[test]
    fn no_line_holds_more_values_than_the_format_allows() {
        let samples: Vec<Metric> =
            (0..250).map(|n| sample("depth", f64::from(n), "None", "x")).collect();
        let lines = embedded_metrics("prod", &samples, Timestamp::UNIX_EPOCH);
        let lengths: Vec<usize> =
            lines.iter().map(|it| it["depth"].as_array().expect("many").len()).collect();
        assert_eq!(lengths, [100, 100, 50]);
        assert_eq!(embedded_metrics("prod", &[], Timestamp::UNIX_EPOCH), Vec::<Value>::new());
    }

    #[test]
    fn a_decision_is_one_line_with_stable_names() {
        let kept = Kept::default();
        let telemetry = Telemetry::new(Concern::Launch, "prod", kept.clone());
        telemetry.begin(Current { request_id: "r-1".into(), ..Current::default() });
        telemetry.correlate("e-1");
        let decision = Decision::new("launch", "NodeClaim/a", "cheapest of 12 offerings")
            .with("price_per_hour", 0.25)
            .with("level", "a field never hides a name of ours");
        telemetry.decision(Concern::Launch, decision);
        let lines = kept.0.lock().expect("no panic").clone();
        let mut line: Value = serde_json::from_str(&lines[0]).expect("JSON");
        line.as_object_mut().expect("object").remove("timestamp").expect("stamped");
        assert_eq!(
            line,
            json!({
                "level": "info", "message": "decision", "concern": "launch", "cluster": "prod",
                "lambda_request_id": "r-1", "correlation": "e-1", "action": "launch", "object": "NodeClaim/a",
                "reason": "cheapest of 12 offerings", "price_per_hour": 0.25,
            })
        );
        assert_eq!(lines.len(), 1);
    }

    #[test]
    fn a_request_that_a_client_calls_an_error_is_a_warning() {
        let kept = Kept::default();
        let telemetry = Telemetry::new(Concern::Launch, "prod", kept.clone());
        let subscriber = tracing_subscriber::registry().with(telemetry.layer("warn"));
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(target: "kube_client::client::builder", "failed with status 503");
            tracing::warn!(target: "hyper_util", "closed");
            tracing::info!(target: "hyper_util", "open");
            tracing::error!(target: "lambda_runtime::layers::panic", "user handler panicked");
            tracing::error!(target: "spokeshave", object = "Pod/a", "given up");
            tracing::info!(target: "spokeshave", "below the level");
        });
        let told: Vec<String> = kept.0.lock().expect("no panic").clone();
        let told: Vec<(String, String)> = told
            .iter()
            .map(|it| {
                let line: Value = serde_json::from_str(it).expect("JSON");
                let of = |name: &str| line[name].as_str().expect("a text").to_owned();
                (of("level"), of("message"))
            })
            .collect();
        let expected = [
            ("warn", "failed with status 503"),
            ("warn", "closed"),
            ("error", "user handler panicked"),
            ("error", "given up"),
        ];
        assert_eq!(told, expected.map(|(level, message)| (level.to_owned(), message.to_owned())));
    }
}
