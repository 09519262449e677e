use std::{cell::RefCell, collections::BTreeMap};

use serde_json::json;
use spokeshave_lambda::SqsRecord;
use spokeshave_model::{Settings, Timestamp};
use spokeshave_ports::{
    Concern, StateKey, When,
    fake::{Fake, block_on},
};

use super::*;

/// IAM with its profiles; notes what is deleted.
#[derive(Default)]
struct Profiles {
    all: RefCell<BTreeMap<String, InstanceProfile>>,
    calls: RefCell<Vec<String>>,
    refused: RefCell<Option<(&'static str, &'static str)>>,
}

impl Profiles {
    fn call(&self, operation: &'static str, name: &str) -> Result<(), AwsError> {
        self.calls.borrow_mut().push(format!("{operation} {name}"));
        match *self.refused.borrow() {
            Some((refused, code)) if refused == operation || refused == name => {
                Err(AwsError::new("iam", operation, code, "told to fail"))
            }
            _ => Ok(()),
        }
    }

    fn add(&self, name: &str, path: &str, created: &str) {
        let profile = InstanceProfile {
            name: name.into(),
            path: path.into(),
            roles: vec!["R".into()],
            created: Some(created.parse().expect("a time")),
            ..InstanceProfile::default()
        };
        self.all.borrow_mut().insert(name.into(), profile);
    }

    fn deleted(&self) -> Vec<String> {
        let calls = self.calls.borrow();
        calls.iter().filter(|it| it.starts_with("Delete")).cloned().collect()
    }
}

impl Iam for Profiles {
    async fn get_instance_profile(&self, name: &str) -> Result<Option<InstanceProfile>, AwsError> {
        Ok(self.all.borrow().get(name).cloned())
    }
    async fn create_instance_profile(
        &self,
        _: &str,
        _: &str,
        _: &BTreeMap<String, String>,
    ) -> Result<InstanceProfile, AwsError> {
        unreachable!("collection makes nothing")
    }
    async fn tag_instance_profile(
        &self,
        _: &str,
        _: &BTreeMap<String, String>,
    ) -> Result<(), AwsError> {
        unreachable!("collection tags nothing")
    }
    async fn add_role(&self, _: &str, _: &str) -> Result<(), AwsError> {
        unreachable!("collection attaches nothing")
    }
    async fn remove_role(&self, profile: &str, _: &str) -> Result<(), AwsError> {
        self.call("Remove", profile)
    }
    async fn delete_instance_profile(&self, name: &str) -> Result<(), AwsError> {
        self.call("Delete", name)?;
        self.all.borrow_mut().remove(name);
        Ok(())
    }
    async fn list_instance_profiles(&self, _: &str) -> Result<Vec<InstanceProfile>, AwsError> {
        // Some emulators ignore the prefix.
        self.call("List", "")?;
        Ok(self.all.borrow().values().cloned().collect())
    }
    async fn get_role(&self, _: &str) -> Result<Option<String>, AwsError> {
        unreachable!("collection needs no role")
    }
}

const OURS: &str = "/karpenter/eu-west-1/demo/uid-1/";

fn run(fake: &Fake, iam: &Profiles, at: &str) -> BatchAnswer {
    let settings = Settings {
        cluster_name: "demo".into(),
        region: "eu-west-1".into(),
        isolated_vpc: at.is_empty(),
        ..Settings::default()
    };
    let now: Timestamp =
        if at.is_empty() { "2025-01-01T12:00:00Z" } else { at }.parse().expect("a time");
    fake.now.set(now);
    let cx = Invocation {
        concern: Concern::InstanceProfileGc,
        now,
        deadline: now,
        settings: &settings,
        journal: fake,
    };
    let record = SqsRecord { message_id: "m".into(), body: "{}".into(), ..SqsRecord::default() };
    block_on(handle(&SqsBatch { records: vec![record] }, fake, iam, fake, &cx))
}

