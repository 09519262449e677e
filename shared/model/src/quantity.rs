//! Kubernetes quantities: exact decimals with a unit suffix, printed in canonical form.

use std::{
    cmp::Ordering,
    fmt,
    iter::Sum,
    ops::{Add, AddAssign, Mul, Neg, Sub, SubAssign},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// How a quantity was written, and so how it is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `100m`, `2`, `3k`.
    #[default]
    DecimalSi,
    /// `512Mi`.
    BinarySi,
    /// `1e3`.
    DecimalExponent,
}

/// An amount, exact to a nano. Equality and order look at the amount alone, not at how it was written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;

/// A text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity such as 500m, 2, 1.5Gi or 1e3")]
pub struct QuantityError(pub String);

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// `n` whole units.
    pub const fn units(n: i64) -> Self {
        Self { nanos: n as i128 * NANO, format: Format::DecimalSi }
    }

    /// `n` thousandths, as in `250m` of cpu.
    pub const fn millis(n: i64) -> Self {
        Self { nanos: n as i128 * 1_000_000, format: Format::DecimalSi }
    }

    /// `n` bytes, printed with binary suffixes.
    pub const fn bytes(n: i64) -> Self {
        Self { nanos: n as i128 * NANO, format: Format::BinarySi }
    }

    /// `n` MiB; what is beyond 64 bits of bytes is capped.
    pub const fn mebibytes(n: i64) -> Self {
        Self::bytes(n.saturating_mul(1024 * 1024))
    }

    /// `n` GiB; what is beyond 64 bits of bytes is capped.
    pub const fn gibibytes(n: i64) -> Self {
        Self::bytes(n.saturating_mul(1024 * 1024 * 1024))
    }

    /// `n` billionths.
    pub const fn from_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos, format }
    }

    /// The amount in billionths.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// How it was written.
    pub const fn format(self) -> Format {
        self.format
    }

    /// The amount in whole units, rounded up (away from zero for positive, as Kubernetes' `Value`).
    pub fn value(self) -> i64 {
        saturate(ceil_div(self.nanos, NANO))
    }

    /// The amount in thousandths, rounded up.
    pub fn milli_value(self) -> i64 {
        saturate(ceil_div(self.nanos, 1_000_000))
    }

    /// The amount as a floating-point number, for display and prices.
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }
}

fn saturate(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

fn ceil_div(n: i128, by: i128) -> i128 {
    n.div_euclid(by) + i128::from(n.rem_euclid(by) != 0)
}

/// Factor of a suffix as (numerator, denominator) to whole units, and the format that it implies.
fn suffix(text: &str) -> Option<(i128, i128, Format)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 1, Format::BinarySi));
    let decimal = |power: u32| Some((10_i128.pow(3 * power), 1, Format::DecimalSi));
    match text {
        "" => decimal(0),
        "n" => Some((1, NANO, Format::DecimalSi)),
        "u" => Some((1, 1_000_000, Format::DecimalSi)),
        "m" => Some((1, 1_000, Format::DecimalSi)),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => None,
    }
}

/// Amounts beyond this (2^63 - 1 units) are capped, as Kubernetes does.
const MAX_NANOS: i128 = i64::MAX as i128 * NANO;

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| QuantityError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, unit) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let exponent = unit.strip_prefix(['e', 'E']).filter(|digits| !digits.is_empty());
    let (numerator, denominator, format, power) = match (suffix(unit), exponent) {
        (Some((numerator, denominator, format)), _) => (numerator, denominator, format, 0),
        (None, Some(digits)) => {
            let signless = digits.strip_prefix(['-', '+']).unwrap_or(digits);
            if signless.is_empty() || !signless.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            // Beyond these powers every amount is zero (rounded up to a nano) or capped.
            let power =
                digits.parse::<i64>().unwrap_or(if digits.starts_with('-') { -999 } else { 999 });
            (1, 1, Format::DecimalExponent, power.clamp(-999, 999))
        }
        (None, None) => return None,
    };
    let nanos = scale(whole, fraction, numerator, denominator, power);
    Some(Quantity { nanos: if negative { -nanos } else { nanos }, format })
}

