//! The requirement algebra: sets of allowed label values (`spec` scheduling 2, api 6).

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use crate::labels;

/// The operator of a requirement as the API writes it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Operator {
    #[default]
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    Gte,
    Lte,
}

impl Operator {
    /// The operator of this name; `None` where there is none.
    pub fn of(name: &str) -> Option<Self> {
        use serde::de::{IntoDeserializer, value::Error};
        let name: serde::de::value::StrDeserializer<'_, Error> = name.into_deserializer();
        Self::deserialize(name).ok()
    }
}

/// A requirement as the API writes it: in NodePools, NodeClaims, node affinity and NodeOverlays.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorRequirement {
    pub key: String,
    pub operator: Operator,
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "crate::meta::null_is_default"
    )]
    pub values: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i32>,
}

impl NodeSelectorRequirement {
    /// A requirement without `minValues`.
    pub fn new(key: &str, operator: Operator, values: &[&str]) -> Self {
        Self {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|&value| value.to_owned()).collect(),
            min_values: None,
        }
    }
}

/// One key's allowed values: listed ones, or all but listed ones (`complement`), within inclusive bounds.
///
/// Bounds are kept on complements only; concrete sets have them applied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    pub key: String,
    pub complement: bool,
    pub values: BTreeSet<String>,
    pub gte: Option<i64>,
    pub lte: Option<i64>,
    pub min_values: Option<i32>,
}

impl Requirement {
    /// Builds one, normalising the key. Bounds that are not integers allow nothing.
    pub fn new(
        key: &str,
        operator: Operator,
        values: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let values: BTreeSet<String> = values.into_iter().map(Into::into).collect();
        let mut requirement = Self {
            key: labels::normalize(key).to_owned(),
            complement: !matches!(operator, Operator::In | Operator::DoesNotExist),
            values: BTreeSet::new(),
            gte: None,
            lte: None,
            min_values: None,
        };
        let bound = || values.first().and_then(|value| value.parse::<i64>().ok());
        match operator {
            Operator::In | Operator::NotIn => requirement.values = values,
            Operator::Exists | Operator::DoesNotExist => {}
            Operator::Gt => match bound().and_then(|n| n.checked_add(1)) {
                Some(n) => requirement.gte = Some(n),
                None => requirement.complement = false,
            },
            Operator::Lt => match bound().and_then(|n| n.checked_sub(1)) {
                Some(n) => requirement.lte = Some(n),
                None => requirement.complement = false,
            },
            Operator::Gte => match bound() {
                Some(n) => requirement.gte = Some(n),
                None => requirement.complement = false,
            },
            Operator::Lte => match bound() {
                Some(n) => requirement.lte = Some(n),
                None => requirement.complement = false,
            },
        }
        requirement
    }

    /// `key In [value]`, as labels and node selectors mean it.
    pub fn equals(key: &str, value: &str) -> Self {
        Self::new(key, Operator::In, [value])
    }

    /// `key Exists`: anything goes.
    pub fn exists(key: &str) -> Self {
        Self::new(key, Operator::Exists, [] as [&str; 0])
    }

    /// `key DoesNotExist`.
    pub fn does_not_exist(key: &str) -> Self {
        Self::new(key, Operator::DoesNotExist, [] as [&str; 0])
    }

