//! Object metadata and what all kinds have in common.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use crate::Uid;

/// Labels or annotations.
pub type StringMap = BTreeMap<String, String>;

/// Fields of an object that we do not know, kept so that writing it back loses nothing.
pub type Rest = BTreeMap<String, Value>;

/// `metadata`. Fields that are not named here are kept in `rest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "Uid::is_empty")]
    pub uid: Uid,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: StringMap,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: StringMap,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// Written by hand: a flattened map would make every object be held twice while it is read.
impl<'de> Deserialize<'de> for ObjectMeta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MetaVisitor)
    }
}

struct MetaVisitor;

impl<'de> Visitor<'de> for MetaVisitor {
    type Value = ObjectMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ObjectMeta, A::Error> {
        /// Null counts as absent.
        fn next<'de, A: MapAccess<'de>, T: Default + Deserialize<'de>>(
            map: &mut A,
        ) -> Result<T, A::Error> {
            Ok(map.next_value::<Option<T>>()?.unwrap_or_default())
        }
        let mut meta = ObjectMeta::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => meta.name = next(&mut map)?,
                "generateName" => meta.generate_name = next(&mut map)?,
                "namespace" => meta.namespace = next(&mut map)?,
                "uid" => meta.uid = next(&mut map)?,
                "resourceVersion" => meta.resource_version = next(&mut map)?,
                "generation" => meta.generation = next(&mut map)?,
                "creationTimestamp" => meta.creation_timestamp = next(&mut map)?,
                "deletionTimestamp" => meta.deletion_timestamp = next(&mut map)?,
                "deletionGracePeriodSeconds" => {
                    meta.deletion_grace_period_seconds = next(&mut map)?;
                }
                "labels" => meta.labels = next(&mut map)?,
                "annotations" => meta.annotations = next(&mut map)?,
                "finalizers" => meta.finalizers = next(&mut map)?,
                "ownerReferences" => meta.owner_references = next(&mut map)?,
                // Who wrote which field: a third of what the API server sends of a small object, and nobody here asks.
                // Writes are patches, or leave them out, which the API server takes for no change.
                "managedFields" => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    let value: Value = map.next_value()?;
                    if !value.is_null() {
                        meta.rest.insert(key, value);
                    }
                }
            }
        }
        Ok(meta)
    }
}

impl ObjectMeta {
    /// Metadata with a name and nothing else.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Whether the object is being deleted.
    pub fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The owner that has `controller: true`.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Drops what kubectl applied last, and room that is held in reserve.
    pub(crate) fn slim(&mut self) {
        self.annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        self.finalizers.shrink_to_fit();
        self.owner_references.shrink_to_fit();
    }

    /// Whether `finalizer` is present.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|it| it == finalizer)
    }
}

/// An entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: Uid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { namespace: String::new(), name: name.to_owned() }
    }

    /// The key of a namespaced object.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectKey {
    /// `name`, or `namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// A kind of Kubernetes object: how it is named in the API and where its metadata is.
///
/// Serialized form: the fields of the object without `apiVersion` and `kind`; [`to_value`] adds them.
pub trait Kind:
    Clone + fmt::Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// API group, empty for the core group.
    const GROUP: &'static str;
    const VERSION: &'static str;
    const KIND: &'static str;
    const PLURAL: &'static str;
    const NAMESPACED: bool;

    fn meta(&self) -> &ObjectMeta;
    fn meta_mut(&mut self) -> &mut ObjectMeta;

    /// Drops what no decision reads and what can be most of an object in memory. Nothing of it gets lost when the object is
    /// written, since only differences are. Twice is the same as once.
    fn slim(&mut self) {
        self.meta_mut().slim();
    }

    /// `group/version`, or `version` in the core group.
    fn api_version() -> String {
        if Self::GROUP.is_empty() {
            Self::VERSION.to_owned()
        } else {
            format!("{}/{}", Self::GROUP, Self::VERSION)
        }
    }

    /// The object's name.
    fn name(&self) -> &str {
        &self.meta().name
    }

    /// Namespace and name.
    fn key(&self) -> ObjectKey {
        ObjectKey { namespace: self.meta().namespace.clone(), name: self.meta().name.clone() }
    }

    /// `Kind/name` or `Kind/namespace/name`, as timelines, logs and findings print objects.
    fn reference(&self) -> String {
        format!("{}/{}", Self::KIND, self.key())
    }
}