/// digits x numerator / denominator x 10^power in nanos, rounded up, capped at [`MAX_NANOS`].
fn scale(whole: &str, fraction: &str, numerator: i128, denominator: i128, power: i64) -> i128 {
    let digits = whole.bytes().chain(fraction.bytes()).skip_while(|byte| *byte == b'0');
    let mut mantissa: i128 = 0;
    let mut shift = power - fraction.len() as i64 + 9;
    let (mut cut, mut inexact) = (false, false);
    for byte in digits {
        // As many digits as fit 128 bits with their factor: 20 with the largest one. More only decide the rounding.
        let next = mantissa.checked_mul(10).and_then(|it| it.checked_add(i128::from(byte - b'0')));
        let fits = |it: &i128| it.checked_mul(numerator).is_some();
        match next.filter(|_| !cut).filter(fits) {
            Some(next) => mantissa = next,
            None => {
                cut = true;
                shift += 1;
                inexact |= byte != b'0';
            }
        }
    }
    if mantissa == 0 {
        return 0;
    }
    let mut amount = mantissa * numerator;
    let mut divisor = denominator;
    while shift > 0 {
        let Some(next) = amount.checked_mul(10).filter(|next| *next / divisor <= MAX_NANOS) else {
            return MAX_NANOS;
        };
        amount = next;
        shift -= 1;
    }
    while shift < 0 {
        match divisor.checked_mul(10) {
            Some(next) if next < amount.saturating_mul(10) => divisor = next,
            _ => return 1,
        }
        shift += 1;
    }
    let exact = amount % divisor == 0 && !inexact;
    (amount / divisor + i128::from(!exact)).min(MAX_NANOS)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nanos, format } = *self;
        if nanos == 0 {
            return f.write_str("0");
        }
        // Binary form is kept only for whole amounts of at least 1024, as Kubernetes does.
        if format == Format::BinarySi && nanos % NANO == 0 && (nanos / NANO).abs() >= 1024 {
            let mut amount = nanos / NANO;
            let mut power = 0;
            while amount % 1024 == 0 && power < 6 {
                amount /= 1024;
                power += 1;
            }
            return write!(f, "{amount}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let mut amount = nanos;
        let mut power: usize = 0;
        while amount % 1000 == 0 && power < 9 {
            amount /= 1000;
            power += 1;
        }
        if format == Format::DecimalExponent {
            let exponent = power as i32 * 3 - 9;
            return if exponent == 0 {
                write!(f, "{amount}")
            } else {
                write!(f, "{amount}e{exponent}")
            };
        }
        write!(f, "{amount}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power])
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl std::hash::Hash for Quantity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// A zero takes the other's format, so that sums started from nothing print as their parts do.
fn merged(a: Quantity, b: Quantity) -> Format {
    if a.nanos == 0 { b.format } else { a.format }
}

impl Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos), format: merged(self, other) }
    }
}

impl Sub for Quantity {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos), format: merged(self, other) }
    }
}

impl Neg for Quantity {
    type Output = Self;
    fn neg(self) -> Self {
        Self { nanos: -self.nanos, format: self.format }
    }
}

impl Mul<i64> for Quantity {
    type Output = Self;
    fn mul(self, by: i64) -> Self {
        Self { nanos: self.nanos.saturating_mul(i128::from(by)), format: self.format }
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, |sum, it| sum + it)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 500m, 2 or 1.5Gi")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Quantity, E> {
                Ok(Quantity::units(n))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Quantity, E> {
                Ok(Quantity::units(i64::try_from(n).unwrap_or(i64::MAX)))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Quantity, E> {
                n.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_the_canonical_form() {
        for (given, printed) in [
            ("1000m", "1"),
            ("1.5", "1500m"),
            ("0.5Gi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("512", "512"),
            ("1000Ki", "1000Ki"),
            ("100Mi", "100Mi"),
            ("1500Mi", "1500Mi"),
            ("2000k", "2M"),
            ("12E", "9223372036854775807"), // capped at 2^63-1
            ("9E", "9E"),
            ("-1500m", "-1500m"),
            ("+1", "1"),
            ("1e3", "1e3"),
            ("1e4", "10e3"),
            ("1E", "1E"),
            ("0", "0"),
            ("0Gi", "0"),
            (".5", "500m"),
            ("5.", "5"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("0.1Ki", "102400m"),
            ("9223372036854775807", "9223372036854775807"),
            ("99999999999999999999", "9223372036854775807"),
            ("253642872282067396198400u", "253642872282067396198400u"),
            ("123456789012345678901234567n", "123456789012345678901234567n"),
        ] {
            assert_eq!(given.parse::<Quantity>().expect(given).to_string(), printed, "{given}");
        }
    }

    #[test]
    fn refuses_other_texts() {
        for text in
            ["", "m", "1.2.3", "1 Gi", "1gi", "--1", "1e", "1e+", "abc", "1mi", "0x1", "1KiB", "é"]
        {
            assert_eq!(text.parse::<Quantity>(), Err(QuantityError(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn equal_amounts_are_equal() {
        let parse = |text: &str| text.parse::<Quantity>().expect("valid");
        assert_eq!(parse("1"), parse("1000m"));
        assert_eq!(parse("1Ki"), parse("1024"));
        assert_eq!((parse("1500m") + parse("0.5")).to_string(), "2");
        assert_eq!(parse("1500m").value(), 2);
        assert_eq!(parse("-1500m").value(), -1);
    }
}
