//! What the messages of the current invocation carry besides their work, so that logs and traces of several functions
//! can be put together. A process serves one invocation at a time.

use std::sync::{Mutex, PoisonError};

/// Message attribute with the ids that a message goes back to, separated by commas.
pub const CORRELATION: &str = "correlation";

static CURRENT: Mutex<(String, String)> = Mutex::new((String::new(), String::new()));

/// Names what messages sent from now on go back to, and the X-Ray trace that they belong to; either may be empty.
pub fn begin(correlation: &str, trace: &str) {
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) =
        (correlation.to_owned(), trace.to_owned());
}

/// Correlation and trace of the current invocation.
pub fn current() -> (String, String) {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
