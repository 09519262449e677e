//! KWOK for AWS (`SPOKESHAVE_EC2=kwok`): instances that are made up, in a real cluster, with real facts about types,
//! prices, subnets and images. Nothing is bought.
//!
//! [`Kwok`] stands before a real EC2: calls that only read the account go through, calls that launch, list, tag or end
//! instances and launch templates work on records of the state table. [`node::join`] makes the Node object of a
//! launched claim once its instance has had time to boot. Nodes become Ready and pods run where a KWOK controller looks
//! after Nodes with the annotation `kwok.x-k8s.io/node: fake`; else [`player`] does what a kubelet would.
//!
//! A spot interruption is put on the interruption queue as EC2 would word it ([`interruption`]), when an annotation asks
//! for it ([`interrupt`]): all that follows is ours. Does no I/O but through the ports it is handed, and reads no clock.

mod ec2;
mod fleet;
pub mod interrupt;
pub mod node;
pub mod played;
pub mod player;
mod profile;
mod records;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_ports::ec2::Instance;

pub use ec2::{Kwok, Pause};
pub use profile::{Profile, ProfileError, Shortage};

/// The event by which EC2 warns of a spot interruption, as EventBridge delivers it.
pub fn interruption(instance: &Instance, region: &str, account: &str, now: Timestamp) -> Value {
    let id = instance.id.as_str();
    json!({
        "version": "0",
        "id": format!("kwok-{id}"),
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": account,
        "time": now.to_string(),
        "region": region,
        "resources": [format!("arn:aws:ec2:{}:instance/{id}", instance.zone)],
        "detail": {"instance-id": id, "instance-action": "terminate"},
    })
}

/// How long records of ended instances and of fleets are kept.
pub(crate) const KEPT: SignedDuration = SignedDuration::from_hours(24);
