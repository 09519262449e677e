//! What has changed of a kind since it was read last: a watch that is resumed, read until it has caught up, and left.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt;
use spokeshave_model::{Kind, ObjectKey};
use spokeshave_ports::{Changes, ClusterError, Place, Selector};
use tokio::time::{Instant, timeout_at};

use crate::{
    cluster::KubeCluster,
    connection::Login,
    follow::{Step, WatchScope},
};

/// A watch that has not come as far as it must after this time is given up, and the kind is listed. Until then nothing can
/// be decided, and a list of a big cluster takes some seconds.
const CATCH_UP: Duration = Duration::from_secs(2);

/// What a server has to tell of the past comes at once and without pauses; after a pause of this length it has told it.
const QUIET: Duration = Duration::from_millis(40);

/// So few objects are listed each time: one short answer, as quick as a watch, and as new as can be.
const FEW: usize = 100;

/// Seconds after which the server ends a watch that we do not leave.
const WATCH_SECONDS: u32 = 10;

impl<L: Login> KubeCluster<L> {
    /// See [`spokeshave_ports::Cluster::changes`].
    pub(crate) async fn changes_since<K: Kind>(
        &self,
        since: Place,
        reach: u64,
    ) -> Result<Changes<K>, ClusterError> {
        if since.history == self.history && since.version > 0 && since.count > FEW {
            let deadline = Instant::now() + CATCH_UP;
            match timeout_at(deadline, self.resume::<K>(since, reach)).await {
                Ok(Some(changes)) => return Ok(changes),
                // Too old, broken, or too slow: in doubt everything is read again.
                Ok(None) | Err(_) => {
                    tracing::debug!(target: "spokeshave", kind = K::KIND, since.version, reach, "listed again");
                }
            }
        }
        let listed = self.list_at::<K>(&Selector::all()).await?;
        // A version that is no number cannot be compared, and nothing is resumed from it.
        let version = listed.resource_version.parse().unwrap_or(0);
        let history = if version > 0 { self.history } else { 0 };
        let place = Place { history, version, count: listed.items.len() };
        Ok(Changes { whole: true, objects: listed.items, gone: Vec::new(), place })
    }

    /// Reads a watch until it has come to `reach` and has no more to tell. `None`: it cannot be told from there on.
    async fn resume<K: Kind>(&self, since: Place, reach: u64) -> Option<Changes<K>> {
        let scope = WatchScope { fields: String::new(), seconds: WATCH_SECONDS };
        let steps = self.watch::<K>(&scope, &since.version.to_string()).await.ok()?;
        let mut steps = pin!(steps);
        let mut version = since.version;
        let mut changed: BTreeMap<ObjectKey, Option<Arc<K>>> = BTreeMap::new();
        loop {
            let step = if version >= reach {
                match timeout_at(Instant::now() + QUIET, steps.next()).await {
                    Ok(step) => step,
                    Err(_) => break,
                }
            } else {
                steps.next().await
            };
            // The end of the stream is no doubt if everything that is wanted came before it.
            let Some(step) = step else {
                if version >= reach {
                    break;
                }
                return None;
            };
            let at = match step.ok()? {
                Step::Present(object) => {
                    let at = object.meta().resource_version.parse().ok()?;
                    changed.insert(object.key(), Some(Arc::new(object)));
                    at
                }
                Step::Gone(object) => {
                    let at = object.meta().resource_version.parse().ok()?;
                    changed.insert(object.key(), None);
                    at
                }
                Step::Bookmark(at) => at.parse().ok()?,
                Step::Expired => return None,
            };
            version = version.max(at);
        }
        let place = Place { history: self.history, version, count: since.count };
        let mut changes = Changes { whole: false, objects: Vec::new(), gone: Vec::new(), place };
        for (key, object) in changed {
            match object {
                Some(object) => changes.objects.push(object),
                None => changes.gone.push(key),
            }
        }
        Some(changes)
    }
}
