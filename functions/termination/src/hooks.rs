//! Nodes that are not ours, which a lifecycle hook of their Auto Scaling group keeps until they are drained.
//!
//! The interruption function writes a record for each hook; here the node is drained, the group hears now and then that
//! it takes longer, and then the hook is answered and its record removed. Whoever dies in between leaves the record, and
//! an answer that comes twice is refused without harm.

use std::sync::Arc;

use spokeshave_lifecycle::{
    Action,
    hooks::{self, Hook, Leaving, View},
    termination::{Act, Read},
};
use spokeshave_model::{
    Kind,
    core::{Node, Pod, VolumeAttachment},
};
use spokeshave_ports::{
    AutoScaling, AwsError, Cluster, Decision, Ec2, Key, Queues, Record, Selector, StateError,
    StateTable, When, wakes,
};

use crate::{Trouble, run::Run};

/// Auto Scaling's code when no such lifecycle action is under way: somebody answered, or the time-out did.
const OVER: &str = "ValidationError";

/// A hook with the version of its record.
#[derive(Clone, Debug)]
pub struct Waiting {
    hook: Hook,
    version: u64,
}

fn waiting((_, record): (String, Record)) -> Option<Waiting> {
    Some(Waiting { hook: serde_json::from_value(record.data).ok()?, version: record.version })
}

/// The nodes of all hooks that wait.
pub async fn nodes(state: &impl StateTable) -> Result<Vec<String>, StateError> {
    let records = state.query(hooks::PARTITION, "").await?;
    Ok(records.into_iter().filter_map(waiting).map(|it| it.hook.node).collect())
}

