//! The sweep killed at every port call, and swept twice: what is lost goes once, and nothing else does.

#[path = "../../lifecycle/tests/support/mod.rs"]
mod support;

use jiff::SignedDuration;
use serde_json::json;
use spokeshave_instance_gc_function::handle;
use spokeshave_model::{NodeClaim, core::Node};
use spokeshave_ports::{Concern, ec2::Instance};
use support::{Kill, Stage, at};

/// A claim whose instance is gone, an instance that nobody claims, with its Node, and a healthy pair.
fn scene() -> Stage {
    let mut stage = Stage::new("10:00:00");
    stage.settings.cluster_name = "demo".into();
    for (name, instance) in [("lost", "i-gone"), ("well", "i-well")] {
        stage.add::<NodeClaim>(json!({"metadata": {"name": name, "uid": format!("uid-{name}"),
                "finalizers": ["karpenter.sh/termination"], "labels": {"karpenter.sh/nodepool": "p"}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}},
            "status": {"providerID": format!("aws:///a/{instance}"),
                "conditions": [{"type": "Registered", "status": "True"}]}}));
    }
    for (name, instance) in [("leaked", "i-leaked"), ("well", "i-well")] {
        stage.add::<Node>(json!({"metadata": {"name": name, "uid": format!("uid-node-{name}")},
            "spec": {"providerID": format!("aws:///a/{instance}")},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        let ours = [
            ("karpenter.sh/nodepool", "p"),
            ("karpenter.k8s.aws/ec2nodeclass", "d"),
            ("eks:eks-cluster-name", "demo"),
        ];
        stage.fake.instances.borrow_mut().push(Instance {
            id: instance.into(),
            state: "running".into(),
            zone: "a".into(),
            launch_time: Some(stage.now() - SignedDuration::from_mins(15)),
            tags: ours.map(|(key, value)| (key.into(), value.into())).into(),
            ..Instance::default()
        });
    }
    stage
}

/// Sweeps now, half a minute later where the first did not end, and a minute later.
fn sweep(kill: Kill) -> Stage {
    let stage = scene();
    stage.kill.set(kill);
    stage.message(Concern::InstanceGc, "Schedule", &[]);
    for clock in ["10:00:00", "10:00:30", "10:01:00"] {
        stage.advance(at(clock));
        if clock == "10:01:00" {
            stage.message(Concern::InstanceGc, "Schedule", &[]);
        }
        while let Some((concern, works)) = stage.receive() {
            if concern == Concern::InstanceGc {
                let stage = &stage;
                stage.deliver(concern, &works, |batch, cx| async move {
                    handle(batch, stage, stage, stage, stage, cx).await
                });
            }
        }
    }
    stage
}

#[test] // lifecycle 11
fn it_may_be_killed_after_any_call() {
    let total = sweep(Kill::Never).calls.get();
    assert!(total > 20, "{total} calls");
    for call in 0..=total {
        let stage = sweep(Kill::After(call));
        let what = format!("killed after {call} of {total}");
        let is_deleting = |name: &str| {
            let claim: NodeClaim = stage.get(name).expect("its finalizer is there");
            claim.metadata.deleting()
        };
        assert_eq!((is_deleting("lost"), is_deleting("well")), (true, false), "{what}");
        assert_eq!(stage.get::<Node>("leaked"), None, "{what}");
        assert!(stage.get::<Node>("well").is_some(), "{what}");
        assert_ne!(stage.instance_state("i-leaked"), "running", "{what}");
        assert_eq!(stage.instance_state("i-well"), "running", "{what}");
        let calls = stage.fake.calls.borrow();
        let ends: Vec<&String> = calls.iter().filter(|it| it.starts_with("terminate")).collect();
        assert_eq!(ends, ["terminate i-leaked"], "{what}");
    }
}
