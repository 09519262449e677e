//! `spokeshave doctor`: whether a deployed stack is whole, seen from outside, and what to fix.

use clap::Args as ClapArgs;

use crate::{ExitStatus, Failure, Output};

#[cfg(feature = "live")]
mod cluster;
#[cfg(feature = "live")]
mod finding;
#[cfg(feature = "live")]
mod functions;
#[cfg(feature = "live")]
mod probe;
#[cfg(feature = "live")]
mod wiring;

/// Checks a deployed stack and says what to fix.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  spokeshave doctor --stack spokeshave-prod
  spokeshave doctor --stack spokeshave-prod --region eu-west-1 --output json
  kubectl proxy & spokeshave doctor --stack spokeshave-prod --api-server http://127.0.0.1:8001

It reads what AWS and the cluster say, and sends one spot warning about an instance that does not exist through the
interruption queue, to see it taken. It changes nothing else.

Exit status: 0 no faults, 1 faults, 2 the call is unusable.")]
#[cfg_attr(not(feature = "live"), allow(dead_code))]
pub struct Args {
    #[cfg(feature = "live")]
    #[command(flatten)]
    stack: crate::live::StackArgs,

    #[cfg(not(feature = "live"))]
    /// Name of the CloudFormation stack
    #[arg(long, value_name = "NAME")]
    stack: String,

    /// The API server, if not the one that EKS names with the caller's own login
    #[arg(long, value_name = "URL")]
    api_server: Option<String>,

    /// Certificate authority of --api-server (PEM)
    #[arg(long, value_name = "FILE", requires = "api_server")]
    certificate_authority: Option<String>,

    /// File with a bearer token for --api-server
    #[arg(long, value_name = "FILE", requires = "api_server")]
    token_file: Option<String>,

    /// Leave the cluster out: look at AWS alone
    #[arg(long, conflicts_with = "api_server")]
    no_cluster: bool,

    /// Send no spot warning
    #[arg(long)]
    no_probe: bool,

    /// How long to wait until the spot warning is taken
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=900))]
    probe_seconds: u64,
}

/// Carries the command out.
///
/// # Errors
/// No credentials, no such stack.
#[cfg(feature = "live")]
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    use finding::{Findings, Status};
    use serde_json::json;

    use crate::output::Colour;

    let session = crate::live::Session::open(&args.stack)?;
    let Some(name) = session.stack.cluster().map(str::to_owned) else {
        let stack = &session.stack.name;
        return Err(Failure::new(format!("stack {stack} has no parameter ClusterName"))
            .fix("give the stack that template.yaml was deployed as"));
    };
    let mut findings = Findings::default();
    let only_watches = wiring::check(&session, &mut findings);
    let roles = functions::check(&session, &name, &mut findings);
    if !args.no_cluster {
        cluster::check(args, &session, &name, &roles, only_watches, &mut findings)?;
    }
    if !args.no_probe {
        probe::check(&session, std::time::Duration::from_secs(args.probe_seconds), &mut findings);
    }
    let count = |status: Status| findings.0.iter().filter(|it| it.status == status).count();
    let (faults, warnings) = (count(Status::Fault), count(Status::Warning) + count(Status::Unknown));
    if out.is_json() {
        out.json(&json!({
            "stack": session.stack.name,
            "region": session.aws.region,
            "cluster": name,
            "healthy": faults == 0,
            "faults": faults,
            "warnings": warnings,
            "checks": findings.0,
        }))?;
        return Ok(ExitStatus::no_if(faults > 0));
    }
    for finding in &findings.0 {
        let (colour, word) = match finding.status {
            Status::Ok => (Colour::Green, "ok     "),
            Status::Warning => (Colour::Yellow, "warning"),
            Status::Unknown => (Colour::Yellow, "unknown"),
            Status::Fault => (Colour::Red, "FAULT  "),
        };
        out.line(&format!("{}  {} {}: {}", out.paint(colour, word), finding.check, finding.subject, finding.message))?;
        if let Some(fix) = &finding.fix {
            out.line(&format!("         fix: {fix}"))?;
        }
    }
    out.line(&format!("{} checks, {faults} faults, {warnings} warnings", findings.0.len()))?;
    Ok(ExitStatus::no_if(faults > 0))
}

/// Says that this build cannot.
///
/// # Errors
/// Always.
#[cfg(not(feature = "live"))]
pub fn run(args: &Args, _: &Output) -> Result<ExitStatus, Failure> {
    Err(Failure::new(format!("stack {}: this build does not speak to AWS", args.stack))
        .fix("build with the default features"))
}
