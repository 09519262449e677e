//! The kinds that we serve, with their compiled schemas.

use serde_json::Value;
use spokeshave_model::{
    FieldPath,
    crds::{self, Crd},
};

use crate::Schema;

/// How an object's `apiVersion` and `kind` relate to ours.
#[derive(Debug)]
pub enum Match<'a> {
    /// One of ours.
    Served(&'a Served),
    /// A kind of one of our groups that is not served so: the message for it.
    NotServed(String),
    /// Somebody else's.
    Foreign,
}

/// A kind that is served.
#[derive(Debug)]
pub struct Served {
    pub crd: Crd,
    pub schema: Schema,
}

/// All of ours.
#[derive(Debug)]
pub struct Kinds(Vec<Served>);

impl Default for Kinds {
    fn default() -> Self {
        Self::new()
    }
}

impl Kinds {
    /// Compiles the schemas of all definitions: a matter of milliseconds.
    pub fn new() -> Self {
        let served = |crd: Crd| {
            let scale = crd.scale_path().map(FieldPath::parse);
            Served { schema: Schema::compile(crd.schema()).scaled_by(scale), crd }
        };
        Self(crds::all().into_iter().map(served).collect())
    }

    /// Finds the kind.
    pub fn find(&self, api_version: &str, kind: &str) -> Match<'_> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let exact = |it: &&Served| {
            it.crd.group == group && it.crd.version == version && it.crd.kind == kind
        };
        if let Some(served) = self.0.iter().find(exact) {
            return Match::Served(served);
        }
        let is_our_kind = self.0.iter().any(|it| it.crd.kind == kind);
        let is_our_group = self.0.iter().any(|it| it.crd.group == group);
        if is_our_kind && is_our_group {
            return Match::NotServed(format!(
                "no matches for kind {kind:?} in version {api_version:?}"
            ));
        }
        Match::Foreign
    }

    /// The object as the API server would give it back, with the defaults of its kind; others as they are.
    pub fn defaulted(&self, api_version: &str, kind: &str, object: &Value) -> Value {
        match self.find(api_version, kind) {
            Match::Served(served) => served.schema.defaulted(object.clone()),
            Match::NotServed(_) | Match::Foreign => object.clone(),
        }
    }
}
