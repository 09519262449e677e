//! The Balanced policy: a move has to save as much of the pool's cost as it disturbs of its pods (lifecycle 23).

use std::collections::BTreeMap;

use crate::{
    candidates::{Candidate, Survey},
    cluster::Policy,
    costs::NODE_BASE_COST,
    eligibility::Class,
    gauges::claim_price,
};

/// Saving may weigh half as much as disruption: 1/k with k = 2. Source: Karpenter's design of the policy.
pub const K: u32 = 2;
/// A score from here on is approved.
pub const THRESHOLD: f64 = 1.0 / K as f64;

/// What a pool costs altogether, in money and in disruption.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Dollars per hour.
    pub cost: f64,
    pub disruption: f64,
}

/// The verdict for one pool of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub pool: String,
    pub score: f64,
    pub approved: bool,
    pub savings_share: f64,
    pub disruption_share: f64,
}

impl Verdict {
    /// The text of the event `ConsolidationApproved`.
    pub fn text(&self) -> String {
        format!(
            "score {:.2} >= threshold {THRESHOLD:.2} (k: {K}, savings {:.1}%, disruption {:.1}%)",
            self.score,
            self.savings_share * 100.0,
            self.disruption_share * 100.0
        )
    }
}

/// Relative saving per relative disruption.
pub fn score(saving: f64, disruption: f64, totals: Totals) -> f64 {
    if totals.cost <= 0.0 || totals.disruption <= 0.0 {
        return 0.0;
    }
    let saving = saving / totals.cost;
    let disruption = disruption / totals.disruption;
    if saving <= 0.0 {
        0.0
    } else if disruption == 0.0 {
        f64::INFINITY
    } else {
        saving / disruption
    }
}

/// The totals of every Balanced pool.
///
/// DIFFERENCE: worked out afresh from claims and pods, where Karpenter keeps running totals that go astray when a claim
/// is updated.
pub fn totals(survey: &Survey<'_>) -> BTreeMap<String, Totals> {
    let mut by_pool: BTreeMap<String, (Totals, f64)> = survey
        .view
        .pools
        .iter()
        .filter(|(_, pool)| pool.policy() == Policy::Balanced)
        .map(|(name, _)| (name.clone(), Default::default()))
        .collect();
    for facts in &survey.facts {
        let Some(node) = survey.view.nodes.get(facts.at) else { continue };
        let Some((totals, candidates_cost)) = by_pool.get_mut(node.pool()) else { continue };
        let qualified = facts.blocker(Class::Graceful).is_none();
        totals.disruption += if qualified {
            facts.reschedule_cost
        } else if node.node.is_some() {
            facts.bystander_cost
        } else {
            NODE_BASE_COST
        };
        if qualified {
            *candidates_cost += facts.price;
        }
        totals.cost += claim_price(survey.view, node);
    }
    by_pool
        .into_iter()
        .map(|(name, (totals, candidates_cost))| {
            let cost = if totals.cost > 0.0 { totals.cost } else { candidates_cost };
            (name, Totals { cost, ..totals })
        })
        .collect()
}

/// The verdicts of the Balanced pools among the candidates' pools, by name.
pub fn judge(
    candidates: &[&Candidate],
    saving: f64,
    totals: &BTreeMap<String, Totals>,
) -> Vec<Verdict> {
    let whole: f64 = candidates.iter().map(|it| it.price).sum();
    let mut parts: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for candidate in candidates.iter().filter(|it| it.policy == Policy::Balanced) {
        let (price, disruption) = parts.entry(&candidate.pool).or_default();
        *price += candidate.price;
        *disruption += candidate.reschedule_cost;
    }
    let n_pools = {
        let mut pools: Vec<&str> = candidates.iter().map(|it| it.pool.as_str()).collect();
        pools.sort_unstable();
        pools.dedup();
        pools.len()
    };
    parts
        .into_iter()
        .map(|(pool, (price, disruption))| {
            let totals = totals.get(pool).copied().unwrap_or_default();
            let share = if n_pools <= 1 {
                saving
            } else if whole > 0.0 {
                saving * price / whole
            } else {
                0.0
            };
            let score = score(share, disruption, totals);
            let part = |amount: f64, of: f64| if of > 0.0 { amount / of } else { 0.0 };
            Verdict {
                pool: pool.to_owned(),
                score,
                approved: score >= THRESHOLD,
                savings_share: part(share, totals.cost),
                disruption_share: part(disruption, totals.disruption),
            }
        })
        .collect()
}