    /// What it is after all intersections: `NotIn`, `Exists` (also with bounds), `In` or `DoesNotExist`.
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, false) => Operator::NotIn,
            (true, true) => Operator::Exists,
            (false, false) => Operator::In,
            (false, true) => Operator::DoesNotExist,
        }
    }

    /// Whether `value` is allowed. A value that is no integer is outside any bound.
    pub fn has(&self, value: &str) -> bool {
        self.values.contains(value) != self.complement && self.within_bounds(value)
    }

    fn within_bounds(&self, value: &str) -> bool {
        if self.gte.is_none() && self.lte.is_none() {
            return true;
        }
        value.parse::<i64>().is_ok_and(|n| {
            self.gte.is_none_or(|gte| n >= gte) && self.lte.is_none_or(|lte| n <= lte)
        })
    }

    /// The values allowed by both.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let mut result = Self {
            key: self.key.clone(),
            complement: self.complement && other.complement,
            values: BTreeSet::new(),
            gte,
            lte,
            min_values: self.min_values.max(other.min_values),
        };
        if let (Some(gte), Some(lte)) = (gte, lte)
            && gte > lte
        {
            return Self { complement: false, gte: None, lte: None, ..result };
        }
        result.values = match (self.complement, other.complement) {
            (true, true) => self.values.union(&other.values).cloned().collect(),
            (true, false) => other.values.difference(&self.values).cloned().collect(),
            (false, true) => self.values.difference(&other.values).cloned().collect(),
            (false, false) => self.values.intersection(&other.values).cloned().collect(),
        };
        let values = std::mem::take(&mut result.values);
        result.values = values.into_iter().filter(|value| result.within_bounds(value)).collect();
        if !result.complement {
            result.gte = None;
            result.lte = None;
        }
        result
    }

    /// Whether [`Self::intersect`] would allow anything; two complements always do unless bounds cross.
    pub fn intersects(&self, other: &Self) -> bool {
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if let (Some(gte), Some(lte)) = (gte, lte)
            && gte > lte
        {
            return false;
        }
        match (self.complement, other.complement) {
            (true, true) => true,
            (true, false) => {
                other.values.iter().any(|value| self.has(value) && other.within_bounds(value))
            }
            (false, _) => {
                self.values.iter().any(|value| self.within_bounds(value) && other.has(value))
            }
        }
    }

    /// As the API writes it: both bounds are two entries; exclusions beside bounds are an entry of their own.
    ///
    /// DIFFERENCE: Karpenter drops exclusions when a bound is present; we keep them.
    pub fn to_api(&self) -> Vec<NodeSelectorRequirement> {
        let entry = |operator, values: Vec<String>| NodeSelectorRequirement {
            key: self.key.clone(),
            operator,
            values,
            min_values: self.min_values,
        };
        let listed = || self.values.iter().cloned().collect::<Vec<_>>();
        let mut entries = Vec::new();
        if let Some(gte) = self.gte {
            entries.push(entry(Operator::Gte, vec![gte.to_string()]));
        }
        if let Some(lte) = self.lte {
            entries.push(entry(Operator::Lte, vec![lte.to_string()]));
        }
        if entries.is_empty() || !self.values.is_empty() {
            entries.push(entry(self.operator(), listed()));
        }
        entries
    }
}

impl From<&NodeSelectorRequirement> for Requirement {
    fn from(entry: &NodeSelectorRequirement) -> Self {
        Self {
            min_values: entry.min_values,
            ..Self::new(&entry.key, entry.operator, entry.values.iter().map(String::as_str))
        }
    }
}

impl fmt::Display for Requirement {
    /// `key Op [v1 v2 ...]`, five values at most, then bounds and `minValues`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.key, self.operator())?;
        if !self.values.is_empty() {
            let shown: Vec<&str> = self.values.iter().take(5).map(String::as_str).collect();
            write!(f, " [{}", shown.join(" "))?;
            if self.values.len() > 5 {
                write!(f, " and {} others", self.values.len() - 5)?;
            }
            f.write_str("]")?;
        }
        if let Some(gte) = self.gte {
            write!(f, " >={gte}")?;
        }
        if let Some(lte) = self.lte {
            write!(f, " <={lte}")?;
        }
        if let Some(min_values) = self.min_values {
            write!(f, " minValues {min_values}")?;
        }
        Ok(())
    }
}

/// Why two sets of requirements do not go together. The text is Karpenter's wording of `spec` scheduling 2.3.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    #[error("label \"{key}\" does not have known values{}", hint.as_ref().map(|hint| format!(" (typo of \"{hint}\"?)")).unwrap_or_default())]
    Undefined { key: String, hint: Option<String> },
    #[error("key {key}, {incoming} not in {base}")]
    Disjoint { key: String, incoming: Box<Requirement>, base: Box<Requirement> },
}

/// Requirements by (normalised) key. An absent key allows anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirements(BTreeMap<String, Requirement>);

