//! One module per command, each with its `Args` and `run`.
//!
//! To add a command: a file in `commands/`, a `mod` line, and a line in the list below.

use clap::Subcommand;

use crate::{ExitStatus, Failure, Output};

/// `run(&Args, &Output)` of each command, by name. Doc comments are the one-line help texts.
macro_rules! commands {
    ($($(#[doc = $help:literal])+ $name:ident => $module:ident,)+) => {
        $(pub mod $module;)+

        /// The commands.
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(#[doc = $help])+ $name($module::Args),)+
        }

        impl Command {
            /// Carries the command out.
            ///
            /// # Errors
            /// When the call or an input is unusable.
            pub fn run(&self, out: &Output) -> Result<ExitStatus, Failure> {
                match self {
                    $(Self::$name(args) => $module::run(args, out),)+
                }
            }
        }
    };
}

pub mod plan_disruption;

commands! {
    /// Prints, sums up or compares what can be bought
    Catalog => catalog,
    /// Says how many nodes the disruption budgets let go, now and later
    Budgets => budgets,
    /// Prints a completion script for a shell
    Completions => completions,
    /// Turns v1beta1 manifests into v1
    Convert => convert,
    /// Prints the CustomResourceDefinitions
    Crds => crds,
    /// Says what the interruption function would do with messages
    Event => event,
    /// Lists, shows or sends again work that could not be done
    Dlq => dlq,
    /// Checks a deployed stack and says what to fix
    Doctor => doctor,
    /// Says in plain words what becomes of a pod, a node or a NodeClaim, and why
    Explain => explain,
    /// Prints what each function may do in AWS
    Iam => iam,
    /// Says what an EC2NodeClass could launch
    InstanceTypes => instance_types,
    /// Prints the hashes that decide static drift
    Hash => hash,
    /// Says what the API server and the controllers would say to manifests
    Lint => lint,
    /// Runs every function against a simulated cluster and a simulated EC2
    Local => local,
    /// Says what one provisioning pass would do
    Plan => plan,
    /// Prints what a node gets at boot
    Userdata => userdata,
    /// Prints the version
    Version => version,
}
