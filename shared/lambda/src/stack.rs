//! The clients that nearly every function uses, made of settings and environment variables before the first event.
//!
//! Nothing is sent while they are made: the cluster is looked up and logged in to at its first use.

use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_aws::{
    Connection, DynamoTable, EksApi, EventBus, QueueUrls, SqsQueues, token::TokenSource,
};
use spokeshave_kube::{Bearer, ConnectionError, Endpoint, KubeCluster, Login};
use spokeshave_model::Settings;
use spokeshave_ports::Eks;

/// Logs in to an EKS cluster.
#[derive(Debug)]
pub struct EksLogin {
    eks: EksApi,
    settings: Settings,
    /// `None` when a kubeconfig or the pod's own account does it.
    tokens: Option<TokenSource>,
}

impl Login for EksLogin {
    async fn endpoint(&self) -> Result<Endpoint, String> {
        let settings = &self.settings;
        if !settings.cluster_endpoint.is_empty() && !settings.cluster_ca_bundle.is_empty() {
            return Ok(Endpoint {
                url: settings.cluster_endpoint.clone(),
                certificate_authority: settings.cluster_ca_bundle.clone(),
            });
        }
        let facts = self.eks.describe_cluster(&settings.cluster_name).await;
        let facts = facts.map_err(|it| it.to_string())?;
        Ok(Endpoint { url: facts.endpoint, certificate_authority: facts.certificate_authority })
    }

    async fn token(&self, now: Timestamp) -> Result<Option<Bearer>, String> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        let token = tokens.token(now).await.map_err(|it| it.to_string())?;
        Ok(Some(Bearer { token: token.value, renew_at: token.renew_at }))
    }
}

/// The clients of one stack.
#[derive(Debug)]
pub struct Stack {
    pub aws: Connection,
    pub cluster: Arc<KubeCluster<EksLogin>>,
    pub state: DynamoTable,
    pub queues: SqsQueues,
    pub bus: EventBus,
}

impl Stack {
    /// By `STATE_TABLE`, `EVENT_BUS` and `QUEUE_URL_...`. With `KUBECONFIG`, or inside a pod, the cluster is reached by
    /// that; otherwise by EKS.
    ///
    /// # Errors
    /// A kubeconfig or a pod's account that cannot be used.
    pub async fn connect(settings: &Settings) -> Result<Self, ConnectionError> {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let aws = Connection::from_env(settings).await;
        let own_login =
            ["KUBECONFIG", "KUBERNETES_SERVICE_HOST"].iter().any(|it| !variable(it).is_empty());
        let login = EksLogin {
            eks: EksApi::new(&aws),
            settings: settings.clone(),
            tokens: (!own_login).then(|| TokenSource::new(&aws, settings)),
        };
        let connection = if own_login {
            spokeshave_kube::Connection::infer(login).await?
        } else {
            spokeshave_kube::Connection::new(login)
        };
        Ok(Self {
            cluster: Arc::new(KubeCluster::new(connection)),
            state: DynamoTable::new(&aws, &variable("STATE_TABLE")),
            queues: SqsQueues::new(&aws, QueueUrls::from_variables(std::env::vars())),
            bus: EventBus::new(&aws, &variable("EVENT_BUS")),
            aws,
        })
    }
}
