use serde_json::{Value, json};

use crate::aws::{Aws, Message, STACK, refused};

fn dlq(aws: &Aws, action: &str, more: &[&str]) -> (i32, Value, String) {
    aws.spokeshave(&[&["dlq", action, "--stack", STACK], more].concat())
}

/// Twelve of launch, three of lifecycle and one that nobody knows, in one queue; a FIFO queue with 25 of one group.
fn with_letters() -> Aws {
    let aws = Aws::start();
    let mut dead: Vec<Message> =
        (0..12).map(|n| Message::of(&format!("l{n:02}"), "LaunchQueue")).collect();
    dead.extend((0..3).map(|n| Message::of(&format!("c{n}"), "LifecycleQueue")));
    dead.push(Message { origin: None, ..Message::of("stray", "") });
    let solver = (0..25).map(|n| Message {
        group: Some("pass".into()),
        ..Message::of(&format!("p{n:02}"), "ProvisionQueue")
    });
    {
        let mut state = aws.state();
        state.queues.insert("DeadLetters".into(), dead);
        state.queues.insert("SolverDeadLetters".into(), solver.collect());
    }
    aws
}

fn count(answer: &Value, key: &str) -> usize {
    answer[key].as_array().map_or(usize::MAX, Vec::len)
}

#[test]
fn letters_are_counted_and_left_as_they_were() {
    let aws = with_letters();
    let (status, answer, error) = dlq(&aws, "list", &[]);
    assert_eq!((status, error.as_str()), (0, ""));
    let of = |name: &str| {
        let mut queues = answer["queues"].as_array().expect("queues").iter();
        queues.find(|it| it["name"] == name).expect("a queue")["messages"].clone()
    };
    assert_eq!([of("launch"), of("lifecycle"), of("tagging")], [json!(12), json!(3), json!(0)]);
    assert_eq!((&answer["messages"], &answer["unknown"]), (&json!(41), &json!(1)));
    // Of one message group SQS shows the first ten only, until they are gone.
    assert_eq!((of("provision"), &answer["notLookedAt"]), (json!(10), &json!(15)));
    let state = aws.state();
    let ids = [state.ids("DeadLetters"), state.ids("SolverDeadLetters")].concat();
    assert_eq!((ids.len(), ids.iter().filter(|it| it.starts_with('(')).count()), (41, 0));
}

#[test]
fn letters_are_shown_by_queue_id_and_number() {
    let aws = with_letters();
    let (status, answer, _) = dlq(&aws, "show", &["--queue", "launch"]);
    assert_eq!((status, count(&answer, "messages"), &answer["notFound"]), (0, 12, &json!([])));
    assert_eq!(
        answer["messages"][0],
        json!({"queue": "launch", "id": "l00", "sentAt": "2023-11-14T22:13:20Z", "receives": 11,
            "group": null, "reason": "Test", "attributes": {}, "body": {"reason": "Test", "keys": []}})
    );
    let (_, answer, _) = dlq(&aws, "show", &["--queue", "launch", "--limit", "5"]);
    assert_eq!(count(&answer, "messages"), 5);
    let (status, answer, _) = dlq(&aws, "show", &["--id", "c1", "--id", "stray", "--id", "nobody"]);
    assert_eq!((status, &answer["notFound"]), (0, &json!(["nobody"])));
    let ids: Vec<&Value> =
        answer["messages"].as_array().expect("messages").iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, ["c1", "stray"]);
    let (status, text, _) = aws.run(&["dlq", "show", "--stack", STACK, "--id", "nobody"]);
    assert!(
        status == 0 && text.starts_with("nobody: no such message can be seen just now.\n"),
        "{text}"
    );
    assert!(aws.state().ids("DeadLetters").iter().all(|it| !it.starts_with('(')));
}

