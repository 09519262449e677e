//! Why a run cannot go on.

use spokeshave_ports::{AwsError, ClusterError, StateError};

/// What stopped a run. Everything but a lost race passes by itself or not at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    #[error("cluster: {0}")]
    Cluster(#[from] ClusterError),
    #[error("state table: {0}")]
    State(#[from] StateError),
    #[error("queue: {0}")]
    Queue(#[from] AwsError),
    #[error("{0}")]
    Failed(String),
}

impl Trouble {
    /// Somebody else was faster: begin again at once.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Cluster(ClusterError::Conflict { .. }) | Self::State(StateError::Conflict(_))
        )
    }
}

impl From<spokeshave_ports::wakes::WakeError> for Trouble {
    fn from(error: spokeshave_ports::wakes::WakeError) -> Self {
        match error {
            spokeshave_ports::wakes::WakeError::State(it) => Self::State(it),
            spokeshave_ports::wakes::WakeError::Queue(it) => Self::Queue(it),
        }
    }
}
