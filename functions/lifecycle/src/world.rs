//! What one run has read of the cluster. Lists are read at most once per run, and only when needed.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use spokeshave_model::{
    NodeClaim, NodePool, ObjectKey, ProviderId,
    core::{Node, ResourceSlice},
    labels,
};
use spokeshave_ports::{Cluster, ClusterError, Selector};

type Index<T> = BTreeMap<ProviderId, Vec<Arc<T>>>;

/// Reads of one run.
pub struct World<'a, C> {
    cluster: &'a C,
    nodes: RefCell<Option<Arc<Index<Node>>>>,
    claims: RefCell<Option<Arc<Vec<Arc<NodeClaim>>>>>,
    pools: RefCell<BTreeMap<String, Option<Arc<NodePool>>>>,
    slices: RefCell<Option<Arc<Vec<Arc<ResourceSlice>>>>>,
}

impl<'a, C: Cluster> World<'a, C> {
    pub fn new(cluster: &'a C) -> Self {
        Self {
            cluster,
            nodes: RefCell::default(),
            claims: RefCell::default(),
            pools: RefCell::default(),
            slices: RefCell::default(),
        }
    }

    /// Takes the place of what was known of a node: this run has written it.
    pub fn put_node(&self, node: Arc<Node>) {
        let mut known = self.nodes.borrow_mut();
        let Some(index) = known.as_mut() else { return };
        let nodes = Arc::make_mut(index).entry(node.spec.provider_id.clone()).or_default();
        if let Some(old) = nodes.iter_mut().find(|it| it.metadata.uid == node.metadata.uid) {
            *old = node;
        }
    }

    /// Takes the place of what was known of a pool; `None` has it read again.
    pub fn put_pool(&self, name: &str, pool: Option<Arc<NodePool>>) {
        match pool {
            Some(pool) => self.pools.borrow_mut().insert(name.to_owned(), Some(pool)),
            None => self.pools.borrow_mut().remove(name),
        };
    }

    /// Nodes by name, fresh, as far as they still have the claim's provider id.
    pub async fn named_nodes(
        &self,
        claim: &NodeClaim,
        names: &[String],
    ) -> Result<Vec<Arc<Node>>, ClusterError> {
        let mut nodes = Vec::new();
        for name in names {
            let node = self.cluster.get::<Node>(&ObjectKey::cluster(name)).await?;
            nodes.extend(node.filter(|it| it.spec.provider_id == claim.status.provider_id));
        }
        Ok(nodes)
    }

    /// All claims.
    pub async fn claims(&self) -> Result<Arc<Vec<Arc<NodeClaim>>>, ClusterError> {
        if let Some(known) = self.claims.borrow().clone() {
            return Ok(known);
        }
        let claims = Arc::new(self.cluster.list::<NodeClaim>(&Selector::all()).await?);
        self.claims.replace(Some(claims.clone()));
        Ok(claims)
    }

    /// One claim: from the list where that has been read, else by name.
    pub async fn claim(&self, name: &str) -> Result<Option<Arc<NodeClaim>>, ClusterError> {
        let listed = self.claims.borrow().clone();
        match listed {
            Some(claims) => Ok(claims
                .binary_search_by(|it| it.metadata.name.as_str().cmp(name))
                .ok()
                .and_then(|at| claims.get(at).cloned())),
            None => self.cluster.get::<NodeClaim>(&ObjectKey::cluster(name)).await,
        }
    }

    /// All slices with devices.
    pub async fn slices(&self) -> Result<Arc<Vec<Arc<ResourceSlice>>>, ClusterError> {
        if let Some(known) = self.slices.borrow().clone() {
            return Ok(known);
        }
        let slices = Arc::new(self.cluster.list::<ResourceSlice>(&Selector::all()).await?);
        self.slices.replace(Some(slices.clone()));
        Ok(slices)
    }

