//! The function `catalog-refresh`: keeps in the state table what the region sells.
//!
//! Every run reads spot prices, what is left in capacity reservations, and zonal shifts where they count (those every 30
//! seconds, by delayed messages to itself); instance types, offerings and on-demand prices
//! are read when the last answer is 12 hours old. Each is read independently of the others. A failed or empty answer
//! never replaces an older one, and the next run asks again. It also deletes launch templates that nothing has used for
//! an hour.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_catalog::{
    Catalog, Memo,
    launch::template,
    stored::{self, ReservationEvent, StoredCatalog},
    zonal_shift,
};
use spokeshave_lambda::{BatchAnswer, SqsBatch};
use spokeshave_model::labels;
use spokeshave_ports::{
    AwsError, Concern, Decision, Ec2, Invocation, Pricing, Queues, StateError, StateTable, Work,
    ZonalShifts, chain, ec2::Filter, failed_calls,
};

/// What this process has read and worked out before.
static MEMO: Memo = Memo::new();

/// How old types, offerings and on-demand prices may be. 12 hours, as in Karpenter.
pub const REFRESH: SignedDuration = SignedDuration::from_hours(12);
/// Launches go on with an older catalog, but a person should know.
pub const STALE: SignedDuration = SignedDuration::from_hours(24);

/// Reason of the events that tell of failed calls.
const REASON: &str = "CatalogRefreshFailed";