impl Requirements {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// One `In` per label.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        labels.into_iter().map(|(key, value)| Requirement::equals(key, value)).collect()
    }

    /// From what the API writes.
    pub fn from_api<'a>(entries: impl IntoIterator<Item = &'a NodeSelectorRequirement>) -> Self {
        entries.into_iter().map(Requirement::from).collect()
    }

    /// Adds a requirement; a present key gets the intersection.
    pub fn add(&mut self, requirement: Requirement) {
        match self.0.get_mut(&requirement.key) {
            Some(present) => *present = present.intersect(&requirement),
            None => {
                self.0.insert(requirement.key.clone(), requirement);
            }
        }
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for requirement in other.0.values() {
            self.add(requirement.clone());
        }
    }

    /// Replaces whatever is there for the key.
    pub fn replace(&mut self, requirement: Requirement) {
        self.0.insert(requirement.key.clone(), requirement);
    }

    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        self.0.remove(labels::normalize(key))
    }

    /// The requirement of `key` if there is one.
    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.0.get(labels::normalize(key))
    }

    /// The requirement of `key`, `Exists` when absent.
    pub fn get_or_exists(&self, key: &str) -> Requirement {
        self.get(key).cloned().unwrap_or_else(|| Requirement::exists(key))
    }

    /// Whether there is a requirement for `key`.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.0.values()
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The single allowed value of `key`, if it is one.
    pub fn single(&self, key: &str) -> Option<&str> {
        let requirement = self.get(key)?;
        (!requirement.complement && requirement.values.len() == 1)
            .then(|| requirement.values.first().map(String::as_str))
            .flatten()
    }

    /// Sorted by key, as NodeClaims show them.
    pub fn to_api(&self) -> Vec<NodeSelectorRequirement> {
        self.0.values().flat_map(Requirement::to_api).collect()
    }

    /// Whether a thing described by `self` may carry `incoming`; `allow_undefined` are keys that `self` may lack.
    ///
    /// # Errors
    /// The first key, in order, that forbids it.
    pub fn compatible(
        &self,
        incoming: &Self,
        allow_undefined: impl Fn(&str) -> bool,
    ) -> Result<(), Incompatible> {
        for (key, requirement) in &incoming.0 {
            if self.0.contains_key(key) || allow_undefined(key) {
                continue;
            }
            if !matches!(requirement.operator(), Operator::NotIn | Operator::DoesNotExist) {
                return Err(Incompatible::Undefined {
                    key: key.clone(),
                    hint: self.hint(key, &allow_undefined),
                });
            }
        }
        self.intersects(incoming)
    }

    /// Whether every key that both have intersects; absent keys never fail.
    ///
    /// # Errors
    /// The first key, in order, that does not intersect.
    pub fn intersects(&self, incoming: &Self) -> Result<(), Incompatible> {
        match self.first_disjoint(incoming) {
            None => Ok(()),
            Some((key, mine, theirs)) => Err(Incompatible::Disjoint {
                key: key.to_owned(),
                incoming: Box::new(theirs.clone()),
                base: Box::new(mine.clone()),
            }),
        }
    }

    /// [`Self::intersects`] for callers that need no reason: nothing is copied.
    pub fn meets(&self, incoming: &Self) -> bool {
        self.first_disjoint(incoming).is_none()
    }

    /// The first key, in order, that does not intersect, with both requirements of it.
    fn first_disjoint<'a>(
        &'a self,
        incoming: &'a Self,
    ) -> Option<(&'a str, &'a Requirement, &'a Requirement)> {
        let absent =
            |it: &Requirement| matches!(it.operator(), Operator::NotIn | Operator::DoesNotExist);
        let disjoint = |mine: &Requirement, theirs: &Requirement| {
            !(mine.intersects(theirs) || absent(mine) && absent(theirs))
        };
        // Keys have long beginnings in common. Side by side each is compared about once; looked up, once per level of the tree
        // and neighbour, which pays for a few.
        if incoming.0.len() < 3 {
            return incoming.0.iter().find_map(|(key, theirs)| {
                let mine = self.0.get(key)?;
                disjoint(mine, theirs).then_some((key.as_str(), mine, theirs))
            });
        }
        let mut ours = self.0.iter();
        let (mut own_key, mut mine) = ours.next()?;
        for (key, theirs) in &incoming.0 {
            let order = loop {
                match own_key.cmp(key) {
                    Ordering::Less => (own_key, mine) = ours.next()?,
                    other => break other,
                }
            };
            if order == Ordering::Equal && disjoint(mine, theirs) {
                return Some((key, mine, theirs));
            }
        }
        None
    }

    /// A key that `key` may be a misspelling of: one that contains it, or ends with what follows its first `/`.
    fn hint(&self, key: &str, allow_undefined: &impl Fn(&str) -> bool) -> Option<String> {
        let name = key.split_once('/').map_or(key, |(_, name)| name);
        let well_known = labels::WELL_KNOWN.iter().copied().filter(|it| allow_undefined(it));
        let own = self.0.keys().map(String::as_str);
        let plausible = |it: &&str| it.contains(key) || it.ends_with(name);
        let best = |found: Vec<&str>| {
            found
                .into_iter()
                .min_by_key(|it| {
                    (it.split_once('/').map_or(*it, |(_, part)| part) != name, (*it).to_owned())
                })
                .map(str::to_owned)
        };
        best(well_known.filter(plausible).collect())
            .or_else(|| best(own.filter(plausible).collect()))
    }

    /// The requirements as labels: one per single-valued `In`.
    pub fn to_labels(&self) -> BTreeMap<String, String> {
        self.0.keys().filter_map(|key| Some((key.clone(), self.single(key)?.to_owned()))).collect()
    }
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(requirements: I) -> Self {
        let mut set = Self::new();
        for requirement in requirements {
            set.add(requirement);
        }
        set
    }
}

