//! Objects read and written.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use http::Request;
use jiff::{SignedDuration, Timestamp};
use kube::core::{
    params::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    request,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use spokeshave_model::{
    Kind, LabelSelector, ObjectKey, Uid,
    meta::{from_value, merge_patch, to_value},
};
use spokeshave_ports::{
    Changes, Cluster, ClusterError, Place, Precondition, Selector,
    cluster::{Eviction, KubeEvent},
};

use crate::{
    connection::{Connection, Login, OwnLogin},
    error::{causes, cluster_error},
    events::{self, Repeats},
    pages::Pages,
};

/// Objects per page of a list, as kubectl asks for them.
pub(crate) const PAGE: u32 = 500;

/// One cluster over its API server.
pub struct KubeCluster<L = OwnLogin> {
    connection: Connection<L>,
    published: Mutex<Repeats>,
    /// Tells places of this client from those of others.
    pub(crate) history: u64,
}

/// Clients made in this process.
static CLIENTS: AtomicU64 = AtomicU64::new(0);

impl<L> fmt::Debug for KubeCluster<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeCluster").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// All objects of a list, and the resource version that it shows.
#[derive(Clone, Debug)]
pub struct Listed<K> {
    pub items: Vec<Arc<K>>,
    pub resource_version: String,
}

impl<L: Login> KubeCluster<L> {
    pub fn new(connection: Connection<L>) -> Self {
        let history = CLIENTS.fetch_add(1, Ordering::Relaxed) + 1;
        Self { connection, published: Mutex::default(), history }
    }

    pub(crate) fn connection(&self) -> &Connection<L> {
        &self.connection
    }

    /// Lists with the resource version from which a watch goes on.
    ///
    /// # Errors
    /// As for [`Cluster::list`].
    pub async fn list_at<K: Kind>(&self, selector: &Selector) -> Result<Listed<K>, ClusterError> {
        let mut listed = Listed { items: Vec::new(), resource_version: String::new() };
        let mut pages = self.pages::<K>(&selector.namespace, list_params(selector));
        while let Some(page) = pages.next().await? {
            if page.is_first {
                listed.items.clear();
            }
            listed.items.extend(page.items.into_iter().map(Arc::new));
            listed.resource_version = page.resource_version;
        }
        listed.items.sort_by(|a, b| {
            (&a.meta().namespace, &a.meta().name).cmp(&(&b.meta().namespace, &b.meta().name))
        });
        Ok(listed)
    }

    /// A list page by page.
    pub(crate) fn pages<K: Kind>(&self, namespace: &str, params: ListParams) -> Pages<'_, K, L> {
        Pages::new(self, collection::<K>(namespace), params)
    }

    fn is_repeat(&self, event: &KubeEvent, dedupe: SignedDuration, now: Timestamp) -> bool {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.is_repeat(event, dedupe, now)
    }

    async fn object<K: Kind>(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
        reference: &str,
    ) -> Result<Arc<K>, ClusterError> {
        let request = request.map_err(|it| unsent::<K>(&it))?;
        let text = self.connection.send(&request, true).await;
        let text = text.map_err(|it| cluster_error(&it, reference))?;
        object(parse(&text, reference)?).map(Arc::new)
    }
}

