//! `spokeshave budgets`: how many nodes each pool's budgets let go, now and in the days to come.

use std::{collections::BTreeMap, path::PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use spokeshave_admission::Kinds;
use spokeshave_model::{
    NodeClaim, NodePool,
    budgets::{self, REASONS},
    core::Node,
    labels,
    node_pool::Budget,
};

use crate::{
    ExitStatus, Failure, Output,
    input::{self, ClusterInput, Manifest},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave budgets nodepool.yaml
  spokeshave budgets nodepool.yaml --at 2026-01-05T08:59:00Z --days 3 --nodes 40
  spokeshave budgets nodepools.yaml --cluster cluster.json --output json")]
pub struct Args {
    /// Files, directories, or - for standard input.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// The time that is looked at; by default now.
    #[arg(long, value_name = "TIME")]
    pub at: Option<Timestamp>,

    /// Windows that start within so many days are listed.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(0..=3650))]
    pub days: u32,

    /// So many healthy, initialized nodes per pool, where no cluster is given.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(i64).range(0..=1_000_000_000))]
    pub nodes: i64,

    /// The cluster whose nodes are counted.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub cluster: Vec<PathBuf>,
}

/// A budget that is active.
#[derive(Debug, PartialEq, Serialize)]
struct Active {
    index: usize,
    value: String,
    /// `null` when it never ends.
    until: Option<Timestamp>,
}

/// A time in which a scheduled budget is active.
#[derive(Debug, PartialEq, Serialize)]
struct Window {
    index: usize,
    from: Timestamp,
    to: Timestamp,
    value: String,
}

/// One pool and reason.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    node_pool: String,
    reason: &'static str,
    nodes: i64,
    allowed: i64,
    active: Vec<Active>,
    windows: Vec<Window>,
    /// Why nothing is allowed, when a budget cannot be evaluated.
    error: Option<String>,
}

/// Prints one row per pool and reason.
///
/// # Errors
/// When an input is unusable.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let manifests = input::load(&args.paths)?;
    let cluster =
        if args.cluster.is_empty() { None } else { Some(input::load_cluster(&args.cluster)?) };
    let at = args.at.unwrap_or_else(Timestamp::now);
    let span = SignedDuration::from_hours(24 * i64::from(args.days));
    let end = at.checked_add(span).map_err(|_| {
        Failure::new("--at plus --days is beyond the calendar").fix("give an earlier time")
    })?;
    let counts = cluster.as_ref().map(count);
    let mut rows = Vec::new();
    for pool in pools(&manifests)? {
        let n_nodes = match &counts {
            Some(counts) => counts.get(&pool.metadata.name).copied().unwrap_or(0),
            None => args.nodes,
        };
        rows.extend(REASONS.iter().map(|reason| row(&pool, reason, n_nodes, at, end)));
    }
    let failed = rows.iter().any(|it| it.error.is_some());
    if out.is_json() {
        out.json(&rows)?;
    } else {
        print(&rows, out)?;
    }
    Ok(ExitStatus::no_if(failed))
}

fn pools(manifests: &[Manifest]) -> Result<Vec<NodePool>, Failure> {
    let kinds = Kinds::new();
    let pools = manifests.iter().filter(|it| it.is::<NodePool>());
    pools
        .map(|manifest| {
            let mut stored = manifest.clone();
            stored.value = kinds.defaulted(&stored.api_version, &stored.kind, &stored.value);
            stored.typed()
        })
        .collect()
}

/// Nodes that budgets count, by pool: claimed, initialized, and not yet asked to terminate (`spec` lifecycle 17.1).
fn count(cluster: &ClusterInput) -> BTreeMap<String, i64> {
    let claims: BTreeMap<&str, &NodeClaim> = cluster
        .node_claims
        .iter()
        .filter(|it| it.is_managed() && !it.status.provider_id.is_empty())
        .map(|it| (it.status.provider_id.as_str(), &**it))
        .collect();
    let is_counted = |node: &&std::sync::Arc<Node>| {
        node.metadata.label(labels::INITIALIZED) == Some("true")
            && claims
                .get(node.spec.provider_id.as_str())
                .is_some_and(|it| !it.is_true(NodeClaim::INSTANCE_TERMINATING))
    };
    let mut counts = BTreeMap::new();
    for node in cluster.nodes.iter().filter(is_counted) {
        if let Some(pool) = node.metadata.label(labels::NODEPOOL) {
            *counts.entry(pool.to_owned()).or_default() += 1;
        }
    }
    counts
}

