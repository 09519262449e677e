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
        Self { client: Client::new(connection.config()) }
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
