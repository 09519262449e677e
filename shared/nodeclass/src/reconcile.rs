//! From what one pass has found to status lists and conditions (`spec` aws-nodeclass 2 and 3, api 13.2).

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    ConditionStatus, EC2NodeClass, conditions,
    ec2_node_class::{AmiStatus, CapacityReservationStatus, SecurityGroupStatus, SubnetStatus},
};
use spokeshave_ports::without_request_ids;

/// When something was not found, it is looked for again after this.
pub const NOT_FOUND_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// What image terms gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    Found(Vec<AmiStatus>),
    /// The alias cannot be looked up; the status keeps what it had.
    Unsupported(String),
    /// No image of this alias is published for the cluster's version; the status keeps what it had, so that no node drifts.
    ///
    /// DIFFERENCE: in Karpenter an error in its log; the class does not say what it waits for.
    Unpublished(String),
    /// A call failed: condition and status stay as they are.
    Failed,
}

/// What the placement group selector gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// No selector, or a group.
    Fine,
    NotFound,
    /// The call failed with this, and no earlier answer is known. With one, the condition stays: see
    /// [`Placement::Stale`].
    Failed(String),
    /// The call failed, an earlier answer still holds.
    ///
    /// DIFFERENCE: Karpenter makes the class not ready, although launches would go on with the earlier answer.
    Stale,
}

/// What a pass has found. `None`: the call failed, so condition and status stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub images: Images,
    /// `None` also with the gate `ReservedCapacity` off.
    pub reservations: Option<Vec<CapacityReservationStatus>>,
    pub placement: Placement,
    pub subnets: Option<Vec<SubnetStatus>>,
    pub security_groups: Option<Vec<SecurityGroupStatus>>,
}

/// A group that is gone has to be missing in two looks this far apart before the status loses it.
pub const MISSING_TWICE: SignedDuration = SignedDuration::from_secs(30);

/// Whether a group that nodes run with is no longer found although the selector did not change and finds others.
///
/// DIFFERENCE: Karpenter writes the shorter list at once, and every node of the class drifts for a tag that somebody is
/// just changing. Here the second look counts.
pub fn loses_groups(class: &EC2NodeClass, found: &[SecurityGroupStatus]) -> bool {
    let known = conditions::find(&class.status.conditions, EC2NodeClass::SECURITY_GROUPS_READY);
    let settled = known.is_some_and(|it| {
        it.status == ConditionStatus::True && it.observed_generation == class.metadata.generation
    });
    let is_found = |group: &SecurityGroupStatus| found.iter().any(|it| it.id == group.id);
    settled && !found.is_empty() && !class.status.security_groups.iter().all(is_found)
}

/// Sets a condition. A text that differs from the one that is there in request ids alone is left out: writing it would
/// wake everybody who watches the class, and the call that failed would fail again.
pub fn set_condition(
    class: &mut EC2NodeClass,
    reserved_capacity: bool,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let known = conditions::find(&class.status.conditions, type_)
        .filter(|it| it.status == status && it.reason == reason)
        .filter(|it| without_request_ids(&it.message) == without_request_ids(message));
    let kept = known.map(|it| it.message.clone());
    let message = kept.as_deref().unwrap_or(message);
    class.conditions_mut(reserved_capacity).set(type_, status, reason, message, now);
}

