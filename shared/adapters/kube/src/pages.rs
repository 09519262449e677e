//! Lists, page by page: whoever keeps no objects need never hold all of them.

use std::marker::PhantomData;

use kube::core::{params::ListParams, request};
use serde::Deserialize;
use serde_json::Value;
use spokeshave_model::Kind;
use spokeshave_ports::ClusterError;

use crate::{
    cluster::{KubeCluster, object, parse, slim, unsent},
    connection::Login,
    error::list_error,
};

/// What the server sends of a list at a time.
#[derive(Deserialize)]
struct Wire<T> {
    #[serde(default)]
    metadata: WireMeta,
    #[serde(
        default = "Vec::new",
        deserialize_with = "spokeshave_model::meta::null_is_default",
        bound = "T: Deserialize<'de>"
    )]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMeta {
    r#continue: Option<String>,
    resource_version: Option<String>,
}

/// Some objects of a list.
pub(crate) struct Page<K> {
    pub(crate) items: Vec<K>,
    /// The list begins here, or anew: what earlier pages had does not belong to it.
    pub(crate) is_first: bool,
    /// The resource version that the list shows.
    pub(crate) resource_version: String,
}

/// A list that is being read.
pub(crate) struct Pages<'a, K, L> {
    cluster: &'a KubeCluster<L>,
    path: String,
    params: ListParams,
    begun_again: bool,
    is_over: bool,
    kind: PhantomData<K>,
}

impl<'a, K: Kind, L: Login> Pages<'a, K, L> {
    pub(crate) fn new(cluster: &'a KubeCluster<L>, path: String, params: ListParams) -> Self {
        Self { cluster, path, params, begun_again: false, is_over: false, kind: PhantomData }
    }

    /// The next page; `None` after the last.
    ///
    /// # Errors
    /// When the server does not answer, or an object cannot be read.
    pub(crate) async fn next(&mut self) -> Result<Option<Page<K>>, ClusterError> {
        if self.is_over {
            return Ok(None);
        }
        let text = loop {
            let request = request::Request::new(&self.path);
            let request = request.list(&self.params).map_err(|it| unsent::<K>(&it))?;
            match self.cluster.connection().send(&request, true).await {
                // The continue token has expired: what was read does not fit what would follow.
                Err(kube::Error::Api(status)) if status.code == 410 && !self.begun_again => {
                    self.begun_again = true;
                    self.params.continue_token = None;
                }
                other => break other.map_err(|it| list_error(&it, K::KIND, &K::api_version()))?,
            }
        };
        let is_first = self.params.continue_token.is_none();
        let page = match serde_json::from_str::<Wire<K>>(&text) {
            Ok(page) => page,
            // Once more, slowly, to tell which object it is.
            Err(_) => {
                let page: Wire<Value> = parse(&text, K::KIND)?;
                let items: Result<Vec<K>, _> = page.items.into_iter().map(object::<K>).collect();
                Wire { metadata: page.metadata, items: items? }
            }
        };
        self.params.continue_token = page.metadata.r#continue.filter(|it| !it.is_empty());
        self.is_over = self.params.continue_token.is_none();
        Ok(Some(Page {
            items: page.items.into_iter().map(slim).collect(),
            is_first,
            resource_version: page.metadata.resource_version.unwrap_or_default(),
        }))
    }
}
