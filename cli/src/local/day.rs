//! A day of a real cluster, made up: what changes when.

use jiff::SignedDuration;
use serde_json::{Value, json};

/// The file that the day begins with, and its text.
pub const MANIFESTS: (&str, &str) =
    ("infra/examples/day.yaml", include_str!("../../../infra/examples/day.yaml"));

/// How long it is.
pub const LENGTH: SignedDuration = SignedDuration::from_hours(24);

/// Replicas of `web` at night, and what noon adds.
const WEB: (f64, f64) = (12.0, 36.0);
/// A batch burst comes every so many hours.
const BATCH_EVERY: i64 = 4;
/// Spot instances are interrupted at these hours.
const INTERRUPTED_AT: [i64; 4] = [3, 9, 15, 20];

/// What happens to the objects of [`MANIFESTS`].
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Apply(Vec<Value>),
    /// A message body for the interruption queue.
    Event(String),
}

/// The steps after the start, which is at eight in the morning.
pub fn steps(manifests: &[Value]) -> Vec<(SignedDuration, Step)> {
    let find = |kind: &str, name: &str| {
        manifests.iter().find(|it| it["kind"] == kind && it["metadata"]["name"] == name).cloned()
    };
    let mut steps = Vec::new();
    for half_hour in 1..48_i64 {
        let after = SignedDuration::from_mins(30 * half_hour);
        if let Some(mut web) = find("Deployment", "web") {
            web["spec"]["replicas"] = json!(web_replicas(8.0 + half_hour as f64 / 2.0));
            steps.push((after, Step::Apply(vec![web])));
        }
        let hour = half_hour / 2;
        if half_hour % 2 != 0 {
            continue;
        }
        // Ten minutes past, so that not all comes at once.
        let after = after + SignedDuration::from_mins(10);
        if let Some(mut api) = find("Deployment", "api") {
            api["spec"]["template"]["metadata"]["labels"]["release"] = json!(format!("r{hour}"));
            steps.push((after, Step::Apply(vec![api])));
        }
        if hour % BATCH_EVERY == 0
            && let Some(mut batch) = find("Job", "batch")
        {
            batch["metadata"]["name"] = json!(format!("batch-{hour}"));
            steps.push((after, Step::Apply(vec![batch])));
        }
        if INTERRUPTED_AT.contains(&hour) {
            let event = json!({"version": "0", "id": format!("day-{hour}"), "source": "aws.ec2",
                "detail-type": "EC2 Spot Instance Interruption Warning",
                "account": "123456789012", "region": "us-east-1",
                "detail": {"instance-id": "{{instance:0}}", "instance-action": "terminate"}});
            steps.push((after, Step::Event(event.to_string())));
        }
    }
    steps
}

/// Follows the sun: least at two at night, most at two in the afternoon.
fn web_replicas(hour_of_day: f64) -> u32 {
    let height = (1.0 - ((hour_of_day - 2.0) / 24.0 * std::f64::consts::TAU).cos()) / 2.0;
    let replicas = (WEB.0 + WEB.1 * height).round();
    // Between the two constants, so that the conversion loses nothing.
    replicas as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_follows_the_sun() {
        assert_eq!([2.0, 8.0, 14.0, 20.0, 26.0].map(web_replicas), [12, 30, 48, 30, 12]);
    }

    #[test]
    fn every_hour_brings_a_release_and_some_bring_more() {
        let manifests = [
            json!({"kind": "Deployment", "metadata": {"name": "web"}, "spec": {}}),
            json!({"kind": "Deployment", "metadata": {"name": "api"}, "spec": {"template": {"metadata": {"labels": {}}}}}),
            json!({"kind": "Job", "metadata": {"name": "batch"}}),
        ];
        let steps = steps(&manifests);
        let names: Vec<&str> = steps
            .iter()
            .map(|(_, it)| match it {
                Step::Apply(list) => list[0]["metadata"]["name"].as_str().expect("a name"),
                Step::Event(_) => "event",
            })
            .collect();
        let count = |name: &str| names.iter().filter(|it| it.starts_with(name)).count();
        assert_eq!((count("web"), count("api"), count("batch"), count("event")), (47, 23, 5, 4));
        assert!(steps.iter().all(|(after, _)| *after < LENGTH));
    }
}
