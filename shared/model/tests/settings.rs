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
