//! What EC2's filters let through, for everything that answers in EC2's place.

use crate::ec2::{Filter, Tags};

/// Whether something with `tags` and `fields` passes all filters. Unknown filters pass nothing.
pub fn passes(filters: &[Filter], tags: &Tags, fields: &[(&str, &str)]) -> bool {
    filters.iter().all(|filter| {
        let any = |text: &str| filter.values.iter().any(|pattern| wildcard(pattern, text));
        if let Some(key) = filter.name.strip_prefix("tag:") {
            return tags.get(key).is_some_and(|value| any(value));
        }
        if filter.name == "tag-key" {
            return tags.keys().any(|key| any(key));
        }
        fields.iter().any(|(name, value)| *name == filter.name && any(value))
    })
}

/// Whether `text` matches `pattern`, in which `*` stands for anything and `?` for one character.
fn wildcard(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    t = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        assert!(
            wildcard("*", "")
                && wildcard("a*c", "abbc")
                && wildcard("a?c", "abc")
                && wildcard("abc", "abc")
        );
        // No pattern takes longer than its length times the text's.
        assert!(!wildcard(&"a*".repeat(40), &format!("{}b", "a".repeat(30))));
        assert!(!wildcard("a*c", "abd") && !wildcard("", "a") && !wildcard("a", ""));
    }

    #[test]
    fn all_filters_have_to_pass_and_unknown_ones_never_do() {
        let tags = Tags::from([("team".to_owned(), "web".to_owned())]);
        let fields = [("vpc-id", "vpc-1")];
        let pass = |filters: &[Filter]| passes(filters, &tags, &fields);
        assert!(pass(&[]));
        assert!(pass(&[Filter::new("tag:team", &["db", "w*"]), Filter::new("vpc-id", &["vpc-1"])]));
        assert!(pass(&[Filter::new("tag-key", &["team"])]));
        assert!(!pass(&[Filter::new("tag:team", &["web"]), Filter::new("vpc-id", &["vpc-2"])]));
        assert!(!pass(&[Filter::new("tag:other", &["*"])]));
        assert!(!pass(&[Filter::new("no-such-filter", &["*"])]));
    }
}
