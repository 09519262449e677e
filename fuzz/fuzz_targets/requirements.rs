//! The algebra of requirements: what both allow is what their intersection allows, whoever comes first, and what is
//! written back means the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spokeshave_model::{
    Operator, Requirement, Requirements,
    requirements::NodeSelectorRequirement,
    validation,
};

const OPERATORS: [Operator; 8] = [
    Operator::In,
    Operator::NotIn,
    Operator::Exists,
    Operator::DoesNotExist,
    Operator::Gt,
    Operator::Lt,
    Operator::Gte,
    Operator::Lte,
];

type Entry<'a> = (&'a str, u8, Vec<&'a str>, Option<i32>);

fn read((key, operator, values, min_values): &Entry<'_>) -> NodeSelectorRequirement {
    let operator = OPERATORS[usize::from(*operator) % OPERATORS.len()];
    NodeSelectorRequirement {
        min_values: *min_values,
        ..NodeSelectorRequirement::new(key, operator, values)
    }
}

fuzz_target!(|input: (Entry, Entry)| {
    let entries = [read(&input.0), read(&input.1)];
    for entry in &entries {
        let _ = validation::requirement(entry);
    }
    let [a, b] = [Requirement::from(&entries[0]), Requirement::from(&entries[1])];
    let b = Requirement { key: a.key.clone(), ..b };
    let both = a.intersect(&b);
    assert_eq!(both, b.intersect(&a));
    assert_eq!(a.intersects(&b), both.operator() != Operator::DoesNotExist);
    let values = entries.iter().flat_map(|it| &it.values).map(String::as_str);
    for value in values.chain(["", "0", "2", "-1"]) {
        assert_eq!(both.has(value), a.has(value) && b.has(value), "{value:?}");
    }
    for one in [a, b, both] {
        let written = one.to_api();
        assert_eq!(Requirements::from_api(&written).iter().next(), Some(&one));
        let _ = one.to_string();
    }
});
