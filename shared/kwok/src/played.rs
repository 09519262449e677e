//! Pods as a kubelet sees them: with the status of each container, which nobody else here reads.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use spokeshave_model::{ObjectMeta, core::PodCondition, kind, meta::null_is_default};

/// Image id of a container that nobody pulled an image for.
const IMAGE_ID: &str = "made-up";

/// Pod, `v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlayedPod {
    pub metadata: ObjectMeta,
    pub spec: PlayedSpec,
    #[serde(deserialize_with = "null_is_default")]
    pub status: PlayedStatus,
}
kind!(PlayedPod, "", "v1", "Pod", "pods", true);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlayedSpec {
    pub node_name: String,
    /// `Always` where it is not said.
    pub restart_policy: String,
    #[serde(deserialize_with = "null_is_default")]
    pub containers: Vec<PlayedContainer>,
    #[serde(deserialize_with = "null_is_default")]
    pub init_containers: Vec<PlayedContainer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlayedContainer {
    pub name: String,
    pub image: String,
    /// `Always` makes a sidecar of an init container: it goes on while the pod runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub restart_policy: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlayedStatus {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<PodCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub container_statuses: Vec<PlayedContainerStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub init_container_statuses: Vec<PlayedContainerStatus>,
}

/// The fields that the API server asks for, and those that people see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlayedContainerStatus {
    pub name: String,
    pub image: String,
    #[serde(rename = "imageID")]
    pub image_id: String,
    pub ready: bool,
    pub started: bool,
    pub restart_count: i32,
    pub state: PlayedState,
}

/// One of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlayedState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    pub exit_code: i32,
    pub reason: String,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

impl PlayedContainer {
    /// Runs since `since`.
    pub fn running(&self, since: Timestamp) -> PlayedContainerStatus {
        let running = Some(Running { started_at: Some(since) });
        PlayedContainerStatus {
            ready: true,
            started: true,
            state: PlayedState { running, ..PlayedState::default() },
            ..self.made_up()
        }
    }

    /// Ran from `since` to `until`, and all went well.
    pub fn ended(&self, since: Timestamp, until: Timestamp) -> PlayedContainerStatus {
        let terminated = Some(Terminated {
            exit_code: 0,
            reason: "Completed".into(),
            started_at: Some(since),
            finished_at: Some(until),
        });
        PlayedContainerStatus {
            state: PlayedState { terminated, ..PlayedState::default() },
            ..self.made_up()
        }
    }

    fn made_up(&self) -> PlayedContainerStatus {
        PlayedContainerStatus {
            name: self.name.clone(),
            image: self.image.clone(),
            image_id: IMAGE_ID.into(),
            ..PlayedContainerStatus::default()
        }
    }

    pub(crate) fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

impl PlayedPod {
    /// Its work has an end: a Job's pod, which is not started again when it is done.
    pub fn comes_to_an_end(&self) -> bool {
        let of_job = self.metadata.owner_references.iter().any(|it| it.kind == "Job");
        of_job && matches!(self.spec.restart_policy.as_str(), "Never" | "OnFailure")
    }

    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}
