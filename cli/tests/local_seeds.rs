//! The life of nodes under faults, many times over: budgets and PodDisruptionBudgets hold, commands end, what is being
//! removed goes, and what is left comes to rest.
//!
//! `SPOKESHAVE_SEEDS` is how many histories are run: 200 in continuous integration, 10,000 in the long check. A history
//! that breaks a rule is replayed with the call that the failure prints.

use std::{collections::BTreeSet, path::PathBuf, process::Command, thread};

use serde_json::Value;

/// Enough to notice what breaks often.
const FEW: u64 = 16;
/// Histories run side by side, each a process of its own.
const SIDE_BY_SIDE: u64 = 4;

fn seeds() -> u64 {
    std::env::var("SPOKESHAVE_SEEDS").ok().and_then(|it| it.parse().ok()).unwrap_or(FEW)
}

fn input(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/local").join(name).display().to_string()
}

/// What is wrong with the history of `seed`, empty when nothing is.
fn trouble(seed: u64) -> String {
    let args = [
        "local".to_owned(),
        "--output=json".to_owned(),
        "--faults=all".to_owned(),
        format!("--seed={seed}"),
        format!("--catalog={}", input("catalog.json")),
        format!("--manifests={}", input("lifecycle/start.yaml")),
        format!("--at=8m={}", input("lifecycle/fewer.yaml")),
        format!("--at=14m={}", input("lifecycle/drift.yaml")),
    ];
    let run = Command::new(env!("CARGO_BIN_EXE_spokeshave")).args(&args).output().expect("runs");
    let replay = args.join(" ");
    let Ok(it) = serde_json::from_slice::<Value>(&run.stdout) else {
        return format!("{replay}: {}", String::from_utf8_lossy(&run.stderr));
    };
    let names = |list: &str, key: &str| -> BTreeSet<String> {
        let list = it[list].as_array().into_iter().flatten();
        list.filter(|it| list_is_drift(it))
            .filter_map(|it| it[key].as_str().map(str::to_owned))
            .collect()
    };
    // Whatever had drifted has been replaced.
    let stale: Vec<String> = names("timeline", "object")
        .into_iter()
        .filter(|it| {
            names("nodeClaims", "name").iter().any(|name| it.ends_with(&format!("/{name}")))
        })
        .collect();
    let violations = it["violations"].as_array().map_or(0, Vec::len);
    if it["settled"] == true && violations == 0 && it["pods"]["pending"] == 0 && stale.is_empty() {
        String::new()
    } else {
        format!(
            "{replay}: settled {}, pods {}, still drifted {stale:?}, violations {}",
            it["settled"], it["pods"], it["violations"]
        )
    }
}

/// Lines of the timeline about drift; NodeClaims have no action and all count.
fn list_is_drift(it: &Value) -> bool {
    it.get("action").is_none_or(|it| it == "drifted")
}

#[test] // lifecycle 13 to 29 under faults
fn no_history_breaks_a_rule() {
    let seeds = seeds();
    let mut found: Vec<String> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..SIDE_BY_SIDE)
            .map(|lane| {
                scope.spawn(move || {
                    (1..=seeds)
                        .filter(|seed| seed % SIDE_BY_SIDE == lane)
                        .map(trouble)
                        .filter(|it| !it.is_empty())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        lanes.into_iter().flat_map(|it| it.join().expect("no panic")).collect()
    });
    found.sort();
    assert!(found.is_empty(), "{} of {seeds}:\n{}", found.len(), found.join("\n"));
}
