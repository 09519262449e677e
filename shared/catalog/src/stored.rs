//! The catalog and what is remembered about offerings, as records of the state table.
//!
//! | Partition | Sort key | What it holds | Losing it means |
//! | --- | --- | --- | --- |
//! | `catalog` | `index` | which chunks make up the catalog, and when each part was read | built-in facts until the next read |
//! | `catalog` | `<version>/<n>` | a chunk | the same |
//! | `catalog` | `fixed` | types that replace EC2's, in simulations | EC2's own types |
//! | `catalog` | `spot` | spot prices | spot at on-demand prices until the next read |
//! | `unavailable` | the mark's key | nothing but its end | a failing pool is tried again |
//! | `shortage` | `<pool>/<shape>` of claims | how often in a row they got no instance, when last, and how many may be tried at once | a few claims more that fail |
//! | `unavailable-sequence` | `all` | counts marks | nothing |
//! | `reservation` | reservation id | instances left, and when EC2 said so | counted as 0 until the next read |
//! | `placement-group` | name or id | a placement group that a class selects; nodeclass writes it | launches into it wait |
//! | `zonal-shift` | `all` | zones that traffic is shifted away from | they are used until the next read |
//! | `zonal-shift` | `published` | the zones that NodePools were told of | they are told once more |
//! | `memory` | `<type>/<image set>` | memory that nodes reported | a guess until a node reports again |
//!
//! Marks and counts are small and change often, so that each is a record of its own; the catalog is compressed text in
//! chunks well below DynamoDB's 400 KB for an item.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use spokeshave_model::{EC2NodeClass, Settings};
use spokeshave_ports::{Record, StateError, StateKey, StateTable, When, ec2::PlacementGroup};

use crate::{
    Catalog, Mark, MarketView, Memo, SpotPrices, UnavailableOfferings, builtin,
    memory::{self, DiscoveredMemory, Observation},
    plain,
    shortage::{self, Shortage},
    table, unavailable, zonal_shift,
};

pub const CATALOG: &str = "catalog";
pub const UNAVAILABLE: &str = "unavailable";
pub const SHORTAGE: &str = "shortage";
pub const SEQUENCE: &str = "unavailable-sequence";
pub const RESERVATION: &str = "reservation";
pub const MEMORY: &str = "memory";
pub const PLACEMENT_GROUP: &str = "placement-group";

pub const INDEX: &str = "index";
const SPOT: &str = "spot";
/// Types in the plain form that replace EC2's, for simulations.
pub const FIXED: &str = "fixed";

/// Base64 characters in one chunk. DynamoDB takes items up to 400 KB.
const CHUNK: usize = 300_000;
/// A text that unpacks to more than this is none of ours.
const MAX_UNPACKED: u64 = 64 * 1024 * 1024;
/// How long chunks that a newer catalog replaced are kept for readers that saw the older index.
const GRACE: SignedDuration = SignedDuration::from_hours(1);
/// How long a reservation's count is kept, for outages of the describe call. 24 hours, as in Karpenter.
const RESERVATION_LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// What the index says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogIndex {
    /// Hash of the content: the same content is not written twice.
    pub version: String,
    pub region: String,
    pub chunks: usize,
    /// Compressed size in bytes before base64.
    pub bytes: usize,
    /// When EC2 last answered.
    pub types_read_at: Option<Timestamp>,
    pub offerings_read_at: Option<Timestamp>,
    pub prices_read_at: Option<Timestamp>,
}

/// A catalog and how old its parts are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredCatalog {
    pub catalog: Catalog,
    /// Default where nothing is stored and the facts are the built-in ones.
    pub index: CatalogIndex,
    pub spot_read_at: Option<Timestamp>,
    /// Names what is in the catalog, so that what was made of it can be remembered; empty when that is not known.
    pub content: String,
}