impl fmt::Display for Requirements {
    /// Sorted by text, joined by `, `, without the restricted hostname label.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<String> = self
            .0
            .values()
            .filter(|it| it.key != labels::HOSTNAME)
            .map(ToString::to_string)
            .collect();
        texts.sort();
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(operator: Operator, values: &[&str]) -> Requirement {
        Requirement::new("k", operator, values.iter().copied())
    }

    #[test] // scheduling 2, cases 1-5
    fn intersections() {
        use Operator::{Gt, In, Lt, NotIn};
        for (a, b, text) in [
            (one(NotIn, &["A"]), one(NotIn, &["1", "2"]), "k NotIn [1 2 A]"),
            (one(NotIn, &["1", "2"]), one(Gt, &["1"]), "k NotIn [2] >=2"),
            (one(NotIn, &["1", "2"]), one(Gt, &["9"]), "k Exists >=10"),
            (one(NotIn, &["1", "2"]), one(Lt, &["9"]), "k NotIn [1 2] <=8"),
            (one(In, &["1", "9"]), one(Gt, &["1"]), "k In [9]"),
            (one(In, &["1", "9"]), one(Lt, &["9"]), "k In [1]"),
            (one(In, &["A"]), one(Lt, &["9"]), "k DoesNotExist"),
            (one(Gt, &["1"]), one(Lt, &["9"]), "k Exists >=2 <=8"),
            (one(Gt, &["9"]), one(Lt, &["9"]), "k DoesNotExist"),
        ] {
            assert_eq!(a.intersect(&b).to_string(), text);
            assert_eq!(b.intersect(&a).to_string(), text);
            assert_eq!(a.intersects(&b), !text.ends_with("DoesNotExist"), "{text}");
        }
    }

    #[test] // scheduling 2, case 8
    fn an_undefined_key_names_the_likely_one() {
        let incoming: Requirements = [Requirement::equals("zone", "a")].into_iter().collect();
        let error = Requirements::new()
            .compatible(&incoming, labels::is_well_known)
            .expect_err("undefined");
        assert_eq!(
            error.to_string(),
            "label \"zone\" does not have known values (typo of \"topology.kubernetes.io/zone\"?)"
        );
    }

