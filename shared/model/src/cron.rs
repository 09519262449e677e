//! Schedules of budgets: five cron fields or a descriptor, always in UTC (`spec` api 5.4).

use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    tz::TimeZone,
};

/// Years after which a schedule without a hit has none. As in the library that Karpenter uses.
const YEARS_AHEAD: i16 = 5;

/// Why a text is not a schedule. The message quotes the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScheduleError(String);

/// A parsed schedule. Each field is a set of bits; minutes and seconds of a hit are whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// The day of month was `*` or `?` without a step above 1, so the weekday alone decides.
    any_day: bool,
    any_weekday: bool,
}

/// One field: its name, its bounds, and names for its values.
struct Field {
    least: u32,
    most: u32,
    names: &'static [&'static str],
    /// The value of the first name.
    first: u32,
}

const MINUTE: Field = Field { least: 0, most: 59, names: &[], first: 0 };
const HOUR: Field = Field { least: 0, most: 23, names: &[], first: 0 };
const DAY: Field = Field { least: 1, most: 31, names: &[], first: 0 };
const MONTH: Field = Field {
    least: 1,
    most: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    first: 1,
};
/// 0 is Sunday; 7 is not a day.
const WEEKDAY: Field = Field {
    least: 0,
    most: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    first: 0,
};

impl Schedule {
    /// Reads `minute hour day-of-month month day-of-week`, or one of `@yearly @annually @monthly @weekly @daily @midnight
    /// @hourly`.
    ///
    /// # Errors
    /// Anything else; a time zone before it, too.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let fail = |problem: String| Err(ScheduleError(problem));
        if text.trim().is_empty() {
            return fail("empty schedule".into());
        }
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            return fail(format!(
                "schedules are always in UTC, a time zone is not allowed: {text}"
            ));
        }
        let standard = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ if text.starts_with('@') => {
                return fail(format!("unrecognized descriptor: {text}"));
            }
            _ => text,
        };
        let fields: Vec<&str> = standard.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return fail(format!("expected exactly 5 fields, found {}: {text}", fields.len()));
        };
        let (days, any_day) = DAY.parse(day)?;
        let (weekdays, any_weekday) = WEEKDAY.parse(weekday)?;
        Ok(Self {
            minutes: MINUTE.parse(minute)?.0,
            hours: HOUR.parse(hour)?.0,
            days,
            months: MONTH.parse(month)?.0,
            weekdays,
            any_day,
            any_weekday,
        })
    }

    /// The first hit strictly after the whole second of `after`; `None` when there is none within five years.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        if self.minutes == 0 || self.hours == 0 {
            return None;
        }
        // Whole seconds: a hit is at second 0, so the first candidate is the next full minute.
        let from = after.as_second().checked_add(1)?;
        let minute = from.checked_add(59)?.div_euclid(60);
        let start = Timestamp::from_second(minute.checked_mul(60)?).ok()?;
        let start = start.to_zoned(TimeZone::UTC).datetime();
        let last_year =
            after.to_zoned(TimeZone::UTC).year().checked_add(YEARS_AHEAD).unwrap_or(i16::MAX);
        let mut date = start.date();
        let mut from_minute = (start.hour(), start.minute());
        while date.year() <= last_year {
            if self.months & bit(date.month()) == 0 {
                // On to the first day of the next month.
                date = date.last_of_month().tomorrow().ok()?;
                from_minute = (0, 0);
                continue;
            }
            if self.matches_day(date)
                && let Some(time) = self.time_from(from_minute)
            {
                return at(date.at(time.0, time.1, 0, 0));
            }
            date = date.tomorrow().ok()?;
            from_minute = (0, 0);
        }
        None
    }

    /// Both fields restricted: either may match. Else both must.
    fn matches_day(&self, date: Date) -> bool {
        let day = self.days & bit(date.day()) != 0;
        let weekday = self.weekdays & bit(date.weekday().to_sunday_zero_offset()) != 0;
        if self.any_day || self.any_weekday { day && weekday } else { day || weekday }
    }

    /// The first (hour, minute) at or after `from` on one day.
    fn time_from(&self, (hour, minute): (i8, i8)) -> Option<(i8, i8)> {
        let same_hour = self.hours & bit(hour) != 0;
        if same_hour && let Some(minute) = lowest(self.minutes, minute) {
            return Some((hour, minute));
        }
        Some((lowest(self.hours, hour + 1)?, lowest(self.minutes, 0)?))
    }
}

