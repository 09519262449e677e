//! Kubernetes' rules for names, keys and label values, with the texts that its users know.

/// Longest name part of a key, and longest label value.
const MAX_NAME: usize = 63;
/// Longest DNS subdomain.
const MAX_SUBDOMAIN: usize = 253;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// What is wrong with `key` as a qualified name: an optional DNS prefix and `/`, then a name of 1 to 63 characters.
pub fn qualified_name(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let mut problems = Vec::new();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(dns_subdomain(prefix).iter().map(|it| format!("prefix part {it}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_NAME {
        problems.push(format!("name part must be no more than {MAX_NAME} characters"));
    }
    if !is_name(name) {
        problems.push(format!("name part {NAME_RULE}"));
    }
    problems
}

/// What is wrong with `value` as a label value: empty, or a name of at most 63 characters.
pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_NAME {
        problems.push(format!("must be no more than {MAX_NAME} characters"));
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
             regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

/// What is wrong with `name` as a lower-case DNS subdomain.
pub fn dns_subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > MAX_SUBDOMAIN {
        problems.push(format!("must be no more than {MAX_SUBDOMAIN} characters"));
    }
    let is_label = |label: &str| {
        let edge = |byte: Option<&u8>| {
            byte.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
        };
        let bytes = label.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || *it == b'-')
    };
    if !name.split('.').all(is_label) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
             must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems
}

fn is_name(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.'))
}

/// The part of a key before `/`; empty without one.
pub fn domain(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (key, n_problems) in [
            ("a", 0),
            ("example.com/a.b_C-1", 0),
            ("", 2),
            ("/a", 1),
            ("a/", 2),
            ("a/b/c", 1),
            ("Example.com/a", 1),
            ("-a", 1),
            ("a..b/x", 1),
        ] {
            assert_eq!(qualified_name(key).len(), n_problems, "{key}: {:?}", qualified_name(key));
        }
        let (fits, too_long) = ("x".repeat(63), "x".repeat(64));
        assert!(qualified_name(&fits).is_empty() && label_value(&fits).is_empty());
        assert_eq!(qualified_name(&too_long), ["name part must be no more than 63 characters"]);
        assert_eq!(label_value(&too_long), ["must be no more than 63 characters"]);
        assert!(label_value("").is_empty());
        assert_eq!(label_value("a b").len(), 1);
    }
}
