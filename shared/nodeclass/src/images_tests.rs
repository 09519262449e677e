use serde_json::json;
use spokeshave_model::Requirement;

use super::*;

fn paths(alias: &str, version: &str) -> Vec<String> {
    alias_paths(alias, version).expect(alias).into_iter().map(|it| it.path).collect()
}

#[test] // aws-nodeclass 6, cases 1, 3 and 4
fn alias_paths_per_family() {
    let al2 = "/aws/service/eks/optimized-ami/1.32/amazon-linux-2";
    assert_eq!(
        paths("al2@latest", "1.32"),
        [
            format!("{al2}/recommended/image_id"),
            format!("{al2}-arm64/recommended/image_id"),
            format!("{al2}-gpu/recommended/image_id"),
        ]
    );
    assert_eq!(
        paths("al2@v20250101", "1.32"),
        [
            format!("{al2}/amazon-eks-node-1.32-v20250101/image_id"),
            format!("{al2}-arm64/amazon-eks-arm64-node-1.32-v20250101/image_id"),
            format!("{al2}-gpu/amazon-eks-gpu-node-1.32-v20250101/image_id"),
        ]
    );
    let al2023 = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023";
    assert_eq!(
        paths("al2023@v20250920", "1.34")[4],
        format!(
            "{al2023}/x86_64/neuron/amazon-eks-node-al2023-x86_64-neuron-1.34-v20250920/image_id"
        )
    );
    assert_eq!(
        paths("al2023@latest", "1.34"),
        [
            format!("{al2023}/x86_64/standard/recommended/image_id"),
            format!("{al2023}/arm64/standard/recommended/image_id"),
            format!("{al2023}/x86_64/nvidia/recommended/image_id"),
            format!("{al2023}/arm64/nvidia/recommended/image_id"),
            format!("{al2023}/x86_64/neuron/recommended/image_id"),
        ]
    );
    let bottlerocket = "/aws/service/bottlerocket/aws-k8s-1.33";
    assert_eq!(
        paths("bottlerocket@v1.46.0", "1.33"),
        [
            format!("{bottlerocket}/x86_64/1.46.0/image_id"),
            format!("{bottlerocket}/arm64/1.46.0/image_id"),
            format!("{bottlerocket}-nvidia/x86_64/1.46.0/image_id"),
            format!("{bottlerocket}-nvidia/arm64/1.46.0/image_id"),
        ]
    );
    assert_eq!(
        paths("bottlerocket@latest", "1.33")[0],
        format!("{bottlerocket}/x86_64/latest/image_id")
    );
    assert_eq!(
        paths("windows2022@latest", "1.34"),
        [
            "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.34/image_id"
        ]
    );
}

#[test] // aws-nodeclass 6, cases 2 and 5; api 13, case 7; api 10.2, consequence 6
fn aliases_that_are_not_published() {
    for (alias, version, want) in [
        ("al2@v20250101", "1.33", Err(AliasError::NoAl2("1.33".into()))),
        ("al2@latest", "1.32", Ok(())),
        ("windows2025@latest", "1.34", Err(AliasError::NoWindows2025("1.34".into()))),
        ("windows2025@latest", "1.35", Ok(())),
        ("al2023@a@b", "1.34", Err(AliasError::Malformed("al2023@a@b".into()))),
    ] {
        assert_eq!(alias_paths(alias, version).map(|_| ()), want, "{alias} {version}");
    }
}

#[allow(clippy::needless_pass_by_value)] // `json!` reads best in place.
fn spec(terms: serde_json::Value) -> EC2NodeClassSpec {
    serde_json::from_value(json!({"amiSelectorTerms": terms})).expect("a spec")
}

fn text(query: &ImageQuery) -> String {
    let filters = query.filters.iter().map(|it| format!("{}={}", it.name, it.values.join(",")));
    format!("[{}] {}", query.owners.join(","), filters.collect::<Vec<_>>().join(" "))
}

