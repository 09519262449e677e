//! `spokeshave event`: what the interruption function would do with messages.

use std::{collections::BTreeSet, fs, io::Read, path::PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spokeshave_interruption::{
    Action, ClaimView, InterruptionEvent, Kind, Message, NodeView, View, decide,
    hooks::{self, Hook},
    parse,
};
use spokeshave_model::InstanceId;

use crate::{
    ExitStatus, Failure, Output,
    input::{self, ClusterInput},
    settings::SettingsArgs,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave event spot-warning.json --cluster cluster.yaml
  kubectl get nodeclaims,nodes -o json | spokeshave event batch.json --cluster - --output json

A file is an EventBridge document, the body of an SQS message, the batch that Lambda hands to a function
({\"Records\": [...]}), or a JSON list of documents. Each record is judged by itself against the cluster as given.")]
pub struct Args {
    /// Files with messages; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The cluster, as kubectl prints it; without it there are no claims
    #[arg(long, num_args = 1.., value_name = "PATH")]
    cluster: Vec<PathBuf>,

    /// The time to judge at (RFC 3339) instead of the present
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,

    #[command(flatten)]
    settings: SettingsArgs,
}

/// One record: one message and what follows from it.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    file: String,
    record: usize,
    kind: &'static str,
    instance_ids: Vec<InstanceId>,
    actions: Vec<ActionRow>,
    delete_message: bool,
    /// Why a malformed message cannot be read.
    error: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct ActionRow {
    action: &'static str,
    object: String,
    detail: String,
}

/// A batch as Lambda delivers it, as far as it matters here.
#[derive(Deserialize)]
struct Batch<'a> {
    #[serde(rename = "Records", borrow)]
    records: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct BatchRecord {
    body: Option<String>,
}

/// Prints what the interruption function would do with each message.
///
/// # Errors
/// When a file cannot be read or the cluster is unusable. A message that is malformed is an answer.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let now = args.now.unwrap_or_else(Timestamp::now);
    let cluster = input::load_cluster(&args.cluster)?;
    let view = view(&cluster);
    let takes_hooks = args.settings.settings()?.lifecycle_hooks;
    let mut rows = Vec::new();
    for file in input::sources(&args.files)? {
        let text = read(&file)?;
        for (record, body) in bodies(&text).into_iter().enumerate() {
            let body = body.as_deref();
            let hook = body.filter(|_| takes_hooks).and_then(hooks::parse);
            rows.push(match hook {
                Some(hook) => judge_hook(&file, record, hook, &view),
                None => judge(&file, record, body, &view, now),
            });
        }
    }
    if out.is_json() {
        out.json(&rows)?;
    } else {
        print(&rows, out)?;
    }
    Ok(ExitStatus::Answered)
}

/// The text of a file. What is not UTF-8 makes a malformed message, not an unusable call.
fn read(file: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = if file == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(file)
    };
    let bytes = read.map_err(|error| {
        Failure::new(format!("cannot read: {error}")).file(file).fix("check the path")
    })?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// The bodies in a file; `None` for a record of a batch that has none.
fn bodies(text: &str) -> Vec<Option<String>> {
    let own = |raw: &&RawValue| Some(raw.get().to_owned());
    if text.trim_start().starts_with('[')
        && let Ok(documents) = serde_json::from_str::<Vec<&RawValue>>(text)
    {
        return documents.iter().flat_map(|it| batch(it.get()).unwrap_or(vec![own(it)])).collect();
    }
    batch(text).unwrap_or_else(|| vec![Some(text.to_owned())])
}

/// The bodies of a Lambda batch; `None` when the text is none.
fn batch(text: &str) -> Option<Vec<Option<String>>> {
    let batch: Batch<'_> = serde_json::from_str(text).ok()?;
    let body = |raw: &RawValue| serde_json::from_str::<BatchRecord>(raw.get()).ok()?.body;
    Some(batch.records.into_iter().map(body).collect())
}

/// The cluster as far as messages concern it.
fn view(cluster: &ClusterInput) -> View {
    let mut view = View::new(cluster.node_claims.iter().map(|it| ClaimView::from(&**it)))
        .with_nodes(cluster.nodes.iter().map(|it| NodeView::from(&**it)))
        .with_pools(cluster.node_pools.iter().map(|it| &**it));
    // Where classes say which reservations they found, those are the ones with a known count.
    let found: BTreeSet<String> = cluster
        .node_classes
        .iter()
        .flat_map(|it| &it.status.capacity_reservations)
        .map(|it| it.id.clone())
        .collect();
    if !found.is_empty() {
        view = view.with_known_reservations(found);
    }
    view
}

fn judge(file: &str, record: usize, body: Option<&str>, view: &View, now: Timestamp) -> Row {
    let row = |kind, instance_ids, actions, error| Row {
        file: file.to_owned(),
        record,
        kind,
        instance_ids,
        actions,
        delete_message: true,
        error,
    };
    let message = match body.map(parse) {
        Some(Ok(message)) => message,
        Some(Err(error)) => {
            return row("Malformed", Vec::new(), Vec::new(), Some(error.to_string()));
        }
        None => {
            let error = "the record has no body".to_owned();
            return row("Malformed", Vec::new(), Vec::new(), Some(error));
        }
    };
    let actions = decide(&message, view, now).iter().map(action_row).collect();
    let Message { kind, instance_ids, .. } = message;
    row(kind_name(kind), instance_ids, actions, None)
}

/// What is done about a lifecycle hook, where they are taken on.
fn judge_hook(file: &str, record: usize, hook: Hook, view: &View) -> Row {
    let drain = |node: &NodeView| ActionRow {
        action: "DrainNode",
        object: format!("Node/{}", node.name),
        detail: format!("then CONTINUE for {}/{}", hook.group, hook.name),
    };
    let actions = view.claimless_node_of(&hook.instance_id).map(drain).into_iter().collect();
    Row {
        file: file.to_owned(),
        record,
        kind: "LifecycleAction",
        instance_ids: vec![hook.instance_id],
        actions,
        delete_message: true,
        error: None,
    }
}

/// The kind as the command calls it.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::SpotInterruption => "SpotInterruption",
        Kind::RebalanceRecommendation => "RebalanceRecommendation",
        Kind::InstanceStopped | Kind::InstanceTerminated => "InstanceStateChange",
        Kind::ScheduledChange => "ScheduledChange",
        Kind::CapacityReservationInterruption => "CapacityReservationInterruption",
        Kind::CapacityReservationExpiration => "CapacityReservationExpiration",
        // These come from polling, never from a message of EventBridge.
        Kind::InstanceStatus | Kind::SystemStatus | Kind::EventStatus | Kind::NoOp => "NoOp",
    }
}

