//! Instance profiles: one for a class and a role, and why there is none.

use super::*;

#[test] // aws-nodeclass 15, cases 6 and 7
fn another_role_gets_another_profile() {
    let world = World::new();
    world.add_class(json!({}));
    world.run("default");
    let first = world.class().status.instance_profile;
    world.edit_class(|it| it.spec.role = Some("S".into()));
    world.later(1);
    world.run("default");
    let second = world.class().status.instance_profile;
    assert_ne!(first, second);
    for name in [&first, &second] {
        let key = StateKey::new("profile-protected", name);
        let record = block_on(StateTable::read(&world.fake, &key)).expect("reads");
        assert!(record.is_some(), "{name} is protected");
        assert!(world.aws.profiles.borrow().contains_key(name));
    }
    assert_eq!(world.aws.profiles.borrow()[&first].roles, ["R"]);

    // The status was lost: the profile is not made again.
    world.edit_class(|it| it.status.instance_profile = first.clone());
    world.aws.calls.borrow_mut().clear();
    world.run("default");
    assert_eq!(world.class().status.instance_profile, second);
    assert!(world.aws.mutations().is_empty());
}

#[test] // aws-nodeclass 15, case 8; B-062; B-064
fn a_missing_role_is_said_and_leaves_nothing_behind() {
    let world = World::new();
    world.add_class(json!({"role": "path/to/gone"}));
    for second in 0..20 {
        world.run("default");
        world.later(second * 10);
    }
    assert!(world.aws.profiles.borrow().is_empty());
    assert_eq!(
        condition(&world.class(), "InstanceProfileReady"),
        "False RoleNotFound IAM does not know the role \"gone\"; name one that exists in spec.role, or create it"
    );
    let calls = world.aws.calls.borrow();
    let created = calls.iter().filter(|it| it.starts_with("CreateInstanceProfile")).count();
    assert!(created <= 20 && created > 1, "{created}");
    assert!(calls.iter().any(|it| it.ends_with(" gone")), "the role is named without its path");
}

#[test] // B-064: why there is no profile, in AWS' words
fn each_reason_why_there_is_no_profile_is_told_apart() {
    let (quota, allow) = (
        "not retryable); ask AWS for a higher quota, or delete what is not needed any more",
        "not retryable); allow the call to the function's role, or find the policy that denies it",
    );
    for (role, call, code, reason, advice) in [
        ("R", "CreateInstanceProfile", "LimitExceeded", "InstanceProfileQuotaExceeded", quota),
        ("R", "AddRoleToInstanceProfile", "AccessDenied", "InstanceProfileNotAuthorized", allow),
        ("gone", "", "", "RoleNotFound", "name one that exists in spec.role, or create it"),
    ] {
        let world = World::new();
        world.add_class(json!({"role": role}));
        if !call.is_empty() {
            world.aws.refuse(call, code);
        }
        for _ in 0..20 {
            world.run("default");
            world.later(61);
        }
        let text = match code {
            "" => "IAM does not know the role \"gone\"".to_owned(),
            code => format!("{code}: told to fail (aws:{call}, request id r-"),
        };
        let said = condition(&world.class(), "InstanceProfileReady");
        assert!(said.starts_with(&format!("False {reason} {text}")), "{said}");
        assert!(said.ends_with(advice), "{said}");
        assert!(world.aws.profiles.borrow().len() <= 1, "{reason}");
    }
}

#[test] // B-062: attaching fails, and so does taking it back
fn a_profile_left_behind_is_used_by_the_next_try() {
    let world = World::new();
    world.add_class(json!({}));
    world.aws.refuse("AddRoleToInstanceProfile", "AccessDenied");
    world.aws.refuse("DeleteInstanceProfile", "Throttling");
    for _ in 0..5 {
        world.run("default");
        world.later(61);
    }
    assert_eq!(world.aws.profiles.borrow().len(), 1);
    let said = condition(&world.class(), "InstanceProfileReady");
    assert!(
        said.starts_with("False InstanceProfileNotAuthorized AccessDenied: told to fail ("),
        "{said}"
    );
    world.aws.mend("AddRoleToInstanceProfile");
    world.run("default");
    assert_eq!(world.aws.profiles.borrow().len(), 1);
    assert_eq!(condition(&world.class(), "Ready"), "True Ready ");
}

#[test] // aws-nodeclass 15.2: a profile of the user's
fn a_given_profile_asks_iam_nothing() {
    let world = World::new();
    world.add_class(json!({"role": null, "instanceProfile": "mine"}));
    world.run("default");
    assert_eq!(world.class().status.instance_profile, "mine");
    assert!(!world.aws.calls.borrow().iter().any(|it| it.contains("Profile")));
}

#[test] // aws-nodeclass 31, case 1
fn only_one_run_makes_a_profile() {
    let world = World::new();
    world.add_class(json!({}));
    let until = world.fake.now.get().saturating_add(SignedDuration::from_mins(1)).ok();
    let lease = StateKey::new("profile-lease", "uid-1");
    block_on(StateTable::write(&world.fake, &lease, json!({}), until, When::Absent)).expect("mine");
    world.run("default");
    assert!(world.aws.mutations().is_empty());
    assert_eq!(world.fake.sent.borrow()[0].1.reason, "Retry");
}
