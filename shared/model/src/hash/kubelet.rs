//! The kubelet settings in class hashes: one canonical text since `v6`, typed fields before.

use std::{collections::BTreeMap, fmt::Write};

use serde_json::{Number, Value};

use super::{Struct, boolean, int32, list, map, nanoseconds, text};
use crate::duration::parse_go;

/// `null` when empty or absent, else compact JSON with sorted keys, escaped as Go's encoder does.
pub(super) fn canonical(settings: Option<&BTreeMap<String, Value>>) -> String {
    let Some(settings) = settings.filter(|it| !it.is_empty()) else { return "null".into() };
    let mut json = String::new();
    object(settings.iter(), &mut json);
    json
}

fn object<'a>(fields: impl Iterator<Item = (&'a String, &'a Value)>, json: &mut String) {
    json.push('{');
    for (at, (key, value)) in fields.enumerate() {
        if at > 0 {
            json.push(',');
        }
        string(key, json);
        json.push(':');
        write(value, json);
    }
    json.push('}');
}

fn write(value: &Value, json: &mut String) {
    match value {
        Value::Null => json.push_str("null"),
        Value::Bool(true) => json.push_str("true"),
        Value::Bool(false) => json.push_str("false"),
        Value::Number(it) => number(it, json),
        Value::String(it) => string(it, json),
        Value::Array(items) => {
            json.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    json.push(',');
                }
                write(item, json);
            }
            json.push(']');
        }
        Value::Object(fields) => {
            // Sorted here too: the API server stores objects so.
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            object(sorted.into_iter(), json);
        }
    }
}

/// Numbers as they stand in an object that went through Go's JSON and back: what fits 64 bits with a sign is an integer, all else a
/// float of the fewest digits that tell it apart, with an exponent from 10^21 on and below 10^-6.
fn number(it: &Number, json: &mut String) {
    let float = it.as_f64().filter(|_| it.as_i64().is_none()).and_then(Number::from_f64);
    let Some(float) = float else {
        let _ = write!(json, "{it}");
        return;
    };
    // Not the formatter of the standard library: of two texts that are equally near it takes the higher one, Go the even one.
    let text = float.to_string();
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |it| ("-", it));
    let (mantissa, power) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    // The value is 0.digits x 10^point.
    let point =
        power.parse::<i64>().unwrap_or(0) + whole.len() as i64 - (all.len() - digits.len()) as i64;
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() {
        // One below zero is written as an integer and read back as zero.
        json.push('0');
        return;
    }
    json.push_str(sign);
    let n = digits.len() as i64;
    let zeros = |n: i64| "0".repeat(usize::try_from(n).unwrap_or(0));
    let _ = match usize::try_from(point) {
        _ if !(-5..=21).contains(&point) => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            write!(json, "{first}{dot}{rest}e{:+}", point - 1)
        }
        Ok(at) if 0 < point && point < n => {
            let (whole, fraction) = digits.split_at(at);
            write!(json, "{whole}.{fraction}")
        }
        Ok(_) if point >= n => write!(json, "{digits}{}", zeros(point - n)),
        _ => write!(json, "0.{}{digits}", zeros(-point)),
    };
}

fn string(it: &str, json: &mut String) {
    json.push('"');
    for c in it.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            _ => json.push(c),
        }
    }
    json.push('"');
}

/// The hash of the twelve typed fields of `v5`; `None` when there are others, or values of other types.
pub(super) fn typed(settings: &BTreeMap<String, Value>) -> Option<u64> {
    const FIELDS: &[&str] = &[
        "clusterDNS",
        "maxPods",
        "podsPerCore",
        "systemReserved",
        "kubeReserved",
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMaxPodGracePeriod",
        "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent",
        "cpuCFSQuota",
    ];
    if settings.keys().any(|key| !FIELDS.contains(&key.as_str())) {
        return None;
    }
    let present = |name: &str| settings.get(name).filter(|it| !it.is_null());
    // Each reader gives None for an absent field and Some(None) for one of another type.
    let whole = |name: &str| -> Option<Option<u64>> {
        present(name).map(|it| i32::try_from(it.as_i64()?).ok().map(int32))
    };
    let texts = |name: &str| -> Option<Option<u64>> {
        present(name).map(|it| {
            let entries: Option<Vec<(u64, u64)>> = it
                .as_object()?
                .iter()
                .map(|(key, value)| Some((text(key), text(value.as_str()?))))
                .collect();
            entries.map(map)
        })
    };
    let dns = present("clusterDNS").map(|it| {
        let items: Option<Vec<u64>> =
            it.as_array()?.iter().map(|item| item.as_str().map(text)).collect();
        items.map(list)
    });
    let grace_periods = present("evictionSoftGracePeriod").map(|it| {
        let entries: Option<Vec<(u64, u64)>> = it
            .as_object()?
            .iter()
            .map(|(key, value)| {
                let length = nanoseconds(parse_go(value.as_str()?)?);
                let hash =
                    Struct::new("Duration").int64("Duration", (length != 0).then_some(length));
                Some((text(key), hash.pointed_to()))
            })
            .collect();
        entries.map(map)
    });
    let quota = present("cpuCFSQuota").map(|it| it.as_bool().map(boolean));
    let fields = [
        ("ClusterDNS", dns),
        ("MaxPods", whole("maxPods")),
        ("PodsPerCore", whole("podsPerCore")),
        ("SystemReserved", texts("systemReserved")),
        ("KubeReserved", texts("kubeReserved")),
        ("EvictionHard", texts("evictionHard")),
        ("EvictionSoft", texts("evictionSoft")),
        ("EvictionSoftGracePeriod", grace_periods),
        ("EvictionMaxPodGracePeriod", whole("evictionMaxPodGracePeriod")),
        ("ImageGCHighThresholdPercent", whole("imageGCHighThresholdPercent")),
        ("ImageGCLowThresholdPercent", whole("imageGCLowThresholdPercent")),
        ("CPUCFSQuota", quota),
    ];
    let mut hash = Struct::new("KubeletConfiguration");
    for (name, value) in fields {
        match value {
            None => {}
            Some(None) => return None,
            Some(some) => hash = hash.field(name, some),
        }
    }
    Some(hash.pointed_to())
}