/// The whole object as JSON, `apiVersion` and `kind` first.
pub fn to_value<K: Kind>(object: &K) -> Value {
    let mut value = serde_json::Map::new();
    value.insert("apiVersion".into(), Value::String(K::api_version()));
    value.insert("kind".into(), Value::String(K::KIND.into()));
    if let Ok(Value::Object(fields)) = serde_json::to_value(object) {
        value.extend(fields);
    }
    Value::Object(value)
}

/// Reads an object; `apiVersion` and `kind` are ignored, they were looked at to choose `K`.
///
/// # Errors
/// When a field that we read has the wrong type.
pub fn from_value<K: Kind>(mut value: Value) -> Result<K, serde_json::Error> {
    if let Value::Object(fields) = &mut value {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    serde_json::from_value(value)
}

/// The JSON merge patch (RFC 7396) that turns `old` into `new`; `None` when they are the same.
pub fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut patch = serde_json::Map::new();
            for (key, after) in new {
                match old.get(key) {
                    None => {
                        patch.insert(key.clone(), after.clone());
                    }
                    Some(before) => {
                        if let Some(difference) = merge_patch(before, after) {
                            patch.insert(key.clone(), difference);
                        }
                    }
                }
            }
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ => (old != new).then(|| new.clone()),
    }
}

/// Applies a JSON merge patch (RFC 7396).
pub fn apply_merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(fields) = target {
        for (key, value) in patch {
            if value.is_null() {
                fields.remove(key);
            } else {
                apply_merge_patch(fields.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

/// Declares a [`Kind`]; `slim` names what it drops beyond what every kind does.
#[macro_export]
macro_rules! kind {
    ($type:ty, $group:literal, $version:literal, $kind:literal, $plural:literal, $namespaced:literal $(, slim: $slim:path)?) => {
        impl $crate::meta::Kind for $type {
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const KIND: &'static str = $kind;
            const PLURAL: &'static str = $plural;
            const NAMESPACED: bool = $namespaced;

            fn meta(&self) -> &$crate::meta::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut $crate::meta::ObjectMeta {
                &mut self.metadata
            }

            $(
                fn slim(&mut self) {
                    self.metadata.slim();
                    $slim(self);
                }
            )?
        }
    };
}

/// Reads `null` like an absent field: API servers and hand-written manifests both have it.
pub fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_turns_old_into_new() {
        let old = json!({"a": 1, "b": {"x": [1], "y": 2}, "c": "gone"});
        let new = json!({"a": 1, "b": {"x": [1, 2], "y": 2}, "d": {"e": null}});
        let patch = merge_patch(&old, &new).expect("they differ");
        assert_eq!(patch, json!({"b": {"x": [1, 2]}, "c": null, "d": {"e": null}}));
        assert_eq!(merge_patch(&new, &new), None);
    }

    #[test]
    fn metadata_keeps_what_it_does_not_know() {
        let mut value = json!({"name": "a", "selfLink": "/x", "odd": [{"a": null}]});
        let meta: ObjectMeta = serde_json::from_value(value.clone()).expect("valid");
        assert_eq!(serde_json::to_value(&meta).expect("writes"), value);
        // But not who wrote which field, however that is put.
        value["managedFields"] =
            json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {".": {}}}}, 7]);
        assert_eq!(serde_json::from_value::<ObjectMeta>(value).expect("valid"), meta);
    }
}
