//! Any message body is understood or called malformed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &str| {
    let _ = spokeshave_interruption::parse(body);
});
