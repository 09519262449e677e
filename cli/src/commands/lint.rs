//! `spokeshave lint`: what the API server and the controllers would say to manifests.

use std::{collections::BTreeMap, path::PathBuf, thread};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use spokeshave_admission::{
    Finding as Admission, Kinds, Source as Step, advice::{self, Agents}, kinds::Match, metadata,
    runtime,
};
use spokeshave_model::{FeatureGates, FieldPath, field_path::Segment, validation::Problem};

use crate::{
    ExitStatus, Failure, Output,
    input::{self, Manifest},
    output::Colour,
    settings::SettingsArgs,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave lint nodepool.yaml
  spokeshave lint manifests/ --output json
  kubectl get nodepools,ec2nodeclasses -o yaml | spokeshave lint -
  spokeshave lint new.yaml --update-from old.yaml

Errors are what the API server refuses (schema, cel) and what a controller reports in a condition (runtime); advice
is a warning. Exit status 1 with any error.")]
pub struct Args {
    /// Files, directories, or - for standard input.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// The objects as they were: rules about changes are checked, unchanged faults are tolerated.
    #[arg(long, value_name = "PATH")]
    pub update_from: Vec<PathBuf>,

    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

/// Who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Schema,
    Cel,
    Runtime,
    Advice,
}

/// One thing to say about a manifest. Sorted by file, line, message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub file: String,
    pub line: u32,
    #[serde(skip)]
    sorted_message: String,
    pub object: String,
    pub field: String,
    pub message: String,
    pub severity: Severity,
    pub source: Source,
}

/// Judges the manifests.
///
/// # Errors
/// When an input is unusable.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let gates = args.settings.settings()?.gates;
    let manifests = input::load(&args.paths)?;
    let before = input::load(&args.update_from)?;
    let findings = lint(&manifests, &before, &gates, Timestamp::now());
    print(&findings, manifests.len(), out)?;
    Ok(ExitStatus::no_if(findings.iter().any(|it| it.severity == Severity::Error)))
}

type Identity<'a> = (&'a str, &'a str, &'a str);

fn identity(manifest: &Manifest) -> Identity<'_> {
    (&manifest.kind, &manifest.namespace, &manifest.name)
}

/// All findings about `manifests`, sorted. `before` are the objects as they were; `at` is when schedules are looked at.
pub fn lint(
    manifests: &[Manifest],
    before: &[Manifest],
    gates: &FeatureGates,
    at: Timestamp,
) -> Vec<Finding> {
    let kinds = Kinds::new();
    let olds: BTreeMap<Identity<'_>, &Manifest> =
        before.iter().map(|it| (identity(it), it)).collect();
    let agents: Agents =
        manifests.iter().filter_map(|it| advice::agent(&it.kind, &it.value)).collect();
    let judge = |manifest: &Manifest| {
        let old = olds.get(&identity(manifest)).copied();
        judge(manifest, old, &kinds, gates, &agents, at)
    };
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    let chunk = manifests.len().div_ceil(n_threads).max(64);
    let mut findings: Vec<Finding> = thread::scope(|scope| {
        let judge = &judge;
        let workers: Vec<_> = manifests
            .chunks(chunk)
            .map(|part| scope.spawn(move || part.iter().flat_map(judge).collect::<Vec<_>>()))
            .collect();
        workers.into_iter().flat_map(|it| it.join().unwrap_or_default()).collect()
    });
    findings.sort();
    findings.dedup();
    findings
}

fn judge(
    manifest: &Manifest,
    old: Option<&Manifest>,
    kinds: &Kinds,
    gates: &FeatureGates,
    agents: &Agents,
    at: Timestamp,
) -> Vec<Finding> {
    let say = |field: &FieldPath, message: String, source: Source| Finding {
        file: manifest.file.clone(),
        line: manifest.line_of(field),
        sorted_message: message.clone(),
        object: manifest.reference(),
        field: field.to_string(),
        message,
        severity: if source == Source::Advice { Severity::Warning } else { Severity::Error },
        source,
    };
    let served = match kinds.find(&manifest.api_version, &manifest.kind) {
        Match::Served(served) => served,
        Match::NotServed(message) => {
            return vec![say(&FieldPath::root().field("apiVersion"), message, Source::Schema)];
        }
        Match::Foreign => return Vec::new(),
    };
    let old = old.map(|it| served.schema.defaulted(it.value.clone()));
    let mut object = manifest.value.clone();
    let mut admission = metadata::check(&object);
    let metadata_hides = admission.iter().any(|it| it.hides_rules);
    let mut by_schema = served.schema.admit(&mut object, old.as_ref());
    if metadata_hides {
        by_schema.retain(|it| it.source == Step::Schema);
    }
    admission.extend(by_schema);
    let refused: Vec<&FieldPath> = admission.iter().map(|it| &it.field).collect();
    let is_new = |it: &Problem| !refused.iter().any(|field| overlap(field, &it.field));
    let runtime: Vec<Problem> =
        runtime::problems(&manifest.kind, &object, gates).into_iter().filter(is_new).collect();
    let known: Vec<&FieldPath> =
        refused.iter().copied().chain(runtime.iter().map(|it| &it.field)).collect();
    let advice = advice::warnings(&manifest.kind, &object, agents, at);
    let advice = advice.iter().filter(|it| !known.iter().any(|field| overlap(field, &it.field)));
    let admitted = |it: &Admission| {
        let source = match it.source {
            Step::Schema => Source::Schema,
            Step::Cel => Source::Cel,
        };
        say(&it.field, it.message.clone(), source)
    };
    admission
        .iter()
        .map(admitted)
        .chain(runtime.iter().map(|it| say(&it.field, it.message.clone(), Source::Runtime)))
        .chain(advice.map(|it| say(&it.field, it.message.clone(), Source::Advice)))
        .collect()
}

/// Whether one field is the other or inside it: then a problem of one is most likely the same as that of the other.
fn overlap(a: &FieldPath, b: &FieldPath) -> bool {
    let name = |it: &Segment| match it {
        Segment::Field(name) | Segment::Key(name) => Err(name.clone()),
        Segment::Index(at) => Ok(*at),
    };
    a.0.iter().zip(&b.0).all(|(a, b)| name(a) == name(b))
}

fn print(findings: &[Finding], n_manifests: usize, out: &Output) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(findings);
    }
    for it in findings {
        let (word, colour) = match it.severity {
            Severity::Error => ("error", Colour::Red),
            Severity::Warning => ("warning", Colour::Yellow),
        };
        let source = serde_json::to_value(it.source).unwrap_or(Value::Null);
        out.line(&format!(
            "{}:{}: {}: {}: {}: {} [{}]",
            it.file,
            it.line,
            out.paint(colour, word),
            it.object,
            it.field,
            it.message,
            source.as_str().unwrap_or_default()
        ))?;
    }
    let errors = findings.iter().filter(|it| it.severity == Severity::Error).count();
    let warnings = findings.len() - errors;
    out.flush()?;
    out.note(&format!("{n_manifests} objects, {errors} errors, {warnings} warnings"));
    Ok(())
}

#[cfg(test)]
mod tests;