fn at(time: DateTime) -> Option<Timestamp> {
    time.to_zoned(TimeZone::UTC).ok().map(|it| it.timestamp())
}

fn bit(n: i8) -> u64 {
    u64::try_from(n).ok().and_then(|n| 1_u64.checked_shl(u32::try_from(n).ok()?)).unwrap_or(0)
}

/// The lowest member that is at least `from`.
fn lowest(set: u64, from: i8) -> Option<i8> {
    let rest = set.checked_shr(u32::try_from(from).ok()?)?;
    (rest != 0).then(|| from + rest.trailing_zeros() as i8)
}

impl Field {
    /// The set of a whole field, and whether it stands for "any".
    fn parse(&self, text: &str) -> Result<(u64, bool), ScheduleError> {
        let (mut set, mut any) = (0, false);
        for part in text.split(',').filter(|it| !it.is_empty()) {
            let (members, is_any) = self.part(part)?;
            set |= members;
            any |= is_any;
        }
        Ok((set, any))
    }

    /// `n`, `n-m`, `*` or `?`, each with an optional `/step`.
    fn part(&self, text: &str) -> Result<(u64, bool), ScheduleError> {
        let fail = |problem: String| Err(ScheduleError(problem));
        let mut slashes = text.split('/');
        let range = slashes.next().unwrap_or_default();
        let step_text = slashes.next();
        if slashes.next().is_some() {
            return fail(format!("too many slashes: {text}"));
        }
        let mut hyphens = range.split('-');
        let low = hyphens.next().unwrap_or_default();
        let high = hyphens.next();
        let mut any = false;
        let (start, mut end) = if matches!(low, "*" | "?") {
            any = true;
            (self.least, self.most)
        } else {
            let start = self.value(low)?;
            let end = match high {
                None => start,
                Some(high) => self.value(high)?,
            };
            if hyphens.next().is_some() {
                return fail(format!("too many hyphens: {text}"));
            }
            (start, end)
        };
        let step = match step_text {
            None => 1,
            Some(step) => {
                let step = number(step)?;
                // From here to the end of the field.
                if high.is_none() {
                    end = self.most;
                }
                any &= step <= 1;
                step
            }
        };
        if start < self.least {
            return fail(format!(
                "beginning of range ({start}) below minimum ({}): {text}",
                self.least
            ));
        }
        if end > self.most {
            return fail(format!("end of range ({end}) above maximum ({}): {text}", self.most));
        }
        if start > end {
            return fail(format!(
                "beginning of range ({start}) beyond end of range ({end}): {text}"
            ));
        }
        if step == 0 {
            return fail(format!("step of range should be a positive number: {text}"));
        }
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        let set = (start..=end).step_by(step).fold(0, |set, n| set | 1_u64 << n);
        Ok((set, any))
    }

    fn value(&self, text: &str) -> Result<u32, ScheduleError> {
        let name = text.to_ascii_lowercase();
        let named = (self.first..).zip(self.names).find(|(_, it)| **it == name);
        named.map_or_else(|| number(text), |(value, _)| Ok(value))
    }
}

