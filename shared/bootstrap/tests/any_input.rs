//! Whatever a class says, rendering answers or refuses; it never panics, and the same input gives the same bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use spokeshave_bootstrap::{BootstrapInput, ClusterInfo, mime, registration, render};
use spokeshave_model::AmiFamily;

fn kubelet() -> impl Strategy<Value = BTreeMap<String, Value>> {
    let value = prop_oneof![
        Just(json!(null)),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!({"memory.available": "1m", "x": 5})),
        Just(json!([1, "10.0.0.10"])),
    ];
    let key = proptest::sample::select(spokeshave_bootstrap::kubelet::MANAGED);
    proptest::collection::btree_map(key.prop_map(str::to_owned), value, 0..4)
}

/// Texts that look like archives, settings and scripts, and such that look like nothing.
fn user_data() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "MIME-Version: 1.0\n",
        "Content-Type: multipart/mixed; boundary=\"B\"\n",
        "Content-Type: text/plain\r\n",
        "Content-Transfer-Encoding: quoted-printable\n",
        "\n",
        "\r\n",
        "--B\n",
        "--B\r\n",
        "--B--",
        "--//\n",
        "=C3=\n",
        "é",
        "[settings.kubernetes]\n",
        "max-pods = 5\n",
        "[settings.kubernetes.node-labels]\n",
        "a = 'b'\n",
        "kind: NodeConfig\n",
        "#!/bin/bash\n",
    ]);
    prop_oneof![proptest::collection::vec(piece, 0..12).prop_map(|it| it.concat()), ".{0,40}",]
}

proptest! {
    #[test]
    fn rendering_always_answers(
        family in proptest::sample::select(AmiFamily::ALL),
        user_data in user_data(),
        kubelet in kubelet(),
        ca in prop_oneof![Just(String::new()), Just("QUJD".to_owned()), ".{0,6}"],
    ) {
        let input = BootstrapInput {
            family,
            cluster: ClusterInfo {
                name: "demo".into(),
                endpoint: "https://demo".into(),
                ca_bundle: ca,
                service_cidr: Some("10.100.0.0/16".into()),
                dns_ip: None,
            },
            taints: registration::taints(&[], &[]),
            kubelet,
            user_data: Some(user_data),
            ..BootstrapInput::default()
        };
        prop_assert_eq!(render(&input), render(&input));
    }

    #[test]
    fn an_archive_that_was_written_reads_back(bodies in proptest::collection::vec("[a-z/\\-\n]{0,20}", 1..4)) {
        let parts: Vec<mime::Part> =
            bodies.into_iter().map(|body| mime::Part::new("text/plain", body)).collect();
        prop_assert_eq!(mime::parse(&mime::write(&parts)), Ok(parts));
    }
}

/// A body with a line that reads as a delimiter, or as the broken start of one, gets another boundary.
#[test]
fn a_body_that_holds_the_boundary() {
    for (body, boundary) in [
        ("--//", "//1"),
        ("a\n--//--\nb", "//1"),
        ("--//--/", "//1"),
        ("--//-x\n--//1", "//2"),
        ("--\r//", "//1"),
        ("--//x", "//"),
        (" --//", "//"),
    ] {
        let archive = mime::write(&[mime::Part::new("text/plain", body)]);
        assert!(archive.contains(&format!("boundary=\"{boundary}\"\n")), "{body:?}: {archive}");
        let without_cr = body.replace('\r', "");
        assert_eq!(
            mime::parse(&archive),
            Ok(vec![mime::Part::new("text/plain", without_cr)]),
            "{body:?}"
        );
    }
}
