//! `spokeshave iam`: what each function may do in AWS.

use clap::Args as ClapArgs;
use serde_json::Value;
use spokeshave_nodeclass::iam::{Scope, policies};

use crate::{ExitStatus, Failure, Output};

/// Prints the permissions of every function.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  spokeshave iam --output json                      # with the placeholders of CloudFormation's Fn::Sub
  spokeshave iam --cluster-name demo --account 111122223333 --region eu-west-1 --output json
  spokeshave iam --output json | jq .termination

Every document stays below the 6,144 characters of a managed policy.")]
pub struct Args {
    /// Name of the cluster
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,

    /// AWS account
    #[arg(long, value_name = "ID")]
    account: Option<String>,

    /// AWS region
    #[arg(long, value_name = "REGION")]
    region: Option<String>,

    /// Role of the nodes; KarpenterNodeRole-<cluster> unless given
    #[arg(long, value_name = "ARN")]
    node_role: Option<String>,
}

/// Prints one policy document per function.
///
/// # Errors
/// An account or a role that is none.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    // What is no name would widen the documents: `*` stands for every cluster there.
    if let Some(name) = &args.cluster_name
        && !is_placeholder(name)
        && !is_cluster_name(name)
    {
        return Err(Failure::new(format!("--cluster-name {name}: not the name of an EKS cluster")).fix(
            "give 1 to 100 letters, digits, hyphens and underscores that begin with a letter or digit",
        ));
    }
    if let Some(region) = &args.region
        && !is_placeholder(region)
        && !is_region(region)
    {
        return Err(Failure::new(format!("--region {region}: not a region"))
            .fix("give its code, for instance eu-west-1"));
    }
    if let Some(account) = &args.account
        && !is_placeholder(account)
        && (account.len() != 12 || !account.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return Err(Failure::new(format!("--account {account}: not an account"))
            .fix("give its twelve digits"));
    }
    if let Some(arn) = &args.node_role
        && !arn.starts_with("arn:")
        && !arn.contains("${")
    {
        return Err(Failure::new(format!("--node-role {arn}: not the ARN of a role")).fix(
            "give it in full, for instance arn:aws:iam::111122223333:role/KarpenterNodeRole-demo",
        ));
    }
    let scope = Scope::default().filled(
        args.cluster_name.as_deref(),
        args.account.as_deref(),
        args.region.as_deref(),
        args.node_role.as_deref(),
    );
    let policies = policies(&scope);
    if out.is_json() {
        out.json(&policies)?;
        return Ok(ExitStatus::Answered);
    }
    for (n, (function, document)) in policies.iter().enumerate() {
        if n > 0 {
            out.line("")?;
        }
        out.line(function)?;
        let statements = document.get("Statement").and_then(Value::as_array).into_iter().flatten();
        for statement in statements {
            let text = |field: &str| match statement.get(field) {
                Some(Value::Array(items)) => {
                    items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
                }
                Some(Value::String(text)) => text.clone(),
                _ => String::new(),
            };
            out.line(&format!("  {}", text("Sid")))?;
            out.line(&format!("    may  {}", text("Action")))?;
            out.line(&format!("    on   {}", text("Resource")))?;
            if let Some(condition) = statement.get("Condition") {
                out.line(&format!("    if   {condition}"))?;
            }
        }
    }
    Ok(ExitStatus::Answered)
}

/// A reference that CloudFormation fills in.
fn is_placeholder(text: &str) -> bool {
    text.starts_with("${") && text.ends_with('}')
}

fn is_cluster_name(text: &str) -> bool {
    text.len() <= 100
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// `eu-west-1`: words of lower-case letters and a number at the end.
fn is_region(text: &str) -> bool {
    let mut parts: Vec<&str> = text.split('-').collect();
    let number = parts.pop().unwrap_or_default();
    parts.len() >= 2
        && !number.is_empty()
        && number.bytes().all(|it| it.is_ascii_digit())
        && parts.iter().all(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_widen_a_document_are_none() {
        for (name, is) in [
            ("demo", true),
            ("0_a-B", true),
            (&*"c".repeat(100), true),
            (&*"c".repeat(101), false),
            ("", false),
            ("*", false),
            ("de*mo", false),
            ("a b", false),
            ("-a", false),
            ("a.b", false),
        ] {
            assert_eq!(is_cluster_name(name), is, "{name}");
        }
        for (name, is) in [
            ("eu-west-1", true),
            ("us-gov-west-1", true),
            ("us-isob-east-1", true),
            ("ap-southeast-12", true),
            ("cn-northwest-1", true),
            ("*", false),
            ("", false),
            ("eu-west", false),
            ("eu-west-1a", false),
            ("west-1", false),
            ("EU-WEST-1", false),
        ] {
            assert_eq!(is_region(name), is, "{name}");
        }
        assert!(is_placeholder("${AWS::Region}") && !is_placeholder("$x"));
    }
}
