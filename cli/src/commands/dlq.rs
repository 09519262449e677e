//! `spokeshave dlq`: work that could not be done, and doing it again.

use clap::{Args as ClapArgs, Subcommand};

use crate::{ExitStatus, Failure, Output};

#[cfg(feature = "live")]
mod letters;

/// Lists, shows or sends again what waits in the dead-letter queues of a stack.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  spokeshave dlq list --stack spokeshave-prod
  spokeshave dlq show --stack spokeshave-prod --queue launch --output json
  spokeshave dlq redrive --stack spokeshave-prod --queue launch
  spokeshave dlq redrive --stack spokeshave-prod --dry-run

Every handler stands to be run twice, so sending a message again is safe. Find out first why it failed: what failed
ten times fails an eleventh time unless something has changed.

Exit status: 0 an answer was given, 1 something could not be sent again, 2 the call is unusable.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// How many messages wait, by queue
    List(StackArgs),
    /// What the messages say; they stay where they are
    Show(Chosen),
    /// Sends messages to where they came from, and takes them out
    Redrive {
        #[command(flatten)]
        chosen: Chosen,

        /// Only say what would be sent
        #[arg(long)]
        dry_run: bool,
    },
}

#[cfg(feature = "live")]
use crate::live::StackArgs;

/// Which stack.
#[cfg(not(feature = "live"))]
#[derive(Debug, ClapArgs)]
struct StackArgs {
    /// Name of the CloudFormation stack
    #[arg(long, value_name = "NAME")]
    stack: String,
}

/// Which messages.
#[derive(Debug, ClapArgs)]
#[cfg_attr(not(feature = "live"), allow(dead_code))]
struct Chosen {
    #[command(flatten)]
    stack: StackArgs,

    /// Only this queue, by its function (launch, provision-wake) or `undelivered`; may be given more than once
    #[arg(long, value_name = "NAME")]
    queue: Vec<String>,

    /// Only the message with this id; may be given more than once
    #[arg(long, value_name = "ID")]
    id: Vec<String>,

    /// At most so many messages of each queue
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

/// Carries the command out.
///
/// # Errors
/// An unknown stack or queue, or AWS does not answer.
#[cfg(feature = "live")]
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    match &args.action {
        Action::List(stack) => letters::list(stack, out),
        Action::Show(chosen) => letters::show(chosen, out),
        Action::Redrive { chosen, dry_run } => letters::redrive(chosen, *dry_run, out),
    }
}

/// Says that this build cannot.
///
/// # Errors
/// Always.
#[cfg(not(feature = "live"))]
pub fn run(args: &Args, _: &Output) -> Result<ExitStatus, Failure> {
    let stack = match &args.action {
        Action::List(stack) => stack,
        Action::Show(chosen) | Action::Redrive { chosen, .. } => &chosen.stack,
    };
    Err(Failure::new(format!("stack {}: this build does not speak to AWS", stack.stack))
        .fix("build with the default features"))
}