impl<L: Login> Cluster for KubeCluster<L> {
    async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClusterError> {
        let request = request::Request::new(collection::<K>(&key.namespace));
        let request = request.get(&key.name, &GetParams::default());
        match self.object(request, &reference::<K>(key)).await {
            Err(ClusterError::NotFound { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    async fn list<K: Kind>(&self, selector: &Selector) -> Result<Vec<Arc<K>>, ClusterError> {
        self.list_at(selector).await.map(|it| it.items)
    }

    async fn changes<K: Kind>(&self, since: Place, reach: u64) -> Result<Changes<K>, ClusterError> {
        self.changes_since(since, reach).await
    }

    async fn create<K: Kind>(&self, object: &K) -> Result<Arc<K>, ClusterError> {
        let body = serde_json::to_vec(&to_value(object)).map_err(|it| unreadable(K::KIND, &it))?;
        let request = request::Request::new(collection::<K>(&object.meta().namespace));
        let request = request.create(&PostParams::default(), body);
        self.object(request, &object.reference()).await
    }

    async fn patch<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        let without_status = |object: &K| {
            let mut value = to_value(object);
            if let Some(fields) = value.as_object_mut() {
                fields.remove("status");
            }
            value
        };
        let Some(mut patch) = merge_patch(&without_status(old), &without_status(new)) else {
            return Ok(Arc::new(new.clone()));
        };
        add_guard(&mut patch, old, guard);
        let request = request::Request::new(collection::<K>(&old.meta().namespace));
        let request = request.patch(old.name(), &PatchParams::default(), &Patch::Merge(patch));
        self.object(request, &old.reference()).await
    }

    async fn patch_status<K: Kind>(
        &self,
        old: &K,
        new: &K,
        guard: Precondition,
    ) -> Result<Arc<K>, ClusterError> {
        let status = |object: &K| {
            to_value(object).get("status").cloned().unwrap_or_else(|| Value::Object(Map::new()))
        };
        let Some(difference) = merge_patch(&status(old), &status(new)) else {
            return Ok(Arc::new(new.clone()));
        };
        let mut patch = json!({"status": difference});
        add_guard(&mut patch, old, guard);
        let request = request::Request::new(collection::<K>(&old.meta().namespace));
        let request = request.patch_subresource(
            "status",
            old.name(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        );
        self.object(request, &old.reference()).await
    }

    async fn delete<K: Kind>(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        grace: Option<i64>,
    ) -> Result<(), ClusterError> {
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.0.clone()), resource_version: None }),
            grace_period_seconds: grace.map(|it| u32::try_from(it.max(0)).unwrap_or(u32::MAX)),
            ..DeleteParams::default()
        };
        let request = request::Request::new(collection::<K>(&key.namespace));
        let request = request.delete(&key.name, &params).map_err(|it| unsent::<K>(&it))?;
        match self.connection.send(&request, true).await {
            Ok(_) => Ok(()),
            // Gone, or another object has the name by now.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(cluster_error(&error, &reference::<K>(key))),
        }
    }

    async fn evict(&self, pod: &ObjectKey, uid: &Uid) -> Result<Eviction, ClusterError> {
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": uid.0}},
        });
        let reference = format!("Pod/{pod}");
        let request = request::Request::new(format!("/api/v1/namespaces/{}/pods", pod.namespace));
        let body = body.to_string().into_bytes();
        let request =
            request.create_subresource("eviction", &pod.name, &PostParams::default(), body);
        let request =
            request.map_err(|it| ClusterError::Unavailable { message: it.to_string() })?;
        let Err(error) = self.connection.send(&request, false).await else {
            return Ok(Eviction::Accepted);
        };
        let kube::Error::Api(status) = &error else {
            return Err(cluster_error(&error, &reference));
        };
        match status.code {
            404 => Ok(Eviction::Gone),
            409 => Ok(Eviction::Replaced),
            // Without this cause it is the API server that is too busy, not a budget that refuses.
            429 if causes(status).iter().any(|it| it.reason == "DisruptionBudget") => {
                Ok(Eviction::Blocked)
            }
            // The server has no other word for it than its text.
            500 if status.message.contains("more than one PodDisruptionBudget") => {
                Ok(Eviction::Misconfigured)
            }
            _ => Err(cluster_error(&error, &reference)),
        }
    }

    async fn publish(&self, event: KubeEvent, dedupe: SignedDuration) {
        let now = Timestamp::now();
        if self.is_repeat(&event, dedupe, now) {
            return;
        }
        let body = events::event(&event, dedupe, now).to_string().into_bytes();
        let path = format!("/api/v1/namespaces/{}/events", events::namespace(&event));
        let request = request::Request::new(path).create(&PostParams::default(), body);
        let outcome = match request {
            Ok(request) => self.connection.send(&request, false).await.map(drop),
            Err(_) => return,
        };
        match outcome {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                let error = cluster_error(&error, "Event").to_string();
                tracing::warn!(target: "spokeshave", object = %event.key, reason = event.reason, error, "event not published");
            }
            Ok(()) => {}
        }
    }
}

/// The path of a kind's objects, in a namespace or (empty) in all.
pub(crate) fn collection<K: Kind>(namespace: &str) -> String {
    let version = if K::GROUP.is_empty() {
        format!("/api/{}", K::VERSION)
    } else {
        format!("/apis/{}/{}", K::GROUP, K::VERSION)
    };
    if K::NAMESPACED && !namespace.is_empty() {
        format!("{version}/namespaces/{namespace}/{}", K::PLURAL)
    } else {
        format!("{version}/{}", K::PLURAL)
    }
}

pub(crate) fn list_params(selector: &Selector) -> ListParams {
    ListParams {
        label_selector: label_selector(&selector.labels),
        field_selector: selector.node_name.as_ref().map(|it| format!("spec.nodeName={it}")),
        limit: Some(PAGE),
        ..ListParams::default()
    }
}