/// Writes what was found into the status, in the fixed order. Returns when to look again before the
/// schedule does: soon for what was not found, and at the end of a reservation.
pub fn apply(
    class: &mut EC2NodeClass,
    found: Found,
    reserved_capacity: bool,
    now: Timestamp,
) -> Option<SignedDuration> {
    class.conditions_mut(reserved_capacity).initialize();
    let mut again: Option<SignedDuration> = None;
    let mut sooner = |delay: SignedDuration| again = Some(again.map_or(delay, |it| it.min(delay)));
    let set = |class: &mut EC2NodeClass, type_: &str, problem: Option<(&str, String)>| match problem
    {
        None => {
            class.conditions_mut(reserved_capacity).set_true(type_, now);
        }
        Some((reason, message)) => {
            let no = ConditionStatus::False;
            set_condition(class, reserved_capacity, type_, no, reason, &message, now);
        }
    };

    match found.images {
        Images::Found(images) => {
            let none = images.is_empty();
            if none {
                sooner(NOT_FOUND_AGAIN);
            }
            class.status.amis = images;
            let message = || "AMISelector did not match any AMIs".to_owned();
            set(class, EC2NodeClass::AMIS_READY, none.then(|| ("AMINotFound", message())));
        }
        Images::Unsupported(message) => {
            set(class, EC2NodeClass::AMIS_READY, Some(("UnsupportedAlias", message)));
        }
        Images::Unpublished(alias) => {
            sooner(NOT_FOUND_AGAIN);
            let message = format!("failed to discover any AMIs for alias {alias:?}");
            set(class, EC2NodeClass::AMIS_READY, Some(("AMINotFound", message)));
        }
        Images::Failed => {}
    }
    if reserved_capacity && let Some(reservations) = found.reservations {
        for end in reservations.iter().filter_map(|it| it.end_time) {
            sooner(now.duration_until(end).max(SignedDuration::ZERO));
        }
        class.status.capacity_reservations = reservations;
        set(class, EC2NodeClass::CAPACITY_RESERVATIONS_READY, None);
    }
    match found.placement {
        Placement::Fine => set(class, EC2NodeClass::PLACEMENT_GROUP_READY, None),
        Placement::NotFound => {
            sooner(NOT_FOUND_AGAIN);
            let selector = class.spec.placement_group_selector.clone().unwrap_or_default();
            let wanted = selector.name.or(selector.id).unwrap_or_default();
            let message = format!("Placement group \"{wanted}\" not found");
            let problem = Some(("PlacementGroupNotFound", message));
            set(class, EC2NodeClass::PLACEMENT_GROUP_READY, problem);
        }
        Placement::Failed(why) => {
            let message = format!("Failed to resolve placement group: {why}");
            let problem = Some(("PlacementGroupResolutionFailed", message));
            set(class, EC2NodeClass::PLACEMENT_GROUP_READY, problem);
        }
        Placement::Stale => {}
    }
    if let Some(subnets) = found.subnets {
        let none = subnets.is_empty();
        if none {
            sooner(NOT_FOUND_AGAIN);
        }
        class.status.subnets = subnets;
        let message = || "SubnetSelector did not match any Subnets".to_owned();
        set(class, EC2NodeClass::SUBNETS_READY, none.then(|| ("SubnetsNotFound", message())));
    }
    if let Some(groups) = found.security_groups {
        let none = groups.is_empty() && !class.spec.security_group_selector_terms.is_empty();
        if none {
            sooner(NOT_FOUND_AGAIN);
        }
        class.status.security_groups = groups;
        let message = || "SecurityGroupSelector did not match any SecurityGroups".to_owned();
        let problem = none.then(|| ("SecurityGroupsNotFound", message()));
        set(class, EC2NodeClass::SECURITY_GROUPS_READY, problem);
    }
    again
}

/// The event's text for a class that waits for its claims: up to five names, then how many more.
pub fn waiting_message(mut claims: Vec<String>) -> String {
    claims.sort();
    let shown = claims.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    let more = match claims.len().saturating_sub(5) {
        0 => String::new(),
        n => format!(" and {n} other(s)"),
    };
    format!("Waiting on NodeClaim termination for {shown}{more}")
}

/// Changes of condition status as event reason and text; the first sighting of a condition is none.
pub fn transitions(
    before: &[spokeshave_model::Condition],
    after: &[spokeshave_model::Condition],
) -> Vec<(String, String)> {
    after
        .iter()
        .filter_map(|new| {
            let old = before.iter().find(|it| it.type_ == new.type_)?;
            if old.status == new.status {
                return None;
            }
            let mut text = format!(
                "Status condition transitioned, Type: {}, Status: {:?} -> {:?}, Reason: {}",
                new.type_, old.status, new.status, new.reason
            );
            if !new.message.is_empty() {
                text.push_str(&format!(", Message: {}", new.message));
            }
            Some((new.type_.clone(), text))
        })
        .collect()
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