#[test] // aws-nodeclass 6, cases 6 and 8; api 10.2, consequences 3 and 4
fn queries_for_other_terms() {
    let all = |terms, values: &[&str]| {
        let values: Vec<String> = values.iter().map(|&it| it.to_owned()).collect();
        queries(&spec(terms), &values).iter().map(text).collect::<Vec<_>>()
    };
    let terms = json!([
        {"name": "my-*", "owner": "111122223333"}, {"tags": {"env": "prod"}}, {"id": "ami-1"}, {"ssmParameter": "/x"}
    ]);
    assert_eq!(parameters(&spec(terms.clone())), ["/x"]);
    assert_eq!(
        all(terms, &["ami-2"]),
        [
            "[111122223333] name=my-* state=available",
            "[] tag:env=prod state=available",
            "[] image-id=ami-1,ami-2 state=available",
        ]
    );
    assert_eq!(all(json!([{"name": "my-*"}]), &[]), ["[self,amazon] name=my-* state=available"]);
    assert_eq!(all(json!([{"ssmParameter": "/x"}]), &["lt-0abc"]), Vec::<String>::new());
    assert_eq!(all(json!([{"tags": {}}]), &[]), Vec::<String>::new());
    assert_eq!(
        all(json!([{"id": "ami-1", "ssmParameter": "/x"}]), &[]),
        ["[] image-id=ami-1 state=available"]
    );
    assert_eq!(
        parameters(&spec(json!([{"id": "ami-1", "ssmParameter": "/x"}]))),
        Vec::<&str>::new()
    );
}

fn at(day: &str) -> Timestamp {
    format!("{day}T00:00:00Z").parse().expect("a day")
}

fn image(id: &str, name: &str, arch: &str, created: &str, deprecated: Option<&str>) -> Image {
    Image {
        id: id.into(),
        name: name.into(),
        architecture: arch.into(),
        creation_date: Some(at(created)),
        deprecation_time: deprecated.map(at),
        ..Image::default()
    }
}

fn ids(images: Vec<Image>) -> Vec<String> {
    let status = to_status(vec![(ImageQuery::default(), images)], at("2025-06-01"));
    status.into_iter().map(|it| it.id).collect()
}

#[test] // aws-nodeclass 6, cases 7 and 9
fn one_image_per_set_of_requirements() {
    let fine = |id, name, created| image(id, name, "x86_64", created, None);
    let old = |id, name, created| image(id, name, "x86_64", created, Some("2025-05-01"));
    for (what, images, want) in [
        (
            "not deprecated wins",
            vec![old("a", "a", "2025-03-01"), fine("b", "b", "2025-01-01")],
            vec!["b"],
        ),
        (
            "newer wins among deprecated ones",
            vec![old("a", "a", "2025-03-01"), old("b", "b", "2025-01-01")],
            vec!["a"],
        ),
        (
            "the greater name wins",
            vec![fine("a", "n-1", "2025-03-01"), fine("b", "n-2", "2025-03-01")],
            vec!["b"],
        ),
        (
            "the first seen wins",
            vec![fine("a", "n", "2025-03-01"), fine("b", "n", "2025-03-01")],
            vec!["a"],
        ),
        (
            "by id at the same time",
            vec![
                image("ami-bbb", "x", "x86_64", "2025-02-02", None),
                image("ami-aaa", "y", "arm64", "2025-02-02", None),
            ],
            vec!["ami-aaa", "ami-bbb"],
        ),
        (
            "newest first, unknown architectures never",
            vec![
                image("a", "x", "x86_64", "2025-02-01", None),
                image("b", "y", "arm64", "2025-02-02", None),
                image("c", "z", "i386", "2025-02-03", None),
            ],
            vec!["b", "a"],
        ),
    ] {
        assert_eq!(ids(images), want, "{what}");
    }
}

