//! Lifecycle hooks of Auto Scaling groups.

use aws_sdk_autoscaling::Client;
use spokeshave_ports::{AutoScaling, AwsError, LifecycleAction};

use crate::{Call, Connection};

const COMPLETE: Call = Call("autoscaling", "CompleteLifecycleAction");
const HEARTBEAT: Call = Call("autoscaling", "RecordLifecycleActionHeartbeat");

/// Auto Scaling of one region.
#[derive(Clone, Debug)]
pub struct AutoScalingGroups {
    client: Client,
}

impl AutoScalingGroups {
    pub fn new(connection: &Connection) -> Self {
        Self { client: counted!(aws_sdk_autoscaling, connection.config()) }
    }
}

/// The service refuses an empty token; without one the instance says which action is meant.
fn token(action: &LifecycleAction) -> Option<String> {
    (!action.token.is_empty()).then(|| action.token.clone())
}

impl AutoScaling for AutoScalingGroups {
    async fn complete_lifecycle_action(&self, action: &LifecycleAction) -> Result<(), AwsError> {
        let request = self
            .client
            .complete_lifecycle_action()
            .auto_scaling_group_name(&action.group)
            .lifecycle_hook_name(&action.hook)
            .set_lifecycle_action_token(token(action))
            .instance_id(action.instance.as_str())
            .lifecycle_action_result("CONTINUE");
        request.send().await.map(|_| ()).map_err(|error| COMPLETE.failed(error))
    }

    async fn record_lifecycle_heartbeat(&self, action: &LifecycleAction) -> Result<(), AwsError> {
        let request = self
            .client
            .record_lifecycle_action_heartbeat()
            .auto_scaling_group_name(&action.group)
            .lifecycle_hook_name(&action.hook)
            .set_lifecycle_action_token(token(action))
            .instance_id(action.instance.as_str());
        request.send().await.map(|_| ()).map_err(|error| HEARTBEAT.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Replay;

    fn action() -> LifecycleAction {
        LifecycleAction {
            group: "mng-system".into(),
            hook: "drain-first".into(),
            token: "c0ffee00-1111-4222-8333-4444deadbe01".into(),
            instance: "i-0c3d4e5f607182930".into(),
        }
    }

    #[tokio::test]
    async fn both_calls_are_understood() {
        let completed = "<CompleteLifecycleActionResponse><CompleteLifecycleActionResult/></CompleteLifecycleActionResponse>";
        let beaten = "<RecordLifecycleActionHeartbeatResponse><RecordLifecycleActionHeartbeatResult/></RecordLifecycleActionHeartbeatResponse>";
        let replay = Replay::of([(200, completed), (200, beaten)]);
        let groups = AutoScalingGroups::new(&replay.connection());
        assert_eq!(groups.complete_lifecycle_action(&action()).await, Ok(()));
        assert_eq!(groups.record_lifecycle_heartbeat(&action()).await, Ok(()));
        let url = "POST https://autoscaling.us-west-2.amazonaws.com/";
        assert_eq!(replay.requests(), [url, url]);
    }

    #[tokio::test] // aws-nodeclass 30, case 4: by this code the heartbeats stop
    async fn an_action_that_is_over_is_told_by_its_code() {
        let answer = "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code>\
            <Message>No active Lifecycle Action found</Message></Error><RequestId>r</RequestId></ErrorResponse>";
        let replay = Replay::of([(400, answer)]);
        let groups = AutoScalingGroups::new(&replay.connection());
        let error = groups.record_lifecycle_heartbeat(&action()).await.expect_err("refused");
        assert_eq!(
            (error.operation, error.code.as_str(), error.message.as_str()),
            (
                "RecordLifecycleActionHeartbeat",
                "ValidationError",
                "No active Lifecycle Action found"
            )
        );
        assert_eq!(replay.requests().len(), 1, "asking again does not help");
    }
}
