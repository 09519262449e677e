//! Commands as they are stored while they are under way, so that a run that is killed is taken up by the next.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use spokeshave_disruption::Command;
use spokeshave_model::Uid;
use spokeshave_ports::{Record, StateError, StateKey, StateTable, When};

/// Partition of the state table. Lost: commands under way are undone by the next pass, replacements stay as plain nodes.
pub const COMMANDS: &str = "command";

/// No command lives longer. The longest wait for replacements is an hour.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(3);
/// A command that is done is kept for so long. Reads lag by seconds at most.
const DONE_FOR: SignedDuration = SignedDuration::from_mins(1);

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Found; nothing has been done yet. It is looked at again when it is due.
    Validating,
    /// Its candidates are being tainted and its replacements made.
    Marking,
    /// Its replacements are starting.
    Waiting,
    /// Its candidates are being deleted.
    Deleting,
    /// Its candidates were deleted. Kept for a while, for reads that do not show it yet: budgets still count them.
    Done,
    /// What was done is being undone.
    RollingBack,
}

/// A replacement that was, or is about to be, created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Made {
    /// Chosen beforehand from the command's id, so that a repeat finds its own claim.
    pub name: String,
    pub uid: Uid,
    /// Seen initialized once; never asked again.
    pub initialized: bool,
}

/// A command and how far it has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    pub id: String,
    pub stage: Stage,
    /// Node names of its candidates: provisioning leaves these nodes' pods alone.
    pub nodes: Vec<String>,
    pub computed_at: Timestamp,
    /// When it is looked at again.
    #[serde(default)]
    pub due: Option<Timestamp>,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub made: Vec<Made>,
    /// Why it is being undone.
    #[serde(default)]
    pub failure: Option<String>,
    pub command: Command,
}

impl Stored {
    /// A command that was found at `now`.
    pub fn new(command: Command, stage: Stage, now: Timestamp) -> Self {
        let id = identify(&command, now);
        Self {
            id,
            stage,
            nodes: command.candidates.iter().map(|it| it.node.clone()).collect(),
            computed_at: now,
            due: None,
            started_at: None,
            made: Vec::new(),
            failure: None,
            command,
        }
    }

    /// It has begun to change the cluster: its nodes are disrupted.
    pub fn has_begun(&self) -> bool {
        self.stage != Stage::Validating
    }

    /// It has begun, and there is something left to do.
    pub fn is_running(&self) -> bool {
        self.has_begun() && self.stage != Stage::Done
    }

    /// Its candidates count as going: its replacements exist, or it needs none.
    pub fn is_marked(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Deleting | Stage::Done)
    }

    pub fn key(&self) -> StateKey {
        StateKey::new(COMMANDS, &self.id)
    }

    /// Writes it if `when` holds; returns its new version.
    ///
    /// # Errors
    /// Somebody else wrote first, or the table does not answer.
    pub async fn write(
        &self,
        state: &impl StateTable,
        when: When,
        now: Timestamp,
    ) -> Result<u64, StateError> {
        let data = serde_json::to_value(self).unwrap_or_default();
        let kept_for = if self.stage == Stage::Done { DONE_FOR } else { KEPT_FOR };
        state.write(&self.key(), data, now.checked_add(kept_for).ok(), when).await
    }
}

/// All stored commands with their versions, by id. Records that cannot be read are left out: they run out by themselves.
///
/// # Errors
/// When the table does not answer.
pub async fn read_all(state: &impl StateTable) -> Result<Vec<(Stored, u64)>, StateError> {
    let records = state.query(COMMANDS, "").await?;
    Ok(records.into_iter().filter_map(|(_, record)| decode(record)).collect())
}

fn decode(record: Record) -> Option<(Stored, u64)> {
    Some((serde_json::from_value(record.data).ok()?, record.version))
}

/// An id that the same command, found at the same moment, gets again.
fn identify(command: &Command, now: Timestamp) -> String {
    let mut hash = Fnv::default();
    hash.add(command.method.as_str());
    hash.add(&now.as_nanosecond().to_string());
    for candidate in &command.candidates {
        hash.add(candidate.claim_uid.as_str());
        hash.add(&candidate.claim);
    }
    format!("{:016x}", hash.0)
}

/// The letters that the API server makes names from. Source: Kubernetes.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Longest base of a generated name. Source: Kubernetes.
const LONGEST_BASE: usize = 58;

/// The name of the command's `n`-th replacement, at the `attempt`-th try: the pool's name and five letters, as the API
/// server would make it, but the same every time.
pub fn replacement_name(id: &str, n: usize, pool: &str, attempt: u32) -> String {
    let mut hash = Fnv::default();
    hash.add(id);
    hash.add(&n.to_string());
    hash.add(&attempt.to_string());
    let mut rest = hash.0;
    let base = format!("{pool}-");
    let end = base.char_indices().map(|(at, _)| at).take_while(|at| *at < LONGEST_BASE).last();
    let mut name =
        base.get(..end.map_or(0, |at| at + 1)).map_or_else(|| base.clone(), str::to_owned);
    for _ in 0..5 {
        let letter = usize::try_from(rest % LETTERS.len() as u64).unwrap_or(0);
        name.push(char::from(LETTERS.get(letter).copied().unwrap_or(b'b')));
        rest /= LETTERS.len() as u64;
    }
    name
}

/// FNV-1a, 64 bits: short and the same everywhere.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacement_names_are_the_same_every_time() {
        let name = replacement_name("0123456789abcdef", 0, "default", 0);
        assert_eq!(name, replacement_name("0123456789abcdef", 0, "default", 0));
        assert!(name.starts_with("default-") && name.len() == 13, "{name}");
        assert_ne!(name, replacement_name("0123456789abcdef", 1, "default", 0));
        assert_ne!(name, replacement_name("0123456789abcdef", 0, "default", 1));
        let long = replacement_name("0123456789abcdef", 0, &"p".repeat(70), 0);
        assert_eq!(long.len(), 63);
    }
}