impl<C: Cluster, E: Ec2, A: AutoScaling, S: StateTable, Q: Queues> Run<'_, C, E, A, S, Q> {
    /// The hooks that wait for a node; none unless they are asked for.
    pub async fn hooks_of(&self, node: &str) -> Result<Vec<Waiting>, Trouble> {
        if !self.cx.settings.lifecycle_hooks {
            return Ok(Vec::new());
        }
        let records = self.state.query(hooks::PARTITION, "").await?;
        Ok(records.into_iter().filter_map(waiting).filter(|it| it.hook.node == node).collect())
    }

    /// Brings a node that is not ours as far as it goes now. Whether nothing waits for it any more.
    pub async fn look_at_hooked(
        &self,
        name: &str,
        node: Option<&Arc<Node>>,
        hooks: Vec<Waiting>,
    ) -> Result<bool, Trouble> {
        // A node of the same name on another instance came later: that of the hook is gone.
        let is_of = |node: &Arc<Node>, hook: &Hook| {
            node.spec.provider_id.instance_id().as_ref() == Some(&hook.action.instance)
        };
        let (mut here, gone): (Vec<Waiting>, Vec<Waiting>) =
            hooks.into_iter().partition(|it| node.is_some_and(|node| is_of(node, &it.hook)));
        for it in gone {
            self.complete(&it, "its node is gone").await?;
        }
        let (Some(node), Some(begun)) = (node, here.iter().map(|it| it.hook.begun).min()) else {
            return Ok(true);
        };
        let mut pods: Option<Vec<Arc<Pod>>> = None;
        let mut attachments: Option<Vec<Arc<VolumeAttachment>>> = None;
        loop {
            let view = View {
                node: Some(node),
                pods: pods.as_ref().map(|it| it.iter().map(AsRef::as_ref).collect()),
                attachments: attachments.as_ref().map(|it| it.iter().map(AsRef::as_ref).collect()),
            };
            let read = match hooks::decide(&view, begun, self.now) {
                Leaving::Read(Read::Pods) => {
                    let on_node = Selector::on_node(name);
                    self.cluster
                        .list::<Pod>(&on_node)
                        .await
                        .map(|it| pods = Some(it))
                        .map_err(Trouble::from)
                }
                Leaving::Read(_) => {
                    let on_node = pods.as_deref().unwrap_or_default();
                    self.blocking_attachments(name, on_node).await.map(|it| attachments = Some(it))
                }
                Leaving::Waits(act) => {
                    self.beat(&mut here).await?;
                    self.carry_out_hooked(node, &act, &here).await?;
                    return Ok(false);
                }
                Leaving::Drained => {
                    for it in &here {
                        self.complete(it, "its node is drained").await?;
                    }
                    return Ok(true);
                }
            };
            if let Err(error) = read {
                // The group is to wait for as long as the API server does not answer.
                self.beat(&mut here).await?;
                return Err(error);
            }
        }
    }

    /// Arranges the next look, then cordons and drains.
    async fn carry_out_hooked(
        &self,
        node: &Arc<Node>,
        act: &Act<'_>,
        hooks: &[Waiting],
    ) -> Result<(), Trouble> {
        // First of all: an eviction that fails is not to keep the group from hearing of us.
        // A heartbeat that failed is tried again at the next look.
        let heartbeats =
            hooks.iter().filter_map(|it| it.hook.heartbeat).filter(|it| *it > self.now);
        if let Some(due) = heartbeats.chain(act.wake_at).min() {
            let key = Key { resource_version: String::new(), ..Key::of(&**node) };
            let (state, queues, concern) = (self.state, self.queues, self.cx.concern);
            // How often in a row is bounded by the records, which have an end, and not by how deep the wake-up is.
            wakes::wake_once(state, queues, concern, key, due, self.now, 0).await?;
        }
        for action in &act.actions {
            match action {
                Action::WriteNode { node: cordoned, guard } => {
                    self.cluster.patch(&**node, cordoned, *guard).await?;
                    let object = format!("Node/{}", node.name());
                    self.cx.decide(Decision::new(
                        "cordon",
                        object,
                        "its Auto Scaling group lets it go",
                    ));
                }
                Action::Publish { event, memory } if self.cx.tells(event) => {
                    self.cluster.publish((**event).clone(), *memory).await;
                }
                _ => {}
            }
        }
        match &act.drain {
            Some(drain) => self.drain(node, drain, None, hooks::REASON).await,
            None => Ok(()),
        }
    }

    /// Tells the groups whose heartbeat is due that it takes longer. One that cannot be told now is told at the next
    /// look; the drain goes on.
    async fn beat(&self, hooks: &mut [Waiting]) -> Result<(), Trouble> {
        let settings = self.cx.settings;
        for it in hooks.iter_mut().filter(|it| it.hook.is_due(self.now)) {
            let object = object(&it.hook);
            let hook = match self.groups.record_lifecycle_heartbeat(&it.hook.action).await {
                Ok(()) => {
                    self.cx.decide(Decision::new(
                        "heartbeat",
                        object,
                        "its node is not drained yet",
                    ));
                    it.hook.beaten(settings.heartbeat_interval, settings.heartbeat_until, self.now)
                }
                Err(error) if is_over(&error) => {
                    let decision = Decision::new("silence", object, error.to_string());
                    self.cx.decide(decision.caused_by(&error));
                    it.hook.silent()
                }
                Err(error) => {
                    let decision = Decision::new("heartbeat", object, error.to_string());
                    self.cx.decide(decision.caused_by(&error).as_error());
                    continue;
                }
            };
            let data = serde_json::to_value(&hook).unwrap_or_default();
            let guard = When::Version(it.version);
            it.version = self.state.write(&hook.key(), data, hook.expires_at(), guard).await?;
            it.hook = hook;
        }
        Ok(())
    }

    /// Answers a hook. One that is not waited for any more is fine.
    async fn complete(&self, it: &Waiting, why: &str) -> Result<(), Trouble> {
        let answer = self.groups.complete_lifecycle_action(&it.hook.action).await;
        if let Err(error) = answer.as_ref()
            && !is_over(error)
        {
            return Err(Trouble::Aws(error.clone()));
        }
        let why = answer.map_or_else(|error| error.to_string(), |()| why.to_owned());
        let decision = Decision::new("complete-lifecycle-action", object(&it.hook), why);
        self.cx.decide(decision.with("node", it.hook.node.as_str()));
        self.state.remove(&it.hook.key(), When::Version(it.version)).await?;
        Ok(())
    }
}

/// Whether nobody waits for the action any more.
fn is_over(error: &AwsError) -> bool {
    error.code == OVER
}

fn object(hook: &Hook) -> String {
    let action = &hook.action;
    format!("LifecycleHook/{}/{}/{}", action.group, action.hook, action.instance)
}
