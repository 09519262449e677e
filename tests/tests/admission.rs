//! The cases of `spokeshave-admission` against a real API server: it must say what is written down, and what `lint` says.
//!
//! `.ci/test` starts one (see `tests/control-plane`); any cluster that `KUBECONFIG` names and that may be written to does.

#[path = "../../shared/admission/tests/server/cases.rs"]
mod cases;

use std::{fs, path::Path, time::Duration};

use http::{Method, Request};
use serde_json::{Value, json};
use spokeshave_tests::server;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

struct Server(kube::Client);

impl Server {
    /// With the definitions of `infra/crds`, served.
    async fn with_crds() -> Self {
        server("KUBECONFIG");
        let config = kube::Config::infer().await.expect("a kubeconfig");
        let server = Self(kube::Client::try_from(config).expect("a client"));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/crds");
        for entry in fs::read_dir(folder).expect("infra/crds") {
            let text = fs::read_to_string(entry.expect("an entry").path()).expect("a CRD");
            let crd: Value = serde_saphyr::from_str(&text).expect("YAML");
            if let Err(status) = server.call(Method::POST, DEFINITIONS, &crd).await {
                assert_eq!(status["code"], 409, "{status}");
            }
            let spec = &crd["spec"];
            let path = path(&json!({
                "kind": spec["names"]["kind"],
                "apiVersion": format!("{}/{}", text_of(&spec["group"]), text_of(&spec["versions"][0]["name"])),
            }));
            for _ in 0..150 {
                if server.call(Method::GET, &path, &Value::Null).await.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        server
    }

    /// The answer, or the `Status` that says why not.
    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Value, Value> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        match self.0.request(request.body(body).expect("a request")).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(serde_json::to_value(&*status).expect("a status")),
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// What the server has against an object, nothing being stored.
    async fn findings(&self, method: Method, path: &str, object: &Value) -> Vec<[String; 2]> {
        let dry = |strict: &str| format!("{path}?dryRun=All&fieldValidation={strict}");
        let Err(strict) = self.call(method.clone(), &dry("Strict"), object).await else {
            return Vec::new();
        };
        if strict["code"] != 400 {
            return causes(&strict, Vec::new());
        }
        // Fields that are not known hide everything else.
        let unknown = unknown_fields(text_of(&strict["message"]));
        assert!(!unknown.is_empty(), "{strict}");
        match self.call(method, &dry("Ignore"), object).await {
            Ok(_) => causes(&Value::Null, unknown),
            Err(status) => causes(&status, unknown),
        }
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn path(object: &Value) -> String {
    let version = text_of(&object["apiVersion"]);
    match text_of(&object["kind"]) {
        "CapacityBuffer" => format!("/apis/{version}/namespaces/default/capacitybuffers"),
        "EC2NodeClass" => format!("/apis/{version}/ec2nodeclasses"),
        kind => format!("/apis/{version}/{}s", kind.to_lowercase()),
    }
}

/// The paths of `strict decoding error: unknown field "a", unknown field "b"`.
fn unknown_fields(message: &str) -> Vec<String> {
    let quoted = |text: &str| {
        let mut stream = serde_json::Deserializer::from_str(text).into_iter::<String>();
        stream.next().and_then(Result::ok)
    };
    message.split("unknown field ").skip(1).filter_map(quoted).collect()
}

/// Field and message of each cause, as `lint` prints them: one per problem.
fn causes(status: &Value, unknown: Vec<String>) -> Vec<[String; 2]> {
    let empty = Vec::new();
    let causes = status["details"]["causes"].as_array().unwrap_or(&empty);
    let all: Vec<(&str, &str)> =
        causes.iter().map(|it| (text_of(&it["field"]), text_of(&it["message"]))).collect();
    let typed: Vec<&str> =
        all.iter().filter(|it| it.1.contains("must be of type")).map(|it| it.0).collect();
    // A wrong type breaks an enumeration too, and a value that is neither a number nor a text is told twice.
    let follows = |field: &str, message: &str| {
        typed.contains(&field)
            && (message.starts_with("Unsupported value")
                || message.contains("must be of type integer: ")
                    && all.iter().any(|it| it.0 == field && it.1.contains("integer,string")))
    };
    // Said of the whole object: that rules were not checked, that no alternative of a schema fits.
    let is_about_nothing = |field: &str, message: &str| {
        field == "<nil>"
            || message.contains("accessor error")
            || message.contains("non-negative integer")
    };
    let mut findings: Vec<[String; 2]> = all
        .iter()
        .filter(|(field, message)| !follows(field, message) && !is_about_nothing(field, message))
        .map(|(field, message)| {
            [field.trim_start_matches('.').to_owned(), without_value(message).to_owned()]
        })
        .collect();
    let inside = |path: &str, outer: &str| {
        path.strip_prefix(outer).is_some_and(|rest| rest.starts_with(['.', '[']))
    };
    for path in unknown {
        if !typed.iter().any(|outer| inside(&path, outer)) {
            let message = format!("unknown field {path:?}");
            findings.push([path, message]);
        }
    }
    findings.sort();
    findings
}

/// The message of a rule without the value before it. Messages of schemas repeat the field after the value and stay whole.
fn without_value(message: &str) -> &str {
    let Some(rest) = message.strip_prefix("Invalid value: ") else { return message };
    let mut value = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    let Some(Ok(_)) = value.next() else { return message };
    let said = rest.get(value.byte_offset()..).and_then(|it| it.strip_prefix(": "));
    match said {
        Some(said) if !said.contains(" in body ") && !said.starts_with("should ") => said,
        _ => message,
    }
}

#[tokio::test]
async fn the_api_server_says_what_is_written_down() {
    let server = Server::with_crds().await;
    let mut wrong = Vec::new();
    for case in cases::all() {
        let collection = path(&case.object);
        let one = format!("{collection}/x");
        let found = match &case.old {
            None => server.findings(Method::POST, &collection, &case.object).await,
            Some(old) => {
                let stored = server.call(Method::POST, &collection, old).await.expect("stored");
                let mut object = case.object.clone();
                object["metadata"]["resourceVersion"] =
                    stored["metadata"]["resourceVersion"].clone();
                let found = server.findings(Method::PUT, &one, &object).await;
                server.call(Method::DELETE, &one, &Value::Null).await.expect("deleted");
                found
            }
        };
        if found != case.findings {
            wrong.push(format!("{}\n  now {found:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}
