//! The API server's objects: typed tables, resource versions, and the recent past for stale reads.

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{
    Kind, ObjectKey, Uid,
    core::Pod,
    meta::{from_value, merge_patch, to_value},
};

/// An object of any kind.
pub type AnyObject = Arc<dyn Any + Send + Sync>;

/// An object before and after a change.
pub type OldAndNew<K> = (Option<Arc<K>>, Option<Arc<K>>);

/// One change of one object; `old` or `new` is absent at its creation or deletion.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    pub kind: &'static str,
    pub key: ObjectKey,
    pub old: Option<AnyObject>,
    pub new: Option<AnyObject>,
}

impl ObjectChange {
    /// Old and new, if the change is of kind `K`.
    pub fn of<K: Kind>(&self) -> Option<OldAndNew<K>> {
        if self.kind != K::KIND {
            return None;
        }
        let cast = |it: &Option<AnyObject>| it.clone().and_then(|it| it.downcast::<K>().ok());
        Some((cast(&self.old), cast(&self.new)))
    }
}

/// Which object got which version.
struct Logged {
    version: u64,
    at: Timestamp,
    type_id: TypeId,
    key: ObjectKey,
}

/// What has become of a kind since a version.
pub struct Since<K> {
    pub present: Vec<Arc<K>>,
    pub gone: Vec<ObjectKey>,
}

/// So many changes are kept that somebody may follow, and all of the last [`STALENESS`]. Whoever comes later lists.
const LOGGED: usize = 4096;

struct Past {
    at: Timestamp,
    type_id: TypeId,
    key: ObjectKey,
    old: Option<AnyObject>,
}

/// How far back a stale read may look.
pub const STALENESS: SignedDuration = SignedDuration::from_secs(5);

/// The objects of one kind.
type Table<K> = BTreeMap<ObjectKey, Arc<K>>;

/// All objects of the cluster.
#[derive(Default)]
pub struct Store {
    version: u64,
    uids: u64,
    /// A [`Table`] for each kind.
    tables: HashMap<TypeId, Box<dyn Any>>,
    pods_on: BTreeMap<String, BTreeSet<ObjectKey>>,
    past: VecDeque<Past>,
    log: VecDeque<Logged>,
    changes: Vec<ObjectChange>,
    /// Counts changes that a person would call a change: used to see when the world has come to rest.
    pub mutations: u64,
}

impl Store {
    pub fn get<K: Kind>(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.table::<K>()?.get(key).cloned()
    }

    fn table<K: Kind>(&self) -> Option<&Table<K>> {
        self.tables.get(&TypeId::of::<K>())?.downcast_ref()
    }

