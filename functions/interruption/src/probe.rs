//! Made-up warnings of `spokeshave doctor`: a record says that one has come all the way.
//!
//! The counts that SQS gives of a queue lag behind by up to a minute, so they cannot tell a warning that was taken from
//! one that has not been counted yet.

use jiff::SignedDuration;
use serde_json::{Value, json};
use spokeshave_lambda::SqsBatch;
use spokeshave_ports::{Decision, Invocation, StateTable, When, chain, stack};

/// How long the record is kept. Nobody waits for it longer than 15 minutes.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(1);

/// The longest id that is answered, in bytes: the command's own have 31.
const LONGEST_ID: usize = 64;

/// Records every made-up warning of a batch. It is then handled like any other, about an instance that nobody has. When
/// the record cannot be written, the command says that nobody answered; the message is no reason to try again.
pub async fn answer(batch: &SqsBatch, state: &impl StateTable, cx: &Invocation<'_>) {
    for id in batch.records.iter().filter_map(|it| id_of(&it.body)) {
        let until = cx.now.checked_add(KEPT_FOR).ok();
        let written = state.write(&stack::probe_key(&id), json!({}), until, When::Always).await;
        let object = format!("Probe/{id}");
        match written {
            Ok(_) => cx.decide(Decision::new("answer", object, "a check of the way here")),
            Err(error) => cx.decide(
                Decision::new("answer", object, chain(&error)).caused_by(&error).as_error(),
            ),
        }
    }
}

/// The id of a made-up warning; `None` for any other message.
fn id_of(body: &str) -> Option<String> {
    if !body.contains(stack::PROBE_ID) {
        return None;
    }
    let event: Value = serde_json::from_str(body).ok()?;
    let id = event["id"].as_str().filter(|it| it.starts_with(stack::PROBE_ID))?;
    let plain = id.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
    (plain && id.len() <= LONGEST_ID).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_the_command_are_answered() {
        let own = r#"{"id":"spokeshave-doctor-1700000000000","detail":{}}"#;
        assert_eq!(id_of(own).as_deref(), Some("spokeshave-doctor-1700000000000"));
        let long = format!(r#"{{"id":"spokeshave-doctor-{}"}}"#, "7".repeat(47));
        for other in [
            "",
            "spokeshave-doctor-1",
            r#"{"id":"12345678-1234","detail":{"instance-id":"spokeshave-doctor-1"}}"#,
            r#"{"id":7,"note":"spokeshave-doctor-"}"#,
            r#"{"id":"spokeshave-doctor-#/x"}"#,
            &long,
        ] {
            assert_eq!(id_of(other), None, "{other}");
        }
    }
}
