//! NodeOverlays: whether they count is written to their status (`spec` scheduling 20, api 14).

use std::collections::BTreeMap;

use spokeshave_model::{ConditionStatus, Kind, NodeOverlay};
use spokeshave_ports::{Cluster, ClusterError, Decision, Invocation, Precondition, chain};
use spokeshave_scheduling::{
    ClusterView,
    overlays::{CONFLICT, Verdict},
};

/// The overlay as its status should be. A condition is set once, so that a conflict that lasts keeps its time.
fn judged(overlay: &NodeOverlay, verdict: &Verdict, cx: &Invocation<'_>) -> NodeOverlay {
    let mut new = overlay.clone();
    let type_ = NodeOverlay::VALIDATION_SUCCEEDED;
    let mut conditions = new.conditions_mut();
    conditions.initialize();
    let no = ConditionStatus::False;
    match verdict {
        Verdict::Applied => conditions.set_true(type_, cx.now),
        Verdict::Invalid(why) => conditions.set(type_, no, "RuntimeValidation", why, cx.now),
        Verdict::Conflict => conditions.set(type_, no, "Conflict", CONFLICT, cx.now),
    };
    new
}

/// Writes the status of every overlay that differs. A conflict is left to the next run.
pub(crate) async fn write_status(
    view: &ClusterView,
    verdicts: &BTreeMap<String, Verdict>,
    cluster: &impl Cluster,
    cx: &Invocation<'_>,
) {
    for overlay in view.overlays.values() {
        let Some(verdict) = verdicts.get(&overlay.metadata.name) else { continue };
        let new = judged(overlay, verdict, cx);
        if new == **overlay {
            continue;
        }
        match cluster.patch_status(&**overlay, &new, Precondition::ResourceVersion).await {
            Ok(_) => {
                let text = match verdict {
                    Verdict::Applied => "ValidationSucceeded: True".to_owned(),
                    Verdict::Invalid(why) => format!("ValidationSucceeded: False, {why}"),
                    Verdict::Conflict => format!("ValidationSucceeded: False, {CONFLICT}"),
                };
                cx.decide(Decision::new("set-condition", overlay.reference(), text));
            }
            Err(ClusterError::NotFound { .. }) => {}
            Err(error) => {
                cx.decide(Decision::new("set-condition", overlay.reference(), chain(&error)));
            }
        }
    }
}
