//! What was looked at, and how it is.

use serde::Serialize;

use crate::live::aws::CallError;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    Ok,
    /// It works, but a person should know.
    Warning,
    /// It could not be looked at.
    Unknown,
    /// It does not work.
    Fault,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What kind of thing was looked at: `queue`, `rule`, `crd`.
    pub check: &'static str,
    /// Which one.
    pub subject: String,
    pub status: Status,
    pub message: String,
    /// What to do about it; `null` when nothing is to be done.
    pub fix: Option<String>,
}

/// All answers, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    fn add(&mut self, check: &'static str, subject: &str, status: Status, message: String, fix: Option<&str>) {
        let (subject, fix) = (subject.to_owned(), fix.map(str::to_owned));
        self.0.push(Finding { check, subject, status, message, fix });
    }

    pub fn ok(&mut self, check: &'static str, subject: &str, message: impl Into<String>) {
        self.add(check, subject, Status::Ok, message.into(), None);
    }

    pub fn warning(&mut self, check: &'static str, subject: &str, message: impl Into<String>, fix: &str) {
        self.add(check, subject, Status::Warning, message.into(), Some(fix));
    }

    pub fn fault(&mut self, check: &'static str, subject: &str, message: impl Into<String>, fix: &str) {
        self.add(check, subject, Status::Fault, message.into(), Some(fix));
    }

    /// `problems` joined; nothing wrong when there are none.
    pub fn judged(&mut self, check: &'static str, subject: &str, problems: &[String], good: &str, fix: &str) {
        if problems.is_empty() {
            self.ok(check, subject, good);
        } else {
            self.fault(check, subject, problems.join("; "), fix);
        }
    }

    /// A call that failed: what is not there is a fault, what may not be asked is unknown.
    pub fn failed(&mut self, check: &'static str, subject: &str, error: &CallError, fix: &str) {
        if error.is_missing() {
            self.fault(check, subject, format!("it is not there ({error})"), fix);
        } else if error.is_refused() {
            let fix = format!("allow the caller {}", error.call.replacen(' ', ":", 1));
            self.add(check, subject, Status::Unknown, format!("not checked: {error}"), Some(&fix));
        } else {
            self.add(check, subject, Status::Unknown, format!("not checked: {error}"), None);
        }
    }
}

/// The fix for whatever was changed by hand.
pub const DEPLOY: &str = "deploy the stack again";
