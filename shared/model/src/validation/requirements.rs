//! One requirement of a pool or overlay (`spec` api 6.3).

use super::names;
use crate::{Operator, labels, requirements::NodeSelectorRequirement};

/// Domains whose labels belong to Karpenter.
const RESTRICTED_DOMAINS: &[&str] = &["karpenter.k8s.aws", "karpenter.sh"];

/// Why users may not set `key`, if so: a restricted domain that is not well-known, or the host name.
pub fn is_restricted(key: &str) -> Option<String> {
    if labels::is_well_known(key) {
        return None;
    }
    let domain = names::domain(key);
    let reserved = RESTRICTED_DOMAINS
        .iter()
        .any(|it| domain == *it || domain.strip_suffix(it).is_some_and(|rest| rest.ends_with('.')));
    (reserved || key == labels::HOSTNAME).then(|| {
        format!(
            "using label {key} is not allowed as it might interfere with the internal provisioning logic; specify \
             a well known label: [{}], or a custom label that does not use a restricted domain: [{}]",
            labels::WELL_KNOWN.join(" "),
            RESTRICTED_DOMAINS.join(" ")
        )
    })
}

/// The values that mean something for `key`, where only some do.
///
/// DIFFERENCE: Karpenter knows the values of capacity type and tenancy alone. A pool for `x86` is no better than one for
/// `xspot`: it never makes a node, so its condition says so.
fn known_values(key: &str) -> Option<&'static [&'static str]> {
    match key {
        labels::CAPACITY_TYPE => Some(&["on-demand", "reserved", "spot"]),
        labels::INSTANCE_TENANCY => Some(&["dedicated", "default"]),
        labels::ARCH => Some(&["amd64", "arm64"]),
        labels::OS => Some(&["linux", "windows"]),
        _ => None,
    }
}