fn action_row(action: &Action) -> ActionRow {
    let event = |object: String, event: &InterruptionEvent| {
        let kind = if event.warning { "Warning" } else { "Normal" };
        let detail = format!("{kind} {}: {}", event.reason, event.message);
        ActionRow { action: "PublishEvent", object, detail }
    };
    match action {
        Action::PublishOnClaim { name, event: it, .. } => event(format!("NodeClaim/{name}"), it),
        Action::PublishOnNode { name, event: it, .. } => event(format!("Node/{name}"), it),
        Action::MarkOfferingUnavailable { capacity_type, instance_type, zone, .. } => ActionRow {
            action: "MarkOfferingUnavailable",
            object: format!("{capacity_type}:{instance_type}:{zone}"),
            detail: "for 3m".to_owned(),
        },
        Action::ZeroReservation { id } => ActionRow {
            action: "ZeroReservation",
            object: id.clone(),
            detail: "available count 0 until it is read again".to_owned(),
        },
        Action::AnnotateNodeClaim { name, key, value, .. } => ActionRow {
            action: "AnnotateNodeClaim",
            object: format!("NodeClaim/{name}"),
            detail: format!("{key}={value}"),
        },
        Action::DeleteNodeClaim { name, kind, .. } => ActionRow {
            action: "DeleteNodeClaim",
            object: format!("NodeClaim/{name}"),
            detail: kind.metric().to_owned(),
        },
    }
}

fn print(rows: &[Row], out: &Output) -> Result<(), Failure> {
    for Row { file, record, kind, instance_ids, actions, error, .. } in rows {
        let ids: Vec<&str> = instance_ids.iter().map(InstanceId::as_str).collect();
        let about = match error {
            Some(error) => format!(": {error}"),
            None if ids.is_empty() => String::new(),
            None => format!(" {}", ids.join(", ")),
        };
        out.line(&format!("{file}[{record}] {kind}{about}"))?;
        for ActionRow { action, object, detail } in actions {
            out.line(&format!("  {action} {object}: {detail}"))?;
        }
    }
    Ok(())
}
