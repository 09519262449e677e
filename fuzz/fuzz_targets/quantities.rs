//! What is read is printed, and read back as the same amount.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spokeshave_model::{
    Quantity,
    duration::{GoDuration, parse_go},
};

fuzz_target!(|text: &str| {
    if let Ok(quantity) = text.parse::<Quantity>() {
        let printed = quantity.to_string();
        assert_eq!(printed.parse::<Quantity>().expect("printed by us"), quantity, "{printed}");
    }
    if let Some(length) = parse_go(text) {
        assert_eq!(parse_go(&GoDuration(length).to_string()), Some(length));
    }
});