/// What is wrong with one requirement, in the order in which it is checked. The key's aliases are resolved first.
///
/// An operator other than the eight cannot be read into an [`Operator`] at all.
pub fn requirement(requirement: &NodeSelectorRequirement) -> Vec<String> {
    let key = labels::normalize(&requirement.key);
    let NodeSelectorRequirement { values, min_values, .. } = requirement;
    let operator = requirement.operator;
    let mut problems = Vec::new();
    problems.extend(is_restricted(key));
    let wanted = usize::try_from(min_values.unwrap_or(0)).unwrap_or(0);
    if let (Operator::In, Some(known)) = (operator, known_values(key)) {
        let n_known = values.iter().filter(|it| known.contains(&it.as_str())).count();
        let complaint = if n_known == 0 {
            Some("no")
        } else if n_known < wanted {
            Some("not enough")
        } else {
            None
        };
        if let Some(complaint) = complaint {
            problems.push(format!(
                "{complaint} valid values found in [{}] for {key}, expected one of: [{}]",
                values.join(" "),
                known.join(" ")
            ));
        }
    }
    for why in names::qualified_name(key) {
        problems.push(format!("key {key} is not a qualified name, {why}"));
    }
    for value in values {
        for why in names::label_value(value) {
            problems.push(format!("invalid value {value} for key {key}, {why}"));
        }
    }
    if matches!(operator, Operator::In) {
        if values.is_empty() {
            problems.push(format!("key {key} with operator In must have a value defined"));
        }
        if values.len() < wanted {
            problems.push(format!(
                "key {key} with operator In must have at least minimum number of values defined in 'values' field"
            ));
        }
    }
    if matches!(operator, Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte) {
        let bound = match values.as_slice() {
            [value] => value.parse::<i64>().ok().filter(|it| *it >= 0),
            _ => None,
        };
        if bound.is_none() {
            problems.push(format!(
                "key {key} with operator {operator:?} must have a single positive integer value"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, operator: Operator, values: &[&str], min_values: Option<i32>) -> Vec<String> {
        requirement(&NodeSelectorRequirement {
            min_values,
            ..NodeSelectorRequirement::new(key, operator, values)
        })
    }

    #[test] // B-085: what is wrong names key and value
    fn values_that_nothing_has() {
        for (key, value, known) in [
            (labels::CAPACITY_TYPE, "xspot", "on-demand reserved spot"),
            (labels::ARCH, "x86", "amd64 arm64"),
            (labels::OS, "Linux", "linux windows"),
        ] {
            assert_eq!(
                of(key, Operator::In, &[value], None),
                [format!(
                    "no valid values found in [{value}] for {key}, expected one of: [{known}]"
                )]
            );
            let good = known.split(' ').next().unwrap_or_default();
            assert!(of(key, Operator::In, &[value, good], None).is_empty(), "{key}");
            assert!(of(key, Operator::NotIn, &[value], None).is_empty(), "{key}");
        }
    }

    #[test] // api 6, case 12; api 4, cases 7, 8, 9 and 14
    fn requirements() {
        use Operator::{Exists, Gt, In, NotIn};
        let tenancy = labels::INSTANCE_TENANCY;
        for (key, operator, values, min_values, start) in [
            (tenancy, In, &["dedicated", "host"][..], None, None),
            (tenancy, In, &["host"], None, Some("no valid values found in")),
            (tenancy, NotIn, &["host"], None, None),
            (labels::CAPACITY_TYPE, In, &["spot", "preemptible"], None, None),
            (labels::CAPACITY_TYPE, In, &["preemptible"], None, Some("no valid values found in")),
            (
                labels::CAPACITY_TYPE,
                In,
                &["spot", "preemptible"],
                Some(2),
                Some("not enough valid values found in"),
            ),
            ("team", NotIn, &[], None, None),
            ("team", In, &[], None, Some("key team with operator In must have a value defined")),
            (
                "team",
                In,
                &["a"],
                Some(2),
                Some(
                    "key team with operator In must have at least minimum number of values defined in 'values' field",
                ),
            ),
            (labels::INSTANCE_CPU, Gt, &["0"], None, None),
            (
                labels::INSTANCE_CPU,
                Gt,
                &["a"],
                None,
                Some(
                    "key karpenter.k8s.aws/instance-cpu with operator Gt must have a single positive integer value",
                ),
            ),
            (labels::INSTANCE_FAMILY, Exists, &[], Some(2), None),
            ("a b", Exists, &[], None, Some("key a b is not a qualified name, name part must")),
            (
                "team",
                In,
                &["a b"],
                None,
                Some("invalid value a b for key team, a valid label must"),
            ),
            (
                labels::NODECLASS,
                Exists,
                &[],
                None,
                Some("using label karpenter.k8s.aws/ec2nodeclass is not"),
            ),
            (
                labels::HOSTNAME,
                Exists,
                &[],
                None,
                Some("using label kubernetes.io/hostname is not"),
            ),
            (
                "foo.karpenter.sh/x",
                Exists,
                &[],
                None,
                Some("using label foo.karpenter.sh/x is not"),
            ),
            ("notkarpenter.sh/x", Exists, &[], None, None),
            ("beta.kubernetes.io/arch", In, &["arm64"], None, None),
        ] {
            let problems = of(key, operator, values, min_values);
            assert_eq!(problems.len(), usize::from(start.is_some()), "{key}: {problems:?}");
            if let Some(start) = start {
                assert!(problems[0].starts_with(start), "{}", problems[0]);
            }
        }
        // api 2, case 8
        assert_eq!(of("team", In, &["x".repeat(64).as_str()], None).len(), 1);
    }

    #[test]
    fn the_restriction_lists_what_may_be_used() {
        let text = is_restricted("karpenter.sh/initialized").expect("restricted");
        assert!(text.starts_with(
            "using label karpenter.sh/initialized is not allowed as it might interfere with the internal \
             provisioning logic; specify a well known label: [karpenter.k8s.aws/capacity-reservation-id "
        ));
        assert!(text.ends_with(
            "or a custom label that does not use a restricted domain: [karpenter.k8s.aws karpenter.sh]"
        ));
    }
}
