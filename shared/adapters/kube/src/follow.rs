//! Following one kind: a watch with bookmarks, from a resource version on.

use futures_util::{Stream, StreamExt, TryStreamExt};
use kube::core::{WatchEvent, params::WatchParams, request};
use serde_json::Value;
use spokeshave_model::Kind;
use spokeshave_ports::ClusterError;

use crate::{
    cluster::{KubeCluster, collection, object},
    connection::Login,
    error::cluster_error,
};

/// What to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchScope {
    /// A field selector such as `spec.nodeName=`; empty: everything.
    pub fields: String,
    /// Seconds after which the server ends the watch, at most 294.
    pub seconds: u32,
}

/// One step of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<K> {
    /// The object is there, new or changed.
    Present(K),
    /// The object is gone; this was its last state.
    Gone(K),
    /// Everything up to this resource version has been told.
    Bookmark(String),
    /// The resource version that the watch began from is too old: list, and watch from there.
    Expired,
}

impl<L: Login> KubeCluster<L> {
    /// Watches a kind from `resource_version` on. The stream ends when the server ends it; go on from the last version.
    ///
    /// # Errors
    /// When the watch cannot begin, or breaks: an item of the stream.
    pub async fn watch<K: Kind>(
        &self,
        scope: &WatchScope,
        resource_version: &str,
    ) -> Result<impl Stream<Item = Result<Step<K>, ClusterError>> + use<K, L>, ClusterError> {
        let params = WatchParams {
            field_selector: Some(scope.fields.clone()).filter(|it| !it.is_empty()),
            timeout: Some(scope.seconds.clamp(1, 294)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = request::Request::new(collection::<K>(""));
        let request = request.watch(&params, resource_version).map_err(|it| {
            ClusterError::Refused { object: K::KIND.to_owned(), message: it.to_string() }
        })?;
        let failed = |it: kube::Error| cluster_error(&it, K::KIND);
        let request = self.connection().authorized(&request).await.map_err(failed)?;
        let events = self
            .connection()
            .client()
            .await
            .map_err(failed)?
            .request_events::<Value>(request)
            .await;
        let events = match events {
            Ok(events) => events.left_stream(),
            Err(kube::Error::Api(status)) if status.code == 410 => {
                let expired = WatchEvent::Error(status);
                futures_util::stream::iter([Ok(expired)]).right_stream()
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(events.map_err(failed).and_then(async |it| step(it)))
    }
}

fn step<K: Kind>(event: WatchEvent<Value>) -> Result<Step<K>, ClusterError> {
    match event {
        WatchEvent::Added(it) | WatchEvent::Modified(it) => object(it).map(Step::Present),
        WatchEvent::Deleted(it) => object(it).map(Step::Gone),
        WatchEvent::Bookmark(it) => Ok(Step::Bookmark(it.metadata.resource_version)),
        WatchEvent::Error(status) if status.code == 410 => Ok(Step::Expired),
        WatchEvent::Error(status) => Err(cluster_error(&kube::Error::Api(status), K::KIND)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use spokeshave_model::core::Node;

    use super::*;

    #[test]
    fn steps_are_read_from_the_wire() {
        let read = |value: Value| step::<Node>(serde_json::from_value(value).expect("an event"));
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
        let named = |step: Result<Step<Node>, ClusterError>| match step {
            Ok(Step::Present(node)) => ("present", node.metadata.name),
            Ok(Step::Gone(node)) => ("gone", node.metadata.name),
            Ok(Step::Bookmark(version)) => ("bookmark", version),
            Ok(Step::Expired) => ("expired", String::new()),
            Err(error) => ("error", error.to_string()),
        };
        for (kind, object, expected) in [
            ("ADDED", node.clone(), ("present", "a")),
            ("MODIFIED", node.clone(), ("present", "a")),
            ("DELETED", node, ("gone", "a")),
            (
                "BOOKMARK",
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"resourceVersion": "42"}}),
                ("bookmark", "42"),
            ),
            ("ERROR", json!({"kind": "Status", "code": 410, "reason": "Expired"}), ("expired", "")),
            (
                "ERROR",
                json!({"kind": "Status", "code": 500, "message": "etcd"}),
                ("error", "the API server did not answer: 500: etcd"),
            ),
        ] {
            let found = named(read(json!({"type": kind, "object": object})));
            assert_eq!((found.0, found.1.as_str()), expected, "{kind}");
        }
    }
}
