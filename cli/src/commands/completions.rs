//! `spokeshave completions SHELL`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{ExitStatus, Failure, Output};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spokeshave completions bash > /etc/bash_completion.d/spokeshave
  spokeshave completions zsh > ~/.zfunc/_spokeshave")]
pub struct Args {
    /// The shell to complete for.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "spokeshave", &mut script);
    out.bytes(&script)?;
    Ok(ExitStatus::Answered)
}
