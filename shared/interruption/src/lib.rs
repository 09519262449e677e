//! What AWS says about instances, and what follows from it for NodeClaims.
//!
//! [`parse`] reads a message body as it stands in the queue, [`decide`] says what to do about the messages of a batch,
//! and [`status`] turns the answers of DescribeInstanceStatus into messages of the same kind. [`hooks`] reads what Auto Scaling says, where that is asked for. Carrying actions out is
//! left to the functions. Read [`Message`] first.
//!
//! ```
//! use spokeshave_interruption::{Kind, parse};
//!
//! let body = r#"{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning",
//!     "time":"2025-11-04T09:15:02Z","detail":{"instance-id":"i-0a1b2c3d4e5f60718"}}"#;
//! assert_eq!(parse(body).unwrap().kind, Kind::SpotInterruption);
//! ```

mod decide;
pub mod hooks;
mod loose;
mod message;
mod parse;
pub mod status;

pub use decide::{
    Action, ClaimView, NodeView, RECOMMENDATION_HOLDS_FOR, UNAVAILABLE_FOR, View, decide,
};
pub use message::{ActionKind, InterruptionEvent, Kind, Message};
pub use parse::{Malformed, parse};
