//! What may go wrong, by name.

use jiff::Timestamp;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A message is delivered twice.
    Duplicate,
    /// A message is delivered minutes late.
    Late,
    /// Messages overtake each other, and so do handlers.
    Reorder,
    /// A handler dies between two calls, or before its answer arrives.
    Crash,
    /// Reads answer what was true some seconds ago.
    StaleRead,
    /// AWS calls are throttled.
    Throttle,
    /// Insufficient capacity.
    Ice,
    /// An instance never joins the cluster.
    NoRegister,
    /// Evictions are refused for a while.
    EvictionBlocked,
}

impl Fault {
    pub const ALL: &[Self] = &[
        Self::Duplicate,
        Self::Late,
        Self::Reorder,
        Self::Crash,
        Self::StaleRead,
        Self::Throttle,
        Self::Ice,
        Self::NoRegister,
        Self::EvictionBlocked,
    ];

    /// The name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Late => "late",
            Self::Reorder => "reorder",
            Self::Crash => "crash",
            Self::StaleRead => "stale-read",
            Self::Throttle => "throttle",
            Self::Ice => "ice",
            Self::NoRegister => "no-register",
            Self::EvictionBlocked => "eviction-blocked",
        }
    }

    /// How likely it is, each time that it could happen.
    const fn probability(self) -> f64 {
        match self {
            Self::Duplicate => 0.1,
            Self::Late => 0.05,
            Self::Reorder => 0.3,
            Self::Crash => 0.01,
            Self::StaleRead => 0.1,
            Self::Throttle => 0.05,
            Self::Ice => 0.2,
            Self::NoRegister => 0.05,
            Self::EvictionBlocked => 0.2,
        }
    }
}

/// Which faults there are, and until when.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub kinds: Vec<Fault>,
    /// From here on nothing new goes wrong.
    pub until: Option<Timestamp>,
}

impl Faults {
    /// The probability of `fault` at `now`.
    pub fn probability(&self, fault: Fault, now: Timestamp) -> f64 {
        if self.kinds.contains(&fault) && self.until.is_none_or(|until| now < until) {
            fault.probability()
        } else {
            0.0
        }
    }

    /// Parses `none`, `all`, or names joined by commas.
    ///
    /// # Errors
    /// The name that is unknown.
    pub fn parse(text: &str) -> Result<Vec<Fault>, String> {
        match text {
            "none" | "" => Ok(Vec::new()),
            "all" => Ok(Fault::ALL.to_vec()),
            names => names
                .split(',')
                .map(|name| {
                    let name = name.trim();
                    Fault::ALL
                        .iter()
                        .copied()
                        .find(|it| it.as_str() == name)
                        .ok_or_else(|| name.to_owned())
                })
                .collect(),
        }
    }
}
