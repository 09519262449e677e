//! Any kubelet settings are judged, hashed and, where they are expressions, evaluated.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use spokeshave_catalog::expressions::{Expression, Variables};
use spokeshave_model::{AmiFamily, EC2NodeClass, hash, validation};
use spokeshave_nodeclass::validation::unsupported_kubelet;

const VARIABLES: Variables<'_> = Variables {
    vcpus: 2,
    memory_mib: 8192,
    default_enis: 3,
    ips_per_eni: 10,
    max_pods: 29,
    instance_type: "m5.large",
};

fuzz_target!(|text: &str| {
    let _ = Expression::new(text).evaluate(&VARIABLES);
    let Ok(settings) = serde_json::from_str::<BTreeMap<String, Value>>(text) else { return };
    let _ = validation::kubelet(Some(&settings));
    for family in [AmiFamily::Al2, AmiFamily::Al2023, AmiFamily::Bottlerocket, AmiFamily::Custom] {
        let _ = unsupported_kubelet(family, Some(&settings));
    }
    let mut class = EC2NodeClass::default();
    class.spec.kubelet = Some(settings);
    let _ = hash::ec2_node_class(&class, "");
    let _ = hash::ec2_node_class_v5(&class, "");
});