    /// The nodes that decide whether one of a pool may be repaired: those with the pool's label, or all.
    pub async fn peers(&self, pool: Option<&str>) -> Result<Vec<Arc<Node>>, ClusterError> {
        let index = self.node_index().await?;
        let is_peer = |it: &&Arc<Node>| {
            pool.is_none_or(|name| it.metadata.label(labels::NODEPOOL) == Some(name))
        };
        Ok(index.values().flatten().filter(is_peer).cloned().collect())
    }

    async fn node_index(&self) -> Result<Arc<Index<Node>>, ClusterError> {
        if let Some(known) = self.nodes.borrow().clone() {
            return Ok(known);
        }
        let mut index = Index::new();
        for node in self.cluster.list::<Node>(&Selector::all()).await? {
            index.entry(node.spec.provider_id.clone()).or_default().push(node);
        }
        let index = Arc::new(index);
        self.nodes.replace(Some(index.clone()));
        Ok(index)
    }

    /// All Nodes with the claim's provider id.
    ///
    /// Once a claim is initialized its node is known by name; only if that one is not there all nodes are looked at.
    pub async fn nodes_of(&self, claim: &NodeClaim) -> Result<Vec<Arc<Node>>, ClusterError> {
        let id = &claim.status.provider_id;
        if id.is_empty() {
            return Ok(Vec::new());
        }
        let listed = self.nodes.borrow().is_some() || self.claims.borrow().is_some();
        if !listed && claim.is_true(NodeClaim::INITIALIZED) && !claim.status.node_name.is_empty() {
            let key = ObjectKey::cluster(&claim.status.node_name);
            let node = self.cluster.get::<Node>(&key).await?;
            if let Some(node) = node.filter(|it| &it.spec.provider_id == id) {
                return Ok(vec![node]);
            }
        }
        Ok(self.node_index().await?.get(id).cloned().unwrap_or_default())
    }

    /// Whether the Node that the claim registered with is there under its name. Asked for where no Node has the claim's
    /// provider id, before that counts: a list may be older than the Node.
    pub async fn is_there_by_name(&self, claim: &NodeClaim) -> Result<bool, ClusterError> {
        if !claim.is_true(NodeClaim::REGISTERED) || claim.status.node_name.is_empty() {
            return Ok(false);
        }
        let key = ObjectKey::cluster(&claim.status.node_name);
        Ok(self.cluster.get::<Node>(&key).await?.is_some())
    }

    /// The pool that the claim's label names.
    pub async fn pool_of(&self, claim: &NodeClaim) -> Result<Option<Arc<NodePool>>, ClusterError> {
        let Some(name) = claim.nodepool() else { return Ok(None) };
        if let Some(known) = self.pools.borrow().get(name).cloned() {
            return Ok(known);
        }
        let pool = self.cluster.get::<NodePool>(&ObjectKey::cluster(name)).await?;
        self.pools.borrow_mut().insert(name.to_owned(), pool.clone());
        Ok(pool)
    }

    /// The claims of a node: by the owner that registration wrote, else by provider id.
    pub async fn claims_of(&self, node: &Node) -> Result<Vec<String>, ClusterError> {
        for owner in node.metadata.owner_references.iter().filter(|it| it.kind == "NodeClaim") {
            let claim = self.cluster.get::<NodeClaim>(&ObjectKey::cluster(&owner.name)).await?;
            if claim.is_some_and(|it| {
                it.metadata.uid == owner.uid && it.status.provider_id == node.spec.provider_id
            }) {
                return Ok(vec![owner.name.clone()]);
            }
        }
        let id = &node.spec.provider_id;
        if id.is_empty() {
            return Ok(Vec::new());
        }
        let claims = self.claims().await?;
        let matching = claims.iter().filter(|it| &it.status.provider_id == id);
        Ok(matching.map(|it| it.metadata.name.clone()).collect())
    }

    /// The claims that were registered with a node of this name.
    pub async fn claims_by_node_name(&self, name: &str) -> Result<Vec<String>, ClusterError> {
        let claims = self.claims().await?;
        let matching = claims.iter().filter(|it| it.status.node_name == name);
        Ok(matching.map(|it| it.metadata.name.clone()).collect())
    }
}
