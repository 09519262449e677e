//! `spokeshave version`.

use serde_json::json;

use crate::{ExitStatus, Failure, Output};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave version
  spokeshave version --output json")]
pub struct Args {}

/// Prints the version of the command and of what it writes into objects.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(_: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if out.is_json() {
        out.json(&json!({
            "version": version,
            "nodePoolHashVersion": "v3",
            "ec2NodeClassHashVersion": "v6",
        }))?;
    } else {
        out.line(&format!("spokeshave {version}"))?;
    }
    Ok(ExitStatus::Answered)
}
