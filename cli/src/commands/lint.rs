//! `spokeshave lint`: what the API server and the controllers would say to manifests.

use std::{collections::BTreeMap, path::PathBuf, thread};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use spokeshave_admission::{
    Finding as Admission, Kinds, Source as Step, advice::{self, Agents}, kinds::Match, metadata,
    runtime,
};
use spokeshave_model::{
    FeatureGates, FieldPath, field_path::Segment, labels::NODECLASS, validation::Problem,
};

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
        // File and line tell objects of two namespaces apart.
        object: format!("{}/{}", manifest.kind, manifest.name),
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
    let is_new = |it: &Problem| {
        !admission.iter().any(|refused| {
            same_problem(refused, it) || same_bound(refused, it, &object)
        })
    };
    let runtime: Vec<Problem> =
        runtime::problems(&manifest.kind, &object, gates).into_iter().filter(is_new).collect();
    let advice = advice::warnings(&manifest.kind, &object, agents, at);
    let advice = advice.iter().filter(|it| {
        let refused = admission.iter().any(|refused| hides(refused, &it.field));
        !refused && !runtime.iter().any(|known| spoils(&known.field, &it.field))
    });
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

/// Whether one field is the other or inside it.
fn overlap(a: &FieldPath, b: &FieldPath) -> bool {
    fn step(it: &Segment) -> Result<usize, &str> {
        match it {
            Segment::Field(name) | Segment::Key(name) => Err(name),
            Segment::Index(at) => Ok(*at),
        }
    }
    a.0.iter().zip(&b.0).all(|(a, b)| step(a) == step(b))
}

/// What rules and controllers say of the same fault: a part of the rule's message, and parts of the controller's.
const SAME: &[(&str, &[&str])] = &[
    ("must have a value defined", &["must have a value defined", "no valid values found in []"]),
    ("must have a single positive integer value", &["must have a single positive integer value"]),
    ("requirements with 'minValues'", &["at least minimum number", "not enough valid values found"]),
    (
        "is restricted",
        &["might interfere with", "in labels, restricted", "invalid key: \"karpenter.sh/nodepool\""],
    ),
    ("'schedule' must be set with", &["'schedule' must be set with"]),
];

/// Whether admission has already said what a controller finds.
fn same_problem(refused: &Admission, problem: &Problem) -> bool {
    if !overlap(&refused.field, &problem.field) {
        return false;
    }
    // Rules let the label of the class pass, wherever they stand.
    let of_class = matches!(problem.field.0.last(), Some(Segment::Key(key)) if key == NODECLASS);
    let said = |(rule, texts): &(&str, &[&str])| {
        refused.message.contains(rule) && texts.iter().any(|it| problem.message.contains(it))
    };
    let is_base = |key: &str| problem.message == format!("invalid capacity: {key} in resource, restricted");
    match refused.source {
        // What has the wrong shape is not looked at any further.
        Step::Schema => true,
        Step::Cel if refused.message.contains("invalid resource restricted") => {
            ["cpu", "memory", "ephemeral-storage", "pods"].into_iter().any(is_base)
        }
        Step::Cel => !of_class && SAME.iter().any(said),
    }
}

/// Whether admission has already refused the value of a bound that a controller finds to be no label value: an integer
/// would be one.
fn same_bound(refused: &Admission, problem: &Problem, object: &Value) -> bool {
    const BOUNDS: [&str; 4] = ["Gt", "Lt", "Gte", "Lte"];
    if !refused.message.contains("must have a single positive integer value")
        || !problem.message.contains("invalid value: invalid value ")
        || !overlap(&refused.field, &problem.field)
    {
        return false;
    }
    let requirement = problem.field.0.iter().try_fold(object, |at, it| match it {
        Segment::Field(name) | Segment::Key(name) => at.get(name),
        Segment::Index(index) => at.get(index),
    });
    let operator = requirement.and_then(|it| it.get("operator")).and_then(Value::as_str);
    operator.is_some_and(|it| BOUNDS.contains(&it))
}

/// Whether a refused field makes advice about `field` idle. A rule over the whole spec says nothing of a single field.
fn hides(refused: &Admission, field: &FieldPath) -> bool {
    let is_of_spec = refused.source == Step::Cel && refused.field.0.len() == 1;
    spoils(&refused.field, field) && (!is_of_spec || field.0.len() == 1)
}

/// Whether a fault in one field makes advice about another idle: what labels and requirements allow together is only known when both
/// are right.
fn spoils(faulty: &FieldPath, field: &FieldPath) -> bool {
    let [labels, requirements] =
        ["spec.template.metadata.labels", "spec.template.spec.requirements"].map(FieldPath::parse);
    overlap(faulty, field) || (overlap(faulty, &labels) && overlap(field, &requirements))
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
