//! CapacityBuffers: what became of them is written to their status (`spec` scheduling 21).

use jiff::Timestamp;
use spokeshave_model::{
    CapacityBuffer, Condition, ConditionStatus, Kind, capacity_buffer::PodTemplateRef,
};
use spokeshave_ports::{Cluster, Decision, Invocation, Precondition, chain};
use spokeshave_scheduling::{
    ClusterView, Solution,
    buffers::{self, Resolved, Unresolved},
};

use crate::world::Trouble;

const READY: &str = "ReadyForProvisioning";
const PROVISIONING: &str = "Provisioning";

/// The buffer as its status should be after a plan; `None` for the solution when nothing was planned.
fn judged(
    buffer: &CapacityBuffer,
    resolved: &Result<Resolved, Unresolved>,
    solution: Option<&Solution>,
    now: Timestamp,
) -> CapacityBuffer {
    let mut new = buffer.clone();
    let status = &mut new.status;
    status.provisioning_strategy = Some(
        buffer
            .spec
            .provisioning_strategy
            .clone()
            .unwrap_or_else(|| buffers::ACTIVE_CAPACITY.to_owned()),
    );
    let generation = buffer.metadata.generation;
    match resolved {
        Ok(it) => {
            status.replicas = Some(i32::try_from(it.replicas).unwrap_or(i32::MAX));
            status.pod_template_generation = it.template_generation;
            status.pod_template_ref = buffer
                .spec
                .pod_template_ref
                .as_ref()
                .map(|it| PodTemplateRef { name: it.name.clone() });
            let text = "Pod template resolved successfully";
            set(&mut status.conditions, READY, true, "Resolved", text, generation, now);
        }
        Err(it) => {
            let list = &mut status.conditions;
            set(list, READY, false, it.reason, &it.message, generation, now);
        }
    }
    let none = Solution::default();
    let solution = solution.unwrap_or(&none);
    if let Some(it) = buffers::provisioning(buffer, resolved.as_ref(), solution) {
        let list = &mut status.conditions;
        set(list, PROVISIONING, it.fits, it.reason, &it.message, generation, now);
    }
    new
}

fn set(
    list: &mut Vec<Condition>,
    type_: &str,
    is_true: bool,
    reason: &str,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    let status = if is_true { ConditionStatus::True } else { ConditionStatus::False };
    let before = list.iter().find(|it| it.type_ == type_);
    let since = before.filter(|it| it.status == status).and_then(|it| it.last_transition_time);
    let condition = Condition {
        type_: type_.to_owned(),
        status,
        last_transition_time: since.or(Some(now)),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
    };
    match list.iter_mut().find(|it| it.type_ == type_) {
        Some(there) => *there = condition,
        None => list.push(condition),
    }
}

/// Writes the status of every buffer that differs. A conflict is left to the next run.
pub(crate) async fn write_status(
    view: &ClusterView,
    solution: Option<&Solution>,
    cluster: &impl Cluster,
    cx: &Invocation<'_>,
) -> Result<(), Trouble> {
    for buffer in view.buffers.values().filter(|it| buffers::is_ours(it)) {
        let resolved = buffers::resolve(buffer, view);
        let new = judged(buffer, &resolved, solution, cx.now);
        if new == **buffer {
            continue;
        }
        match cluster.patch_status(&**buffer, &new, Precondition::ResourceVersion).await {
            Ok(_) => {
                let text = new
                    .status
                    .conditions
                    .iter()
                    .map(|it| format!("{}={:?} {}", it.type_, it.status, it.reason))
                    .collect::<Vec<_>>()
                    .join(", ");
                cx.decide(Decision::new("status", buffer.reference(), text));
            }
            Err(error) => {
                cx.decide(Decision::new("status", buffer.reference(), chain(&error)));
            }
        }
    }
    Ok(())
}
