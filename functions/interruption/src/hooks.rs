//! Instances that a lifecycle hook of their Auto Scaling group holds on their way out: beside our nodes, and opt-in.
//!
//! The hook is written down and termination is woken; it drains the node and answers. Of an instance that has no node
//! here nothing is answered: it may be that of another cluster, whose own consumer does.

use jiff::SignedDuration;
use spokeshave_interruption::{ClaimView, NodeView, View, hooks::Hook};
use spokeshave_lambda::{BatchAnswer, SqsRecord, batch::reference};
use spokeshave_lifecycle::hooks;
use spokeshave_model::{Kind, NodeClaim, core::Node};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Concern, Decision, Invocation, Key, LifecycleAction, Queues,
    Selector, StateError, StateTable, When, Work,
};

/// Label `message_type` of the metrics.
pub const MESSAGE_TYPE: &str = "lifecycle_action";

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("state table")]
    State(#[from] StateError),
    #[error("queue")]
    Queue(#[from] AwsError),
}

/// Takes the hooks of a batch on.
pub async fn take(
    held: &[(&SqsRecord, Hook)],
    answer: &mut BatchAnswer,
    cluster: &impl Cluster,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) {
    let view = match look(cluster).await {
        Ok(view) => view,
        Err(error) => {
            let decision = Decision::new("retry", "LifecycleHook/all", error.to_string());
            cx.decide(decision.caused_by(&error).as_error());
            held.iter().for_each(|(record, _)| answer.retry(record));
            return;
        }
    };
    for (record, hook) in held {
        let object = format!("LifecycleHook/{}/{}/{}", hook.group, hook.name, hook.instance_id);
        let Some(node) = view.claimless_node_of(&hook.instance_id) else {
            let why = match view.node_of(&hook.instance_id) {
                Some(_) => "its node belongs to a NodeClaim",
                None => "no node of this cluster",
            };
            cx.decide(Decision::new("skip", object, why));
            cx.count("karpenter_interruption_deleted_messages_total", &[]);
            continue;
        };
        match take_one(hook, node, state, queues, cx).await {
            Ok(()) => {
                cx.decide(Decision::new("drain", format!("Node/{}", node.name), object));
                cx.count("karpenter_interruption_deleted_messages_total", &[]);
            }
            Err(error) => {
                let decision =
                    Decision::new("retry", reference(record), spokeshave_ports::chain(&error));
                cx.decide(decision.caused_by(&error).as_error());
                answer.retry(record);
            }
        }
    }
}

async fn look(cluster: &impl Cluster) -> Result<View, ClusterError> {
    let claims = cluster.list::<NodeClaim>(&Selector::all()).await?;
    let nodes = cluster.list::<Node>(&Selector::all()).await?;
    let view = View::new(claims.iter().map(|it| ClaimView::from(&**it)));
    Ok(view.with_nodes(nodes.iter().map(|it| NodeView::from(&**it))))
}

/// Writes the hook down, then wakes termination: killed in between, the message comes again.
async fn take_one(
    hook: &Hook,
    node: &NodeView,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> Result<(), Trouble> {
    let action = LifecycleAction {
        group: hook.group.clone(),
        hook: hook.name.clone(),
        token: hook.token.clone(),
        instance: hook.instance_id.clone(),
    };
    let interval = cx.settings.heartbeat_interval;
    let new = hooks::Hook::new(action, &node.name, &node.uid, interval, cx.whole_second());
    let key = new.key();
    let known =
        state.read(&key).await?.and_then(|it| serde_json::from_value::<hooks::Hook>(it.data).ok());
    // One that came before has its heartbeats under way.
    if known.is_none_or(|it| it.action != new.action) {
        let data = serde_json::to_value(&new).unwrap_or_default();
        state.write(&key, data, new.expires_at(), When::Always).await?;
    }
    let key = Key {
        kind: Node::KIND.to_owned(),
        name: node.name.clone(),
        uid: node.uid.clone(),
        ..Key::default()
    };
    let work = Work::new("Interrupted", vec![key]);
    queues.send(Concern::Termination, &work, SignedDuration::ZERO, "").await?;
    Ok(())
}