/// A label selector as the API's query text; `None` when it takes everything.
fn label_selector(selector: &LabelSelector) -> Option<String> {
    let mut parts: Vec<String> =
        selector.match_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    for expression in &selector.match_expressions {
        let key = &expression.key;
        let values = expression.values.join(",");
        parts.push(match expression.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            "DoesNotExist" => format!("!{key}"),
            // Takes nothing, as `LabelSelector::matches` has it: no key is and is not there.
            _ => format!("{key},!{key}"),
        });
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

/// Puts what the patch is bound to into it.
fn add_guard<K: Kind>(patch: &mut Value, old: &K, guard: Precondition) {
    let (name, value) = match guard {
        Precondition::ResourceVersion => ("resourceVersion", &old.meta().resource_version),
        Precondition::Uid => ("uid", &old.meta().uid.0),
    };
    if let Some(patch) = patch.as_object_mut()
        && let Some(meta) =
            patch.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
    {
        meta.insert(name.to_owned(), value.clone().into());
    }
}

pub(crate) fn object<K: Kind>(value: Value) -> Result<K, ClusterError> {
    let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let reference = format!("{}/{name}", K::KIND);
    from_value(value).map(slim).map_err(|it| unreadable(&reference, &it))
}

/// The object without what nobody decides by.
pub(crate) fn slim<K: Kind>(mut object: K) -> K {
    object.slim();
    object
}

pub(crate) fn parse<D: DeserializeOwned>(text: &str, reference: &str) -> Result<D, ClusterError> {
    serde_json::from_str(text).map_err(|it| unreadable(reference, &it))
}

/// An object that we cannot read must not be passed over: what owns an instance would look as if it were not there.
fn unreadable(reference: &str, error: &serde_json::Error) -> ClusterError {
    ClusterError::Refused {
        object: reference.to_owned(),
        message: format!("cannot be read: {error}"),
    }
}

pub(crate) fn unsent<K: Kind>(error: &request::Error) -> ClusterError {
    ClusterError::Refused { object: K::KIND.to_owned(), message: error.to_string() }
}

fn reference<K: Kind>(key: &ObjectKey) -> String {
    format!("{}/{key}", K::KIND)
}

#[cfg(test)]
mod tests {
    use spokeshave_model::{
        NodeClaim, NodePool,
        core::{Node, Pod, PodDisruptionBudget},
        selectors::LabelSelectorRequirement,
    };

    use super::*;

    #[test]
    fn paths_follow_group_version_and_namespace() {
        assert_eq!(collection::<Pod>(""), "/api/v1/pods");
        assert_eq!(collection::<Pod>("web"), "/api/v1/namespaces/web/pods");
        assert_eq!(collection::<Node>(""), "/api/v1/nodes");
        assert_eq!(collection::<NodePool>("web"), "/apis/karpenter.sh/v1/nodepools");
        assert_eq!(
            collection::<PodDisruptionBudget>("web"),
            "/apis/policy/v1/namespaces/web/poddisruptionbudgets"
        );
    }

    #[test]
    fn selectors_become_query_text() {
        let expression = |operator: &str, values: &[&str]| LabelSelectorRequirement {
            key: "tier".into(),
            operator: operator.into(),
            values: values.iter().map(|&it| it.into()).collect(),
        };
        let mut selector = LabelSelector::label("app", "web");
        selector.match_expressions = vec![
            expression("In", &["a", "b"]),
            expression("NotIn", &["c"]),
            expression("Exists", &[]),
            expression("DoesNotExist", &[]),
        ];
        assert_eq!(
            label_selector(&selector).as_deref(),
            Some("app=web,tier in (a,b),tier notin (c),tier,!tier")
        );
        assert_eq!(label_selector(&LabelSelector::default()), None);
    }

    #[test]
    fn a_patch_is_bound_to_what_was_read() {
        let mut old = NodeClaim::default();
        old.metadata.uid = Uid::from("u-1");
        old.metadata.resource_version = "7".into();
        let mut patch = json!({"metadata": {"labels": {"a": "b"}}});
        add_guard(&mut patch, &old, Precondition::ResourceVersion);
        assert_eq!(patch, json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}}));
        let mut patch = json!({"status": {}});
        add_guard(&mut patch, &old, Precondition::Uid);
        assert_eq!(patch, json!({"status": {}, "metadata": {"uid": "u-1"}}));
    }
}
