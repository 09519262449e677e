//! `spokeshave crds`: the CustomResourceDefinitions.

use serde_json::Value;
use spokeshave_model::crds;

use crate::{ExitStatus, Failure, Output, yaml_out};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave crds | kubectl apply --server-side -f -
  spokeshave crds --output json")]
pub struct Args {}

/// Prints all five: YAML documents, or one JSON list object.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(_: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let definitions: Vec<Value> = crds::all().into_iter().map(|it| it.definition).collect();
    if out.is_json() {
        out.json(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": definitions}))?;
    } else {
        out.bytes(yaml_out::documents(&definitions).as_bytes())?;
    }
    Ok(ExitStatus::Answered)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// To write them anew: `UPDATE_GENERATED=1 cargo test -p spokeshave crds`.
    #[test]
    fn committed_definitions_are_those_that_are_generated() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/crds");
        for crd in crds::all() {
            let path = folder.join(format!("{}.yaml", crd.name()));
            let generated = yaml_out::documents([&crd.definition]);
            if std::env::var_os("UPDATE_GENERATED").is_some() {
                std::fs::create_dir_all(&folder).expect("writable");
                std::fs::write(&path, &generated).expect("writable");
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(committed == generated, "{} differs from what is generated", path.display());
        }
    }

    #[test]
    fn what_is_printed_is_read_back() {
        let definitions: Vec<Value> = crds::all().into_iter().map(|it| it.definition).collect();
        let text = yaml_out::documents(&definitions);
        let manifests = crate::input::load_text("crds.yaml", &text).expect("valid");
        let values: Vec<Value> = manifests.into_iter().map(|it| it.value).collect();
        assert_eq!(values, definitions);
    }
}
