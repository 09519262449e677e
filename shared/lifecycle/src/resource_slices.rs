//! Whether the DRA drivers that a claim was planned with have published their devices.

use std::collections::BTreeMap;

use spokeshave_model::{
    NodeClaim,
    core::{Node, ResourceSlice},
    labels,
};

/// The drivers that a claim was planned with, as its annotation lists them.
pub fn requested_drivers(claim: &NodeClaim) -> Vec<&str> {
    let list = claim.metadata.annotation(labels::REQUESTED_DRA_DRIVERS).unwrap_or_default();
    list.split(',').map(str::trim).filter(|it| !it.is_empty()).collect()
}

/// The first of `drivers` without a complete pool among the slices of `node`.
///
/// Per driver and pool only the newest generation counts; it is complete when as many slices are there as each of
/// them says, and that is at least one.
pub fn first_incomplete<'a>(
    drivers: &[&'a str],
    node: &Node,
    slices: &[&ResourceSlice],
) -> Option<&'a str> {
    let mut pools: BTreeMap<(&str, &str), (i64, i64, i64)> = BTreeMap::new();
    for slice in slices.iter().filter(|it| belongs(it, node)) {
        let pool = &slice.spec.pool;
        let newest = pools.entry((&slice.spec.driver, &pool.name)).or_default();
        if pool.generation > newest.0 || newest.1 == 0 {
            *newest = (pool.generation, 0, pool.resource_slice_count);
        }
        if pool.generation == newest.0 {
            newest.1 += 1;
        }
    }
    let is_complete = |driver: &str| {
        pools
            .iter()
            .any(|((of, _), (_, found, wanted))| *of == driver && *wanted > 0 && found == wanted)
    };
    drivers.iter().copied().find(|it| !is_complete(it))
}

fn belongs(slice: &ResourceSlice, node: &Node) -> bool {
    slice.spec.node_name.as_deref() == Some(node.metadata.name.as_str())
        || slice
            .metadata
            .owner_references
            .iter()
            .any(|it| it.kind == "Node" && it.api_version == "v1" && it.name == node.metadata.name)
}
