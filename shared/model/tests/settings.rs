//! Settings by their environment names, as aws-nodeclass numbers its cases.

use spokeshave_model::Settings;

fn with(name: &str, value: &str) -> Result<Settings, String> {
    let mut settings = Settings::default();
    settings.set(name, value).map(|_| settings).map_err(|error| error.to_string())
}

#[test] // aws-nodeclass 27, cases 2, 4 and 5; 4, case 10
fn values_and_defaults() {
    let defaults = Settings::default();
    assert!(defaults.gates.reserved_capacity);
    let others = [
        defaults.gates.spot_to_spot_consolidation,
        defaults.gates.node_repair,
        defaults.gates.node_overlay,
        defaults.gates.static_capacity,
        defaults.gates.capacity_buffer,
        defaults.gates.node_class_cel,
    ];
    assert_eq!(others, [false; 6]);
    assert_eq!(defaults.vm_memory_overhead_percent, 0.075);
    let zero = with("VM_MEMORY_OVERHEAD_PERCENT", "0").expect("a fraction");
    assert_eq!(zero.vm_memory_overhead_percent, 0.0);
    for (name, value) in [
        ("AMI_REFRESH_INTERVAL", "30s"),
        ("SUBNET_REFRESH_INTERVAL", "59s"),
        ("VM_MEMORY_OVERHEAD_PERCENT", "-0.1"),
        ("RESERVED_ENIS", "-1"),
        ("CLUSTER_ENDPOINT", "cluster.example"),
        ("CLUSTER_ENDPOINT", "https://"),
    ] {
        let error = with(name, value).expect_err(value);
        assert!(error.contains(value), "{error}");
    }
    assert!(with("AMI_REFRESH_INTERVAL", "1m").is_ok());
    assert!(with("SUBNET_REFRESH_INTERVAL", "10m").is_ok());
    assert!(with("CLUSTER_ENDPOINT", "https://cluster.example").is_ok());
}

#[test] // B-088: the queue by name, URL or ARN
fn a_queue_has_three_spellings() {
    for (text, name) in [
        ("", ""),
        ("prod", "prod"),
        ("Karpenter-prod_1", "Karpenter-prod_1"),
        ("https://sqs.eu-west-1.amazonaws.com/111122223333/prod", "prod"),
        ("http://localhost:4566/000000000000/prod", "prod"),
        ("arn:aws:sqs:eu-west-1:111122223333:prod", "prod"),
        ("arn:aws-us-gov:sqs:us-gov-west-1:111122223333:prod.fifo", "prod.fifo"),
    ] {
        assert_eq!(with("INTERRUPTION_QUEUE", text).expect(text).interruption_queue, name);
    }
    for text in [
        "arn:aws:sns:eu-west-1:111122223333:prod",
        "arn:aws:sqs:eu-west-1:111122223333",
        "arn:aws:sqs:eu-west-1:111122223333:",
        "https://sqs.eu-west-1.amazonaws.com/111122223333/",
        "https://sqs.eu-west-1.amazonaws.com/prod",
        "sqs.eu-west-1.amazonaws.com/111122223333/prod",
        "two words",
        &"a".repeat(81),
    ] {
        let error = with("INTERRUPTION_QUEUE", text).expect_err(text);
        assert!(error.contains("INTERRUPTION_QUEUE") && error.contains(text), "{error}");
    }
}

#[test] // aws-capacity 1, cases 1, 3 to 5 and 7 to 9
fn settings_that_stop_the_start() {
    for (name, value, named) in [
        ("VM_MEMORY_OVERHEAD_PERCENT", "-0.1", "vm-memory-overhead-percent"),
        ("VM_MEMORY_OVERHEAD_PERCENT", "NaN", "vm-memory-overhead-percent"),
        ("CLUSTER_ENDPOINT", "not-a-url", "CLUSTER_ENDPOINT"),
        ("SUBNET_REFRESH_INTERVAL", "30s", "SUBNET_REFRESH_INTERVAL"),
        ("SUBNET_REFRESH_INTERVAL", "90", "SUBNET_REFRESH_INTERVAL"),
        ("RESERVED_ENIS", "-1", "reserved-enis"),
        ("RESERVED_ENIS", "two", "reserved-enis"),
        ("ISOLATED_VPC", "yes", "ISOLATED_VPC"),
        ("FEATURE_GATES", "NodeOverlay", "FEATURE_GATES"),
        ("AWS_FEATURE_GATES", "NodeClassCEL=on", "AWS_FEATURE_GATES"),
    ] {
        let error = with(name, value).expect_err(value);
        assert!(error.contains(named) && error.contains(value), "{error}");
    }
    let gates = with("FEATURE_GATES", "NodeOverlay=true").expect("gates").gates;
    assert_eq!(
        (gates.node_overlay, gates.reserved_capacity, gates.node_repair),
        (true, true, false)
    );
    let gates = with("AWS_FEATURE_GATES", "Foo=true").expect("unknown names are ignored").gates;
    assert!(!gates.node_class_cel);
    for (word, value) in [("1", true), ("t", true), ("TRUE", true), ("0", false), ("F", false)] {
        assert_eq!(with("ISOLATED_VPC", word).expect(word).isolated_vpc, value, "{word}");
    }
    let endpoint = "https://abc.gr7.us-west-2.eks.amazonaws.com";
    assert_eq!(with("CLUSTER_ENDPOINT", endpoint).expect("a URL").cluster_endpoint, endpoint);
}

#[test] // scheduling 1, cases 1-4
fn settings_of_planning() {
    use spokeshave_model::settings::{MinValuesPolicy, PreferencePolicy};
    let defaults = Settings::default();
    assert_eq!(defaults.batch_idle_duration.as_secs(), 1);
    assert_eq!(defaults.batch_max_duration.as_secs(), 10);
    assert_eq!(defaults.preference_policy, PreferencePolicy::Respect);
    assert_eq!(defaults.min_values_policy, MinValuesPolicy::Strict);
    assert!(defaults.ignore_dra_requests && defaults.gates.reserved_capacity);
    let gates = |text: &str| with("FEATURE_GATES", text).map(|it| it.gates);
    let on = gates("NodeOverlay=true").expect("gates");
    assert!(on.node_overlay && on.reserved_capacity);
    let off = gates("ReservedCapacity=false").expect("gates");
    assert!(!off.reserved_capacity && !off.node_overlay);
    assert_eq!(gates("Drift=true"), Ok(defaults.gates));
    assert!(gates("NodeOverlay").is_err());
    for (name, wrong, right) in
        [("PREFERENCE_POLICY", "ignore", "Ignore"), ("MIN_VALUES_POLICY", "Relaxed", "BestEffort")]
    {
        assert!(with(name, wrong).expect_err("a word of another case").contains(wrong));
        assert!(with(name, right).is_ok());
    }
}
