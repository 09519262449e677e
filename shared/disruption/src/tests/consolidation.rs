//! Lifecycle 20: whether and by what nodes are replaced.

use std::sync::Arc;

use serde_json::json;
use spokeshave_model::{CapacityType, InstanceType, Operator, Requirement, labels};

use crate::{
    candidates::Candidate,
    command::Method,
    consolidation::{Decision, command, decide, estimated_saving, keep_unlike_candidates},
    fixtures::*,
    simulation::{NewClaim, Simulation},
};

/// Candidates of the given type, capacity type and price, as consolidation collects them.
fn candidates(nodes: &[(&str, &str, f64)]) -> (crate::View, Vec<Candidate>) {
    let types: Vec<Arc<InstanceType>> = nodes
        .iter()
        .map(|(name, capacity_type, price)| {
            let capacity_type = CapacityType::parse(capacity_type).expect("a capacity type");
            instance_type(name, vec![offering(capacity_type, "a", *price, true)])
        })
        .collect();
    let nodes = nodes.iter().enumerate().map(|(n, (name, capacity_type, _))| {
        node(&format!("n{n}"), "p", name, capacity_type).plain_pods(1).build()
    });
    let view = view(vec![pool("p", &types, json!({}))], nodes.collect());
    let candidates = collect(&view, Method::SingleNodeConsolidation).candidates;
    (view, candidates)
}

fn judge(nodes: &[(&str, &str, f64)], claims: Vec<NewClaim>, spot_to_spot: bool) -> Decision {
    let (_, candidates) = candidates(nodes);
    assert_eq!(candidates.len(), nodes.len());
    let simulation = Simulation { new_claims: claims, ..Simulation::default() };
    decide(&candidates.iter().collect::<Vec<_>>(), &simulation, spot_to_spot)
}

fn replaced(decision: &Decision) -> (Vec<&str>, Vec<&str>) {
    match decision {
        Decision::Replace(claim) => (
            claim.instance_types.iter().map(|it| it.name.as_str()).collect(),
            claim
                .requirements
                .get(labels::CAPACITY_TYPE)
                .map(|it| it.values.iter().map(String::as_str).collect())
                .unwrap_or_default(),
        ),
        other => panic!("{other:?}"),
    }
}

fn kept(text: &str) -> Decision {
    Decision::Keep(text.to_owned())
}

const BOTH: [&str; 2] = ["on-demand", "spot"];

#[test] // lifecycle 20.4: the worked example
fn the_worst_launch_price_decides() {
    use CapacityType::{OnDemand, Spot};
    let options = [
        instance_type(
            "c5.xlarge",
            vec![
                offering(Spot, "a", 0.070, true),
                offering(Spot, "b", 0.081, true),
                offering(OnDemand, "a", 0.170, true),
            ],
        ),
        instance_type(
            "m5.xlarge",
            vec![
                offering(Spot, "a", 0.075, true),
                offering(Spot, "b", 0.010, false),
                offering(OnDemand, "a", 0.192, true),
            ],
        ),
        instance_type(
            "c5.2xlarge",
            vec![
                offering(Spot, "a", 0.140, true),
                offering(Spot, "b", 0.390, true),
                offering(OnDemand, "a", 0.340, true),
            ],
        ),
        instance_type("r5.xlarge", vec![offering(OnDemand, "a", 0.252, true)]),
    ];
    let nodes = [("m5.2xlarge", "on-demand", 0.384)];
    let decision = judge(&nodes, vec![new_claim("p", &options, &BOTH)], false);
    assert_eq!(replaced(&decision), (vec!["c5.xlarge", "m5.xlarge", "r5.xlarge"], vec!["spot"]));
    let Decision::Replace(claim) = decision else { unreachable!() };
    let (view, candidates) = candidates(&nodes);
    let refs: Vec<&Candidate> = candidates.iter().collect();
    assert_eq!(format!("{:.2}", estimated_saving(&refs, &[&claim])), "0.31");
    let command =
        command(&view, Method::SingleNodeConsolidation, &refs, &[&claim], &Simulation::default());
    assert_eq!(command.text_for("n0"), "replace: [n0] -> [1 replacement]");
    assert_eq!(command.replacements[0].capacity_types, ["spot"]);
    assert_eq!(command.replacements[0].price, Some(0.070));
}

