//! `spokeshave convert`: v1beta1 manifests to v1.

mod kinds;

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    ExitStatus, Failure, Output,
    input::{self, Manifest},
    yaml_out,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave convert old/ > new.yaml
  spokeshave convert nodepool.yaml --output json

What could not be carried over is said on standard error.")]
pub struct Args {
    /// Files, directories, or - for standard input.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// Something that v1 has no place for, or that a person must look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    pub object: String,
    pub message: String,
}

/// Converts and prints.
///
/// # Errors
/// When an input is unusable.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let (objects, notes) = convert(&input::load(&args.paths)?)?;
    if out.is_json() {
        out.json(&json!({"objects": objects, "notes": notes}))?;
        return Ok(ExitStatus::Answered);
    }
    out.bytes(yaml_out::documents(&objects).as_bytes())?;
    out.flush()?;
    for note in notes {
        out.warn(&format!("{}: {}", note.object, note.message));
    }
    Ok(ExitStatus::Answered)
}

/// Converts all of our kinds; objects already in v1 pass unchanged, and others are passed over.
///
/// # Errors
/// When a field that has to be moved has the wrong type.
pub fn convert(manifests: &[Manifest]) -> Result<(Vec<Value>, Vec<Note>), Failure> {
    // Claims take expireAfter from their pool, as it will be.
    let mut expiry: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for manifest in manifests.iter().filter(|it| it.kind == "NodePool") {
        let path = match manifest.version() {
            "v1beta1" => "/spec/disruption/expireAfter",
            _ => "/spec/template/spec/expireAfter",
        };
        let text = manifest.value.pointer(path).and_then(Value::as_str);
        expiry.insert(&manifest.name, text.map(str::to_owned));
    }
    let mut objects = Vec::new();
    let mut notes = Vec::new();
    for manifest in manifests {
        let is_ours = matches!(
            (manifest.group(), manifest.kind.as_str()),
            ("karpenter.sh", "NodePool" | "NodeClaim" | "NodeOverlay")
                | ("karpenter.k8s.aws", "EC2NodeClass")
                | ("autoscaling.x-k8s.io", "CapacityBuffer")
        );
        if !is_ours {
            continue;
        }
        // Overlays and buffers never had a form of their own in a v1beta1 of ours.
        let is_old = manifest.version() == "v1beta1"
            && matches!(manifest.kind.as_str(), "NodePool" | "NodeClaim" | "EC2NodeClass");
        if !is_old {
            objects.push(manifest.value.clone());
            continue;
        }
        let mut conversion = kinds::Conversion::new(manifest);
        match manifest.kind.as_str() {
            "NodePool" => conversion.node_pool()?,
            "NodeClaim" => conversion.node_claim(&expiry)?,
            _ => conversion.node_class()?,
        }
        let (object, said) = conversion.finish();
        objects.push(object);
        let object = manifest.reference();
        notes.extend(said.into_iter().map(|message| Note { object: object.clone(), message }));
    }
    Ok((objects, notes))
}

#[cfg(test)]
mod tests;
