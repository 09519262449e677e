//! Durations as Karpenter's fields hold them.

use std::fmt;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// `expireAfter` and `consolidateAfter`: a duration that keeps the user's own text, or `Never`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NillableDuration(pub String);

impl NillableDuration {
    pub fn never() -> Self {
        Self("Never".into())
    }

    /// The length; `None` for `Never` and for a text that is not a duration.
    pub fn get(&self) -> Option<SignedDuration> {
        parse_simple(&self.0)
    }

    pub fn is_never(&self) -> bool {
        self.0 == "Never"
    }
}

/// A plain duration; written back in Go form (`48h` becomes `48h0m0s`) wherever we write it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlainDuration(pub String);

impl PlainDuration {
    /// The length; `None` for a text that is not a duration.
    pub fn get(&self) -> Option<SignedDuration> {
        parse_go(&self.0)
    }

    /// The same length in Go form.
    #[must_use]
    pub fn normalized(&self) -> Self {
        self.get().map_or_else(|| self.clone(), |length| Self(GoDuration(length).to_string()))
    }
}

/// Parses `^([0-9]+(s|m|h))+$`. `None` for anything else, `Never` included.
pub fn parse_simple(text: &str) -> Option<SignedDuration> {
    let allowed = |c: char| c.is_ascii_digit() || matches!(c, 's' | 'm' | 'h');
    if text.is_empty() || !text.chars().all(allowed) {
        return None;
    }
    parse_go(text).filter(|_| text != "0")
}

/// Parses a duration as Go's `time.ParseDuration` does: signs, fractions, `ns us µs ms s m h`, and `0`.
pub fn parse_go(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(nanos)?)?;
        let mut scale = nanos;
        for digit in fraction.bytes() {
            scale /= 10;
            total += i128::from(digit - b'0') * scale;
        }
        if total > i128::from(i64::MAX) {
            return None;
        }
        rest = next;
    }
    let total = i64::try_from(total).ok()?;
    Some(SignedDuration::from_nanos(if negative { -total } else { total }))
}

/// Prints a duration as Go does: `1h0m0s`, `1m30s`, `1.5s`, `250ms`, `0s`.
pub struct GoDuration(pub SignedDuration);

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < 0 {
            f.write_str("-")?;
        }
        let nanos = nanos.unsigned_abs();
        let decimal = |nanos: u128, unit: u128| {
            let fraction = nanos % unit;
            if fraction == 0 {
                return (nanos / unit).to_string();
            }
            let width = unit.ilog10() as usize;
            format!("{}.{}", nanos / unit, format!("{fraction:0width$}").trim_end_matches('0'))
        };
        if nanos < 1_000 {
            return write!(f, "{nanos}ns");
        }
        if nanos < 1_000_000 {
            return write!(f, "{}µs", decimal(nanos, 1_000));
        }
        if nanos < 1_000_000_000 {
            return write!(f, "{}ms", decimal(nanos, 1_000_000));
        }
        let minutes = nanos / 60_000_000_000;
        let (hours, minutes) = (minutes / 60, minutes % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(nanos % 60_000_000_000, 1_000_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // api 2, cases 1-3
    fn lengths() {
        for (text, seconds) in [
            ("1h1h30s", Some(7230)),
            ("Never", None),
            ("never", None),
            ("30d", None),
            ("1.5h", None),
            ("0s", Some(0)),
            ("0", None),
            ("", None),
        ] {
            assert_eq!(parse_simple(text).map(|it| it.as_secs()), seconds, "{text}");
        }
    }

    #[test]
    fn go_form() {
        for (text, printed) in [
            ("48h", "48h0m0s"),
            ("90s", "1m30s"),
            ("0s", "0s"),
            ("1h1h30s", "2h0m30s"),
            ("1.5s", "1.5s"),
            ("250ms", "250ms"),
            ("-15m", "-15m0s"),
        ] {
            assert_eq!(GoDuration(parse_go(text).expect(text)).to_string(), printed);
        }
    }
}
