//! Whose calls they are: environment, configuration files, or whatever the AWS CLI would use.
//!
//! Keys in the environment and in files are read here. Single sign-on, assumed roles, tokens of pods and of instances
//! are left to the AWS CLI (`aws configure export-credentials`), which knows them all.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;
use spokeshave_signing::Credentials;

use crate::Failure;

/// What is set outside of the command line.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    profile: Option<String>,
    /// Sections of the configuration file, then of the credentials file, by profile.
    config: BTreeMap<String, BTreeMap<String, String>>,
    shared: BTreeMap<String, BTreeMap<String, String>>,
}

/// What a credential process and the AWS CLI print.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
}

impl Environment {
    /// Of this process. `profile` goes before `AWS_PROFILE`.
    pub fn of_process(profile: Option<String>) -> Self {
        let variables: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let read = |variable: &str, name: &str| {
            let home = variables.get("HOME").map(|it| Path::new(it).join(".aws").join(name));
            let path = variables.get(variable).map(PathBuf::from).or(home);
            path.and_then(|it| fs::read_to_string(it).ok()).unwrap_or_default()
        };
        let config = read("AWS_CONFIG_FILE", "config");
        let shared = read("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        Self::new(variables, profile, &config, &shared)
    }

    fn new(
        variables: BTreeMap<String, String>,
        profile: Option<String>,
        config: &str,
        shared: &str,
    ) -> Self {
        let variables: BTreeMap<String, String> =
            variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let profile = profile.or_else(|| variables.get("AWS_PROFILE").cloned());
        // In the configuration file all but the default are `[profile NAME]`.
        let config = sections(config)
            .into_iter()
            .map(|(name, values)| match name.strip_prefix("profile ") {
                Some(name) => (name.trim().to_owned(), values),
                None => (name, values),
            })
            .collect();
        Self { variables, profile, config, shared: sections(shared) }
    }

    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    fn profile_name(&self) -> &str {
        self.profile.as_deref().unwrap_or("default")
    }

    fn configured(&self, key: &str) -> Option<&str> {
        let profile = self.profile_name();
        [&self.shared, &self.config]
            .into_iter()
            .find_map(|file| file.get(profile)?.get(key))
            .map(String::as_str)
    }

    /// The region, if one is set.
    pub fn region(&self) -> Option<String> {
        let variable = ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|it| self.variable(it));
        variable.or_else(|| self.configured("region")).map(str::to_owned)
    }

    /// The first that is there: keys in the environment (unless a profile was named on the command line), keys of the
    /// profile, its credential process, and what the AWS CLI says.
    ///
    /// # Errors
    /// None of them gives credentials.
    pub fn credentials(&self) -> Result<Credentials, Failure> {
        let fix = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in so that `aws sts get-caller-identity` works";
        let named =
            self.profile.is_some() && self.variable("AWS_PROFILE") != self.profile.as_deref();
        if !named
            && let (Some(id), Some(secret)) =
                (self.variable("AWS_ACCESS_KEY_ID"), self.variable("AWS_SECRET_ACCESS_KEY"))
        {
            let token = self.variable("AWS_SESSION_TOKEN").map(str::to_owned);
            return Ok(Credentials::new(id, secret, token, None, "environment"));
        }
        if let (Some(id), Some(secret)) =
            (self.configured("aws_access_key_id"), self.configured("aws_secret_access_key"))
        {
            let token = self.configured("aws_session_token").map(str::to_owned);
            return Ok(Credentials::new(id, secret, token, None, "profile"));
        }
        if let Some(process) = self.configured("credential_process") {
            let ran = Command::new("sh").arg("-c").arg(process).output();
            return printed(ran, "credential_process").map_err(|it| Failure::new(it).fix(fix));
        }
        let mut cli = Command::new("aws");
        cli.args(["configure", "export-credentials", "--format", "process"]);
        if let Some(profile) = &self.profile {
            cli.args(["--profile", profile]);
        }
        printed(cli.output(), "aws configure export-credentials").map_err(|problem| {
            Failure::new(format!("no AWS credentials were found ({problem})")).fix(fix)
        })
    }
}

fn printed(ran: std::io::Result<std::process::Output>, what: &str) -> Result<Credentials, String> {
    let output = match ran {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err("neither keys nor the AWS CLI are there".to_owned());
        }
        Err(error) => return Err(format!("{what}: {error}")),
    };
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().map(str::trim).rfind(|it| !it.is_empty()).unwrap_or("it failed");
        return Err(format!("{what}: {line}"));
    }
    let printed: Printed = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{what} printed no credentials: {error}"))?;
    let Printed { access_key_id, secret_access_key, session_token } = printed;
    Ok(Credentials::new(access_key_id, secret_access_key, session_token, None, "process"))
}

/// Sections of a file in the form of the AWS configuration files. Indented lines belong to the value above and are
/// passed over: none of what is read here has such values.
fn sections(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) || line.starts_with([' ', '\t']) {
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            current = Some(name.trim().to_owned());
            continue;
        }
        if let (Some(section), Some((key, value))) = (&current, trimmed.split_once('=')) {
            let section = found.entry(section.clone()).or_default();
            section.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  region = nowhere\n# a note\n[profile ops]\nregion=us-east-2\ncredential_process = printf '{\"AccessKeyId\":\"AP\",\"SecretAccessKey\":\"s\"}'\n";
    const SHARED: &str = "[default]\naws_access_key_id = AD\naws_secret_access_key = d\n";

    fn environment(variables: &[(&str, &str)], profile: Option<&str>) -> Environment {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Environment::new(variables.collect(), profile.map(str::to_owned), CONFIG, SHARED)
    }

    fn id(environment: &Environment) -> String {
        environment.credentials().expect("credentials").access_key_id().to_owned()
    }

    #[test]
    fn the_nearest_setting_counts() {
        let keys = [("AWS_ACCESS_KEY_ID", "AE"), ("AWS_SECRET_ACCESS_KEY", "e")];
        assert_eq!(id(&environment(&keys, None)), "AE");
        assert_eq!(id(&environment(&[], None)), "AD");
        // A profile on the command line goes before keys in the environment, as the AWS CLI has it.
        assert_eq!(id(&environment(&keys, Some("ops"))), "AP");
        // Half a pair is none.
        assert_eq!(id(&environment(&[("AWS_ACCESS_KEY_ID", "AE")], None)), "AD");
        assert_eq!(
            id(&environment(&[("AWS_ACCESS_KEY_ID", "AE"), ("AWS_SECRET_ACCESS_KEY", "")], None)),
            "AD"
        );
    }

    #[test]
    fn regions_come_from_variables_or_the_profile() {
        assert_eq!(environment(&[], None).region().as_deref(), Some("eu-west-1"));
        assert_eq!(
            environment(&[("AWS_PROFILE", "ops")], None).region().as_deref(),
            Some("us-east-2")
        );
        let both = [("AWS_REGION", "sa-east-1"), ("AWS_DEFAULT_REGION", "us-west-1")];
        assert_eq!(environment(&both, Some("ops")).region().as_deref(), Some("sa-east-1"));
        assert_eq!(environment(&[], Some("nobody")).region(), None);
    }
}
