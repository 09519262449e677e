//! EKS.

use aws_sdk_eks::Client;
use spokeshave_ports::{AwsError, Eks, aws::ClusterFacts};

use crate::{Call, Connection};

const DESCRIBE: Call = Call("eks", "DescribeCluster");

/// EKS of one region.
#[derive(Clone, Debug)]
pub struct EksApi {
    client: Client,
}

impl EksApi {
    pub fn new(connection: &Connection) -> Self {
        Self { client: counted!(aws_sdk_eks, connection.config()) }
    }
}

impl Eks for EksApi {
    async fn describe_cluster(&self, name: &str) -> Result<ClusterFacts, AwsError> {
        let answer = self.client.describe_cluster().name(name).send().await;
        let answer = answer.map_err(|error| DESCRIBE.failed(error))?;
        let cluster = answer
            .cluster
            .ok_or_else(|| DESCRIBE.error("Response", "the answer names no cluster"))?;
        let network = cluster.kubernetes_network_config;
        let ip_family = network.as_ref().and_then(|it| it.ip_family.clone());
        let (service_ipv4_cidr, service_ipv6_cidr) =
            network.map(|it| (it.service_ipv4_cidr, it.service_ipv6_cidr)).unwrap_or_default();
        Ok(ClusterFacts {
            name: cluster.name.unwrap_or_else(|| name.to_owned()),
            arn: cluster.arn.unwrap_or_default(),
            endpoint: cluster.endpoint.unwrap_or_default(),
            certificate_authority: cluster
                .certificate_authority
                .and_then(|it| it.data)
                .unwrap_or_default(),
            version: cluster.version.unwrap_or_default(),
            service_ipv4_cidr: service_ipv4_cidr.unwrap_or_default(),
            service_ipv6_cidr: service_ipv6_cidr.unwrap_or_default(),
            ip_family: ip_family.map_or_else(|| "ipv4".to_owned(), |it| it.as_str().to_owned()),
            vpc_id: cluster.resources_vpc_config.and_then(|it| it.vpc_id).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Replay;

    #[tokio::test] // aws-capacity 20: retries have a budget per service
    async fn retries_end_when_their_budget_is_used_up() {
        // The service answers 500 for ever.
        let replay = Replay::of([]);
        let mut sent = Vec::new();
        for _ in 0..40 {
            // Clients of one service share the budget.
            let eks = EksApi::new(&replay.connection());
            let before = replay.requests().len();
            let error = eks.describe_cluster("c1").await.expect_err("no service");
            assert!(error.is_retryable(), "the caller tries again later: {error}");
            sent.push(replay.requests().len() - before);
        }
        // All tries at first; once the budget is used up, a second one at most.
        assert_eq!(sent.first(), Some(&(crate::ATTEMPTS as usize)));
        assert!(sent.is_sorted_by(|a, b| a >= b), "{sent:?}");
        assert!(sent[20..].iter().all(|it| *it <= 2), "{sent:?}");
    }
}
