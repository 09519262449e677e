//! What every handler is given: the time, the settings, and where to write what it decided.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use spokeshave_model::Settings;

use crate::{AwsError, Concern, cluster::KubeEvent, observability};

/// One decision: becomes one JSON log line, and one line of the timeline in `local`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// A constant lower-case phrase or word: `create`, `launch`, `evict`, `terminate`, `skip`, ...
    pub action: &'static str,
    /// `Kind/name` or `Kind/namespace/name`.
    pub object: String,
    /// Why, for people.
    pub reason: String,
    /// Stable field names: `nodeclaim`, `instance_id`, `price_per_hour`, `request_id`, ...
    pub fields: Map<String, Value>,
    /// `true`: a person must act.
    pub error: bool,
}

impl Decision {
    pub fn new(action: &'static str, object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { action, object: object.into(), reason: reason.into(), ..Self::default() }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Adds what is known of a failed AWS call: `error_code`, `service`, `operation`, `request_id` (null when there was no
    /// answer), `retryable` and `advice`.
    #[must_use]
    pub fn with_error(self, error: &AwsError) -> Self {
        self.with("error_code", error.code.as_str())
            .with("service", error.service)
            .with("operation", error.operation)
            .with("request_id", error.request_id.clone())
            .with("retryable", error.is_retryable())
            .with("advice", error.advice())
    }

    /// The same for the AWS call that is behind `error`, if one is: what failed may be wrapped several times.
    #[must_use]
    pub fn caused_by(self, error: &(dyn std::error::Error + 'static)) -> Self {
        match AwsError::behind(error) {
            Some(error) => self.with_error(error),
            None => self,
        }
    }

    /// Marks it as something a person must act on.
    #[must_use]
    pub fn as_error(mut self) -> Self {
        self.error = true;
        self
    }
}

/// One sample of a metric under Karpenter's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub name: &'static str,
    pub value: f64,
    /// CloudWatch unit: `Count`, `Seconds`, `None`.
    pub unit: &'static str,
    pub labels: Vec<(&'static str, String)>,
}

/// Takes decisions and metrics. In Lambda: standard output, as JSON and embedded metric format.
pub trait Journal {
    fn decision(&self, concern: Concern, decision: Decision);
    fn metric(&self, metric: Metric);

    /// What time it is by now, in the middle of a run. `None`: no time passes while a run goes on.
    fn clock(&self) -> Option<Timestamp> {
        None
    }
}

/// `at` without a fraction, as Kubernetes writes times.
pub fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// One run of a handler.
pub struct Invocation<'a> {
    pub concern: Concern,
    /// Read once, when the event arrived.
    pub now: Timestamp,
    /// When Lambda ends us: no irreversible call is started without time left to record its outcome, see
    /// [`has_time`](Self::has_time).
    pub deadline: Timestamp,
    pub settings: &'a Settings,
    pub journal: &'a dyn Journal,
}

impl Invocation<'_> {
    /// [`Invocation::now`] without a fraction.
    pub fn whole_second(&self) -> Timestamp {
        whole_second(self.now)
    }

    /// Whether at least so much is left until the deadline.
    pub fn has_time(&self, least: SignedDuration) -> bool {
        let now = self.journal.clock().unwrap_or(self.now);
        self.deadline.duration_since(now) >= least
    }

    /// Records a decision.
    pub fn decide(&self, decision: Decision) {
        self.journal.decision(self.concern, decision);
    }

    /// Records one occurrence.
    pub fn count(&self, name: &'static str, labels: &[(&'static str, &str)]) {
        self.sample(name, 1.0, "Count", labels);
    }

    /// Records a sample.
    pub fn sample(
        &self,
        name: &'static str,
        value: f64,
        unit: &'static str,
        labels: &[(&'static str, &str)],
    ) {
        let labels = labels.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        self.measure(Metric { name, value, unit, labels });
    }

    /// Records a sample, unless it is one that the settings switch off.
    pub fn measure(&self, metric: Metric) {
        let off = self.settings.disable_cluster_state_observability;
        if off && observability::is_state_metric(metric.name) {
            return;
        }
        if self.settings.deprecated_metrics
            && let Some(twin) = observability::deprecated_twin(&metric)
        {
            self.journal.metric(twin);
        }
        self.journal.metric(metric);
    }

    /// Whether the settings let this event be published.
    pub fn tells(&self, event: &KubeEvent) -> bool {
        !self.settings.disable_cluster_state_observability || !observability::is_state_event(event)
    }
}