/// Compresses a text; base64 in chunks.
fn pack(text: &str) -> (Vec<String>, usize) {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    // Writing into memory cannot fail.
    let _ = encoder.write_all(text.as_bytes());
    let bytes = encoder.finish().unwrap_or_default();
    let encoded = STANDARD.encode(&bytes);
    let chunks = encoded.as_bytes().chunks(CHUNK);
    let chunks = chunks.map(|it| String::from_utf8_lossy(it).into_owned()).collect();
    (chunks, bytes.len())
}

fn unpack(chunks: &str) -> Option<String> {
    let bytes = STANDARD.decode(chunks).ok()?;
    let mut text = String::new();
    DeflateDecoder::new(&bytes[..]).take(MAX_UNPACKED).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The catalog without spot prices as text: sections headed by `@name`.
fn to_text(catalog: &Catalog) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("@zones\n");
    for (name, id) in &catalog.zones {
        let _ = writeln!(text, "{name}\t{id}");
    }
    text.push_str("@prices\n");
    for (name, price) in &catalog.on_demand {
        let _ = writeln!(text, "{name}\t{price}");
    }
    text.push_str("@offerings\n");
    for (name, zones) in &catalog.offerings {
        let zones: Vec<&str> = zones.iter().map(String::as_str).collect();
        let _ = writeln!(text, "{name}\t{}", zones.join(","));
    }
    text.push_str("@types\n");
    text.push_str(&table::write_types(&catalog.types));
    text
}

fn from_text(region: &str, text: &str) -> Option<Catalog> {
    let (head, types) = text.split_once("@types\n")?;
    let mut catalog = Catalog { region: region.to_owned(), ..Catalog::default() };
    let mut section = "";
    for line in head.lines() {
        if line.starts_with('@') {
            section = line;
            continue;
        }
        let (name, value) = line.split_once('\t')?;
        match section {
            "@zones" => {
                catalog.zones.insert(name.to_owned(), value.to_owned());
            }
            "@prices" => {
                catalog.on_demand.insert(name.to_owned(), value.parse().ok()?);
            }
            "@offerings" => {
                let zones = value.split(',').filter(|it| !it.is_empty()).map(str::to_owned);
                catalog.offerings.insert(name.to_owned(), zones.collect());
            }
            _ => {}
        }
    }
    catalog.types = table::read_types(types).ok()?.into();
    Some(catalog)
}

fn spot_to_text(spot: &SpotPrices) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (name, zones) in spot {
        text.push_str(name);
        for (zone, price) in zones {
            let _ = write!(text, "\t{zone}={price}");
        }
        text.push('\n');
    }
    text
}

fn spot_from_text(text: &str) -> Option<SpotPrices> {
    let mut spot = SpotPrices::new();
    for line in text.lines() {
        let mut columns = line.split('\t');
        let prices = spot.entry(columns.next()?.to_owned()).or_default();
        for column in columns {
            let (zone, price) = column.split_once('=')?;
            prices.insert(zone.to_owned(), price.parse().ok()?);
        }
    }
    Some(spot)
}

