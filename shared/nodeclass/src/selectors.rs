//! Selector terms as EC2 queries (`spec` aws-nodeclass 4, aws-capacity 9.1 and 10.1).
//!
//! Terms of a list are ORed, tags inside one term ANDed. A term without anything to look for (`{tags: {}}`) would take
//! every object of the region, so it asks for nothing.

use std::collections::BTreeMap;

use spokeshave_model::ec2_node_class::{
    CapacityReservationSelectorTerm, PlacementGroupSelector, SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
};
use spokeshave_ports::ec2::Filter;

/// The filters of one describe call, ANDed.
pub type Query = Vec<Filter>;

/// One filter per tag; `*` asks for the key alone.
pub fn tag_filters(tags: &BTreeMap<String, String>) -> Query {
    let filter = |(key, value): (&String, &String)| {
        if value == "*" {
            Filter::new("tag-key", &[key])
        } else {
            Filter::new(&format!("tag:{key}"), &[value])
        }
    };
    tags.iter().map(filter).collect()
}

/// Values united into one filter; nothing without values.
fn together(name: &str, values: &[&str]) -> Option<Query> {
    (!values.is_empty()).then(|| vec![Filter::new(name, values)])
}

/// The calls that find subnets: one per term with tags, in order, then one for all ids. A term with an id is
/// that id, whatever else it says.
pub fn subnets(terms: &[SubnetSelectorTerm]) -> Vec<Query> {
    let by_tags = terms.iter().filter(|it| it.id.is_none() && !it.tags.is_empty());
    let ids: Vec<&str> = terms.iter().filter_map(|it| it.id.as_deref()).collect();
    by_tags.map(|it| tag_filters(&it.tags)).chain(together("subnet-id", &ids)).collect()
}

/// The calls that find security groups: tags in order, then all ids, then all names.
pub fn security_groups(terms: &[SecurityGroupSelectorTerm]) -> Vec<Query> {
    let by_tags =
        terms.iter().filter(|it| it.id.is_none() && it.name.is_none() && !it.tags.is_empty());
    let ids: Vec<&str> = terms.iter().filter_map(|it| it.id.as_deref()).collect();
    let names: Vec<&str> =
        terms.iter().filter(|it| it.id.is_none()).filter_map(|it| it.name.as_deref()).collect();
    by_tags
        .map(|it| tag_filters(&it.tags))
        .chain(together("group-id", &ids))
        .chain(together("group-name", &names))
        .collect()
}

/// One call that finds capacity reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservationQuery {
    /// Empty: by filters alone.
    pub ids: Vec<String>,
    pub filters: Query,
}

/// The calls that find capacity reservations, always active ones. A term with an id and with tags or match criteria
/// counts as two terms; equal queries are asked once.
pub fn capacity_reservations(terms: &[CapacityReservationSelectorTerm]) -> Vec<ReservationQuery> {
    let active = || vec![Filter::new("state", &["active"])];
    let mut queries: Vec<ReservationQuery> = Vec::new();
    let mut add = |query: ReservationQuery| {
        if !queries.contains(&query) {
            queries.push(query);
        }
    };
    for term in terms {
        if let Some(id) = &term.id {
            add(ReservationQuery { ids: vec![id.clone()], filters: active() });
        }
        if term.tags.is_empty() && term.instance_match_criteria.is_none() {
            continue;
        }
        let mut filters = active();
        if let Some(owner) = &term.owner_id {
            filters.push(Filter::new("owner-id", &[owner]));
        }
        filters.extend(tag_filters(&term.tags));
        if let Some(criteria) = &term.instance_match_criteria {
            filters.push(Filter::new("instance-match-criteria", &[criteria]));
        }
        add(ReservationQuery { ids: Vec::new(), filters });
    }
    queries
}

