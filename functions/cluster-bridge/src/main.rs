//! The Lambda function that watches the cluster, and the same in a pod.

use std::{error::Error, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_cluster_bridge_function::{HandOver, Mode, Start, run};
use spokeshave_kube::KubeWatches;
use spokeshave_lambda::{runtime::Startup, stack::Stack};
use spokeshave_ports::{Clock, Concern, Invocation, Journal};

/// How long the bridge in a pod waits before it begins again, whatever ended it.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(3);

/// The wall clock.
struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let start = Startup::from_env(Concern::ClusterBridge)?;
    let stack = Stack::connect(&start.settings).await?;
    let mode = match std::env::var("BRIDGE_MODE").unwrap_or_default().as_str() {
        "poll" => Mode::Poll,
        "in-cluster" => Mode::InCluster,
        _ => Mode::Watch,
    };
    let watches = KubeWatches::new(Arc::clone(&stack.cluster));
    let bridge = async |holder: &str, hand_over: Option<HandOver>, cx: &Invocation<'_>| {
        let name = std::env::var("STACK_NAME").unwrap_or_else(|_| "spokeshave".to_owned());
        let this = Start { holder: holder.to_owned(), stack: name, mode, hand_over };
        let cluster = stack.cluster.as_ref();
        run(&this, &watches, cluster, &stack.state, &stack.bus, &WallClock, cx).await
    };
    if mode != Mode::InCluster {
        return start
            .run_direct(async |event: Value, request_id: &str, cx: &Invocation<'_>| {
                let ended = bridge(request_id, HandOver::of(&event), cx).await;
                ended.map(|it| json!({"ended": format!("{it:?}")})).map_err(|it| it.to_string())
            })
            .await;
    }
    let holder = std::env::var("POD_NAME").unwrap_or_else(|_| "in-cluster".to_owned());
    loop {
        let now = Timestamp::now();
        let cx = Invocation {
            concern: start.concern,
            now,
            deadline: now + SignedDuration::from_hours(24),
            settings: &start.settings,
            journal: &start.telemetry as &dyn Journal,
        };
        if let Err(error) = bridge(&holder, None, &cx).await {
            tracing::error!(target: "spokeshave", %error, "bridge ended");
        }
        start.telemetry.flush(Timestamp::now());
        tokio::time::sleep(PAUSE).await;
    }
}
