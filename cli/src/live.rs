//! A deployed stack, from outside: what `doctor` and `dlq` share.
//!
//! AWS is spoken to by a small signed HTTP client instead of an SDK, so that the command stays quick to build. Read
//! [`Session`] first; [`aws`] and [`queues`] have the calls, [`credentials`] says whose they are, [`stack`] what CloudFormation knows.

pub mod aws;
pub mod credentials;
pub mod http;
pub mod queues;
pub mod stack;

use clap::Args;
use spokeshave_model::Settings;

use crate::Failure;
use aws::Aws;
use credentials::Environment;
use stack::Stack;

/// Which stack, and where.
#[derive(Clone, Debug, Args)]
pub struct StackArgs {
    /// Name of the CloudFormation stack
    #[arg(long, value_name = "NAME")]
    pub stack: String,

    /// AWS region; otherwise AWS_REGION, AWS_DEFAULT_REGION or the profile's
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,

    /// Profile of the AWS configuration files; otherwise AWS_PROFILE
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
}

/// A stack and the means to ask about it.
#[derive(Debug)]
pub struct Session {
    pub aws: Aws,
    pub stack: Stack,
}

impl Session {
    /// Finds region, credentials and stack.
    ///
    /// # Errors
    /// No region, no credentials, or no such stack.
    pub fn open(args: &StackArgs) -> Result<Self, Failure> {
        if args.stack.is_empty() {
            return Err(Failure::new("--stack: an empty name").fix("give the stack's name"));
        }
        let environment = Environment::of_process(args.profile.clone());
        let region = args.region.clone().filter(|it| !it.is_empty());
        let Some(region) = region.or_else(|| environment.region()) else {
            return Err(
                Failure::new("no AWS region is known").fix("give --region or set AWS_REGION")
            );
        };
        if !region.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') {
            return Err(Failure::new(format!("--region {region}: not a region"))
                .fix("give its code, for instance us-west-2"));
        }
        let settings = Settings { region: region.clone(), ..Settings::default() };
        let credentials = environment.credentials()?;
        let aws = Aws::new(credentials, region, settings.partition(), &environment);
        let stack = Stack::read(&aws, &args.stack)?;
        Ok(Self { aws, stack })
    }
}

/// A time as JSON shows it: the fraction of a second, which SQS keeps, says nothing to anybody.
pub fn whole_seconds(at: jiff::Timestamp) -> String {
    at.round(jiff::Unit::Second).unwrap_or(at).to_string()
}
