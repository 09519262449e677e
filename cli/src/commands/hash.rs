//! `spokeshave hash`: the hashes that decide static drift.

use std::path::PathBuf;

use base64::Engine;
use serde::Serialize;
use serde_json::Value;
use spokeshave_admission::Kinds;
use spokeshave_model::{EC2NodeClass, Kind, NodePool, hash};

use crate::{ExitStatus, Failure, Output, input};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave hash nodepool.yaml
  spokeshave hash manifests/ --ca \"$(aws eks describe-cluster --name demo --query cluster.certificateAuthority.data --output text)\"
  spokeshave hash nodeclass.yaml --ca-file ca.pem --output json")]
pub struct Args {
    /// Files, directories, or - for standard input.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// The cluster CA bundle that counts in the hash of a class, as DescribeCluster gives it.
    #[arg(long, value_name = "TEXT", conflicts_with = "ca_file")]
    pub ca: Option<String>,

    /// A file with the bundle in PEM form; its standard base64 counts.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Row {
    kind: &'static str,
    name: String,
    hash: String,
    version: &'static str,
}

/// Prints one row per pool and class, in input order.
///
/// # Errors
/// When an input is unusable.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let ca = match (&args.ca, &args.ca_file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => {
            let bytes = std::fs::read(file).map_err(|error| {
                Failure::new(format!("cannot read: {error}"))
                    .file(file.display().to_string())
                    .fix("give --ca-file the PEM bundle of the cluster")
            })?;
            base64::engine::general_purpose::STANDARD.encode(bytes)
        }
        (None, None) => String::new(),
    };
    let rows = rows(&input::load(&args.paths)?, &ca)?;
    if out.is_json() {
        out.json(&rows)?;
    } else {
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .map(|it| vec![it.kind.into(), it.name, it.version.into(), it.hash])
            .collect();
        out.table(&["KIND", "NAME", "VERSION", "HASH"], &rows)?;
    }
    Ok(ExitStatus::Answered)
}

/// The rows of all pools and classes among `manifests`.
///
/// # Errors
/// When one of them cannot be read into its type.
pub(super) fn rows(manifests: &[input::Manifest], ca: &str) -> Result<Vec<Row>, Failure> {
    let kinds = Kinds::new();
    let mut rows = Vec::new();
    for manifest in manifests {
        let defaulted = |unused: &[&str]| {
            let mut manifest = manifest.clone();
            manifest.value =
                kinds.defaulted(&manifest.api_version, &manifest.kind, &manifest.value);
            // What no hash reads may be as wrong as it likes.
            for pointer in unused {
                let (parent, field) = pointer.rsplit_once('/').unwrap_or(("", pointer));
                if let Some(parent) =
                    manifest.value.pointer_mut(parent).and_then(Value::as_object_mut)
                {
                    parent.remove(field);
                }
            }
            manifest
        };
        let (kind, hash, version) = if manifest.is::<NodePool>() {
            let mut manifest = defaulted(&[
                "/spec/disruption",
                "/spec/limits",
                "/spec/weight",
                "/spec/replicas",
                "/spec/template/spec/requirements",
                "/status",
            ]);
            let written = written(&mut manifest.value);
            let pool: NodePool = manifest.typed()?;
            (NodePool::KIND, hash::node_pool_as_written(&pool, &written), hash::NODE_POOL_VERSION)
        } else if manifest.is::<EC2NodeClass>() {
            let class: EC2NodeClass = defaulted(&[
                "/spec/subnetSelectorTerms",
                "/spec/securityGroupSelectorTerms",
                "/spec/capacityReservationSelectorTerms",
                "/spec/ipPrefixCount",
                "/status",
            ])
            .typed()?;
            (EC2NodeClass::KIND, hash::ec2_node_class(&class, ca), hash::EC2_NODE_CLASS_VERSION)
        } else {
            continue;
        };
        rows.push(Row { kind, name: manifest.name.clone(), hash, version });
    }
    Ok(rows)
}

