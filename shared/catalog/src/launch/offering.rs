//! Whether a claim allows an offering, without building sets of requirements for each of thousands.

use spokeshave_model::{Offering, Operator, Requirement, Requirements, labels};

fn has(requirement: Option<&Requirement>, value: &str) -> bool {
    requirement.is_none_or(|it| it.has(value))
}

fn may_lack(requirement: Option<&Requirement>) -> bool {
    requirement.is_none_or(|it| matches!(it.operator(), Operator::NotIn | Operator::DoesNotExist))
}

/// Whether the offering's labels go with `wanted`. The same as comparing [`Offering::requirements`].
pub fn allowed(offering: &Offering, wanted: &Requirements) -> bool {
    let get = |key: &str| wanted.get(key);
    let reservation = match &offering.reservation {
        Some(it) => {
            has(get(labels::CAPACITY_RESERVATION_ID), &it.id)
                && has(get(labels::CAPACITY_RESERVATION_TYPE), &it.type_)
                && has(
                    get(labels::CAPACITY_RESERVATION_INTERRUPTIBLE),
                    if it.interruptible { "true" } else { "false" },
                )
        }
        None => {
            may_lack(get(labels::CAPACITY_RESERVATION_ID))
                && may_lack(get(labels::CAPACITY_RESERVATION_TYPE))
                && may_lack(get(labels::CAPACITY_RESERVATION_INTERRUPTIBLE))
        }
    };
    reservation
        && has(get(labels::CAPACITY_TYPE), offering.capacity_type.as_str())
        && has(get(labels::ZONE), &offering.zone)
        && (offering.zone_id.is_empty() || has(get(labels::ZONE_ID), &offering.zone_id))
        && offering
            .partition
            .is_none_or(|it| has(get(labels::PLACEMENT_GROUP_PARTITION), &it.to_string()))
}

#[cfg(test)]
mod tests {
    use spokeshave_model::{CapacityType, instance_type::Reservation};

    use super::*;

    /// Every combination of a few requirements and offerings, against the sets themselves.
    #[test]
    fn agrees_with_the_sets() {
        let operators = [
            (Operator::In, vec!["a"]),
            (Operator::In, vec!["b", "default", "true", "spot"]),
            (Operator::NotIn, vec!["a"]),
            (Operator::Exists, vec![]),
            (Operator::DoesNotExist, vec![]),
        ];
        let keys = [
            labels::ZONE,
            labels::ZONE_ID,
            labels::CAPACITY_TYPE,
            labels::CAPACITY_RESERVATION_ID,
            labels::CAPACITY_RESERVATION_TYPE,
            labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
            "example.com/team",
        ];
        let reservation =
            Reservation { id: "a".into(), type_: "default".into(), interruptible: true, count: 1 };
        let mut checked = 0;
        for zone_id in ["", "a", "b"] {
            for reservation in [None, Some(reservation.clone())] {
                let offering = Offering {
                    capacity_type: CapacityType::Spot,
                    zone: "a".into(),
                    zone_id: zone_id.into(),
                    reservation,
                    ..Offering::default()
                };
                for key in keys {
                    for (operator, values) in &operators {
                        let mut wanted = Requirements::new();
                        wanted.add(Requirement::new(key, *operator, values.clone()));
                        let by_sets = wanted.meets(&offering.requirements());
                        assert_eq!(
                            allowed(&offering, &wanted),
                            by_sets,
                            "{key} {operator:?} {values:?}"
                        );
                        checked += 1;
                    }
                }
            }
        }
        assert_eq!(checked, 3 * 2 * 7 * 5);
    }
}
