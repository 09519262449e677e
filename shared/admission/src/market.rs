//! What instance types there are: for pools that ask for none of them, and for settings that some of them cannot have.

use std::{collections::BTreeMap, sync::OnceLock};

use jiff::Timestamp;
use spokeshave_catalog::{Catalog, CatalogError, MarketView, kubelet::KubeletError};
use spokeshave_model::{
    EC2NodeClass, FieldPath, Operator, Requirement, Settings, validation::Problem,
};

/// The regions whose types are looked at: what is sold anywhere is sold in one of these, but for a few.
const REGIONS: &[&str] = &["us-east-1", "us-west-2"];

/// One bit per instance type.
type Types = Vec<u64>;

/// The types by label and value.
#[derive(Debug, Default)]
struct Market {
    n_types: usize,
    by_label: BTreeMap<String, BTreeMap<String, Types>>,
}

fn market() -> &'static Market {
    static MARKET: OnceLock<Market> = OnceLock::new();
    MARKET.get_or_init(|| {
        let settings = Settings::default();
        let view = MarketView::new(&settings, Timestamp::UNIX_EPOCH);
        let class = EC2NodeClass::default();
        let mut types = BTreeMap::new();
        for catalog in REGIONS.iter().filter_map(|it| Catalog::builtin(it)) {
            for it in catalog.instance_types(&class, &view).unwrap_or_default() {
                types.entry(it.name).or_insert(it.requirements);
            }
        }
        let mut market = Market { n_types: types.len(), ..Market::default() };
        let words = types.len().div_ceil(64);
        for (at, requirements) in types.values().enumerate() {
            for it in requirements.iter().filter(|it| is_of_the_type(&it.key)) {
                let by_value = market.by_label.entry(it.key.clone()).or_default();
                for value in &it.values {
                    let types = by_value.entry(value.clone()).or_insert_with(|| vec![0; words]);
                    if let Some(word) = types.get_mut(at / 64) {
                        *word |= 1 << (at % 64);
                    }
                }
            }
        }
        market
    })
}

/// Whether a label is the type's alone: not its offerings', its image's or its account's.
fn is_of_the_type(key: &str) -> bool {
    matches!(key, "node.kubernetes.io/instance-type" | "kubernetes.io/arch")
        || key == "karpenter.k8s.aws/nitro-sandbox"
        || key.starts_with("karpenter.k8s.aws/instance-")
            && key != "karpenter.k8s.aws/instance-tenancy"
}

/// What is wrong with requirements that are each fine by themselves.
#[derive(Debug, PartialEq, Eq)]
pub enum Lack {
    /// No type fulfils them; how many were looked at.
    Types(usize),
    /// Fewer values of the label than `minValues` asks for: the key, and how many there are.
    Values(String, usize),
}

/// What the market lacks for a pool that asks for `wanted`, one requirement per key.
pub fn lack<'a>(wanted: impl Iterator<Item = &'a Requirement> + Clone) -> Option<Lack> {
    let market = market();
    let mut left = vec![u64::MAX; market.n_types.div_ceil(64)];
    if let Some(last) = left.last_mut().filter(|_| !market.n_types.is_multiple_of(64)) {
        *last = (1 << (market.n_types % 64)) - 1;
    }
    for it in wanted.clone().filter(|it| is_of_the_type(&it.key)) {
        let mut allowed = vec![0; left.len()];
        let mut labelled = vec![0; left.len()];
        for (value, types) in market.by_label.get(&it.key).into_iter().flatten() {
            let has = it.has(value);
            for ((allowed, labelled), types) in allowed.iter_mut().zip(&mut labelled).zip(types) {
                *labelled |= types;
                *allowed |= if has { *types } else { 0 };
            }
        }
        let may_be_absent = matches!(it.operator(), Operator::NotIn | Operator::DoesNotExist);
        for ((left, allowed), labelled) in left.iter_mut().zip(allowed).zip(labelled) {
            *left &= allowed | if may_be_absent { !labelled } else { 0 };
        }
    }
    if left.iter().all(|it| *it == 0) {
        return Some(Lack::Types(market.n_types));
    }
    wanted.filter(|it| is_of_the_type(&it.key)).find_map(|it| {
        let wanted = it.min_values?;
        let values = market.by_label.get(&it.key)?;
        let there = |types: &&Types| types.iter().zip(&left).any(|(a, b)| a & b != 0);
        let n = values.values().filter(there).count();
        (i64::try_from(n).unwrap_or(i64::MAX) < i64::from(wanted))
            .then(|| Lack::Values(it.key.clone(), n))
    })
}

