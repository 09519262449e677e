//! Every sample in `events/` is read, written back and compared.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use spokeshave_lambda::{SqsBatch, SqsRecord, wiring};

fn samples(folder: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events").join(folder);
    let mut samples: Vec<(String, Value)> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let text = fs::read_to_string(&path).expect("a text");
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, serde_json::from_str(&text).expect("JSON"))
        })
        .collect();
    samples.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!samples.is_empty());
    samples
}

fn record(body: &Value) -> SqsRecord {
    SqsRecord { body: body.to_string(), ..SqsRecord::default() }
}

#[test]
fn work_comes_back_as_it_was() {
    for (name, body) in samples("queue") {
        let work = record(&body).work().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(serde_json::to_value(&work).expect("writes"), body, "{name}");
    }
}

#[test]
fn events_of_the_bus_come_back_as_they_were() {
    let mut seen = BTreeSet::new();
    for (name, envelope) in samples("bus") {
        assert_eq!(envelope["detail-type"], name.as_str(), "{name}");
        let work = record(&envelope).work().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(work.reason, name);
        assert_eq!(serde_json::to_value(&work).expect("writes"), envelope["detail"], "{name}");
        seen.insert(name);
    }
    let routed: BTreeSet<String> =
        wiring::ROUTES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(seen, routed, "one sample per detail type");
}

#[test]
fn batches_come_back_as_they_were() {
    for (name, value) in samples("lambda") {
        let batch: SqsBatch = serde_json::from_value(value.clone()).expect("a batch");
        assert_eq!(serde_json::to_value(&batch).expect("writes"), value, "{name}");
    }
}
