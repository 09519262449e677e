//! AWS behind the ports: SQS ([`queues`]), EventBridge ([`bus`]), DynamoDB ([`table`]), IAM, SSM, EKS, Pricing, Auto Scaling, zonal shifts, and the
//! token with which the Kubernetes API of an EKS cluster is spoken to ([`token`]).
//!
//! EC2 is a crate of its own, because its SDK costs minutes to compile; it takes its configuration and its errors from
//! here. Read [`Connection`] first. Nothing here decides anything: every call is one port call, with pages read to the
//! end, retries, and errors told apart by code.

/// A client whose calls are counted.
#[macro_export]
macro_rules! counted {
    ($sdk:ident, $config:expr) => {
        $sdk::Client::from_conf(
            $sdk::config::Builder::from($config).interceptor($crate::meter::Meter).build(),
        )
    };
}

pub mod auto_scaling;
pub mod bus;
pub mod eks;
pub mod error;
pub mod iam;
pub mod meter;
pub mod pricing;
pub mod queues;
#[cfg(test)]
mod replay;
pub mod ssm;
pub mod table;
pub mod token;
pub mod trace;
pub mod zonal_shift;

use std::time::Duration;

use aws_config::{
    BehaviorVersion, Region, SdkConfig, retry::RetryConfig,
    stalled_stream_protection::StalledStreamProtectionConfig, timeout::TimeoutConfig,
};
use spokeshave_model::Settings;

pub use auto_scaling::AutoScalingGroups;
pub use bus::EventBus;
pub use eks::EksApi;
pub use error::{Call, aws_error};
pub use iam::IamApi;
pub use pricing::PriceList;
pub use queues::{QueueUrls, SqsQueues};
pub use ssm::ParameterStore;
pub use table::DynamoTable;
pub use zonal_shift::RecoveryController;

/// Tries of one call, the first included, while the answer is throttling, the server's fault, or none. The client slows
/// itself down when it is throttled. Source: the SDKs' default of 3, and 2 more, since a batch that fails costs a whole
/// visibility time.
///
/// All clients of one service in this process draw their retries from one budget of tokens, which the SDK keeps and what
/// succeeds fills up again. Once it is used up, a call is given up after its first tries and its error goes to the caller,
/// whose work comes back after a pause that grows.
const ATTEMPTS: u32 = 5;

/// How we speak to AWS: region, credentials, retries, time limits. Clients are made from it.
#[derive(Clone, Debug)]
pub struct Connection {
    config: SdkConfig,
}

impl Connection {
    /// Takes credentials and end points from the environment as every AWS SDK does. Sends nothing yet.
    pub async fn from_env(settings: &Settings) -> Self {
        let config = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new(settings.region.clone()))
            .retry_config(RetryConfig::adaptive().with_max_attempts(ATTEMPTS))
            .timeout_config(
                TimeoutConfig::builder()
                    .connect_timeout(Duration::from_secs(2))
                    .operation_attempt_timeout(Duration::from_secs(12))
                    .operation_timeout(Duration::from_secs(40))
                    .build(),
            )
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .load()
            .await;
        Self { config }
    }

    /// For clients that are made elsewhere.
    pub fn config(&self) -> &SdkConfig {
        &self.config
    }

    /// The same connection to another region.
    fn in_region(&self, region: &str) -> SdkConfig {
        self.config.clone().into_builder().region(Region::new(region.to_owned())).build()
    }
}
