//! A plan for people.

use super::Answer;
use crate::{Failure, Output};

/// Pods named in one line at most; the rest is counted.
const NAMED: usize = 3;

fn some(pods: &[String]) -> String {
    let named = pods.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match pods.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

pub(super) fn print(answer: &Answer, skipped: usize, out: &Output) -> Result<(), Failure> {
    let placed: usize = answer.new_node_claims.iter().map(|it| it.pods.len()).sum();
    let on_nodes: usize = answer.existing_nodes.iter().map(|it| it.pods.len()).sum();
    out.line(&format!(
        "{placed} pod(s) on {} new node(s) at {:.4} $/h, {on_nodes} on {} existing one(s)",
        answer.new_node_claims.len(),
        answer.price_per_hour,
        answer.existing_nodes.len(),
    ))?;
    if !answer.new_node_claims.is_empty() {
        out.line("")?;
        let rows: Vec<Vec<String>> = answer
            .new_node_claims
            .iter()
            .map(|it| {
                let (what, price) = it.cheapest.as_ref().map_or_else(
                    || ("-".to_owned(), "-".to_owned()),
                    |it| {
                        let what = format!("{} {} {}", it.instance_type, it.capacity_type, it.zone);
                        (what, it.price_per_hour.map_or_else(|| "?".to_owned(), |it| format!("{it:.4}")))
                    },
                );
                vec![
                    it.node_pool.clone(),
                    what,
                    price,
                    it.instance_types.len().to_string(),
                    it.requests.get("cpu").to_string(),
                    it.requests.get("memory").to_string(),
                    some(&it.pods),
                ]
            })
            .collect();
        out.table(&["NODEPOOL", "CHEAPEST", "$/H", "TYPES", "CPU", "MEMORY", "PODS"], &rows)?;
    }
    if !answer.existing_nodes.is_empty() {
        out.line("")?;
        let rows: Vec<Vec<String>> =
            answer.existing_nodes.iter().map(|it| vec![it.node.clone(), some(&it.pods)]).collect();
        out.table(&["EXISTING NODE", "PODS"], &rows)?;
    }
    let list = |title: &str, rows: Vec<Vec<String>>| -> Result<(), Failure> {
        if rows.is_empty() {
            return Ok(());
        }
        out.line("")?;
        out.table(&[title, "WHY"], &rows)
    };
    let pair = |pod: &String, why: &String| vec![pod.clone(), why.clone()];
    list(
        "UNSCHEDULABLE",
        answer.unschedulable.iter().map(|it| pair(&it.pod, &it.reason)).collect(),
    )?;
    list("DEFERRED", answer.deferred.iter().map(|it| pair(&it.pod, &it.reason)).collect())?;
    list("IGNORED", answer.ignored.iter().map(|it| pair(&it.pod, &it.reason)).collect())?;
    if let Some(explain) = &answer.explain {
        out.line("")?;
        let rows: Vec<Vec<String>> = explain
            .steps
            .iter()
            .enumerate()
            .map(|(at, step)| vec![(at + 1).to_string(), step.clone()])
            .collect();
        out.table(&["STEP", &format!("WAY OF {}", explain.pod)], &rows)?;
    }
    out.line("")?;
    out.line(&format!(
        "solved in {:.1} ms, set up in {:.1} ms",
        answer.solve_millis, answer.setup_millis
    ))?;
    if skipped > 0 {
        out.line(&format!("{skipped} object(s) of kinds that are not read were skipped"))?;
    }
    Ok(())
}