    #[test] // api 6, case 6, with the exclusion kept
    fn writes_bounds_and_exclusions() {
        let both = one(Operator::NotIn, &["4"]).intersect(&one(Operator::Gte, &["2"]));
        let texts: Vec<String> =
            both.to_api().iter().map(|it| format!("{:?} {:?}", it.operator, it.values)).collect();
        assert_eq!(texts, ["Gte [\"2\"]", "NotIn [\"4\"]"]);
        assert!(!both.has("4") && both.has("5"));
    }

    fn texts(requirement: &Requirement) -> Vec<String> {
        let entries = requirement.to_api();
        entries.iter().map(|it| format!("{:?} {}", it.operator, it.values.join(","))).collect()
    }

    #[test] // api 6, cases 1 to 5 and 8
    fn what_is_written_for_intersections() {
        use Operator::{Exists, Gt, Gte, In, Lt, Lte, NotIn};
        let any = one(Exists, &[]);
        for (a, b, expected) in [
            (one(In, &["a", "b"]), one(In, &["b", "c"]), &["In b"][..]),
            (one(In, &["a"]), one(In, &["b"]), &["DoesNotExist "]),
            (one(In, &["a", "b"]), one(NotIn, &["b", "c"]), &["In a"]),
            (one(NotIn, &["a"]), one(NotIn, &["b"]), &["NotIn a,b"]),
            (any.clone(), one(NotIn, &["a"]), &["NotIn a"]),
            (any.clone(), one(Gt, &["1"]), &["Gte 2"]),
            (any.clone(), one(Lt, &["9"]), &["Lte 8"]),
            (any.clone(), one(Lt, &["0"]), &["Lte -1"]),
            (one(Gt, &["1"]), one(Lt, &["9"]), &["Gte 2", "Lte 8"]),
            (one(Gt, &["1"]), one(Lt, &["2"]), &["DoesNotExist "]),
            (one(Gte, &["2"]), one(Lte, &["2"]), &["Gte 2", "Lte 2"]),
            (one(In, &["1", "9", "10", "x"]), one(Gte, &["2"]), &["In 10,9"]),
            (any.clone(), one(Gte, &["2"]), &["Gte 2"]),
            (any.clone(), one(Gt, &["9223372036854775807"]), &["DoesNotExist "]),
            (any.clone(), one(Lt, &["-9223372036854775808"]), &["DoesNotExist "]),
            (any.clone(), one(In, &[]), &["DoesNotExist "]),
        ] {
            assert_eq!(texts(&a.intersect(&b)), expected, "{a} with {b}");
            assert_eq!(texts(&b.intersect(&a)), expected, "{b} with {a}");
        }
    }

    #[test] // api 6, case 7; scheduling 2, case 10
    fn the_larger_min_values_counts() {
        let least =
            |requirement: Requirement, n| Requirement { min_values: Some(n), ..requirement };
        let types = least(one(Operator::In, &["m5", "c5", "r5"]), 3);
        let both = least(Requirement::exists("k"), 5).intersect(&types);
        assert_eq!(both.to_string(), "k In [c5 m5 r5] minValues 5");
        let letters = least(one(Operator::In, &["a", "b", "c"]), 2);
        let both = letters.intersect(&least(Requirement::exists("k"), 3));
        assert_eq!(both.to_string(), "k In [a b c] minValues 3");
        assert_eq!(letters.intersect(&Requirement::exists("k")).min_values, Some(2));
        // Bounds that cross keep it too, and both entries of a range carry it.
        let crossed = least(one(Operator::Gt, &["5"]), 2).intersect(&one(Operator::Lt, &["5"]));
        assert_eq!(crossed.to_string(), "k DoesNotExist minValues 2");
        let range = least(one(Operator::Gt, &["1"]), 2).intersect(&one(Operator::Lt, &["9"]));
        assert!(range.to_api().iter().all(|it| it.min_values == Some(2)));
    }

    fn set(entries: &[(&str, Operator, &[&str])]) -> Requirements {
        let requirement = |&(key, operator, values): &(&str, Operator, &[&str])| {
            Requirement::new(key, operator, values.iter().copied())
        };
        entries.iter().map(requirement).collect()
    }

