//! Any text is either read or refused with a message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spokeshave::{input, yaml_out};

fuzz_target!(|text: &str| {
    let Ok(manifests) = input::load_text("input.yaml", text) else { return };
    // What was read can be written, and is read back as it was.
    for manifest in manifests {
        let written = yaml_out::documents([&manifest.value]);
        let back = input::load_text("written.yaml", &written).expect("what we write can be read");
        assert_eq!(back[0].value, manifest.value);
    }
});