    /// All objects of a kind, by key.
    pub fn list<K: Kind>(&self) -> impl Iterator<Item = Arc<K>> + '_ {
        self.table::<K>().map(Table::values).unwrap_or_default().cloned()
    }

    /// The pods bound to a node, by key.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = Arc<Pod>> + '_ {
        self.pods_on.get(node).into_iter().flatten().filter_map(|key| self.get(key))
    }

    /// The objects of a kind as they were at `at`, which is at most [`STALENESS`] ago.
    pub fn list_at<K: Kind>(&self, at: Timestamp) -> BTreeMap<ObjectKey, Arc<K>> {
        let mut table: BTreeMap<ObjectKey, Arc<K>> =
            self.list::<K>().map(|it| (it.key(), it)).collect();
        for past in self.past.iter().rev().take_while(|it| it.at > at) {
            if past.type_id == TypeId::of::<K>() {
                match past.old.clone().and_then(|it| it.downcast().ok()) {
                    Some(old) => table.insert(past.key.clone(), old),
                    None => table.remove(&past.key),
                };
            }
        }
        table
    }

    /// The version that the cluster had at `at`, which is at most [`STALENESS`] ago.
    pub fn version_at(&self, at: Timestamp) -> u64 {
        let later = self.log.iter().rev().take_while(|it| it.at > at).last();
        later.map_or(self.version, |it| it.version - 1)
    }

    /// What has become of a kind between `version` and `at`. `None`: that is too long ago to tell.
    pub fn since<K: Kind>(&self, version: u64, at: Timestamp) -> Option<Since<K>> {
        if self.log.front().map_or(self.version, |it| it.version - 1) > version {
            return None;
        }
        let then = self.version_at(at);
        let newer = self.log.iter().rev().take_while(|it| it.version > version);
        let type_id = TypeId::of::<K>();
        let changed: BTreeSet<&ObjectKey> = newer
            .filter(|it| it.version <= then && it.type_id == type_id)
            .map(|it| &it.key)
            .collect();
        let mut since = Since { present: Vec::new(), gone: Vec::new() };
        if changed.is_empty() {
            return Some(since);
        }
        let past = (then < self.version).then(|| self.list_at::<K>(at));
        for key in changed {
            let object = match &past {
                Some(past) => past.get(key).cloned(),
                None => self.get::<K>(key),
            };
            match object {
                Some(object) => since.present.push(object),
                None => since.gone.push(key.clone()),
            }
        }
        Some(since)
    }

    /// Changes since the last call.
    pub fn take_changes(&mut self) -> Vec<ObjectChange> {
        std::mem::take(&mut self.changes)
    }

    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// A new UID.
    pub fn new_uid(&mut self) -> Uid {
        self.uids += 1;
        let n = self.uids;
        Uid(format!("{:08x}-0000-4000-8000-{n:012x}", n.wrapping_mul(0x9e37_79b9) & 0xffff_ffff))
    }

    /// Adds an object, filling in UID, creation time and generation.
    pub fn create<K: Kind>(&mut self, mut object: K, now: Timestamp) -> Arc<K> {
        let uid = self.new_uid();
        let meta = object.meta_mut();
        meta.uid = uid;
        meta.creation_timestamp = Some(whole_second(now));
        meta.deletion_timestamp = None;
        meta.generation = 1;
        self.mutations += 1;
        self.put(None, object, now)
    }

    /// Replaces the stored object by what `change` makes of it. `None`: there is no such object.
    pub fn update<K: Kind>(
        &mut self,
        key: &ObjectKey,
        now: Timestamp,
        change: impl FnOnce(&mut K),
    ) -> Option<Arc<K>> {
        let old = self.get::<K>(key)?;
        let mut new = (*old).clone();
        change(&mut new);
        if new == *old {
            return Some(old);
        }
        if K::KIND != "Lease" {
            self.mutations += 1;
        }
        Some(self.put(Some(old), new, now))
    }

    fn put<K: Kind>(&mut self, old: Option<Arc<K>>, mut new: K, now: Timestamp) -> Arc<K> {
        self.version += 1;
        new.meta_mut().resource_version = self.version.to_string();
        let key = new.key();
        let new = Arc::new(new);
        let any: AnyObject = new.clone();
        if let Some(pod) = any.downcast_ref::<Pod>()
            && pod.is_bound()
        {
            self.pods_on.entry(pod.spec.node_name.clone()).or_default().insert(key.clone());
        }
        self.remember::<K>(key.clone(), old.map(|it| it as AnyObject), Some(any), now);
        let table = self.tables.entry(TypeId::of::<K>());
        let table = table.or_insert_with(|| Box::new(Table::<K>::new()));
        if let Some(table) = table.downcast_mut::<Table<K>>() {
            table.insert(key, new.clone());
        }
        new
    }

    /// Takes an object away, whatever finalizers it has.
    pub fn remove<K: Kind>(&mut self, key: &ObjectKey, now: Timestamp) -> Option<Arc<K>> {
        let old = self.get::<K>(key)?;
        self.version += 1;
        self.mutations += 1;
        self.tables.get_mut(&TypeId::of::<K>())?.downcast_mut::<Table<K>>()?.remove(key);
        let any: AnyObject = old.clone();
        if let Some(pod) = any.downcast_ref::<Pod>()
            && let Some(pods) = self.pods_on.get_mut(&pod.spec.node_name)
        {
            pods.remove(key);
        }
        self.remember::<K>(key.clone(), Some(any), None, now);
        Some(old)
    }

    fn remember<K: Kind>(
        &mut self,
        key: ObjectKey,
        old: Option<AnyObject>,
        new: Option<AnyObject>,
        now: Timestamp,
    ) {
        while self.log.len() >= LOGGED && self.log.front().is_some_and(|it| it.at + STALENESS < now)
        {
            self.log.pop_front();
        }
        let type_id = TypeId::of::<K>();
        self.log.push_back(Logged { version: self.version, at: now, type_id, key: key.clone() });
        while self.past.front().is_some_and(|it| it.at + STALENESS < now) {
            self.past.pop_front();
        }
        self.past.push_back(Past {
            at: now,
            type_id: TypeId::of::<K>(),
            key: key.clone(),
            old: old.clone(),
        });
        self.changes.push(ObjectChange { kind: K::KIND, key, old, new });
    }

    /// Writes the difference between `old` and `new` onto the stored object, as a merge patch would.
    ///
    /// With `status` only the status is written, else everything but the status. `None`: nothing to write.
    pub fn patch<K: Kind>(
        &mut self,
        old: &K,
        new: &K,
        status: bool,
        now: Timestamp,
    ) -> Option<Arc<K>> {
        let current = self.get::<K>(&old.key())?;
        let part = |object: &K| {
            let mut value = to_value(object);
            if let Some(fields) = value.as_object_mut() {
                if status {
                    fields.retain(|key, _| key == "status");
                } else {
                    fields.remove("status");
                    if let Some(meta) = fields.get_mut("metadata").and_then(|it| it.as_object_mut())
                    {
                        meta.remove("resourceVersion");
                        meta.remove("generation");
                    }
                }
            }
            value
        };
        let patch = merge_patch(&part(old), &part(new))?;
        let mut value = to_value(&*current);
        spokeshave_model::meta::apply_merge_patch(&mut value, &patch);
        let mut next: K = from_value(value).ok()?;
        if next == *current {
            return Some(current);
        }
        if patch.get("spec").is_some() {
            next.meta_mut().generation += 1;
        }
        if K::KIND != "Lease" {
            self.mutations += 1;
        }
        Some(self.put(Some(current), next, now))
    }

    /// The newest resource version.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// The API server keeps times to the second.
pub fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