#[test]
fn a_whole_message_group_is_sent_again_in_its_order() {
    let aws = with_letters();
    let (status, answer, _) = dlq(&aws, "redrive", &["--queue", "provision"]);
    assert_eq!((status, count(&answer, "moved"), &answer["left"]), (0, 25, &json!([])));
    let state = aws.state();
    assert_eq!(state.ids("SolverDeadLetters"), [""; 0]);
    let sent = &state.queues["ProvisionQueue"];
    assert_eq!(sent.len(), 25);
    assert!(sent.iter().all(|it| it.group.as_deref() == Some("pass")));
    let moved: Vec<&Value> =
        answer["moved"].as_array().expect("moved").iter().map(|it| &it["id"]).collect();
    assert!(moved.is_sorted_by_key(|it| it.as_str()), "{moved:?}");
}

#[test]
fn what_cannot_be_sent_stays_and_the_rest_goes() {
    let aws = with_letters();
    aws.state().instead.insert("SendMessage LaunchQueue".into(), refused("KmsAccessDenied"));
    let (status, answer, _) = dlq(&aws, "redrive", &[]);
    assert_eq!(status, 1);
    // All but those of launch and the stray one.
    assert_eq!((count(&answer, "moved"), count(&answer, "left")), (28, 13));
    assert_eq!(
        answer["left"][0],
        json!({"id": "l00", "from": "launch", "problem": "sqs SendMessage: KmsAccessDenied: no"})
    );
    let stays = aws.state().ids("DeadLetters");
    assert_eq!(stays.len(), 13);
    assert!(stays.iter().all(|it| !it.starts_with('(')), "{stays:?}");

    // Sent, but not taken out: it will come twice, and that is told.
    aws.state().instead.clear();
    aws.state().instead.insert("DeleteMessage DeadLetters".into(), refused("AccessDenied"));
    let (status, answer, _) = dlq(&aws, "redrive", &["--id", "l03"]);
    assert_eq!((status, &answer["moved"]), (1, &json!([])));
    assert_eq!(
        answer["left"],
        json!([{"id": "l03", "from": "launch", "problem": "sent to LaunchQueue, but still here: sqs DeleteMessage: AccessDenied: no"}])
    );
}

#[test]
fn what_was_moved_before_a_queue_stopped_answering_is_told() {
    let aws = with_letters();
    aws.state().instead.insert("ReceiveMessage SolverDeadLetters".into(), refused("AccessDenied"));
    let (status, answer, error) = dlq(&aws, "redrive", &[]);
    assert_eq!(
        (status, error.as_str(), count(&answer, "moved"), count(&answer, "left")),
        (1, "", 15, 1)
    );
    assert_eq!(
        answer["failed"],
        json!([{"queue": "SolverDeadLetters.fifo", "problem": "sqs ReceiveMessage: AccessDenied: no"}])
    );
    // With nothing moved the call is of no use at all.
    let (status, answer, error) = dlq(&aws, "redrive", &["--queue", "provision"]);
    assert_eq!((status, answer), (2, Value::Null));
    assert!(
        error.starts_with("error: sqs ReceiveMessage: AccessDenied: no; the caller needs sqs:"),
        "{error}"
    );

    // Half-way through a queue: the first page is done, and nothing stays hidden.
    let aws = with_letters();
    let broken = (1, refused("InternalFailure").0, refused("InternalFailure").1);
    aws.state().instead_from.insert("ReceiveMessage DeadLetters".into(), broken);
    let (status, answer, _) = dlq(&aws, "redrive", &["--queue", "launch", "--queue", "lifecycle"]);
    assert_eq!((status, count(&answer, "moved"), count(&answer, "failed")), (1, 10, 1));
    assert_eq!(aws.state().ids("DeadLetters").len(), 6);
}

#[test]
fn nothing_moves_when_only_asked_what_would() {
    let aws = with_letters();
    let (status, answer, _) = dlq(&aws, "redrive", &["--queue", "launch", "--dry-run"]);
    assert_eq!((status, &answer["dryRun"], count(&answer, "moved")), (0, &json!(true), 12));
    let (status, answer, _) = dlq(&aws, "redrive", &["--id", "nobody"]);
    assert_eq!((status, count(&answer, "moved"), &answer["notFound"]), (1, 0, &json!(["nobody"])));
    let state = aws.state();
    assert!(state.ids("DeadLetters").iter().all(|it| !it.starts_with('(')));
    assert!(
        !state
            .calls
            .iter()
            .any(|it| it.starts_with("SendMessage") || it.starts_with("DeleteMessage"))
    );
}
