//! The `spokeshave` command: questions about Karpenter manifests and clusters, answered without touching anything.
//!
//! [`main`] parses the arguments, runs one command of [`commands`] and turns its answer into an exit status:
//! 0 an answer was given, 1 the answer is "no", 2 the call or an input is unusable. Commands read manifests
//! through [`input`] and print through [`output`]; they never open a socket unless a person asks for a live stack.

pub mod commands;
pub mod failure;
pub mod input;
#[cfg(feature = "live")]
pub mod live;
pub mod local;
pub mod output;
pub mod settings;
pub mod yaml_out;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser};

pub use failure::{ExitStatus, Failure};
pub use output::{Format, Output};

/// Karpenter for EKS, from outside the cluster.
#[derive(Debug, Parser)]
#[command(name = "spokeshave", version, propagate_version = false, max_term_width = 100)]
#[command(after_help = "Examples:
  spokeshave lint manifests/
  spokeshave plan --cluster cluster.yaml --catalog catalog.json
  spokeshave local --manifests manifests/ --output json

Exit status: 0 an answer was given, 1 the answer is \"no\", 2 the call or an input is unusable.")]
pub struct Cli {
    /// How to print the answer: text for people, json for scripts.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,

    #[command(subcommand)]
    pub command: commands::Command,
}

/// Runs the command line `args`, the program's name first.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = match Cli::command().try_get_matches_from(args) {
        Ok(matches) => matches,
        // Help and version are answers; anything else is a call that cannot be used.
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // A closed pipe is no reason to complain.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(2);
        }
    };
    let out = Output::new(cli.output);
    match cli.command.run(&out) {
        Ok(status) => ExitCode::from(status.code()),
        Err(failure) => {
            out.error(&failure.to_string());
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
