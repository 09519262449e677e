//! `--set` and `--feature-gates`, for every command where settings matter.

use clap::Args;
use spokeshave_model::{
    Settings,
    settings::{SettingError, parse_bool},
};

use crate::Failure;

/// Flags that change settings; flatten them into a command's arguments with `#[command(flatten)]`.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArgs {
    /// Gives a setting by its environment name, for instance VM_MEMORY_OVERHEAD_PERCENT=0.075.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,

    /// Switches features, merged with the defaults, for instance NodeOverlay=true,CapacityBuffer=true.
    #[arg(long, value_name = "NAME=BOOL,...")]
    pub feature_gates: Vec<String>,
}

impl SettingsArgs {
    /// The default settings with these changes, in the order given; gates last.
    ///
    /// # Errors
    /// An entry without `=`, an unknown name, or a value that the setting refuses.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings::default();
        self.apply(&mut settings)?;
        Ok(settings)
    }

    /// Makes these changes to `settings`.
    ///
    /// # Errors
    /// As [`SettingsArgs::settings`].
    pub fn apply(&self, settings: &mut Settings) -> Result<(), Failure> {
        for entry in &self.set {
            let Some((name, value)) = entry.split_once('=') else {
                return Err(Failure::new(format!("--set {entry}: no value"))
                    .fix("write --set NAME=VALUE, for instance --set RESERVED_ENIS=1"));
            };
            if !settings.set(name, value)? && !without_effect(name, value)? {
                return Err(Failure::new(format!("--set {entry}: unknown setting {name:?}"))
                    .fix("settings are named as Karpenter's environment variables"));
            }
        }
        for gates in &self.feature_gates {
            settings.set("FEATURE_GATES", gates)?;
        }
        Ok(())
    }
}

/// Whether `name` is one of Karpenter's settings that no answer depends on; its value has to parse all the same.
fn without_effect(name: &str, value: &str) -> Result<bool, SettingError> {
    let problem = match name {
        "CPU_REQUESTS" | "MEMORY_LIMIT" | "METRICS_PORT" | "HEALTH_PROBE_PORT"
        | "KUBE_CLIENT_QPS" | "KUBE_CLIENT_BURST" => {
            value.parse::<i64>().is_err().then_some("must be an integer")
        }
        "ENABLE_PROFILING" | "DISABLE_CONTROLLER_WARMUP" | "DISABLE_LEADER_ELECTION" => {
            parse_bool(value).is_none().then_some("must be true or false")
        }
        "LOG_LEVEL" => (!matches!(value, "" | "debug" | "info" | "error"))
            .then_some("must be debug, info or error"),
        "KARPENTER_SERVICE"
        | "LEADER_ELECTION_NAME"
        | "LEADER_ELECTION_NAMESPACE"
        | "LOG_OUTPUT_PATHS"
        | "LOG_ERROR_OUTPUT_PATHS" => None,
        _ => return Ok(false),
    };
    problem.map_or(Ok(true), |problem| {
        Err(SettingError {
            name: name.to_owned(),
            value: value.to_owned(),
            problem: problem.to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_merged_over_the_defaults() {
        let args = SettingsArgs {
            set: vec!["RESERVED_ENIS=1".into(), "VM_MEMORY_OVERHEAD_PERCENT=0.1".into()],
            feature_gates: vec!["NodeOverlay=true,ReservedCapacity=false".into()],
        };
        let settings = args.settings().expect("valid");
        assert_eq!((settings.reserved_enis, settings.vm_memory_overhead_percent), (1, 0.1));
        assert!(settings.gates.node_overlay && !settings.gates.reserved_capacity);
    }

    #[test] // scheduling 1, case 5: how many evaluate at the same time changes no answer, so any number is the default
    fn the_number_of_evaluators_changes_no_answer() {
        for value in ["0", "-1", "1000", "4500"] {
            let set = vec![format!("CPU_REQUESTS={value}")];
            let settings = SettingsArgs { set, ..SettingsArgs::default() }.settings();
            assert_eq!(settings.expect("valid"), Settings::default(), "{value}");
        }
    }

    #[test]
    fn settings_without_effect_are_settings() {
        let set = ["CPU_REQUESTS=0", "LOG_LEVEL=debug", "ENABLE_PROFILING=T", "MEMORY_LIMIT=-1"];
        let args = SettingsArgs { set: set.map(String::from).into(), ..SettingsArgs::default() };
        args.settings().expect("valid");
    }

    #[test]
    fn what_does_not_parse_is_named() {
        for (entry, part) in [
            ("RESERVED_ENIS", "no value"),
            ("NO_SUCH=1", "unknown setting \"NO_SUCH\""),
            ("RESERVED_ENIS=x", "RESERVED_ENIS"),
            ("CPU_REQUESTS=x", "CPU_REQUESTS"),
            ("LOG_LEVEL=loud", "LOG_LEVEL"),
        ] {
            let args = SettingsArgs { set: vec![entry.into()], ..SettingsArgs::default() };
            let failure = args.settings().expect_err(entry).to_string();
            assert!(failure.contains(part), "{failure}");
        }
    }
}