#[test] // lifecycle 20.5, case 1
fn the_dearest_zone_must_be_cheaper() {
    use CapacityType::{OnDemand, Spot};
    let options = [instance_type(
        "r",
        vec![
            offering(OnDemand, "a", 0.6, true),
            offering(Spot, "a", 1.0, true),
            offering(Spot, "b", 0.2, true),
            offering(Spot, "c", 0.4, true),
        ],
    )];
    let claim = || vec![new_claim("p", &options, &BOTH)];
    assert_eq!(
        judge(&[("m", "on-demand", 0.5)], claim(), false),
        kept("Can't replace with a cheaper node")
    );
    assert_eq!(
        replaced(&judge(&[("m", "on-demand", 1.5)], claim(), false)),
        (vec!["r"], vec!["spot"])
    );
}

#[test] // lifecycle 20.5, cases 2, 9 and 11; bug report B-021
fn nothing_that_is_not_strictly_cheaper() {
    let same = vec![new_claim("p", &[on_demand("r", 0.5)], &["on-demand"])];
    let no = kept("Can't replace with a cheaper node");
    assert_eq!(judge(&[("m", "on-demand", 0.5)], same.clone(), false), no);
    let two = vec![same[0].clone(), same[0].clone()];
    assert_eq!(
        judge(&[("m", "on-demand", 5.0)], two, false),
        kept("Can't remove without creating 2 candidates")
    );
    assert_eq!(judge(&[("m", "on-demand", 0.0)], same, false), no);
    let like = [on_demand("c6a.xlarge", 0.153), on_demand("c6i.xlarge", 0.17)];
    let claim = vec![new_claim("p", &like, &["on-demand"])];
    assert_eq!(judge(&[("c6a.xlarge", "on-demand", 0.153)], claim, false), no);
}

#[test] // lifecycle 20.5, cases 3, 12 and 13
fn reservations_are_moved_into() {
    use CapacityType::{OnDemand, Reserved};
    let m5 = instance_type(
        "m5.large",
        vec![offering(OnDemand, "a", 0.096, true), offering(Reserved, "a", 0.000_000_009_6, true)],
    );
    let claim = || vec![new_claim("p", std::slice::from_ref(&m5), &["reserved"])];
    let into = (vec!["m5.large"], vec!["reserved"]);
    assert_eq!(replaced(&judge(&[("m5.large", "on-demand", 0.096)], claim(), false)), into);
    // A spot node needs no gate for it.
    assert_eq!(replaced(&judge(&[("m5.large", "spot", 0.03)], claim(), false)), into);
    assert_eq!(replaced(&judge(&[("r5.large", "reserved", 0.000_000_012)], claim(), false)), into);
}

#[test] // lifecycle 20.5, cases 4 to 6; bug report B-022
fn spot_to_spot_needs_choice() {
    let options = |n: usize| -> Vec<Arc<InstanceType>> {
        (0..n).map(|i| spot(&format!("t{i:02}.x"), 0.01 + 0.001 * i as f64)).collect()
    };
    let claim = |n: usize| vec![new_claim("p", &options(n), &BOTH)];
    let node = [("big", "spot", 0.5)];
    assert_eq!(
        judge(&node, claim(20), false),
        kept("SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node")
    );
    assert_eq!(judge(&node, Vec::new(), false), Decision::Delete);
    for n in [1, 14] {
        assert_eq!(
            judge(&node, claim(n), true),
            kept(&format!(
                "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got {n}"
            ))
        );
    }
    for n in [15, 40] {
        let decision = judge(&node, claim(n), true);
        let (types, capacity_types) = replaced(&decision);
        assert_eq!((types.len(), types[0], types[14]), (15, "t00.x", "t14.x"));
        assert_eq!(capacity_types, ["spot"]);
    }
    let mut flexible = claim(40);
    flexible[0]
        .requirements
        .add(Requirement { min_values: Some(20), ..Requirement::exists(labels::INSTANCE_TYPE) });
    assert_eq!(replaced(&judge(&node, flexible, true)).0.len(), 20);
    // Types that cost as much as the node do not count.
    let mut dear = options(14);
    dear.push(spot("dear.x", 0.5));
    assert!(matches!(
        judge(&node, vec![new_claim("p", &dear, &BOTH)], true),
        Decision::Keep(why) if why.ends_with("got 14")
    ));
}

