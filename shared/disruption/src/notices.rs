//! Events and measurements as data: who is told what, published by whoever carries the decision out.

use std::sync::Arc;

use jiff::SignedDuration;
use spokeshave_model::core::Pod;

/// Whom an event is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// The Node and the NodeClaim at this position of the view, whichever exists.
    Node(usize),
    /// A NodePool by name.
    NodePool(String),
    Pod(Arc<Pod>),
}

/// An event to publish.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub subject: Subject,
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
    /// An equal one within this time is not published again.
    pub dedupe: SignedDuration,
}

impl Notice {
    pub fn normal(
        subject: Subject,
        reason: &'static str,
        message: impl Into<String>,
        dedupe: SignedDuration,
    ) -> Self {
        Self { subject, warning: false, reason, message: message.into(), dedupe }
    }

    pub fn warning(
        subject: Subject,
        reason: &'static str,
        message: impl Into<String>,
        dedupe: SignedDuration,
    ) -> Self {
        Self { warning: true, ..Self::normal(subject, reason, message, dedupe) }
    }
}

/// One sample of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Karpenter's name, with its prefix.
    pub name: &'static str,
    pub value: f64,
    /// `Count` for counters, `None` for gauges and histograms without a unit.
    pub unit: &'static str,
    pub labels: Vec<(&'static str, String)>,
}

impl Measure {
    pub fn count(name: &'static str, value: f64, labels: &[(&'static str, &str)]) -> Self {
        Self::new(name, value, "Count", labels)
    }

    pub fn gauge(name: &'static str, value: f64, labels: &[(&'static str, &str)]) -> Self {
        Self::new(name, value, "None", labels)
    }

    fn new(
        name: &'static str,
        value: f64,
        unit: &'static str,
        labels: &[(&'static str, &str)],
    ) -> Self {
        let labels = labels.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        Self { name, value, unit, labels }
    }
}