    #[test] // scheduling 2, cases 6, 7 and 9; api 6, cases 9 to 11
    fn what_may_carry_what() {
        use Operator::{DoesNotExist, Exists, In, NotIn};
        const ZONE: &str = "topology.kubernetes.io/zone";
        const ARCH: &str = "kubernetes.io/arch";
        let none = |_: &str| false;
        // Base, incoming, and whether they go together with well-known keys undefined, and with none.
        for (base, incoming, on_new, on_existing) in [
            (set(&[]), set(&[("team", NotIn, &["a"])]), true, true),
            (set(&[]), set(&[("team", DoesNotExist, &[])]), true, true),
            (set(&[]), set(&[("team", Exists, &[])]), false, false),
            (set(&[]), set(&[("team", In, &["a"])]), false, false),
            (set(&[]), set(&[(ZONE, In, &["z1"])]), true, false),
            (set(&[("team", DoesNotExist, &[])]), set(&[("team", NotIn, &["x"])]), true, true),
            (set(&[("team", DoesNotExist, &[])]), set(&[("team", DoesNotExist, &[])]), true, true),
            (set(&[("team", DoesNotExist, &[])]), set(&[("team", Exists, &[])]), false, false),
            (set(&[("team", DoesNotExist, &[])]), set(&[("team", In, &["x"])]), false, false),
            (set(&[("team", In, &["a"])]), set(&[("team", NotIn, &["a"])]), false, false),
            (set(&[("team", In, &["a"])]), set(&[("team", NotIn, &["b"])]), true, true),
            (set(&[("team", In, &["a"])]), set(&[("team", DoesNotExist, &[])]), false, false),
            // Keys of old, and of the EBS driver, are the keys they stand for.
            (
                set(&[("beta.kubernetes.io/arch", In, &["arm64"])]),
                set(&[(ARCH, In, &["arm64"])]),
                true,
                true,
            ),
            (
                set(&[(ZONE, In, &["us-west-2a"])]),
                set(&[("topology.ebs.csi.aws.com/zone", In, &["us-west-2b"])]),
                false,
                false,
            ),
        ] {
            let compatible = base.compatible(&incoming, labels::is_well_known);
            assert_eq!(compatible.is_ok(), on_new, "{base} / {incoming}");
            let compatible = base.compatible(&incoming, none);
            assert_eq!(compatible.is_ok(), on_existing, "{base} / {incoming}");
        }
        for (given, kept) in [
            ("beta.kubernetes.io/arch", ARCH),
            ("beta.kubernetes.io/os", "kubernetes.io/os"),
            ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
            ("failure-domain.beta.kubernetes.io/zone", ZONE),
            ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
            ("topology.ebs.csi.aws.com/zone", ZONE),
        ] {
            let written = set(&[(given, In, &["v"])]).to_api();
            assert_eq!(written, [NodeSelectorRequirement::new(kept, In, &["v"])]);
        }
    }

    #[test]
    fn the_first_key_that_does_not_intersect_is_told() {
        // Every pair of sets over four keys, so that either way to walk them is taken: few keys and many, gaps on both sides.
        let of = |code: usize| {
            let mut set = Requirements::new();
            for (at, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
                match code >> (2 * at) & 3 {
                    0 => {}
                    1 => set.add(Requirement::equals(key, "1")),
                    2 => set.add(Requirement::equals(key, "2")),
                    _ => set.add(Requirement::does_not_exist(key)),
                }
            }
            set
        };
        let sets: Vec<Requirements> = (0..256).map(of).collect();
        for (x, base) in sets.iter().enumerate() {
            for (y, incoming) in sets.iter().enumerate() {
                let differ = |at: &usize| {
                    let (a, b) = (x >> (2 * at) & 3, y >> (2 * at) & 3);
                    a != 0 && b != 0 && a != b
                };
                let first = (0..4).find(differ).map(|at| ["a", "b", "c", "d"][at]);
                let told = base.intersects(incoming).err().map(|it| match it {
                    Incompatible::Disjoint { key, .. } => key,
                    other => panic!("{other}"),
                });
                assert_eq!(told.as_deref(), first, "{x} {y}");
                assert_eq!(base.meets(incoming), first.is_none(), "{x} {y}");
            }
        }
    }
}