#[test] // lifecycle 20.5, cases 7 and 8; bug report B-022
fn several_nodes_need_no_choice() {
    let options = [spot("a.x", 0.01), spot("b.x", 0.02), spot("c.x", 0.03)];
    let claim = || vec![new_claim("p", &options, &BOTH)];
    let two_spot = [("big", "spot", 0.5), ("huge", "spot", 0.7)];
    assert_eq!(replaced(&judge(&two_spot, claim(), true)).0.len(), 3);
    let mixed = [("big", "spot", 0.5), ("huge", "on-demand", 0.7)];
    assert_eq!(replaced(&judge(&mixed, claim(), false)), (vec!["a.x", "b.x", "c.x"], vec!["spot"]));
    // A spot node whose replacement cannot be spot goes the normal way.
    let only = vec![new_claim("p", &[on_demand("d.x", 0.1)], &["on-demand"])];
    assert_eq!(
        replaced(&judge(&[("big", "spot", 0.5)], only, false)),
        (vec!["d.x"], vec!["on-demand"])
    );
}

#[test] // lifecycle 20.5, case 10, and 37.1, case 3
fn min_values_hold_after_the_price_filter() {
    let families = |extra: &[(&str, f64)]| {
        let types: Vec<_> = extra.iter().map(|(name, price)| on_demand(name, *price)).collect();
        let mut claim = new_claim("p", &types, &["on-demand"]);
        claim.requirements.add(Requirement {
            min_values: Some(2),
            ..Requirement::new(labels::INSTANCE_FAMILY, Operator::In, ["c5", "m5"])
        });
        vec![claim]
    };
    let node = [("m5.2xlarge", "on-demand", 0.384)];
    assert_eq!(
        judge(&node, families(&[("c5.large", 0.1), ("m5.4xlarge", 0.5)]), false),
        kept(
            "Filtering by price: minValues requirement is not met for label(s) (label(s)=[karpenter.k8s.aws/instance-family])"
        )
    );
    assert_eq!(
        judge(&node, families(&[("c5.9xlarge", 1.1), ("m5.4xlarge", 0.5)]), false),
        kept("Can't replace with a cheaper node")
    );
    assert_eq!(
        replaced(&judge(&node, families(&[("c5.large", 0.1), ("m5.large", 0.2)]), false)).0,
        ["c5.large", "m5.large"]
    );
}

#[test] // lifecycle 21.1, case 8
fn the_same_type_filter() {
    let all = [("2xlarge", 0.16), ("2xlarge", 0.16), ("small", 0.02)];
    let nodes: Vec<(&str, &str, f64)> =
        all.iter().map(|(name, price)| (*name, "on-demand", *price)).collect();
    let (view, candidates) = candidates(&nodes);
    let refs: Vec<&Candidate> = candidates.iter().collect();
    let option = |names: &[&str]| {
        let price = |name: &str| match name {
            "nano" => 0.01,
            "small" => 0.02,
            "xlarge" => 0.08,
            _ => 0.16,
        };
        let types: Vec<_> = names.iter().map(|it| on_demand(it, price(it))).collect();
        new_claim("p", &types, &["on-demand"])
    };
    let mut claim = option(&["small", "xlarge", "2xlarge"]);
    assert!(!keep_unlike_candidates(&view, &refs, &mut claim));
    let mut claim = option(&["nano", "small", "xlarge", "2xlarge"]);
    assert!(keep_unlike_candidates(&view, &refs, &mut claim));
    assert_eq!(claim.instance_types[0].name, "nano");
    assert_eq!(claim.instance_types.len(), 1);
    let mut unlike = option(&["nano", "xlarge"]);
    assert!(keep_unlike_candidates(&view, &refs, &mut unlike));
    assert_eq!(unlike.instance_types.len(), 2, "no overlap, no bound");
}