fn world() -> (Fake, Profiles) {
    let fake = Fake::at("2025-01-01T12:00:00Z".parse().expect("a time"));
    let iam = Profiles::default();
    for name in ["annotated", "of-a-class", "protected", "unused"] {
        iam.add(name, OURS, "2025-01-01T10:00:00Z");
    }
    iam.add("young", OURS, "2025-01-01T11:30:00Z");
    iam.add("demo2", "/karpenter/eu-west-1/demo2/uid-9/", "2024-01-01T10:00:00Z");
    iam.add("of-a-user", "/", "2024-01-01T10:00:00Z");
    fake.add_json::<EC2NodeClass>(
        json!({"metadata": {"name": "default"}, "status": {"instanceProfile": "of-a-class"}}),
    );
    fake.add_json::<NodeClaim>(json!({
        "metadata": {
            "name": "x",
            "annotations": {"karpenter.k8s.aws/instance-profile-name": "annotated"},
        },
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
    }));
    let key = StateKey::new(records::PROTECTED, "protected");
    let until = "2025-01-01T12:30:00Z".parse().ok();
    block_on(StateTable::write(&fake, &key, json!({}), until, When::Always)).expect("writes");
    (fake, iam)
}

#[test] // aws-nodeclass 16, cases 4 to 6
fn what_nobody_needs_is_deleted() {
    let (fake, iam) = world();
    assert_eq!(run(&fake, &iam, "2025-01-01T12:00:00Z"), BatchAnswer::done());
    assert_eq!(iam.deleted(), ["Delete unused"]);
    // The claim is gone and the protection is over.
    fake.objects.borrow_mut().remove("NodeClaim/x");
    run(&fake, &iam, "2025-01-01T12:31:00Z");
    assert_eq!(
        iam.deleted(),
        ["Delete unused", "Delete annotated", "Delete protected", "Delete young"]
    );
    assert!(iam.all.borrow().contains_key("demo2"));
    assert!(iam.all.borrow().contains_key("of-a-user"));
}

#[test] // aws-nodeclass 16, case 7
fn an_isolated_vpc_has_no_iam() {
    let (fake, iam) = world();
    run(&fake, &iam, "");
    assert!(iam.calls.borrow().is_empty());
}

#[test] // aws-nodeclass 16, the first BETTER
fn one_broken_profile_does_not_keep_the_others() {
    let (fake, iam) = world();
    fake.objects.borrow_mut().clear();
    *iam.refused.borrow_mut() = Some(("annotated", "DeleteConflict"));
    assert_eq!(run(&fake, &iam, "2025-01-01T12:00:00Z"), BatchAnswer::done());
    assert_eq!(iam.deleted(), ["Delete of-a-class", "Delete unused"]);
    assert!(fake.decisions.borrow().iter().any(|it| it.action == "fail" && it.error));
}

#[test] // B-067
fn a_missing_permission_is_said_and_not_tried_for_ever() {
    let (fake, iam) = world();
    *iam.refused.borrow_mut() = Some(("List", "AccessDenied"));
    assert_eq!(run(&fake, &iam, "2025-01-01T12:00:00Z"), BatchAnswer::done());
    let decisions = fake.decisions.borrow();
    let said = decisions.iter().find(|it| it.action == "fail").expect("said");
    assert!(said.reason.contains("iam:List"), "{}", said.reason);
    assert_eq!(fake.event_reasons(), ["EC2NodeClass/default InstanceProfileCollectionFailed"]);
    assert_eq!(
        fake.events.borrow()[0].message,
        "AccessDenied: told to fail (iam:List, not retryable); \
         allow the call to the function's role, or find the policy that denies it"
    );
    *iam.refused.borrow_mut() = Some(("List", "Throttling"));
    drop(decisions);
    assert_eq!(run(&fake, &iam, "2025-01-01T12:00:00Z").failures.len(), 1);
}