/// Seconds between two scheduled messages.
const SCHEDULE: i64 = 300;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("state table")]
    State(#[from] StateError),
    #[error("queue")]
    Queue(#[from] AwsError),
}

/// Handles a batch: however many messages it has, one refresh. Messages that ask for zonal shifts alone cause no more than
/// that.
pub async fn handle(
    batch: &SqsBatch,
    ec2: &impl Ec2,
    pricing: &impl Pricing,
    shifts: &impl ZonalShifts,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> BatchAnswer {
    if batch.records.is_empty() {
        return BatchAnswer::done();
    }
    let is_poll = |work: &Work| work.reason == zonal_shift::POLL_REASON;
    let only_polls = batch.records.iter().all(|it| it.work().is_ok_and(|it| is_poll(&it)));
    let done = async {
        read_shifts(shifts, state, queues, cx).await?;
        if !only_polls {
            arrange_polls(queues, cx).await?;
            refresh(ec2, pricing, state, cx).await?;
        }
        Ok::<(), Trouble>(())
    };
    if let Err(error) = done.await {
        cx.decide(Decision::new("retry", "Catalog/", chain(&error)).caused_by(&error));
        return BatchAnswer::retry_all(batch);
    }
    BatchAnswer::done()
}

/// The reads of zonal shifts until the next scheduled message.
async fn arrange_polls(queues: &impl Queues, cx: &Invocation<'_>) -> Result<(), AwsError> {
    if !cx.settings.enable_zonal_shift {
        return Ok(());
    }
    let pause = zonal_shift::POLL.as_secs();
    for n in 1..SCHEDULE / pause {
        let work = Work::new(zonal_shift::POLL_REASON, Vec::new());
        let delay = SignedDuration::from_secs(n * pause);
        queues.send(Concern::CatalogRefresh, &work, delay, "").await?;
    }
    Ok(())
}

fn is_due(read_at: Option<Timestamp>, now: Timestamp) -> bool {
    read_at.is_none_or(|at| now.duration_since(at) >= REFRESH)
}

/// Why a part could not be read.
enum Why<'a> {
    /// There was an answer, with nothing in it.
    Empty(&'static str),
    Failed(&'a AwsError),
}

/// A part could not be read; what is known of it stays.
async fn kept(
    part: &str,
    why: &Why<'_>,
    read_at: Option<Timestamp>,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) {
    let stale = read_at.is_none_or(|at| cx.now.duration_since(at) >= STALE);
    let object = format!("Catalog/{part}");
    let decision = match why {
        Why::Empty(text) => Decision::new("keep", object, *text),
        Why::Failed(error) => Decision::new("keep", object, error.to_string()).with_error(error),
    };
    cx.decide(if stale { decision.as_error() } else { decision });
    if let Why::Failed(error) = why {
        tell(&format!("Catalog/{part}"), error, state, cx).await;
    }
}

/// Leaves a failed call for the events on EC2NodeClasses.
async fn tell(object: &str, error: &AwsError, state: &impl StateTable, cx: &Invocation<'_>) {
    let noted = failed_calls::note(state, object, REASON, error, cx.now).await;
    if let Err(error) = noted {
        // The log has it.
        cx.decide(Decision::new("skip", object, chain(&error)).caused_by(&error));
    }
}

async fn refresh(
    ec2: &impl Ec2,
    pricing: &impl Pricing,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<(), StateError> {
    let region = cx.settings.region.as_str();
    let mut known = stored::load_catalog(state, region, &MEMO).await?;
    if !known.catalog.fixed.is_empty() {
        read_reservations(ec2, state, cx).await?;
        sweep_templates(ec2, state, cx).await;
        return Ok(());
    }
    let before = known.catalog.clone();
    let mut read = false;
    if is_due(known.index.types_read_at, cx.now) {
        read |= read_types(ec2, &mut known, state, cx).await;
    }
    if is_due(known.index.offerings_read_at, cx.now) {
        read |= read_offerings(ec2, &mut known, state, cx).await;
    }
    if is_due(known.index.prices_read_at, cx.now) {
        read |= read_prices(pricing, &mut known, state, cx).await;
    }
    if read {
        let index = stored::save_catalog(state, &known, cx.now).await?;
        if known.catalog != before {
            cx.decide(
                Decision::new("store", format!("Catalog/{region}"), "what is sold has changed")
                    .with("types", known.catalog.types.len())
                    .with("bytes", index.bytes),
            );
        }
    }
    read_spot(ec2, &mut known, state, cx).await?;
    publish(&before, &known.catalog, cx);
    read_reservations(ec2, state, cx).await?;
    sweep_templates(ec2, state, cx).await;
    Ok(())
}

async fn read_types(
    ec2: &impl Ec2,
    known: &mut StoredCatalog,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> bool {
    match ec2.describe_instance_types().await {
        Ok(types) if types.is_empty() => {
            kept(
                "types",
                &Why::Empty("EC2 described no instance type"),
                known.index.types_read_at,
                state,
                cx,
            )
            .await;
            false
        }
        Ok(types) => {
            known.catalog.set_types(types);
            known.index.types_read_at = Some(cx.now);
            true
        }
        Err(error) => {
            kept("types", &Why::Failed(&error), known.index.types_read_at, state, cx).await;
            false
        }
    }
}

async fn read_offerings(
    ec2: &impl Ec2,
    known: &mut StoredCatalog,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> bool {
    let offerings = match ec2.describe_instance_type_offerings().await {
        Ok(offerings) if offerings.is_empty() => {
            kept(
                "offerings",
                &Why::Empty("EC2 told no offering"),
                known.index.offerings_read_at,
                state,
                cx,
            )
            .await;
            return false;
        }
        Ok(offerings) => offerings,
        Err(error) => {
            kept("offerings", &Why::Failed(&error), known.index.offerings_read_at, state, cx).await;
            return false;
        }
    };
    known.catalog.set_offerings(&offerings);
    known.index.offerings_read_at = Some(cx.now);
    // Zone ids are a convenience: classes have those of their subnets.
    match ec2.describe_zones().await {
        Ok(zones) if !zones.is_empty() => {
            known.catalog.zones = zones.into_iter().map(|it| (it.name, it.id)).collect();
        }
        Ok(_) => {
            kept(
                "zones",
                &Why::Empty("EC2 told no zone"),
                known.index.offerings_read_at,
                state,
                cx,
            )
            .await;
        }
        Err(error) => {
            kept("zones", &Why::Failed(&error), known.index.offerings_read_at, state, cx).await;
        }
    }
    true
}

/// Isolated networks and GovCloud have no price list: the table stays what it is, without a call and without an error.
async fn read_prices(
    pricing: &impl Pricing,
    known: &mut StoredCatalog,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> bool {
    let region = cx.settings.region.as_str();
    if cx.settings.isolated_vpc || region.starts_with("us-gov") {
        return false;
    }
    match pricing.on_demand_prices(region).await {
        Ok(prices) if prices.is_empty() => {
            kept(
                "prices",
                &Why::Empty("the price list is empty"),
                known.index.prices_read_at,
                state,
                cx,
            )
            .await;
            false
        }
        Ok(prices) => {
            known.catalog.merge_on_demand(prices);
            known.index.prices_read_at = Some(cx.now);
            true
        }
        Err(error) => {
            kept("prices", &Why::Failed(&error), known.index.prices_read_at, state, cx).await;
            false
        }
    }
}

async fn read_spot(
    ec2: &impl Ec2,
    known: &mut StoredCatalog,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<(), StateError> {
    match ec2.describe_spot_prices().await {
        Ok(history) => {
            if !known.catalog.merge_spot(&history) {
                kept("spot", &Why::Empty("EC2 told no spot price"), known.spot_read_at, state, cx)
                    .await;
                return Ok(());
            }
            let spot = known.catalog.spot.clone().unwrap_or_default();
            stored::save_spot_prices(state, &spot, cx.now).await?;
        }
        Err(error) => kept("spot", &Why::Failed(&error), known.spot_read_at, state, cx).await,
    }
    Ok(())
}

/// The size of each type, when it is new or has changed: each series is paid for in every hour that it appears in.
fn publish(before: &Catalog, after: &Catalog, cx: &Invocation<'_>) {
    let known: BTreeMap<&str, (i64, i64)> =
        before.types.iter().map(|it| (it.name.as_str(), (it.vcpus, it.memory_mib))).collect();
    for it in &after.types {
        if known.get(it.name.as_str()) == Some(&(it.vcpus, it.memory_mib)) {
            continue;
        }
        let labels = [("instance_type", it.name.as_str())];
        let sample = |name, value| cx.sample(name, value, "None", &labels);
        sample("karpenter_cloudprovider_instance_type_cpu_cores", it.vcpus as f64);
        let bytes = it.memory_mib as f64 * 1_048_576.0;
        sample("karpenter_cloudprovider_instance_type_memory_bytes", bytes);
    }
}

/// Zones that traffic is being shifted away from, where that counts. What is known stays when ARC does not answer: every
/// shift has its end.
async fn read_shifts(
    shifts: &impl ZonalShifts,
    state: &impl StateTable,
    queues: &impl Queues,
    cx: &Invocation<'_>,
) -> Result<(), Trouble> {
    if !cx.settings.enable_zonal_shift {
        return Ok(());
    }
    match shifts.zonal_shifts(&cx.settings.cluster_arn()).await {
        Ok(answer) => {
            let before = zonal_shift::load(state, cx.now).await?;
            zonal_shift::save(state, &answer, cx.now).await?;
            let after = zonal_shift::shifted(&answer, cx.now);
            for zone in after.difference(&before) {
                let reason = "traffic is shifted away from it: nothing is launched there";
                cx.decide(Decision::new("shift", format!("Zone/{zone}"), reason));
            }
            for zone in before.difference(&after) {
                cx.decide(Decision::new("restore", format!("Zone/{zone}"), "the shift is over"));
            }
        }
        Err(error) => {
            let object = "Catalog/zonal-shifts";
            let decision = Decision::new("keep", object, error.to_string());
            cx.decide(decision.with_error(&error).as_error());
            tell(object, &error, state, cx).await;
        }
    }
    // A shift that ran out counts as a change, too. Asked for until somebody has done it.
    if zonal_shift::load(state, cx.now).await? != zonal_shift::published(state).await? {
        let work = Work::new(zonal_shift::CHANGED_REASON, Vec::new());
        queues.send(Concern::Nodepool, &work, SignedDuration::ZERO, "").await?;
    }
    Ok(())
}

/// What is left in every active reservation of the account.
async fn read_reservations(
    ec2: &impl Ec2,
    state: &impl StateTable,
    cx: &Invocation<'_>,
) -> Result<(), StateError> {
    if !cx.settings.gates.reserved_capacity {
        return Ok(());
    }
    let active = [Filter::new("state", &["active"])];
    let reservations = match ec2.describe_capacity_reservations(&[], &active).await {
        Ok(reservations) => reservations,
        Err(error) => {
            kept("reservations", &Why::Failed(&error), Some(cx.now), state, cx).await;
            return Ok(());
        }
    };
    for it in reservations {
        // An equal count is written too: its time decides whether a launch still has to be counted.
        let event = ReservationEvent::Read(it.available);
        stored::count_reservation(state, &it.id, event, cx.now).await?;
    }
    Ok(())
}

/// Deletes templates of this cluster that no launch has used for an hour. Templates that Karpenter left behind go too:
/// nothing notes their use.
async fn sweep_templates(ec2: &impl Ec2, state: &impl StateTable, cx: &Invocation<'_>) {
    let tag = format!("tag:{}", labels::TAG_CLUSTER_NAME);
    let filters = [Filter::new(&tag, &[&cx.settings.cluster_name])];
    let templates = match ec2.describe_launch_templates(&filters).await {
        Ok(templates) => templates,
        Err(error) => {
            let decision = Decision::new("skip", "LaunchTemplate/", error.to_string());
            cx.decide(decision.with_error(&error));
            tell("LaunchTemplate/all", &error, state, cx).await;
            return;
        }
    };
    for it in templates {
        let Ok(used_at) = template::last_use(state, &it.name).await else { return };
        let latest = used_at.max(it.created);
        if latest.is_some_and(|at| cx.now.duration_since(at) < template::UNUSED) {
            continue;
        }
        // A launch that is about to use it makes it anew.
        if template::forget(state, &it.name).await.is_err() {
            return;
        }
        let object = format!("LaunchTemplate/{}", it.name);
        match ec2.delete_launch_template(&it.name).await {
            Ok(()) => cx.decide(Decision::new("delete", object, "unused for an hour")),
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                let decision = Decision::new("skip", object.as_str(), error.to_string());
                cx.decide(decision.with_error(&error));
                tell(&object, &error, state, cx).await;
            }
        }
    }
}