fn al2023() -> Vec<AmiStatus> {
    let released = [
        ("ami-std-x", "x86_64", Variant::Standard),
        ("ami-std-a", "arm64", Variant::Standard),
        ("ami-gpu-x", "x86_64", Variant::Nvidia),
        ("ami-neu-x", "x86_64", Variant::Neuron),
    ];
    let known: Vec<(String, Vec<Variant>)> =
        released.iter().map(|(id, _, variant)| ((*id).to_owned(), vec![*variant])).collect();
    let images = released.iter().map(|(id, arch, _)| image(id, id, arch, "2025-02-02", None));
    let query = alias_query(&known).expect("images");
    assert_eq!(text(&query), "[] image-id=ami-gpu-x,ami-neu-x,ami-std-a,ami-std-x state=available");
    to_status(vec![(query, images.collect())], at("2025-06-01"))
}

#[test] // aws-nodeclass 6.4; api 13, case 5
fn requirements_are_sorted_by_length_then_key() {
    let status = al2023();
    let standard = status.iter().find(|it| it.id == "ami-std-x").expect("present");
    assert_eq!(
        serde_json::to_value(&standard.requirements).expect("writes"),
        json!([
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"},
            {"key": "karpenter.k8s.aws/instance-accelerator-count", "operator": "DoesNotExist"},
        ])
    );
    assert!(is_standard(standard));
    assert!(!is_standard(status.iter().find(|it| it.id == "ami-gpu-x").expect("present")));
}

#[test] // aws-nodeclass 6, case 1
fn one_image_may_serve_two_variants() {
    let query = alias_query(&[
        ("ami-1".into(), vec![Variant::Neuron, Variant::Nvidia]),
        ("ami-2".into(), vec![Variant::Standard]),
        ("ami-3".into(), vec![Variant::Standard]),
    ]);
    let images = vec![
        image("ami-1", "gpu", "x86_64", "2025-02-02", None),
        image("ami-2", "std", "x86_64", "2025-02-02", None),
        image("ami-3", "arm", "arm64", "2025-02-02", None),
    ];
    let status = to_status(vec![(query.expect("images"), images)], at("2025-06-01"));
    assert_eq!(
        status.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(),
        ["ami-1", "ami-1", "ami-2", "ami-3"]
    );
}

#[test] // aws-nodeclass 6, case 5
fn windows_images_carry_their_build() {
    let query = alias_query(&[("ami-w".into(), vec![Variant::Windows(AmiFamily::Windows2025)])]);
    let images = vec![image("ami-w", "w", "x86_64", "2025-02-02", None)];
    let status = to_status(vec![(query.expect("images"), images)], at("2025-06-01"));
    assert_eq!(
        serde_json::to_value(&status[0].requirements).expect("writes"),
        json!([
            {"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {"key": "node.kubernetes.io/windows-build", "operator": "In", "values": ["10.0.26100"]},
        ])
    );
}

#[test] // aws-nodeclass 6, case 10
fn the_image_of_an_instance_type() {
    let of_type = |arch: &str, gpus: Option<&str>, accelerators: Option<&str>| {
        let count = |key, value: Option<&str>| match value {
            Some(value) => Requirement::equals(key, value),
            None => Requirement::does_not_exist(key),
        };
        let requirements: Requirements = [
            Requirement::equals(labels::ARCH, arch),
            count(labels::INSTANCE_GPU_COUNT, gpus),
            count(labels::INSTANCE_ACCELERATOR_COUNT, accelerators),
        ]
        .into_iter()
        .collect();
        choose(&al2023(), &requirements).map(|it| it.id.clone())
    };
    assert_eq!(of_type("amd64", None, None).as_deref(), Some("ami-std-x"));
    assert_eq!(of_type("arm64", None, None).as_deref(), Some("ami-std-a"));
    assert_eq!(of_type("amd64", Some("1"), None).as_deref(), Some("ami-gpu-x"));
    assert_eq!(of_type("amd64", None, Some("1")).as_deref(), Some("ami-neu-x"));
    assert_eq!(of_type("arm64", Some("1"), None), None);
}
