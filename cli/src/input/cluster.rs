//! A whole cluster as typed objects.

use std::{path::PathBuf, sync::Arc, thread};

use serde::Deserialize;
use serde_json::value::RawValue;
use spokeshave_model::{
    CapacityBuffer, EC2NodeClass, Kind, NodeClaim, NodeOverlay, NodePool, core,
};

use super::{FieldPath, Manifest, documents, looks_like_json, read, sources, unpack};
use crate::Failure;

/// One list per kind that `--cluster` understands.
macro_rules! cluster_input {
    ($($(#[$doc:meta])* $field:ident: $kind:ty,)+) => {
        /// The objects of a cluster, by kind, in input order.
        #[derive(Clone, Debug, Default)]
        pub struct ClusterInput {
            $($(#[$doc])* pub $field: Vec<Arc<$kind>>,)+
            /// Objects of kinds that no decision reads.
            pub skipped: usize,
        }

        impl ClusterInput {
            /// Adds all objects of `other`.
            pub fn append(&mut self, mut other: Self) {
                $(self.$field.append(&mut other.$field);)+
                self.skipped += other.skipped;
            }

            /// How many objects there are of all known kinds.
            pub fn len(&self) -> usize {
                0 $(+ self.$field.len())+
            }

            /// Adds an object in its JSON text. Unknown kinds are counted.
            fn add_raw(&mut self, head: &Head<'_>, raw: &str) -> Result<(), serde_json::Error> {
                $(if head.is::<$kind>() {
                    let object: $kind = serde_json::from_str(raw)?;
                    if object.meta().name.is_empty() {
                        return Err(serde::de::Error::custom("no name"));
                    }
                    self.$field.push(Arc::new(object));
                    return Ok(());
                })+
                self.skipped += 1;
                Ok(())
            }

            /// Adds a manifest. Unknown kinds are counted.
            ///
            /// # Errors
            /// When a field that decisions read has the wrong type, or the object has no name.
            pub fn add(&mut self, manifest: &Manifest) -> Result<(), Failure> {
                $(if is::<$kind>(&manifest.api_version, &manifest.kind) {
                    if manifest.name.is_empty() {
                        let field = FieldPath::root().field("metadata").field("name");
                        return Err(manifest
                            .failure(&field, "the object has no name")
                            .fix("add metadata.name"));
                    }
                    self.$field.push(Arc::new(manifest.typed()?));
                    return Ok(());
                })+
                self.skipped += 1;
                Ok(())
            }

            /// Whether two objects of one kind share namespace (`default` if none is given) and name.
            pub fn duplicate(&self) -> Option<Duplicate> {
                $({
                    let mut keys: Vec<_> = self
                        .$field
                        .iter()
                        .map(|it| {
                            let namespace = it.meta().namespace.as_str();
                            (namespace_of::<$kind>(namespace), it.meta().name.as_str())
                        })
                        .collect();
                    keys.sort_unstable();
                    if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
                        let (namespace, name) = pair[0];
                        return Some(Duplicate {
                            kind: <$kind>::KIND,
                            group: <$kind>::GROUP,
                            namespaced: <$kind>::NAMESPACED,
                            namespace: namespace.to_owned(),
                            name: name.to_owned(),
                        });
                    }
                })+
                None
            }
        }
    };
}

cluster_input! {
    nodes: core::Node,
    pods: core::Pod,
    node_pools: NodePool,
    node_claims: NodeClaim,
    node_classes: EC2NodeClass,
    node_overlays: NodeOverlay,
    capacity_buffers: CapacityBuffer,
    pod_templates: core::PodTemplate,
    daemon_sets: core::DaemonSet,
    deployments: core::Deployment,
    replica_sets: core::ReplicaSet,
    replication_controllers: core::ReplicationController,
    stateful_sets: core::StatefulSet,
    jobs: core::Job,
    services: core::Service,
    persistent_volumes: core::PersistentVolume,
    persistent_volume_claims: core::PersistentVolumeClaim,
    storage_classes: core::StorageClass,
    csi_nodes: core::CSINode,
    csi_drivers: core::CSIDriver,
    volume_attachments: core::VolumeAttachment,
    pod_disruption_budgets: core::PodDisruptionBudget,
    namespaces: core::Namespace,
    limit_ranges: core::LimitRange,
    priority_classes: core::PriorityClass,
}

fn namespace_of<K: Kind>(given: &str) -> &str {
    if K::NAMESPACED && given.is_empty() { "default" } else { given }
}

/// An object that is there twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    kind: &'static str,
    group: &'static str,
    namespaced: bool,
    namespace: String,
    name: String,
}

impl Duplicate {
    /// A failure that says where both are. The files are read again, with lines; standard input cannot be.
    pub fn failure(&self, paths: &[PathBuf]) -> Failure {
        let key = spokeshave_model::ObjectKey::namespaced(&self.namespace, &self.name);
        let object = format!("{}/{key}", self.kind);
        let files = sources(paths).unwrap_or_default();
        let files: Vec<PathBuf> =
            files.into_iter().filter(|it| it != "-").map(PathBuf::from).collect();
        let found: Vec<(String, u32)> = super::load(&files)
            .unwrap_or_default()
            .into_iter()
            .filter(|it| it.kind == self.kind && it.group() == self.group && it.name == self.name)
            .filter(|it| {
                let given = it.namespace.as_str();
                !self.namespaced
                    || self.namespace == if given.is_empty() { "default" } else { given }
            })
            .map(|it| (it.file, it.line))
            .collect();
        let failure = |problem: String| {
            Failure::new(problem).object(object.as_str()).fix("leave one of the two out")
        };
        match found.as_slice() {
            [(file, line), (again, at), ..] => {
                failure(format!("the object is given twice, first in {file}:{line}"))
                    .file(again)
                    .line(*at)
            }
            [(file, line)] => {
                failure("the object is given twice, in the file and on standard input".to_owned())
                    .file(file)
                    .line(*line)
            }
            [] => failure("the object is given twice".to_owned()),
        }
    }
}

impl ClusterInput {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Any version of a kind is read: clusters print the version they were asked for.
fn is<K: Kind>(api_version: &str, kind: &str) -> bool {
    kind == K::KIND && api_version.split_once('/').map_or("", |(group, _)| group) == K::GROUP
}

/// What tells the kind of an object, and the items of a list.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "apiVersion", borrow, default)]
    api_version: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

impl Head<'_> {
    fn is<K: Kind>(&self) -> bool {
        is::<K>(&self.api_version, &self.kind)
    }
}

/// Reads a cluster as `kubectl get ... -A -o json|yaml` prints it, files, directories and `-` in any mix.
///
/// JSON goes straight into the typed objects: 100,000 pods take seconds and little more memory than the file.
///
/// # Errors
/// The first input that is unusable, with file, line, object and field.
pub fn load_cluster(paths: &[PathBuf]) -> Result<ClusterInput, Failure> {
    let mut cluster = ClusterInput::default();
    for source in sources(paths)? {
        let text = read(&source)?;
        if looks_like_json(&text) {
            let mut fast = ClusterInput::default();
            if stream(&text, &mut fast).is_some() {
                cluster.append(fast);
                continue;
            }
        }
        // YAML, or JSON with something wrong in it: the slow way knows the line and the field.
        let mut manifests = Vec::new();
        for document in documents(&source, &text)? {
            unpack(&source, document, None, &mut manifests)?;
        }
        for manifest in &manifests {
            cluster.add(manifest)?;
        }
    }
    Ok(cluster)
}

/// Reads all values of a JSON text; `None` when anything is wrong.
fn stream(text: &str, cluster: &mut ClusterInput) -> Option<()> {
    let mut heads = serde_json::Deserializer::from_str(text).into_iter::<Head<'_>>();
    let mut begin = 0;
    while let Some(head) = heads.next() {
        let end = heads.byte_offset();
        judge(head.ok()?, text.get(begin..end)?, None, 0, cluster)?;
        begin = end;
    }
    Some(())
}

/// Lists shorter than this are not worth a second thread.
const WORTH_SHARING: usize = 1000;

/// Reads the items of a list, shared among threads, in order.
fn items(
    items: &[&RawValue],
    item_of: Option<(&str, &str)>,
    depth: usize,
    cluster: &mut ClusterInput,
) -> Option<()> {
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    let chunk = items.len().div_ceil(n_threads).max(WORTH_SHARING);
    let read = |part: &[&RawValue]| {
        let mut found = ClusterInput::default();
        for item in part {
            object(item.get(), item_of, depth, &mut found)?;
        }
        Some(found)
    };
    let parts: Vec<Option<ClusterInput>> = thread::scope(|scope| {
        let workers: Vec<_> =
            items.chunks(chunk).map(|part| scope.spawn(move || read(part))).collect();
        workers.into_iter().map(|it| it.join().unwrap_or_default()).collect()
    });
    for part in parts {
        cluster.append(part?);
    }
    Some(())
}

fn object(
    raw: &str,
    item_of: Option<(&str, &str)>,
    depth: usize,
    cluster: &mut ClusterInput,
) -> Option<()> {
    judge(serde_json::from_str(raw).ok()?, raw, item_of, depth, cluster)
}

/// Adds the object of `raw` whose head has been read.
fn judge<'a>(
    mut head: Head<'a>,
    raw: &str,
    item_of: Option<(&'a str, &'a str)>,
    depth: usize,
    cluster: &mut ClusterInput,
) -> Option<()> {
    if let Some((api_version, kind)) = item_of {
        if head.api_version.is_empty() {
            head.api_version = api_version.into();
        }
        if head.kind.is_empty() {
            head.kind = kind.into();
        }
    }
    if head.api_version.is_empty() || head.kind.is_empty() || depth > 8 {
        return None;
    }
    match (head.kind.strip_suffix("List"), &head.items) {
        (Some(item_kind), Some(list)) => {
            let implied = (!item_kind.is_empty()).then_some((&*head.api_version, item_kind));
            items(list, implied, depth + 1, cluster)
        }
        _ => cluster.add_raw(&head, raw).ok(),
    }
}

/// The typed objects of one kind among `manifests`, in order.
///
/// # Errors
/// When a field has the wrong type.
pub fn of_kind<K: Kind>(manifests: &[Manifest]) -> Result<Vec<K>, Failure> {
    manifests.iter().filter(|it| it.is::<K>()).map(Manifest::typed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_fast(text: &str) -> Option<ClusterInput> {
        let mut cluster = ClusterInput::default();
        stream(text, &mut cluster).map(|()| cluster)
    }

    #[test]
    fn json_goes_straight_into_typed_objects() {
        let text = r#"
            {"apiVersion":"v1","items":[
              {"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n"},"spec":{"nodeName":"x"}},
              {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}],"kind":"List"}
            {"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"x"}}]}
            {"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":"p"}}"#;
        let cluster = read_fast(text).expect("valid");
        assert_eq!((cluster.len(), cluster.skipped), (3, 1));
        assert_eq!(cluster.pods[0].spec.node_name, "x");
        assert_eq!(cluster.nodes[0].metadata.name, "x");
        assert_eq!(cluster.node_pools[0].metadata.name, "p");
    }

    #[test]
    fn long_lists_keep_their_order() {
        let items: Vec<String> = (0..5000)
            .map(|at| {
                format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p{at:05}"}}}}"#)
            })
            .collect();
        let text = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{}]}}"#, items.join(","));
        let cluster = read_fast(&text).expect("valid");
        assert_eq!(cluster.pods.len(), 5000);
        assert!(cluster.pods.is_sorted_by_key(|it| it.metadata.name.clone()));
        assert_eq!(cluster.duplicate(), None);
    }

    #[test]
    fn what_is_wrong_is_left_to_the_slow_way() {
        for text in ["{", "[]", "{}", r#"{"apiVersion":"v1","kind":"Pod","spec":{"nodeName":3}}"#] {
            assert!(read_fast(text).is_none(), "{text}");
        }
    }
}
