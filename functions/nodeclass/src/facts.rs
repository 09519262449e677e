//! What is read once per batch: facts of the cluster.

use std::cell::RefCell;

use spokeshave_bootstrap::ClusterInfo;
use spokeshave_model::{ObjectKey, Settings, core::Service};
use spokeshave_nodeclass::facts;
use spokeshave_ports::{AwsError, Cluster, ClusterError, Eks, aws::ClusterFacts};

pub(crate) struct Facts<'a, C, E> {
    cluster: &'a C,
    eks: &'a E,
    settings: &'a Settings,
    eks_answer: RefCell<Option<Result<ClusterFacts, AwsError>>>,
}

impl<'a, C: Cluster, E: Eks> Facts<'a, C, E> {
    pub(crate) fn new(cluster: &'a C, eks: &'a E, settings: &'a Settings) -> Self {
        Self { cluster, eks, settings, eks_answer: RefCell::new(None) }
    }

    /// What EKS says of the cluster; asked once, a failure is remembered for the batch as well.
    pub(crate) async fn eks(&self) -> Result<ClusterFacts, AwsError> {
        let known = self.eks_answer.borrow().clone();
        match known {
            Some(answer) => answer,
            None => {
                let answer = self.eks.describe_cluster(&self.settings.cluster_name).await;
                *self.eks_answer.borrow_mut() = Some(answer.clone());
                answer
            }
        }
    }

    /// What nodes are told. A cluster without the service `kube-dns` gets an address from its range; a server
    /// that does not answer is an error, so that no node is made with half of the facts.
    pub(crate) async fn info(&self) -> Result<ClusterInfo, FactsError> {
        let answer = self.eks().await?;
        let key = ObjectKey::namespaced("kube-system", "kube-dns");
        let service = self.cluster.get::<Service>(&key).await?;
        let address = service.as_ref().map(|it| it.spec.cluster_ip.as_str());
        Ok(facts::cluster_info(self.settings, &answer, address))
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FactsError {
    #[error(transparent)]
    Aws(#[from] AwsError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

impl From<FactsError> for crate::Trouble {
    fn from(error: FactsError) -> Self {
        match error {
            FactsError::Aws(error) => error.into(),
            FactsError::Cluster(error) => error.into(),
        }
    }
}
