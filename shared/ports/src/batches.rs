//! Calls about many instances, in as few as EC2 takes, with what is done when one of them fails.

use spokeshave_model::InstanceId;

use crate::{AwsError, ec2::Instance};

/// Values that one filter of a call may have. Source: EC2's limit.
pub const FILTER_VALUES: usize = 200;

/// Ids of one TerminateInstances or CreateTags call. EC2 takes up to 1000, and refuses all for one bad id.
pub const IDS: usize = 100;

/// Things on a page of DescribeInstances. Source: EC2's maximum.
pub const PAGE: i32 = 1000;

/// Reads instances by id, through `call`, which is given as many as a filter takes.
///
/// DIFFERENCE: ids go into a filter, so one that EC2 does not know fails nobody's call: an id that is missing from the answer
/// is gone, and nobody asks for it alone. A call that fails is an outage or throttling, which a call for each id would
/// only make worse: the error goes to everybody.
///
/// # Errors
/// The first that `call` returns; nothing is asked after it.
pub async fn describe(
    ids: &[InstanceId],
    call: impl AsyncFn(&[InstanceId]) -> Result<Vec<Instance>, AwsError>,
) -> Result<Vec<Instance>, AwsError> {
    let mut found = Vec::new();
    for ids in ids.chunks(FILTER_VALUES) {
        found.extend(call(ids).await?);
    }
    Ok(found)
}

/// Ends instances through `call`, which answers with the state that each has now. Those that the answer does not call
/// `shutting-down` or `terminated` are ended each alone: one bad or protected instance fails the call for its whole zone.
/// One that is gone is `Ok`.
///
/// # Errors
/// The first of a single call; the others are made all the same.
pub async fn terminate(
    ids: &[InstanceId],
    call: impl AsyncFn(&[InstanceId]) -> Result<Vec<(InstanceId, String)>, AwsError>,
) -> Result<(), AwsError> {
    let mut first = Ok(());
    for ids in ids.chunks(IDS) {
        let answer = call(ids).await;
        if let ([_], Err(error)) = (ids, &answer) {
            if !error.is_not_found() && first.is_ok() {
                first = Err(error.clone());
            }
            continue;
        }
        let states = answer.unwrap_or_default();
        let ending = |id: &InstanceId| {
            let ends = |state: &str| matches!(state, "shutting-down" | "terminated");
            states.iter().any(|(of, state)| of == id && ends(state))
        };
        // A single one was asked for alone already.
        for id in ids.iter().filter(|it| ids.len() > 1 && !ending(it)) {
            match call(std::slice::from_ref(id)).await {
                Err(error) if !error.is_not_found() && first.is_ok() => first = Err(error),
                _ => {}
            }
        }
    }
    first
}

#[cfg(all(test, feature = "fake"))]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::fake::block_on;

    fn ids(count: usize) -> Vec<InstanceId> {
        (1..=count).map(|n| InstanceId::from(format!("i-{n}").as_str())).collect()
    }

    fn instance(id: &InstanceId) -> Instance {
        Instance { id: id.clone(), ..Instance::default() }
    }

    #[test] // 1,000 nodes: no more calls than the values of a filter need
    fn a_thousand_instances_are_five_calls() {
        for (count, calls) in [(0, 0), (1, 1), (200, 1), (201, 2), (1000, 5), (5000, 25)] {
            let asked = RefCell::new(0);
            let found = block_on(describe(&ids(count), async |some: &[InstanceId]| {
                *asked.borrow_mut() += 1;
                Ok(some.iter().map(instance).collect())
            }));
            assert_eq!(found.expect("described").len(), count);
            assert_eq!(asked.into_inner(), calls, "{count}");
        }
    }

    #[test] // aws-capacity 20, cases 5 and 6, in one call: what is missing is gone, what fails fails for all
    fn missing_instances_cost_no_further_call() {
        let asked = RefCell::new(0);
        let found = block_on(describe(&ids(5), async |some: &[InstanceId]| {
            *asked.borrow_mut() += 1;
            Ok(some[..3].iter().map(instance).collect())
        }));
        let found: Vec<String> = found.expect("described").into_iter().map(|it| it.id.0).collect();
        assert_eq!(
            (found, asked.into_inner()),
            (vec!["i-1".into(), "i-2".into(), "i-3".into()], 1)
        );

        let asked = RefCell::new(0);
        let failed = block_on(describe(&ids(5), async |_: &[InstanceId]| {
            *asked.borrow_mut() += 1;
            Err(AwsError::new("ec2", "DescribeInstances", "RequestLimitExceeded", "no"))
        }));
        assert!(failed.expect_err("refused").is_throttled());
        assert_eq!(asked.into_inner(), 1);
    }

    /// Ends `ids` with a first answer; what single calls answer is by id. The ids of each call.
    fn ended(
        count: usize,
        first: Result<Vec<(InstanceId, String)>, AwsError>,
        single: impl Fn(&str) -> Option<&'static str>,
    ) -> (Result<(), String>, Vec<String>) {
        let (first, calls) = (RefCell::new(Some(first)), RefCell::new(Vec::new()));
        let result = block_on(terminate(&ids(count), async |some: &[InstanceId]| {
            let names: Vec<&str> = some.iter().map(InstanceId::as_str).collect();
            calls.borrow_mut().push(names.join(" "));
            if let Some(first) = first.borrow_mut().take() {
                return first;
            }
            match single(names[0]) {
                Some(code) => Err(AwsError::new("ec2", "TerminateInstances", code, "no")),
                None => Ok(vec![(some[0].clone(), "shutting-down".into())]),
            }
        }));
        (result.map_err(|it| it.code), calls.into_inner())
    }

    #[test] // aws-capacity 20, case 7
    fn what_is_not_reported_as_ending_is_ended_alone() {
        let state = |id: &str, state: &str| (InstanceId::from(id), state.to_owned());
        let answer = vec![
            state("i-1", "shutting-down"),
            state("i-2", "terminated"),
            state("i-3", "running"),
        ];
        let (result, calls) = ended(5, Ok(answer), |_| None);
        assert_eq!(result, Ok(()));
        assert_eq!(calls, ["i-1 i-2 i-3 i-4 i-5", "i-3", "i-4", "i-5"]);
    }

    #[test]
    fn one_bad_instance_does_not_save_the_others() {
        let refused = |code| Err(AwsError::new("ec2", "TerminateInstances", code, "no"));
        let single = |id: &str| match id {
            "i-1" => Some("InvalidInstanceID.NotFound"),
            "i-2" => Some("OperationNotPermitted"),
            _ => None,
        };
        let (result, calls) = ended(3, refused("OperationNotPermitted"), single);
        assert_eq!(result, Err("OperationNotPermitted".to_owned()));
        assert_eq!(calls, ["i-1 i-2 i-3", "i-1", "i-2", "i-3"]);
        // One alone is one call, whatever comes of it.
        let (result, calls) = ended(1, refused("InvalidInstanceID.NotFound"), single);
        assert_eq!((result, calls.len()), (Ok(()), 1));
        let (result, calls) = ended(1, refused("UnauthorizedOperation"), single);
        assert_eq!((result, calls.len()), (Err("UnauthorizedOperation".to_owned()), 1));
        let (result, calls) = ended(1, Ok(Vec::new()), single);
        assert_eq!((result, calls.len()), (Ok(()), 1));
    }
}
