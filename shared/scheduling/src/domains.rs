//! Which domains of a topology key new nodes can be in (`spec` scheduling 7.2).

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};
use spokeshave_model::{Requirement, Taint, Toleration, labels, taints};

use crate::{
    bits::Bits,
    planner::PoolInput,
    sets::{KeyId, SetId, Sets},
    templates::Template,
};

/// Position of a value, and taints of a pool that gives it.
type Given = (usize, Vec<Taint>);

/// Domains that pools can give, found when they are asked for, and kept for all solves of a pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Domains {
    pools: Vec<PoolInput>,
    /// By key and by what the nodes have to meet besides.
    found: FxHashMap<(KeyId, Option<SetId>), Vec<Given>>,
}

impl Domains {
    pub(crate) fn new(pools: Vec<PoolInput>) -> Self {
        Self { pools, found: FxHashMap::default() }
    }

    /// The domains of `key` that pods with these tolerations can get (all for `None`), on nodes that meet one of `terms`
    /// (any node where there are none).
    pub(crate) fn of(
        &mut self,
        key: KeyId,
        terms: impl Iterator<Item = SetId>,
        tolerations: Option<&[Toleration]>,
        sets: &mut Sets,
    ) -> Bits {
        let mut all = Bits::default();
        let mut any = false;
        for term in terms {
            any = true;
            all.or(&self.under(key, Some(term), tolerations, sets));
        }
        if any { all } else { self.under(key, None, tolerations, sets) }
    }

    fn under(
        &mut self,
        key: KeyId,
        term: Option<SetId>,
        tolerations: Option<&[Toleration]>,
        sets: &mut Sets,
    ) -> Bits {
        let pools = &self.pools;
        let found = self.found.entry((key, term)).or_insert_with(|| find(pools, key, term, sets));
        found
            .iter()
            .filter(|(_, tainted)| {
                tolerations.is_none_or(|list| taints::untolerated(tainted, list).is_none())
            })
            .map(|it| it.0)
            .collect()
    }
}

/// DIFFERENCE: only what can really be bought counts: types that meet the pool's requirements, and for zone and capacity type
/// their offerings. Karpenter also takes excluded values, and values that only the pool's text names. The pool's own name
/// is a domain of `karpenter.sh/nodepool`. Where a spread constraint honours node affinity, pools and types that do not
/// meet it give no domain, as kube-scheduler will see it; Karpenter counts them, and leaves pods unschedulable that wait
/// for a domain they may not use.
fn find(pools: &[PoolInput], key: KeyId, term: Option<SetId>, sets: &mut Sets) -> Vec<Given> {
    let name = sets.key_of(key).name.to_string();
    let name = name.as_str();
    let offered = matches!(name, labels::ZONE | labels::ZONE_ID | labels::CAPACITY_TYPE);
    let custom = !sets.is_well_known(name) || name == labels::NODEPOOL;
    let mut found: BTreeSet<(String, Vec<Taint>)> = BTreeSet::new();
    for pool in pools {
        let Ok(types) = &pool.instance_types else { continue };
        let mut requirements = Template::requirements(&pool.nodepool);
        requirements.remove(labels::REGISTERED);
        requirements.remove(labels::INITIALIZED);
        if let Some(term) = term {
            let term = sets.get(term);
            if requirements.compatible(term, |key| sets.is_well_known(key)).is_err() {
                continue;
            }
            requirements.add_all(term);
        }
        let taints: &Vec<Taint> = &pool.nodepool.spec.template.spec.taints;
        let own = requirements.get(name).cloned();
        let mut take = |value: &str| {
            found.insert((value.to_owned(), taints.clone()));
        };
        let mut seen: FxHashSet<&str> = FxHashSet::default();
        for type_ in types.iter().filter(|it| it.requirements.meets(&requirements)) {
            if offered {
                for offering in &type_.offerings {
                    let value = match name {
                        labels::ZONE => offering.zone.as_str(),
                        labels::ZONE_ID => offering.zone_id.as_str(),
                        _ => offering.capacity_type.as_str(),
                    };
                    if !value.is_empty()
                        && !seen.contains(value)
                        && type_.requirements.get(name).is_none_or(|it| it.has(value))
                        && requirements.meets(&offering.requirements())
                    {
                        seen.insert(value);
                        take(value);
                    }
                }
                continue;
            }
            let Some(theirs) = type_.requirements.get(name) else { continue };
            let both = own.as_ref().map_or_else(|| theirs.clone(), |it| it.intersect(theirs));
            if !both.complement {
                both.values.iter().for_each(|it| take(it));
            }
        }
        if let Some(Requirement { complement: false, values, .. }) = &own
            && custom
        {
            values.iter().for_each(|it| take(it));
        }
    }
    found.into_iter().map(|(value, taints)| (sets.value(key, &value), taints)).collect()
}
