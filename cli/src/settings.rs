//! `--set` and `--feature-gates`, for every command where settings matter.

use clap::Args;
use spokeshave_model::Settings;

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
            if !settings.set(name, value)? {
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

    #[test]
    fn what_does_not_parse_is_named() {
        for (entry, part) in [
            ("RESERVED_ENIS", "no value"),
            ("NO_SUCH=1", "unknown setting \"NO_SUCH\""),
            ("RESERVED_ENIS=x", "RESERVED_ENIS"),
        ] {
            let args = SettingsArgs { set: vec![entry.into()], ..SettingsArgs::default() };
            let failure = args.settings().expect_err(entry).to_string();
            assert!(failure.contains(part), "{failure}");
        }
    }
}
