//! The [`Watch`] port: every kind that wakes somebody, followed by a task of its own.
//!
//! A task lists its kind unless it is told where to go on, watches, and takes a broken watch up again. It keeps the last
//! state of every object, since a change is told with what was known before; of pods it keeps nothing, so that memory
//! does not grow with the cluster's pods.

use std::{
    collections::BTreeMap,
    fmt,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use jiff::SignedDuration;
use kube::core::params::ListParams;
use spokeshave_model::{
    CapacityBuffer, EC2NodeClass, Kind, NodeClaim, NodeOverlay, NodePool, ObjectKey,
    core::{
        DaemonSet, Node, PersistentVolumeClaim, Pod, PodDisruptionBudget, ResourceSlice,
        StorageClass, VolumeAttachment,
    },
};
use spokeshave_ports::{
    Change, ClusterError, Watch,
    watch::{BOUND_PODS, Positions, WatchEvent},
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    cluster::{KubeCluster, PAGE},
    connection::Login,
    follow::{Step, WatchScope},
};

/// Events that wait to be taken; past this the tasks wait, and with them the API server.
const WAITING: usize = 1024;

/// Waits before a broken watch is taken up again: doubled from the first to the last. An API server that is back is to be
/// watched again within seconds.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LAST_WAIT: Duration = Duration::from_secs(3);

/// How often a kind is looked for that the cluster does not have: its CRD may be installed later.
const MISSING_WAIT: Duration = Duration::from_secs(60);

/// Seconds after which the server is to end a watch; it is then taken up again where it was.
const WATCH_SECONDS: u32 = 290;

type Message = Result<WatchEvent, ClusterError>;

/// Watches of one cluster.
pub struct KubeWatches<L> {
    cluster: Arc<KubeCluster<L>>,
    running: tokio::sync::Mutex<Option<mpsc::Receiver<Message>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl<L> fmt::Debug for KubeWatches<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeWatches").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl<L: Login> KubeWatches<L> {
    pub fn new(cluster: Arc<KubeCluster<L>>) -> Self {
        Self { cluster, running: tokio::sync::Mutex::default(), tasks: Mutex::default() }
    }

    /// Follows what `fields` select of a kind, or all of it.
    fn follow<K: Kind>(&self, to: &Followers<'_>, position: &'static str, fields: &'static str) {
        let from = to.from.get(position).cloned();
        let follower = Follower::<K, L> {
            cluster: self.cluster.clone(),
            to: to.sender.clone(),
            position,
            fields,
            known: (K::KIND != Pod::KIND).then(BTreeMap::new),
        };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(follower.run(from));
    }
}

/// What all followers are given.
struct Followers<'a> {
    from: &'a Positions,
    sender: mpsc::Sender<Message>,
}

impl<L: Login> Watch for KubeWatches<L> {
    async fn start(&self, from: &Positions) -> Result<(), ClusterError> {
        let (sender, receiver) = mpsc::channel(WAITING);
        *self.running.lock().await = Some(receiver);
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        let to = Followers { from, sender };
        self.follow::<Pod>(&to, Pod::KIND, "spec.nodeName=");
        self.follow::<Pod>(&to, BOUND_PODS, "spec.nodeName!=");
        macro_rules! follow_all {
            ($($kind:ident)*) => {$(self.follow::<$kind>(&to, $kind::KIND, "");)*};
        }
        follow_all!(
            Node NodeClaim NodePool EC2NodeClass NodeOverlay CapacityBuffer DaemonSet PodDisruptionBudget
            PersistentVolumeClaim ResourceSlice StorageClass VolumeAttachment
        );
        Ok(())
    }

    async fn next(&self, within: SignedDuration) -> Result<Option<WatchEvent>, ClusterError> {
        let within = Duration::try_from(within).unwrap_or_default();
        let mut running = self.running.lock().await;
        let Some(receiver) = running.as_mut() else {
            sleep(within).await;
            return Ok(None);
        };
        match timeout(within, receiver.recv()).await {
            Ok(Some(message)) => message.map(Some),
            Ok(None) | Err(_) => Ok(None),
        }
    }
}

/// Follows one kind until nobody listens.
struct Follower<K, L> {
    cluster: Arc<KubeCluster<L>>,
    to: mpsc::Sender<Message>,
    /// The name of its position.
    position: &'static str,
    /// A field selector; empty: everything.
    fields: &'static str,
    /// Last states; `None` keeps none.
    known: Option<BTreeMap<ObjectKey, Arc<K>>>,
}

/// Why a follower left a watch.
enum Left {
    /// The server ended it, or it broke: go on from here.
    At(String),
    /// The server does not answer; the place is kept.
    Alone(String),
    /// Its place is too old: list again.
    Expired,
    /// Nobody listens.
    Unheard,
    /// It could not begin, or an answer made no sense.
    Failed(ClusterError),
}