fn row(pool: &NodePool, reason: &'static str, n_nodes: i64, at: Timestamp, end: Timestamp) -> Row {
    let budgets = pool.budgets();
    let evaluated = budgets::evaluate(&budgets, reason, n_nodes, at);
    let mut row = Row {
        node_pool: pool.metadata.name.clone(),
        reason,
        nodes: n_nodes,
        allowed: *evaluated.as_ref().unwrap_or(&0),
        active: Vec::new(),
        windows: Vec::new(),
        error: evaluated.err().map(|(index, error)| format!("budgets[{index}]: {error}")),
    };
    for (index, budget) in budgets.iter().enumerate().filter(|(_, it)| it.applies_to(reason)) {
        let value = || value(budget);
        // What cannot be evaluated is named in `error`.
        if budget.is_active(at) == Ok(true) {
            let until = budget.active_until(at).unwrap_or(None);
            row.active.push(Active { index, value: value(), until });
        }
        for window in budget.windows(at, end).unwrap_or_default() {
            row.windows.push(Window { index, from: window.from, to: window.to, value: value() });
        }
    }
    row.windows.sort_by_key(|it| (it.from, it.index));
    row
}

/// The text of `nodes`.
fn value(budget: &Budget) -> String {
    if budget.nodes.is_empty() { "10%".into() } else { budget.nodes.clone() }
}

fn print(rows: &[Row], out: &Output) -> Result<(), Failure> {
    let cells = |row: &Row| {
        let allowed = if row.allowed == budgets::UNLIMITED {
            "unlimited".to_owned()
        } else {
            row.allowed.to_string()
        };
        let active: Vec<String> = row
            .active
            .iter()
            .map(|it| match it.until {
                Some(until) => format!("[{}] {} until {until}", it.index, it.value),
                None => format!("[{}] {}", it.index, it.value),
            })
            .collect();
        let why = row.error.clone().unwrap_or_else(|| active.join(", "));
        vec![row.node_pool.clone(), row.reason.to_owned(), row.nodes.to_string(), allowed, why]
    };
    let table: Vec<Vec<String>> = rows.iter().map(cells).collect();
    out.table(&["NODEPOOL", "REASON", "NODES", "ALLOWED", "ACTIVE BUDGETS"], &table)?;
    let windows: Vec<Vec<String>> = rows
        .iter()
        .flat_map(|row| {
            row.windows.iter().map(|it| {
                vec![
                    row.node_pool.clone(),
                    row.reason.to_owned(),
                    it.from.to_string(),
                    it.to.to_string(),
                    format!("[{}] {}", it.index, it.value),
                ]
            })
        })
        .collect();
    if !windows.is_empty() {
        out.line("")?;
        out.table(&["NODEPOOL", "REASON", "FROM", "TO", "BUDGET"], &windows)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect(text)
    }

    fn rows(budgets: &str, at: &str, days: i64) -> Vec<Row> {
        let text = format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: p}}\nspec: {{disruption: {{budgets: {budgets}}}}}\n"
        );
        let pools = pools(&input::load_text("p.yaml", &text).expect("valid")).expect("valid");
        let at = time(at);
        let end = at + SignedDuration::from_hours(24 * days);
        REASONS.iter().map(|reason| row(&pools[0], reason, 30, at, end)).collect()
    }

    #[test] // api 20, case 3
    fn what_applies_now_and_later() {
        let budgets = "[{nodes: 10%}, {nodes: '0', schedule: '0 9 * * mon-fri', duration: 8h, reasons: [Drifted]}]";
        let found = rows(budgets, "2024-05-15T12:00:00Z", 1);
        assert_eq!(
            serde_json::to_value(&found[2]).expect("writes"),
            json!({"nodePool": "p", "reason": "Drifted", "nodes": 30, "allowed": 0,
                "active": [{"index": 0, "value": "10%", "until": null},
                           {"index": 1, "value": "0", "until": "2024-05-15T17:00:00Z"}],
                "windows": [
                    {"index": 1, "from": "2024-05-15T09:00:00Z", "to": "2024-05-15T17:00:00Z", "value": "0"},
                    {"index": 1, "from": "2024-05-16T09:00:00Z", "to": "2024-05-16T17:00:00Z", "value": "0"}],
                "error": null})
        );
        assert_eq!((found[0].reason, found[0].allowed), ("Underutilized", 3));
        assert!(found[0].windows.is_empty());
    }

    #[test] // lifecycle 17.4, case 6
    fn a_mistake_allows_nothing() {
        let budgets = "[{nodes: '5'}, {nodes: '3', schedule: '0 0 * * tue-mon', duration: 1h, reasons: [Empty]}]";
        for row in rows(budgets, "2024-05-15T12:00:00Z", 7) {
            assert_eq!(row.allowed, 0);
            let error = row.error.expect("named");
            assert!(
                error.starts_with(
                    "budgets[1]: schedule \"0 0 * * tue-mon\": beginning of range (2)"
                ),
                "{error}"
            );
        }
    }

    #[test]
    fn the_default_budget() {
        let found = rows("null", "2024-05-15T12:00:00Z", 7);
        assert_eq!((found[1].reason, found[1].allowed), ("Empty", 3));
        let none = rows("[]", "2024-05-15T12:00:00Z", 7);
        assert_eq!(none[1].allowed, budgets::UNLIMITED);
        assert!(none[1].active.is_empty());
    }
}
