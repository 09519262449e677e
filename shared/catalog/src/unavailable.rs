//! Offerings that are left out for a while because buying them just failed (`spec` aws-capacity 7).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::CapacityType;

/// How long a mark lasts. 3 minutes, as in Karpenter.
pub const LIFETIME: SignedDuration = SignedDuration::from_mins(3);

/// What is marked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    Offering {
        capacity_type: CapacityType,
        instance_type: String,
        zone: String,
        /// Only launches into this placement group.
        group: Option<String>,
        /// Only this partition of the group.
        partition: Option<i64>,
    },
    CapacityType(CapacityType),
    /// No free addresses.
    Subnet(String),
}

impl Mark {
    /// A mark on an offering outside placement groups.
    pub fn offering(capacity_type: CapacityType, instance_type: &str, zone: &str) -> Self {
        Self::Offering {
            capacity_type,
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            group: None,
            partition: None,
        }
    }

    /// `<capacityType>:<type>:<zone>[:<group>[:<partition>]]`, `<capacityType>` or `<subnet>`.
    pub fn key(&self) -> String {
        match self {
            Self::Offering { capacity_type, instance_type, zone, group, partition } => {
                let mut key = format!("{capacity_type}:{instance_type}:{zone}");
                if let Some(group) = group {
                    key.push(':');
                    key.push_str(group);
                    if let Some(partition) = partition {
                        key.push_str(&format!(":{partition}"));
                    }
                }
                key
            }
            Self::CapacityType(capacity_type) => capacity_type.to_string(),
            Self::Subnet(id) => id.clone(),
        }
    }
}

/// The marks and when they end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnavailableOfferings {
    marks: BTreeMap<String, Timestamp>,
    /// Nothing has ended: whoever has no clock at hand reads all marks as standing.
    now: Timestamp,
}

impl UnavailableOfferings {
    /// Marks read from the table: keys and the ends of their time, as seen at `now`.
    pub fn new(marks: impl IntoIterator<Item = (String, Timestamp)>, now: Timestamp) -> Self {
        Self { marks: marks.into_iter().filter(|(_, ends)| *ends > now).collect(), now }
    }

    /// Marks something from `at` for [`LIFETIME`]; marking again starts over.
    pub fn mark(&mut self, mark: &Mark, at: Timestamp) {
        let ends = at.saturating_add(LIFETIME).unwrap_or(Timestamp::MAX);
        self.marks.insert(mark.key(), ends);
    }

    /// Takes a mark away.
    pub fn remove(&mut self, mark: &Mark) {
        self.marks.remove(&mark.key());
    }

    /// Looks at the marks at another time.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Keys and the ends of their time, sorted by key; ended ones too until they are swept.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Timestamp)> {
        self.marks.iter().map(|(key, ends)| (key.as_str(), *ends))
    }

    /// Whether a key is marked now.
    pub fn has(&self, key: &str) -> bool {
        self.marks.get(key).is_some_and(|ends| *ends > self.now)
    }

    /// Whether an offering is left out.
    ///
    /// `subnets` are those of the class in the zone; a zone whose subnets are all marked is left out. A mark outside
    /// any group blocks launches into groups too, not the other way round.
    ///
    /// DIFFERENCE: Karpenter writes marks on partitions but never reads them; we leave that partition out.
    pub fn blocks(
        &self,
        capacity_type: CapacityType,
        instance_type: &str,
        zone: &str,
        group: Option<&str>,
        partition: Option<i64>,
        subnets: &[String],
    ) -> bool {
        if self.marks.is_empty() {
            return false;
        }
        let general = format!("{capacity_type}:{instance_type}:{zone}");
        let in_group = |group: &str| {
            let key = format!("{general}:{group}");
            self.has(&key) || partition.is_some_and(|it| self.has(&format!("{key}:{it}")))
        };
        self.has(&general)
            || self.has(capacity_type.as_str())
            || (!subnets.is_empty() && subnets.iter().all(|it| self.has(it)))
            || group.is_some_and(in_group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPOT: CapacityType = CapacityType::Spot;
    const ON_DEMAND: CapacityType = CapacityType::OnDemand;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_261_600 + seconds).expect("in range")
    }

    fn spot(marks: &UnavailableOfferings, zone: &str) -> bool {
        marks.blocks(SPOT, "m5.large", zone, None, None, &[])
    }

    #[test] // aws-capacity 7, cases 1-3
    fn marks_end_and_start_over() {
        let mut marks = UnavailableOfferings::default();
        let large = Mark::offering(SPOT, "m5.large", "test-zone-1a");
        assert_eq!(large.key(), "spot:m5.large:test-zone-1a");
        marks.mark(&large, at(0));
        marks.set_now(at(179));
        assert!(spot(&marks, "test-zone-1a"));
        assert!(!spot(&marks, "test-zone-1b"));
        assert!(!marks.blocks(ON_DEMAND, "m5.large", "test-zone-1a", None, None, &[]));
        marks.set_now(at(181));
        assert!(!spot(&marks, "test-zone-1a"));
        marks.mark(&large, at(0));
        marks.mark(&large, at(120));
        marks.set_now(at(299));
        assert!(spot(&marks, "test-zone-1a"));
        marks.set_now(at(300));
        assert!(!spot(&marks, "test-zone-1a"));
        marks.mark(&Mark::CapacityType(SPOT), at(300));
        assert!(spot(&marks, "test-zone-1c"));
        assert!(!marks.blocks(ON_DEMAND, "m5.large", "test-zone-1c", None, None, &[]));
    }

    #[test] // aws-capacity 7, cases 4-5
    fn a_zone_is_blocked_when_all_its_subnets_are() {
        let mut marks = UnavailableOfferings::new([], at(1));
        let subnets = ["a".to_owned(), "b".to_owned()];
        let blocked = |marks: &UnavailableOfferings, subnets: &[String]| {
            marks.blocks(ON_DEMAND, "t3.large", "test-zone-1a", None, None, subnets)
        };
        marks.mark(&Mark::Subnet("a".into()), at(0));
        assert!(!blocked(&marks, &subnets));
        marks.mark(&Mark::Subnet("b".into()), at(0));
        assert!(blocked(&marks, &subnets));
        assert!(!blocked(&marks, &[]));
    }

    #[test] // aws-capacity 7, case 7
    fn a_group_has_marks_of_its_own() {
        let mut marks = UnavailableOfferings::new([], at(1));
        let mark = Mark::Offering {
            capacity_type: ON_DEMAND,
            instance_type: "m5.large".into(),
            zone: "test-zone-1a".into(),
            group: Some("pg-1".into()),
            partition: None,
        };
        assert_eq!(mark.key(), "on-demand:m5.large:test-zone-1a:pg-1");
        marks.mark(&mark, at(0));
        let blocked = |group| marks.blocks(ON_DEMAND, "m5.large", "test-zone-1a", group, None, &[]);
        assert!(blocked(Some("pg-1")));
        assert!(!blocked(Some("pg-2")));
        assert!(!blocked(None));
    }
}
