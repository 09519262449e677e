//! What goes wrong, and how long things take: `SPOKESHAVE_KWOK`.

use jiff::{SignedDuration, fmt::friendly};
use spokeshave_ports::ec2::FleetOverride;

/// Offerings that are sold out; `*` stands for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// `spot`, `on-demand`, `reserved` or `*`.
    pub capacity_type: String,
    pub instance_type: String,
    pub zone: String,
}

impl Shortage {
    pub(crate) fn covers(&self, capacity_type: &str, offer: &FleetOverride) -> bool {
        let same = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        same(&self.capacity_type, capacity_type)
            && same(&self.instance_type, &offer.instance_type)
            && same(&self.zone, &offer.zone)
    }
}

/// The parameters of a made-up EC2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// From the launch of an instance to its Node. 30 seconds, as in Karpenter's.
    pub join: SignedDuration,
    /// What every call takes.
    pub latency: SignedDuration,
    /// Whether calls are refused beyond EC2's usual rates.
    pub throttle: bool,
    pub short: Vec<Shortage>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            join: SignedDuration::from_secs(30),
            latency: SignedDuration::ZERO,
            throttle: false,
            short: Vec::new(),
        }
    }
}

/// A text is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SPOKESHAVE_KWOK: {entry:?} {problem}")]
pub struct ProfileError {
    pub entry: String,
    pub problem: &'static str,
}

impl Profile {
    /// The profile of a stack: none unless `SPOKESHAVE_EC2` is `kwok`. `text` is `SPOKESHAVE_KWOK`.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn of(ec2_mode: &str, text: &str) -> Result<Option<Self>, ProfileError> {
        if ec2_mode == "kwok" { Self::parse(text).map(Some) } else { Ok(None) }
    }

    /// Reads `join=30s,latency=80ms,throttle=true,short=spot:m5.large:us-west-2a`. `short` may come several times, with `*`
    /// for any capacity type, type or zone. What is not given keeps its default.
    ///
    /// # Errors
    /// The first entry that cannot be read.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut profile = Self::default();
        for entry in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let wrong = |problem| ProfileError { entry: entry.to_owned(), problem };
            let (name, value) =
                entry.split_once('=').ok_or_else(|| wrong("is not of the form name=value"))?;
            let duration = || {
                let parsed = friendly::SpanParser::new().parse_duration(value).ok();
                parsed
                    .filter(|it| !it.is_negative())
                    .ok_or_else(|| wrong("needs a duration such as 30s or 80ms"))
            };
            match name {
                "join" => profile.join = duration()?,
                "latency" => profile.latency = duration()?,
                "throttle" => {
                    profile.throttle = value
                        .parse()
                        .map_err(|_| wrong("must be throttle=true or throttle=false"))?;
                }
                "short" => {
                    let [capacity_type, instance_type, zone] =
                        value.split(':').collect::<Vec<_>>()[..]
                    else {
                        return Err(wrong("needs capacityType:instanceType:zone, * for any"));
                    };
                    if !["spot", "on-demand", "reserved", "*"].contains(&capacity_type) {
                        return Err(wrong("needs spot, on-demand, reserved or * first"));
                    }
                    profile.short.push(Shortage {
                        capacity_type: capacity_type.to_owned(),
                        instance_type: instance_type.to_owned(),
                        zone: zone.to_owned(),
                    });
                }
                _ => return Err(wrong("is not one of join, latency, throttle, short")),
            }
        }
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read() {
        assert_eq!(Profile::parse(""), Ok(Profile::default()));
        let got = Profile::parse("join=5s, latency=80ms,throttle=true,short=spot:m5.large:*");
        let short = Shortage {
            capacity_type: "spot".into(),
            instance_type: "m5.large".into(),
            zone: "*".into(),
        };
        let expected = Profile {
            join: SignedDuration::from_secs(5),
            latency: SignedDuration::from_millis(80),
            throttle: true,
            short: vec![short],
        };
        assert_eq!(got, Ok(expected));
        for (text, message) in [
            ("join", "SPOKESHAVE_KWOK: \"join\" is not of the form name=value"),
            ("join=soon", "SPOKESHAVE_KWOK: \"join=soon\" needs a duration such as 30s or 80ms"),
            (
                "short=a:b",
                "SPOKESHAVE_KWOK: \"short=a:b\" needs capacityType:instanceType:zone, * for any",
            ),
            (
                "short=x:b:c",
                "SPOKESHAVE_KWOK: \"short=x:b:c\" needs spot, on-demand, reserved or * first",
            ),
            (
                "colour=red",
                "SPOKESHAVE_KWOK: \"colour=red\" is not one of join, latency, throttle, short",
            ),
        ] {
            assert_eq!(Profile::parse(text).expect_err(text).to_string(), message);
        }
    }
}