impl<K: Kind, L: Login> Follower<K, L> {
    async fn run(mut self, from: Option<String>) {
        let mut at = from;
        let mut wait = FIRST_WAIT;
        let mut told_missing = false;
        loop {
            let began = Instant::now();
            let resumed = at.is_some();
            let left = match at.take() {
                Some(version) => self.watch(version).await,
                None => self.list().await,
            };
            match left {
                Left::At(version) => {
                    at = Some(version);
                    // A server that ends every watch at once is not pressed.
                    if resumed && began.elapsed() < FIRST_WAIT {
                        sleep(FIRST_WAIT).await;
                    }
                    wait = FIRST_WAIT;
                }
                Left::Alone(version) => {
                    at = Some(version);
                    sleep(wait).await;
                    wait = (wait * 2).min(LAST_WAIT);
                }
                Left::Expired => {
                    let restarted = WatchEvent::Restarted { kind: self.position };
                    if self.tell(Ok(restarted)).await.is_err() {
                        return;
                    }
                }
                Left::Unheard => return,
                Left::Failed(error @ ClusterError::NotFound { .. }) => {
                    // Without these three there is nothing to do; the others may well be missing.
                    let needed = [NodeClaim::KIND, NodePool::KIND, EC2NodeClass::KIND];
                    if !told_missing && needed.contains(&K::KIND) {
                        tracing::error!(target: "spokeshave", %error, "nothing can be watched");
                    }
                    told_missing = true;
                    sleep(MISSING_WAIT).await;
                }
                Left::Failed(error @ ClusterError::Refused { .. }) => {
                    if self.tell(Err(error)).await.is_err() {
                        return;
                    }
                    sleep(LAST_WAIT).await;
                }
                Left::Failed(_) => {
                    sleep(wait).await;
                    wait = (wait * 2).min(LAST_WAIT);
                }
            }
        }
    }

    /// Tells of all objects, and where the watch goes on. Never holds more than a page of what is not kept.
    async fn list(&mut self) -> Left {
        let cluster = self.cluster.clone();
        let params = ListParams {
            field_selector: Some(self.fields.to_owned()).filter(|it| !it.is_empty()),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        let mut pages = cluster.pages::<K>("", params);
        let mut version = String::new();
        loop {
            let page = match pages.next().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) => return Left::Failed(error),
            };
            version = page.resource_version;
            if let (true, Some(known)) = (page.is_first, &mut self.known) {
                known.clear();
            }
            for object in page.items {
                let object = Arc::new(object);
                if let Some(known) = &mut self.known {
                    known.insert(object.key(), object.clone());
                }
                if let Some(change) = Change::of(None, Some(object))
                    && self.tell(Ok(WatchEvent::Listed(change))).await.is_err()
                {
                    return Left::Unheard;
                }
            }
        }
        self.bookmark(version).await
    }

    async fn bookmark(&self, resource_version: String) -> Left {
        let event = WatchEvent::Bookmark {
            kind: self.position,
            resource_version: resource_version.clone(),
        };
        match self.tell(Ok(event)).await {
            Ok(()) => Left::At(resource_version),
            Err(()) => Left::Unheard,
        }
    }

    async fn watch(&mut self, mut version: String) -> Left {
        let scope = WatchScope { fields: self.fields.to_owned(), seconds: WATCH_SECONDS };
        let steps = match self.cluster.watch::<K>(&scope, &version).await {
            Ok(steps) => steps,
            Err(error @ ClusterError::Unavailable { .. }) => {
                // The API server is not there: the place is kept.
                tracing::debug!(target: "spokeshave", kind = self.position, %error, "watch not begun");
                return Left::Alone(version);
            }
            Err(error) => return Left::Failed(error),
        };
        let mut steps = pin!(steps);
        while let Some(step) = steps.next().await {
            let (old, new) = match step {
                Ok(Step::Present(object)) => {
                    let object = Arc::new(object);
                    let known = self.known.as_mut();
                    (known.and_then(|it| it.insert(object.key(), object.clone())), Some(object))
                }
                Ok(Step::Gone(object)) => {
                    if let Some(known) = &mut self.known {
                        known.remove(&object.key());
                    }
                    (Some(Arc::new(object)), None)
                }
                Ok(Step::Bookmark(at)) => {
                    version.clone_from(&at);
                    match self.bookmark(at).await {
                        Left::Unheard => return Left::Unheard,
                        _ => continue,
                    }
                }
                Ok(Step::Expired) => return Left::Expired,
                Err(ClusterError::Unavailable { .. }) => return Left::At(version),
                Err(error) => return Left::Failed(error),
            };
            let Some(change) = Change::of(old, new) else { continue };
            let at = change.resource_version().to_owned();
            if self.tell(Ok(WatchEvent::Changed(change))).await.is_err() {
                return Left::Unheard;
            }
            if !at.is_empty() {
                version = at;
            }
        }
        Left::At(version)
    }

    async fn tell(&self, message: Message) -> Result<(), ()> {
        self.to.send(message).await.map_err(drop)
    }
}
