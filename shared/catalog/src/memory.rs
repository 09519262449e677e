//! Memory as nodes reported it, by type and images (`spec` aws-capacity 2.3).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use spokeshave_model::{EC2NodeClass, Quantity, Requirements, ec2_node_class::AmiStatus};

/// How long an observation counts after it was last confirmed. 60 days, as in Karpenter.
pub const LIFETIME: SignedDuration = SignedDuration::from_hours(60 * 24);

/// Names the set of a class's current images; their order does not matter.
pub fn image_set(class: &EC2NodeClass) -> String {
    let mut ids: Vec<&str> = class.status.amis.iter().map(|it| it.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut hash = Sha256::new();
    for id in ids {
        hash.update(id);
        hash.update(b"\n");
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The image that a class gives a node with these labels: the first whose requirements accept them. A label that the node
/// lacks does not exist.
pub fn image_for<'a>(class: &'a EC2NodeClass, node: &Requirements) -> Option<&'a str> {
    let accepts = |it: &&AmiStatus| {
        node.compatible(&Requirements::from_api(&it.requirements), |_| false).is_ok()
    };
    class.status.amis.iter().find(accepts).map(|it| it.id.as_str())
}

/// Whether a node runs the image that its class would pick for it now; only then does its memory say anything about the
/// next node of the type.
pub fn is_current_image(class: &EC2NodeClass, node: &Requirements, image: &str) -> bool {
    image_for(class, node) == Some(image)
}

/// One observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Bytes that the node reported as its memory capacity.
    pub memory: Quantity,
    pub expires_at: Timestamp,
}

/// Observations by type and image set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredMemory(pub BTreeMap<(String, String), Observation>);

impl DiscoveredMemory {
    /// The memory that a node of this type and these images has been seen with.
    pub fn get(&self, instance_type: &str, images: &str, now: Timestamp) -> Option<Quantity> {
        if self.0.is_empty() {
            return None;
        }
        let seen = self.0.get(&(instance_type.to_owned(), images.to_owned()))?;
        (seen.expires_at > now).then_some(seen.memory)
    }

    /// Takes in what a node reported. Never raises what is known; an equal value lasts longer. Returns whether anything
    /// is to be stored.
    pub fn observe(
        &mut self,
        instance_type: &str,
        images: &str,
        memory: Quantity,
        now: Timestamp,
    ) -> bool {
        if self.get(instance_type, images, now).is_some_and(|known| memory > known) {
            return false;
        }
        let expires_at = now.saturating_add(LIFETIME).unwrap_or(Timestamp::MAX);
        let key = (instance_type.to_owned(), images.to_owned());
        self.0.insert(key, Observation { memory, expires_at });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // aws-capacity 2, case 7
    fn observations_only_fall() {
        let now = Timestamp::from_second(1_767_261_600).expect("in range");
        let quantity = |text: &str| text.parse::<Quantity>().expect("valid");
        let mut memory = DiscoveredMemory::default();
        assert!(memory.observe("m5.xlarge", "a", quantity("15513136Ki"), now));
        assert!(!memory.observe("m5.xlarge", "a", quantity("15600000Ki"), now));
        assert_eq!(memory.get("m5.xlarge", "a", now), Some(quantity("15513136Ki")));
        assert!(memory.observe("m5.xlarge", "a", quantity("15513136Ki"), now));
        assert!(memory.observe("m5.xlarge", "a", quantity("15400000Ki"), now));
        assert_eq!(memory.get("m5.xlarge", "a", now), Some(quantity("15400000Ki")));
        assert_eq!(memory.get("m5.xlarge", "b", now), None);
        assert_eq!(memory.get("m5.xlarge", "a", now + LIFETIME), None);
    }
}
