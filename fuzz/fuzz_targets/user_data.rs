//! Any user data gives a text or an error in every family, and an archive that was written reads back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spokeshave_bootstrap::{BootstrapInput, mime, render};
use spokeshave_model::AmiFamily;

fuzz_target!(|text: &str| {
    let mut input = BootstrapInput { user_data: Some(text.to_owned()), ..BootstrapInput::default() };
    input.cluster.service_cidr = Some("10.100.0.0/16".to_owned());
    for family in [
        AmiFamily::Al2,
        AmiFamily::Al2023,
        AmiFamily::Bottlerocket,
        AmiFamily::Windows2022,
        AmiFamily::Custom,
    ] {
        input.family = family;
        let _ = render(&input);
    }
    if let Ok(parts) = mime::parse(text) {
        let written = mime::write(&parts);
        let again = mime::parse(&written).expect("what is written can be read");
        assert_eq!(again.len(), parts.len());
    }
});
