//! The custom bus in EventBridge.

use aws_sdk_eventbridge::{Client, types::PutEventsRequestEntry};
use spokeshave_ports::{AwsError, Bus, queues::BusEvent};

use crate::{Call, Connection};

const PUT: Call = Call("events", "PutEvents");

/// `source` of our events.
pub const SOURCE: &str = "spokeshave";

/// Entries of one PutEvents call. Source: EventBridge's quota.
const MAX_ENTRIES: usize = 10;

/// Bytes of one PutEvents call: 256 KiB by EventBridge's quota, less what an entry's other fields take.
const MAX_BYTES: usize = 250 * 1024;

/// The bus, over EventBridge.
#[derive(Clone, Debug)]
pub struct EventBus {
    client: Client,
    name: String,
}

impl EventBus {
    /// `name` is the bus's name or ARN.
    pub fn new(connection: &Connection, name: &str) -> Self {
        Self { client: counted!(aws_sdk_eventbridge, connection.config()), name: name.to_owned() }
    }
}

impl Bus for EventBus {
    async fn put(&self, events: &[BusEvent]) -> Result<Vec<usize>, AwsError> {
        let mut details = Vec::with_capacity(events.len());
        for event in events {
            let detail = serde_json::to_string(&event.work)
                .map_err(|error| PUT.error("Request", &error.to_string()))?;
            details.push(detail);
        }
        let mut refused = Vec::new();
        for call in calls(details.iter().map(String::len)) {
            let entries = call.clone().filter_map(|position| {
                Some(
                    PutEventsRequestEntry::builder()
                        .event_bus_name(&self.name)
                        .source(SOURCE)
                        .detail_type(events.get(position)?.detail_type)
                        .detail(details.get(position)?)
                        .build(),
                )
            });
            let sent = self.client.put_events().set_entries(Some(entries.collect())).send().await;
            match sent {
                Ok(answer) => {
                    let failed = answer.entries().iter().zip(call);
                    refused
                        .extend(failed.filter(|(it, _)| it.error_code().is_some()).map(|it| it.1));
                }
                // What an earlier call placed is placed: say which are not, unless nothing was.
                Err(error) if call.start == 0 => return Err(PUT.failed(error)),
                Err(_) => {
                    refused.extend(call.start..events.len());
                    break;
                }
            }
        }
        Ok(refused)
    }
}

/// Cuts positions into calls that keep EventBridge's limits; an entry too big for any call is one of its own, and refused.
fn calls(sizes: impl IntoIterator<Item = usize>) -> Vec<std::ops::Range<usize>> {
    let mut calls: Vec<std::ops::Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (position, size) in sizes.into_iter().enumerate() {
        match calls.last_mut() {
            Some(call) if call.len() < MAX_ENTRIES && bytes + size <= MAX_BYTES => {
                call.end = position + 1;
                bytes += size;
            }
            _ => {
                calls.push(position..position + 1);
                bytes = size;
            }
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_keep_the_limits() {
        assert_eq!(calls([]), []);
        assert_eq!(calls([100; 23]), [0..10, 10..20, 20..23]);
        assert_eq!(calls([200_000, 100_000, 1, 300_000, 1]), [0..1, 1..3, 3..4, 4..5]);
    }
}
