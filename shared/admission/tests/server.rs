//! What a real API server says to manifests, held against what we say: `server/answers.json` has its answers, case by case.
//!
//! The answers were written down from kube-apiserver 1.34 with the definitions of `infra/crds`; the test `admission` of the package
//! `spokeshave-tests` asks a server again. What is left out on both sides: the value that the server repeats before the message of a rule,
//! and that a value of the wrong type is no allowed value either.

#[path = "server/cases.rs"]
mod cases;

use serde_json::Value;
use spokeshave_admission::{Kinds, kinds::Match};

#[test]
fn findings_are_those_of_the_api_server() {
    let kinds = Kinds::new();
    let cases = cases::all();
    assert!(cases.len() > 1000, "{}", cases.len());
    for case in cases {
        let kind = case.object["kind"].as_str().expect("a kind");
        let version = case.object["apiVersion"].as_str().expect("a version");
        let Match::Served(served) = kinds.find(version, kind) else { panic!("{kind}") };
        let mut object: Value = case.object.clone();
        let old = case.old.map(|it| served.schema.defaulted(it));
        let mut found: Vec<[String; 2]> = served
            .schema
            .admit(&mut object, old.as_ref())
            .into_iter()
            .map(|it| [it.field.to_string(), it.message])
            .collect();
        found.sort();
        assert_eq!(found, case.findings, "{}", case.name);
    }
}