/// Takes the texts out of a pool that its type would refuse, or take for something else.
fn written(pool: &mut Value) -> hash::Written {
    let mut written = hash::Written { lacks_class: true, ..hash::Written::default() };
    let Some(spec) = pool.pointer_mut("/spec/template/spec") else { return written };
    written.lacks_class = spec.get("nodeClassRef").is_none_or(Value::is_null);
    for (list, effects) in
        [("taints", &mut written.effects), ("startupTaints", &mut written.startup_effects)]
    {
        let taints = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for taint in taints {
            let effect = taint.as_object_mut().map(|it| {
                let effect = it.get("effect").and_then(Value::as_str).unwrap_or("").to_owned();
                // One of another type stays where it is, and is refused.
                if it.get("effect").is_none_or(|it| it.is_string() || it.is_null()) {
                    it.remove("effect");
                }
                effect
            });
            effects.push(effect.unwrap_or_default());
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // api 17.2 and 17.3: minimal; api 20.2
    fn defaults_are_filled_in_first() {
        let text = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      requirements: []
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: m}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: r
---
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
---
apiVersion: eks.amazonaws.com/v1
kind: NodeClass
metadata: {name: x}
";
        let rows = rows(&input::load_text("t.yaml", text).expect("valid"), "").expect("valid");
        let shown: Vec<_> = rows
            .iter()
            .map(|it| (it.kind, it.name.as_str(), it.hash.as_str(), it.version))
            .collect();
        assert_eq!(
            shown,
            [
                ("NodePool", "default", "6821555240594823858", "v3"),
                ("EC2NodeClass", "m", "16664176375993651535", "v6"),
            ]
        );
    }

    #[test]
    fn nothing_is_validated() {
        let text = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  weight: heavy
  template:
    spec:
      requirements: [{key: a, operator: Is}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
";
        let rows = rows(&input::load_text("t.yaml", text).expect("valid"), "").expect("hashed");
        assert_eq!(rows[0].hash, "6821555240594823858");
    }

    #[test] // api 17.2: texts count as they are, and what is not there does not
    fn texts_of_taints_count_as_they_are() {
        let hash = |spec: &str| {
            let text = format!(
                "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: p}}\nspec: {{template: {{spec: {{{spec}}}}}}}\n"
            );
            rows(&input::load_text("t.yaml", &text).expect("valid"), "").map(|it| it[0].hash.clone())
        };
        let class = "nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}";
        for (spec, want) in [
            (format!("{class}, taints: [{{key: a, effect: NoSchedule}}]"), "8919242258545757417"),
            (format!("{class}, taints: [{{key: a, effect: Maybe}}]"), "15849453723869507141"),
            (format!("{class}, taints: [{{key: a}}]"), "322067787641870412"),
            (format!("{class}, taints: [{{key: a, effect: null}}]"), "322067787641870412"),
            (format!("{class}, taints: [{{key: a, effect: \"\"}}]"), "322067787641870412"),
            (format!("{class}, startupTaints: [{{key: a, effect: Maybe}}]"), "18442460916803906938"),
            ("expireAfter: 720h".to_owned(), "14193706301438959238"),
        ] {
            assert_eq!(hash(&spec).expect("hashed"), want, "{spec}");
        }
        let failure = hash(&format!("{class}, taints: [{{key: a, effect: 3}}]")).expect_err("a number");
        assert!(failure.to_string().contains("spec.template.spec.taints[0].effect"), "{failure}");
    }

    #[test] // api 17: objects at random, with what Go's own library (hashstructure 2.0.2, its JSON) makes of them
    fn recorded_answers() {
        let manifests = input::load_text("t.json", include_str!("../../tests/hashes.json")).expect("valid");
        let rows = rows(&manifests, "QUJD").expect("valid");
        assert_eq!(rows.len(), 49);
        for (manifest, row) in manifests.iter().zip(rows) {
            let recorded = &manifest.value["metadata"]["annotations"]["hash"];
            assert_eq!(recorded, &row.hash, "{}", manifest.value);
        }
    }

    #[test] // api 20.2
    fn worked_set() {
        let text = include_str!("../../tests/worked-set.yaml");
        let manifests = input::load_text("t.yaml", text).expect("valid");
        let rows = rows(&manifests, "Y2EtZGVtbw==").expect("valid");
        let hashes: Vec<_> = rows.iter().map(|it| it.hash.as_str()).collect();
        assert_eq!(
            hashes,
            ["16697477028405916231", "12962735048330029724", "11720229184300405013"]
        );
    }
}
