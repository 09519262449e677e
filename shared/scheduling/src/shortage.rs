//! Shapes of claims for which capacity runs short: while nothing can be had, nobody orders one claim after the other.
//!
//! A shape is a pool, what its claim asks of a node (instance types aside: those change with every try), and the extended
//! resources that its pods want. Launching notes which shape got no instance; here the solver is told what to make of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use spokeshave_model::{Requirements, resources};

use crate::{run::Run, sets::SetId};

/// What a batch may order of a shape that failed more than once in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// Nothing before this time.
    Until(Timestamp),
    /// So many claims at once, those under way included, to see whether there is capacity again.
    AtMost(u32),
}

/// What is held back, by [`crate::PlannedClaim::shape`].
pub type Holds = BTreeMap<String, Hold>;

/// Why a pod waits for capacity.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) text: String,
    pub(crate) until: Option<Timestamp>,
}

/// The name of a shape: `<pool>/<number>`, the same for the same demands.
pub(crate) fn shape_name<'a>(
    pool: &str,
    requirements: &Requirements,
    extended: impl Iterator<Item = &'a str>,
) -> String {
    let mut text = String::new();
    for entry in requirements.to_api() {
        text.push_str(&format!(
            "{}\n{:?}\n{}\n",
            entry.key,
            entry.operator,
            entry.values.join(",")
        ));
    }
    let mut extended: Vec<&str> = extended.collect();
    extended.sort_unstable();
    text.push_str(&extended.join(","));
    format!("{pool}/{:016x}", spokeshave_model::hash::text(&text))
}

/// Whether every node has some of it.
fn is_plain(resource: &str) -> bool {
    use resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
    matches!(resource, CPU | MEMORY | PODS | EPHEMERAL_STORAGE)
}

impl Run<'_, '_> {
    /// The shape of a claim with these requirements whose pods ask for `requests`.
    pub(crate) fn shape_of_claim(&self, template: usize, set: SetId, requests: &[i128]) -> String {
        let pool = &self.planner.templates[template].pool.metadata.name;
        shape_name(pool, self.planner.sets.get(set), self.extended(requests))
    }

    /// The resources asked for that not every node has.
    pub(crate) fn extended<'s>(
        &'s self,
        requests: &'s [i128],
    ) -> impl Iterator<Item = &'s str> + 's {
        let asked = requests.iter().enumerate().filter(|it| *it.1 > 0);
        asked.map(|(dim, _)| self.planner.dims.name(dim)).filter(|it| !is_plain(it))
    }

    /// Why no claim of this shape is opened now; `None`: it may be.
    pub(crate) fn held_back(&self, template: usize, set: SetId, requests: &[i128]) -> Option<Wait> {
        if self.batch.holds.is_empty() {
            return None;
        }
        let shape = self.shape_of_claim(template, set, requests);
        let pool = &self.planner.templates[template].pool.metadata.name;
        let short = format!(
            "capacity is short: the last claims of pool {pool} for such pods got no instance"
        );
        match self.batch.holds.get(&shape)? {
            Hold::Until(until) => Some(Wait {
                text: format!("{short}; the next one is made at {until}"),
                until: Some(*until),
            }),
            Hold::AtMost(n) if self.opened.get(&shape).copied().unwrap_or(0) >= *n => {
                let tried =
                    if *n == 1 { "one is tried".to_owned() } else { format!("{n} are tried") };
                Some(Wait { text: format!("{short}; {tried} at a time"), until: None })
            }
            Hold::AtMost(_) => None,
        }
    }
}