/// Names and ids for the call that finds the placement group: one of the two lists has one entry.
pub fn placement_group(selector: &PlacementGroupSelector) -> (Vec<String>, Vec<String>) {
    match (&selector.name, &selector.id) {
        (Some(name), _) => (vec![name.clone()], Vec::new()),
        (None, Some(id)) => (Vec::new(), vec![id.clone()]),
        (None, None) => (Vec::new(), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(query: &Query) -> String {
        let filter = |it: &Filter| format!("{}={}", it.name, it.values.join(","));
        query.iter().map(filter).collect::<Vec<_>>().join(" ")
    }

    fn subnet_queries(terms: serde_json::Value) -> Vec<String> {
        let terms: Vec<SubnetSelectorTerm> = serde_json::from_value(terms).expect("terms");
        subnets(&terms).iter().map(text).collect()
    }

    #[test] // aws-nodeclass 4, case 2; aws-capacity 9, cases 1 to 3; api 10.2, consequences 1 and 3
    fn subnet_terms() {
        for (terms, want) in [
            (
                json!([{"tags": {"env": "prod", "tier": "*"}}, {"id": "subnet-1"}, {"id": "subnet-2"}]),
                vec!["tag:env=prod tag-key=tier", "subnet-id=subnet-1,subnet-2"],
            ),
            (
                json!([{"id": "subnet-test1"}, {"id": "subnet-test2"}]),
                vec!["subnet-id=subnet-test1,subnet-test2"],
            ),
            (
                json!([{"tags": {"Name": "test-subnet-1"}}, {"id": "subnet-test2"}]),
                vec!["tag:Name=test-subnet-1", "subnet-id=subnet-test2"],
            ),
            (
                json!([{"tags": {"foo": "bar", "Name": "test-subnet-1"}}]),
                vec!["tag:Name=test-subnet-1 tag:foo=bar"],
            ),
            (json!([{"tags": {"TestTag": "*"}}]), vec!["tag-key=TestTag"]),
            (json!([{"id": "subnet-1", "tags": {"a": "b"}}]), vec!["subnet-id=subnet-1"]),
            (json!([{"tags": {}}, {}]), vec![]),
            (json!([]), vec![]),
        ] {
            assert_eq!(subnet_queries(terms.clone()), want, "{terms}");
        }
    }

    #[test] // aws-nodeclass 4, case 3; aws-capacity 9, case 4
    fn security_group_terms() {
        let queries = |terms| {
            let terms: Vec<SecurityGroupSelectorTerm> =
                serde_json::from_value(terms).expect("terms");
            security_groups(&terms).iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(
            queries(json!([{"name": "web"}, {"tags": {"a": "b"}}, {"id": "sg-9"}, {"name": "db"}])),
            ["tag:a=b", "group-id=sg-9", "group-name=web,db"]
        );
        assert_eq!(
            queries(
                json!([{"name": "securityGroup-test1"}, {"tags": {"foo": "bar", "TestTag": "*"}}])
            ),
            ["tag-key=TestTag tag:foo=bar", "group-name=securityGroup-test1"]
        );
    }

    #[test] // aws-capacity 10, cases 1 to 3; api 10.2, consequence 1
    fn capacity_reservation_terms() {
        let queries = |terms| {
            let terms: Vec<CapacityReservationSelectorTerm> =
                serde_json::from_value(terms).expect("terms");
            let query =
                |it: &ReservationQuery| format!("[{}] {}", it.ids.join(","), text(&it.filters));
            capacity_reservations(&terms).iter().map(query).collect::<Vec<_>>()
        };
        for (terms, want) in [
            (json!([{"id": "cr-1"}]), vec!["[cr-1] state=active"]),
            (
                json!([{"tags": {"team": "*", "env": "prod"}, "ownerID": "012345678901"}]),
                vec!["[] state=active owner-id=012345678901 tag:env=prod tag-key=team"],
            ),
            (
                json!([{"instanceMatchCriteria": "open"}, {"instanceMatchCriteria": "open"}]),
                vec!["[] state=active instance-match-criteria=open"],
            ),
            (
                json!([{"id": "cr-1", "tags": {"a": "b"}}]),
                vec!["[cr-1] state=active", "[] state=active tag:a=b"],
            ),
            (json!([{"tags": {}}]), vec![]),
        ] {
            assert_eq!(queries(terms.clone()), want, "{terms}");
        }
    }

    #[test] // aws-capacity 11, case 1
    fn placement_group_terms() {
        let selector = |name: Option<&str>, id: Option<&str>| PlacementGroupSelector {
            name: name.map(str::to_owned),
            id: id.map(str::to_owned),
        };
        assert_eq!(
            placement_group(&selector(Some("pg-weird"), None)),
            (vec!["pg-weird".to_owned()], vec![])
        );
        assert_eq!(
            placement_group(&selector(None, Some("pg-0123"))),
            (vec![], vec!["pg-0123".to_owned()])
        );
    }
}