/// Whether even a plain deletion of the candidate would be refused: then simulating it is a waste.
pub fn is_hopeless(candidate: &Candidate, totals: &BTreeMap<String, Totals>) -> bool {
    if candidate.policy != Policy::Balanced {
        return false;
    }
    let Some(totals) = totals.get(&candidate.pool).filter(|it| it.cost > 0.0) else { return false };
    score(candidate.price, candidate.reschedule_cost, *totals) < THRESHOLD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(pool: &str, price: f64, cost: f64, policy: Policy) -> Candidate {
        Candidate {
            at: 0,
            name: "n".into(),
            pool: pool.into(),
            policy,
            instance_type: None,
            capacity_type: None,
            zone: None,
            price,
            reschedule_cost: cost,
            n_reschedulable: 1,
            drifted_since: None,
            created: None,
        }
    }

    #[test] // lifecycle 23.1, the table
    fn scores() {
        for (saving, cost, disruption, whole, expected, approved) in [
            (7.26, 58.08, 4.0, 90.0, 2.8125, true),
            (4.84, 58.08, 5.0, 90.0, 1.5, true),
            (2.42, 58.08, 9.0, 90.0, 0.416_666, false),
            (2.42, 48.40, 9.0, 90.0, 0.5, true),
            (0.10, 2.00, 4.0, 40.0, 0.5, true),
            (0.04, 1.00, 6.0, 60.0, 0.4, false),
            (-0.01, 1.00, 2.0, 60.0, 0.0, false),
            (0.096, 0.096, 1.0, 1.0, 1.0, true),
        ] {
            let score = score(saving, disruption, Totals { cost, disruption: whole });
            assert!((score - expected).abs() < 1e-5, "{score} {expected}");
            assert_eq!(score >= THRESHOLD, approved, "{score}");
        }
        let nothing = Totals { cost: 1.0, disruption: 0.0 };
        assert_eq!(score(1.0, 1.0, nothing), 0.0);
        assert_eq!(score(1.0, 0.0, Totals { cost: 1.0, disruption: 1.0 }), f64::INFINITY);
    }

    #[test] // lifecycle 23.1, case 1
    fn a_saving_is_shared_by_price() {
        let totals = BTreeMap::from([
            ("a".to_owned(), Totals { cost: 0.2, disruption: 10.0 }),
            ("b".to_owned(), Totals { cost: 4.0, disruption: 10.0 }),
        ]);
        let a = candidate("a", 0.20, 2.0, Policy::Balanced);
        let b = candidate("b", 0.40, 2.0, Policy::Balanced);
        let verdicts = judge(&[&a, &b], 0.30, &totals);
        let shares: Vec<f64> = verdicts.iter().map(|it| it.savings_share).collect();
        assert!((shares[0] - 0.5).abs() < 1e-9 && (shares[1] - 0.05).abs() < 1e-9, "{shares:?}");
        assert_eq!(verdicts.iter().map(|it| it.approved).collect::<Vec<_>>(), [true, false]);
        let b = candidate("b", 0.40, 2.0, Policy::WhenEmptyOrUnderutilized);
        let verdicts = judge(&[&a, &b], 0.30, &totals);
        assert_eq!(verdicts.len(), 1, "other pools are not scored");
        assert!(verdicts[0].approved);
    }

    #[test] // lifecycle 23.1, case 2
    fn an_approval_is_explained() {
        let a = candidate("a", 8.0, 4.0, Policy::Balanced);
        let totals = BTreeMap::from([("a".to_owned(), Totals { cost: 58.08, disruption: 90.0 })]);
        assert_eq!(
            judge(&[&a], 7.26, &totals)[0].text(),
            "score 2.81 >= threshold 0.50 (k: 2, savings 12.5%, disruption 4.4%)"
        );
    }

    #[test] // lifecycle 23.1, case 3
    fn hopeless_candidates_are_not_simulated() {
        let totals = BTreeMap::from([("a".to_owned(), Totals { cost: 1.0, disruption: 100.0 })]);
        assert!(is_hopeless(&candidate("a", 0.05, 11.0, Policy::Balanced), &totals));
        assert!(!is_hopeless(&candidate("a", 0.05, 10.0, Policy::Balanced), &totals));
        assert!(!is_hopeless(
            &candidate("a", 0.05, 11.0, Policy::WhenEmptyOrUnderutilized),
            &totals
        ));
    }
}