/// Kubelet expressions of `class` that give no usable number for some type: one problem per field, with the first such type.
pub fn failing_expressions(class: &EC2NodeClass) -> Vec<Problem> {
    let mut settings = Settings::default();
    settings.gates.node_class_cel = true;
    let view = MarketView::new(&settings, Timestamp::UNIX_EPOCH);
    let mut failing: BTreeMap<String, (String, KubeletError)> = BTreeMap::new();
    for catalog in REGIONS.iter().filter_map(|it| Catalog::builtin(it)) {
        let found = match catalog.resolve(class, &view, |_| true) {
            Ok(resolved) => resolved.dropped,
            Err(CatalogError::Type { instance_type, source, .. }) => vec![(instance_type, source)],
            // Settings that cannot be read were told before.
            Err(CatalogError::Kubelet { .. }) => Vec::new(),
        };
        for (name, error) in found {
            let first = failing.entry(error.field.clone());
            first.or_insert((name, error));
        }
    }
    failing
        .into_values()
        .map(|(name, error)| {
            let kubelet = FieldPath::parse("spec.kubelet");
            let field = match error.field.split_once('.') {
                Some((field, key)) => kubelet.field(field).key(key),
                None => kubelet.field(&error.field),
            };
            Problem::new(field, format!("{error} (instance type {name})"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(wanted: &[(&str, Operator, &[&str], Option<i32>)]) -> Option<Lack> {
        let wanted: Vec<Requirement> = wanted
            .iter()
            .map(|(key, operator, values, min_values)| {
                let mut it = Requirement::new(key, *operator, values.iter().copied());
                it.min_values = *min_values;
                it
            })
            .collect();
        lack(wanted.iter())
    }

    #[test]
    fn some_pools_ask_for_what_nobody_sells() {
        const CATEGORY: &str = "karpenter.k8s.aws/instance-category";
        const CPU: &str = "karpenter.k8s.aws/instance-cpu";
        const GPU: &str = "karpenter.k8s.aws/instance-gpu-count";
        const ARCH: &str = "kubernetes.io/arch";
        let none = Some(Lack::Types(market().n_types));
        assert!(market().n_types > 500);
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(CATEGORY, Operator::In, &["m"], None)]), None);
        assert_eq!(found(&[(CATEGORY, Operator::In, &["q"], None)]), none);
        assert_eq!(found(&[(CPU, Operator::Gt, &["100000"], None)]), none);
        assert_eq!(found(&[(CPU, Operator::Lte, &["2"], None)]), None);
        assert_eq!(found(&[(ARCH, Operator::In, &["riscv64"], None)]), none);
        assert_eq!(found(&[(GPU, Operator::DoesNotExist, &[], None)]), None);
        assert_eq!(found(&[(GPU, Operator::Exists, &[], None)]), None);
        let gpu = (GPU, Operator::Exists, &[][..], None);
        assert_eq!(found(&[(CATEGORY, Operator::In, &["m"], None), gpu]), none);
        // What depends on offerings, images or the account is not judged.
        assert_eq!(found(&[("topology.kubernetes.io/zone", Operator::In, &["x"], None)]), None);
        assert_eq!(found(&[("kubernetes.io/os", Operator::In, &["windows"], None)]), None);
        assert_eq!(found(&[("team", Operator::In, &["a"], None)]), None);
        let few = Some(Lack::Values(CATEGORY.into(), 1));
        assert_eq!(found(&[(CATEGORY, Operator::In, &["m"], Some(2))]), few);
        assert_eq!(found(&[(CATEGORY, Operator::In, &["m", "c"], Some(2))]), None);
    }
}