/// Hash of the content, short enough for a sort key.
fn version_of(text: &str) -> String {
    Sha256::digest(text).iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

fn chunk_key(version: &str, at: usize) -> StateKey {
    StateKey::new(CATALOG, &format!("{version}/{at:03}"))
}

fn field<T: serde::de::DeserializeOwned>(record: &Record) -> Option<T> {
    serde_json::from_value(record.data.clone()).ok()
}

/// The catalog of `region`: what is stored, else the built-in facts, else an empty one.
///
/// A record that cannot be read counts as missing: the next refresh writes it anew. What `memo` knows is neither read nor
/// worked out again.
///
/// # Errors
/// Only when the table does not answer.
pub async fn load_catalog(
    state: &impl StateTable,
    region: &str,
    memo: &Memo,
) -> Result<StoredCatalog, StateError> {
    let mut stored = load_facts(state, region, memo).await?;
    if !stored.catalog.fixed.is_empty() {
        return Ok(stored);
    }
    if let Some(record) = state.read(&StateKey::new(CATALOG, SPOT)).await? {
        let text = record.data.get("content").and_then(Value::as_str);
        let version = version_of(text.unwrap_or_default());
        let made = || text.and_then(unpack).as_deref().and_then(spot_from_text);
        if let Some(spot) = memo.spot(&version, made) {
            stored.catalog.spot = Some(spot);
            stored.content.push_str(&version);
            stored.spot_read_at =
                record.data.get("readAt").and_then(Value::as_str).and_then(|it| it.parse().ok());
        }
    }
    Ok(stored)
}

async fn load_facts(
    state: &impl StateTable,
    region: &str,
    memo: &Memo,
) -> Result<StoredCatalog, StateError> {
    let index = state.read(&StateKey::new(CATALOG, INDEX)).await?;
    let index: CatalogIndex = index.as_ref().and_then(field).unwrap_or_default();
    let name = format!("{region}/{}", index.version);
    if index.region == region
        && index.chunks > 0
        && let Some(known) = memo.known_catalog(&name)
    {
        let catalog = (*known).clone();
        return Ok(StoredCatalog { catalog, index, content: name, spot_read_at: None });
    }
    if index.region == region && index.chunks > 0 {
        let mut content = String::with_capacity(index.bytes * 4 / 3 + 4);
        for at in 0..index.chunks {
            let Some(record) = state.read(&chunk_key(&index.version, at)).await? else { break };
            content.push_str(record.data.as_str().unwrap_or_default());
        }
        let made = || unpack(&content).as_deref().and_then(|it| from_text(region, it));
        if let Some(known) = memo.catalog(&name, made) {
            let catalog = (*known).clone();
            return Ok(StoredCatalog { catalog, index, content: name, spot_read_at: None });
        }
    }
    // Looked for only while nothing was ever read: in a real account that is before the first refresh.
    if let Some(record) = state.read(&StateKey::new(CATALOG, FIXED)).await?
        && let Ok(fixed) = plain::read(&record.data)
    {
        let catalog = Catalog { region: region.to_owned(), fixed, ..Catalog::default() };
        let content = format!("fixed/{}", version_of(&record.data.to_string()));
        return Ok(StoredCatalog { catalog, content, ..StoredCatalog::default() });
    }
    let content = format!("builtin/{region}");
    let made = || {
        Catalog::builtin(region).or_else(|| {
            Some(Catalog {
                region: region.to_owned(),
                on_demand: builtin::on_demand_prices(region).into(),
                ..Catalog::default()
            })
        })
    };
    let catalog = memo.catalog(&content, made).map(|it| (*it).clone()).unwrap_or_default();
    Ok(StoredCatalog { catalog, content, ..StoredCatalog::default() })
}

/// Stores the catalog but for its spot prices: chunks first, then the index that names them, so that a reader never sees
/// a half. Unchanged content only renews the times in the index. Returns the index as stored.
///
/// # Errors
/// When the table does not answer.
pub async fn save_catalog(
    state: &impl StateTable,
    stored: &StoredCatalog,
    now: Timestamp,
) -> Result<CatalogIndex, StateError> {
    let text = to_text(&stored.catalog);
    let index_key = StateKey::new(CATALOG, INDEX);
    let old = state.read(&index_key).await?;
    let old: CatalogIndex = old.as_ref().and_then(field).unwrap_or_default();
    let mut index = CatalogIndex {
        version: version_of(&text),
        region: stored.catalog.region.clone(),
        ..stored.index.clone()
    };
    if index.version == old.version && old.chunks > 0 {
        (index.chunks, index.bytes) = (old.chunks, old.bytes);
    } else {
        let (chunks, bytes) = pack(&text);
        (index.chunks, index.bytes) = (chunks.len(), bytes);
        for (at, chunk) in chunks.into_iter().enumerate() {
            let key = chunk_key(&index.version, at);
            state.write(&key, Value::String(chunk), None, When::Always).await?;
        }
    }
    if index != old {
        let data = serde_json::to_value(&index).unwrap_or_default();
        state.write(&index_key, data, None, When::Always).await?;
    }
    if old.version != index.version {
        // The older chunks outlive a reader that is between the index and them.
        let expires_at = now.saturating_add(GRACE).ok();
        for at in 0..old.chunks {
            let key = chunk_key(&old.version, at);
            if let Some(record) = state.read(&key).await? {
                let when = When::Version(record.version);
                match state.write(&key, record.data, expires_at, when).await {
                    Ok(_) | Err(StateError::Conflict(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(index)
}

/// Stores spot prices if they changed or the stored time is older than 12 hours.
///
/// # Errors
/// When the table does not answer.
pub async fn save_spot_prices(
    state: &impl StateTable,
    spot: &SpotPrices,
    now: Timestamp,
) -> Result<bool, StateError> {
    let key = StateKey::new(CATALOG, SPOT);
    let (chunks, _) = pack(&spot_to_text(spot));
    let content = chunks.concat();
    let old = state.read(&key).await?;
    let unchanged = old.is_some_and(|record| {
        let same = record.data.get("content").and_then(Value::as_str) == Some(content.as_str());
        let read_at = record.data.get("readAt").and_then(Value::as_str);
        let read_at: Option<Timestamp> = read_at.and_then(|it| it.parse().ok());
        same && read_at.is_some_and(|at| now.duration_since(at) < SignedDuration::from_hours(12))
    });
    if unchanged {
        return Ok(false);
    }
    let data = json!({"content": content, "readAt": now.to_string()});
    state.write(&key, data, None, When::Always).await?;
    Ok(true)
}

/// The marks that stand at `now`.
///
/// # Errors
/// When the table does not answer; callers that can go on do so with no marks.
pub async fn load_unavailable(
    state: &impl StateTable,
    now: Timestamp,
) -> Result<UnavailableOfferings, StateError> {
    let records = state.query(UNAVAILABLE, "").await?;
    let marks = records.into_iter().filter_map(|(key, record)| Some((key, record.expires_at?)));
    Ok(UnavailableOfferings::new(marks, now))
}

/// Remembers that an offering, a capacity type or a subnet cannot be used, for 3 minutes from `now`.
///
/// # Errors
/// When the table does not answer.
pub async fn mark_unavailable(
    state: &impl StateTable,
    mark: &Mark,
    reason: &str,
    now: Timestamp,
) -> Result<(), StateError> {
    let expires_at = now.saturating_add(unavailable::LIFETIME).ok();
    let key = StateKey::new(UNAVAILABLE, &mark.key());
    state.write(&key, json!({"reason": reason}), expires_at, When::Always).await?;
    // Raised with every write: whoever caches availability compares it.
    let key = StateKey::new(SEQUENCE, "all");
    state.write(&key, Value::Null, None, When::Always).await?;
    Ok(())
}

/// How many marks were ever written.
///
/// # Errors
/// When the table does not answer.
pub async fn unavailable_sequence(state: &impl StateTable) -> Result<u64, StateError> {
    Ok(state.read(&StateKey::new(SEQUENCE, "all")).await?.map_or(0, |it| it.version))
}

/// Instances left in a reservation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReservationCount {
    count: i64,
    /// When EC2 said so last.
    read_at: Option<Timestamp>,
}

/// Instances left by reservation id.
///
/// # Errors
/// When the table does not answer.
pub async fn load_reservations(
    state: &impl StateTable,
) -> Result<BTreeMap<String, i64>, StateError> {
    let records = state.query(RESERVATION, "").await?;
    let counts = records
        .into_iter()
        .filter_map(|(id, record)| Some((id, field::<ReservationCount>(&record)?.count)));
    Ok(counts.collect())
}

/// What happened to a reservation's count (`spec` aws-capacity 10.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationEvent {
    /// EC2 said how many are left.
    Read(i64),
    /// We launched into it at this time: one less, unless EC2 was asked later.
    Launched(Timestamp),
    /// One of its instances is gone: one more.
    Terminated,
    /// EC2 refused a launch, or takes it back: none left.
    Exhausted,
}

/// Counts an event. Unknown ids are ignored but for a read and for exhaustion.
///
/// # Errors
/// When the table does not answer, or others keep writing the same record.
pub async fn count_reservation(
    state: &impl StateTable,
    id: &str,
    event: ReservationEvent,
    now: Timestamp,
) -> Result<(), StateError> {
    let key = StateKey::new(RESERVATION, id);
    // Writers of one reservation are few; a handful of tries settles them.
    let mut tries = 0;
    loop {
        let record = state.read(&key).await?;
        let when = record.as_ref().map_or(When::Absent, |it| When::Version(it.version));
        let known: Option<ReservationCount> = record.as_ref().and_then(field);
        let counted = match (event, known) {
            (ReservationEvent::Read(count), _) => ReservationCount { count, read_at: Some(now) },
            (ReservationEvent::Exhausted, known) => {
                ReservationCount { count: 0, ..known.unwrap_or_default() }
            }
            (_, None) => return Ok(()),
            (ReservationEvent::Launched(at), Some(known)) => {
                if known.read_at.is_some_and(|read_at| read_at > at) {
                    return Ok(());
                }
                ReservationCount { count: (known.count - 1).max(0), ..known }
            }
            (ReservationEvent::Terminated, Some(known)) => {
                ReservationCount { count: known.count.saturating_add(1), ..known }
            }
        };
        let expires_at = now.saturating_add(RESERVATION_LIFETIME).ok();
        let data = serde_json::to_value(&counted).unwrap_or_default();
        match state.write(&key, data, expires_at, when).await {
            Err(StateError::Conflict(_)) if tries < 5 => tries += 1,
            other => return other.map(|_| ()),
        }
    }
}

/// Shapes of claims that got no instance, by name.
///
/// # Errors
/// When the table does not answer.
pub async fn load_shortages(
    state: &impl StateTable,
) -> Result<BTreeMap<String, Shortage>, StateError> {
    let records = state.query(SHORTAGE, "").await?;
    let known = |(shape, record): (String, Record)| Some((shape, field(&record)?));
    Ok(records.into_iter().filter_map(known).collect())
}

/// Notes that claims of a shape got no instance.
///
/// # Errors
/// When the table does not answer.
pub async fn note_shortage(
    state: &impl StateTable,
    shape: &str,
    now: Timestamp,
) -> Result<(), StateError> {
    let key = StateKey::new(SHORTAGE, shape);
    let mut tries = 0;
    loop {
        let record = state.read(&key).await?;
        let when = record.as_ref().map_or(When::Absent, |it| When::Version(it.version));
        let before: Option<Shortage> = record.as_ref().and_then(field);
        let noted = Shortage::noted(before, now);
        if before == Some(noted) {
            return Ok(());
        }
        let data = serde_json::to_value(noted).unwrap_or_default();
        let expires_at = now.saturating_add(shortage::FORGOTTEN).ok();
        match state.write(&key, data, expires_at, when).await {
            Err(StateError::Conflict(_)) if tries < 5 => tries += 1,
            other => return other.map(|_| ()),
        }
    }
}

/// Notes that a claim of a shape was launched at `launched`, after what is known of its shortage as `seen`. A failure that
/// came in between stands.
///
/// # Errors
/// When the table does not answer.
pub async fn ease_shortage(
    state: &impl StateTable,
    shape: &str,
    seen: &Shortage,
    launched: Timestamp,
) -> Result<(), StateError> {
    let key = StateKey::new(SHORTAGE, shape);
    let Some(record) = state.read(&key).await? else { return Ok(()) };
    if field::<Shortage>(&record).as_ref() != Some(seen) {
        return Ok(());
    }
    let when = When::Version(record.version);
    let done = match seen.eased(launched) {
        None => state.remove(&key, when).await,
        Some(eased) => {
            let data = serde_json::to_value(eased).unwrap_or_default();
            let expires_at = launched.saturating_add(shortage::FORGOTTEN).ok();
            state.write(&key, data, expires_at, when).await.map(|_| ())
        }
    };
    match done {
        Err(StateError::Conflict(_)) => Ok(()),
        other => other,
    }
}

/// Memory that nodes reported.
///
/// # Errors
/// When the table does not answer.
pub async fn load_memory(state: &impl StateTable) -> Result<DiscoveredMemory, StateError> {
    let records = state.query(MEMORY, "").await?;
    let observations = records.into_iter().filter_map(|(key, record)| {
        let (name, images) = key.split_once('/')?;
        let memory = record.data.get("memory")?.as_str()?.parse().ok()?;
        let seen = Observation { memory, expires_at: record.expires_at.unwrap_or(Timestamp::MAX) };
        Some(((name.to_owned(), images.to_owned()), seen))
    });
    Ok(DiscoveredMemory(observations.collect()))
}

/// Takes in the memory that a node of `instance_type` reported under the current images of `class`.
/// Whether the node runs the image that the class would pick now is the caller's to check ([`memory::is_current_image`]).
///
/// # Errors
/// When the table does not answer.
pub async fn observe_memory(
    state: &impl StateTable,
    class: &EC2NodeClass,
    instance_type: &str,
    memory: spokeshave_model::Quantity,
    now: Timestamp,
) -> Result<(), StateError> {
    let images = memory::image_set(class);
    let mut known = DiscoveredMemory::default();
    let key = StateKey::new(MEMORY, &format!("{instance_type}/{images}"));
    let record = state.read(&key).await?;
    let when = record.as_ref().map_or(When::Absent, |it| When::Version(it.version));
    if let Some(record) = &record
        && let Some(stored) = record.data.get("memory").and_then(Value::as_str)
        && let Ok(stored) = stored.parse()
    {
        let expires_at = record.expires_at.unwrap_or(Timestamp::MAX);
        let seen = Observation { memory: stored, expires_at };
        known.0.insert((instance_type.to_owned(), images.clone()), seen);
    }
    if !known.observe(instance_type, &images, memory, now) {
        return Ok(());
    }
    let expires_at = now.saturating_add(memory::LIFETIME).ok();
    match state.write(&key, json!({"memory": memory.to_string()}), expires_at, when).await {
        // Another node reported at the same time; the next one reports again.
        Ok(_) | Err(StateError::Conflict(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Placement groups by the name or id that classes select them by, as nodeclass found them last.
///
/// # Errors
/// When the table does not answer.
pub async fn load_placement_groups(
    state: &impl StateTable,
) -> Result<BTreeMap<String, PlacementGroup>, StateError> {
    let records = state.query(PLACEMENT_GROUP, "").await?;
    Ok(records.into_iter().filter_map(|(key, record)| Some((key, field(&record)?))).collect())
}

/// Everything that decides availability, read in one go. Marks, counts and observations fail open: launches go on
/// without what the table does not tell.
pub async fn load_view<'a>(
    state: &impl StateTable,
    settings: &'a Settings,
    now: Timestamp,
) -> (MarketView<'a>, Option<StateError>) {
    let mut view = MarketView::new(settings, now);
    let mut problem = None;
    match load_unavailable(state, now).await {
        Ok(marks) => view.unavailable = marks,
        Err(error) => problem = Some(error),
    }
    match load_reservations(state).await {
        Ok(counts) => view.reservations = counts,
        Err(error) => problem = Some(error),
    }
    match load_memory(state).await {
        Ok(memory) => view.memory = memory,
        Err(error) => problem = Some(error),
    }
    match load_placement_groups(state).await {
        Ok(groups) => view.placement_groups = groups,
        Err(error) => problem = Some(error),
    }
    if settings.enable_zonal_shift {
        match zonal_shift::load(state, now).await {
            Ok(zones) => view.shifted_zones = zones,
            Err(error) => problem = Some(error),
        }
    }
    (view, problem)
}