fn number(text: &str) -> Result<u32, ScheduleError> {
    text.parse().map_err(|_| ScheduleError(format!("failed to parse a number from {text:?}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect(text)
    }

    #[test]
    fn hits() {
        for (schedule, after, hit) in [
            ("* * * * *", "2024-01-07T00:00:00Z", Some("2024-01-07T00:01:00Z")),
            ("* * * * *", "2024-01-06T23:59:59.5Z", Some("2024-01-07T00:00:00Z")),
            ("* * * * *", "2024-01-06T23:59:00.5Z", Some("2024-01-07T00:00:00Z")),
            ("30 6 * * SUN", "2024-01-07T00:00:00Z", Some("2024-01-07T06:30:00Z")),
            ("30 6 * * sun", "2024-01-07T06:30:00Z", Some("2024-01-14T06:30:00Z")),
            ("0 0 29 2 *", "2024-03-01T00:00:00Z", Some("2028-02-29T00:00:00Z")),
            ("0 0 30 2 *", "2024-01-01T00:00:00Z", None),
            ("0 0 13 * fri", "2024-09-01T00:00:00Z", Some("2024-09-06T00:00:00Z")),
            ("0 0 */2 * mon", "2024-05-13T12:00:00Z", Some("2024-05-15T00:00:00Z")),
            ("0 0 */1 * mon", "2024-05-13T12:00:00Z", Some("2024-05-20T00:00:00Z")),
            ("0 0 ? jan-mar *", "2024-04-01T00:00:00Z", Some("2025-01-01T00:00:00Z")),
            ("5/10 * * * *", "2024-01-01T00:05:00Z", Some("2024-01-01T00:15:00Z")),
            ("10-40/5 22 * * *", "2024-01-01T22:40:00Z", Some("2024-01-02T22:10:00Z")),
            ("0 12 31 * *", "2024-02-01T00:00:00Z", Some("2024-03-31T12:00:00Z")),
            ("@hourly", "2024-01-01T00:00:00Z", Some("2024-01-01T01:00:00Z")),
            ("@weekly", "2024-01-01T00:00:00Z", Some("2024-01-07T00:00:00Z")),
            ("@yearly", "2024-01-01T00:00:00Z", Some("2025-01-01T00:00:00Z")),
            ("@monthly", "2024-01-31T10:00:00Z", Some("2024-02-01T00:00:00Z")),
        ] {
            let found = Schedule::parse(schedule).expect(schedule).next_after(time(after));
            assert_eq!(found, hit.map(time), "{schedule} after {after}");
        }
    }

    #[test]
    fn refuses_other_texts() {
        for (schedule, problem) in [
            ("0 0 * * tue-mon", "beginning of range (2) beyond end of range (1)"),
            ("0 0 * * 7", "end of range (7) above maximum (6)"),
            ("0 0 0 * *", "beginning of range (0) below minimum (1)"),
            ("60 0 * * *", "end of range (60) above maximum (59)"),
            ("* * * *", "expected exactly 5 fields, found 4"),
            ("* * * * * *", "expected exactly 5 fields, found 6"),
            ("TZ=Europe/Berlin 0 9 * * *", "a time zone is not allowed"),
            ("CRON_TZ=UTC 0 9 * * *", "a time zone is not allowed"),
            ("@dailyfoo", "unrecognized descriptor: @dailyfoo"),
            ("@every 1h", "unrecognized descriptor: @every 1h"),
            ("a * * * *", "failed to parse a number from \"a\""),
            ("*/0 * * * *", "step of range should be a positive number"),
            ("1/2/3 * * * *", "too many slashes"),
            ("1-2-3 * * * *", "too many hyphens"),
            ("-1 * * * *", "failed to parse a number from \"\""),
            ("", "empty schedule"),
        ] {
            let error = Schedule::parse(schedule).expect_err(schedule);
            assert!(error.to_string().contains(problem), "{schedule}: {error}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "[0-9*/,\\-a-z@? ]{0,30}", second in -60_000_000_000_i64..200_000_000_000) {
            if let (Ok(schedule), Ok(after)) = (Schedule::parse(&text), Timestamp::from_second(second))
                && let Some(hit) = schedule.next_after(after)
            {
                prop_assert!(hit > after);
            }
        }
    }
}
