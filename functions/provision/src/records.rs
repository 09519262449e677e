//! What provisioning keeps in the state table.
//!
//! | Partition | Sort key | What it holds | Losing it means |
//! | --- | --- | --- | --- |
//! | `nomination` | node or claim name | until when the node is not to be disrupted | a node may be disrupted while pods are on their way |
//! | `provision` | `last-run` | when the last finished run began | a message is worked on that needed not be |
//! | `provision` | `orders` | names of the claims created last | with reads that lag, nodes ordered twice |

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_model::Settings;
use spokeshave_ports::{StateError, StateKey, StateTable, When};

/// Nodes that pods have been assigned to. Disruption reads it.
pub const NOMINATION: &str = "nomination";
/// Commands of disruption, which it writes before it taints anything.
pub const COMMAND: &str = "command";
const OWN: &str = "provision";

/// So long an order that no list shows may be one that the lists do not show yet.
pub const ORDER_SETTLES: SignedDuration = SignedDuration::from_secs(10);

/// How long a node is left alone after it was given a pod: twice the longest batch, 10 s at least. As in Karpenter 1.x.
pub fn nomination_window(settings: &Settings) -> SignedDuration {
    let twice = settings.batch_max_duration.checked_mul(2).unwrap_or(SignedDuration::MAX);
    twice.max(SignedDuration::from_secs(10))
}

pub(crate) async fn nominate(
    state: &impl StateTable,
    name: &str,
    settings: &Settings,
    now: Timestamp,
) -> Result<(), StateError> {
    let until = now.saturating_add(nomination_window(settings)).ok();
    let key = StateKey::new(NOMINATION, name);
    state.write(&key, json!({"at": now, "until": until}), until, When::Always).await?;
    Ok(())
}

fn time(data: &Value, field: &str) -> Option<Timestamp> {
    data.get(field)?.as_str()?.parse().ok()
}

/// When the last finished run began.
pub(crate) async fn last_run(state: &impl StateTable) -> Result<Option<Timestamp>, StateError> {
    let record = state.read(&StateKey::new(OWN, "last-run")).await?;
    Ok(record.and_then(|it| time(&it.data, "began")))
}

pub(crate) async fn finish_run(
    state: &impl StateTable,
    began: Timestamp,
) -> Result<(), StateError> {
    let key = StateKey::new(OWN, "last-run");
    state.write(&key, json!({"began": began}), None, When::Always).await?;
    Ok(())
}

/// Names of claims that were created, or about to be, not long ago. `gone` are known to have come and gone.
pub(crate) async fn orders(
    state: &impl StateTable,
    gone: &BTreeSet<&str>,
    now: Timestamp,
) -> Result<Vec<String>, StateError> {
    let Some(record) = state.read(&StateKey::new(OWN, "orders")).await? else {
        return Ok(Vec::new());
    };
    let at = time(&record.data, "at").filter(|at| now.duration_since(*at) < ORDER_SETTLES);
    let Some(at) = at else { return Ok(Vec::new()) };
    let names = record.data.get("names").and_then(Value::as_array);
    let names = names.into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned));
    let (gone, left): (Vec<String>, Vec<String>) =
        names.partition(|name| gone.contains(name.as_str()));
    if !gone.is_empty() {
        write_orders(state, &left, at).await?;
    }
    Ok(left)
}

/// Writes the names down before anything is created, beside those that are still young: whoever is killed in between
/// leaves a trace.
pub(crate) async fn note_orders(
    state: &impl StateTable,
    names: &[String],
    now: Timestamp,
) -> Result<(), StateError> {
    let mut all = orders(state, &BTreeSet::new(), now).await?;
    all.extend(names.iter().cloned());
    write_orders(state, &all, now).await
}

async fn write_orders(
    state: &impl StateTable,
    names: &[String],
    now: Timestamp,
) -> Result<(), StateError> {
    let key = StateKey::new(OWN, "orders");
    let expires_at = now.saturating_add(ORDER_SETTLES).ok();
    state.write(&key, json!({"at": now, "names": names}), expires_at, When::Always).await?;
    Ok(())
}

/// Nodes (and claims) of disruption's commands, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Of all commands that have begun to change the cluster.
    pub begun: BTreeSet<String>,
    /// Of those whose replacements exist: they count as going.
    pub marked: BTreeSet<String>,
}

/// The commands under way.
pub(crate) async fn commands(state: &impl StateTable) -> Result<Commands, StateError> {
    let mut commands = Commands::default();
    for (_, record) in state.query(COMMAND, "").await? {
        let stage = record.data.get("stage").and_then(Value::as_str).unwrap_or_default();
        if stage == "Validating" {
            continue;
        }
        let nodes = record.data.get("nodes").and_then(Value::as_array);
        let names: Vec<String> =
            nodes.into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect();
        if matches!(stage, "Waiting" | "Deleting") {
            commands.marked.extend(names.iter().cloned());
        }
        commands.begun.extend(names);
    }
    Ok(commands)
}
