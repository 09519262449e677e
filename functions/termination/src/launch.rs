//! What became of the launch of a claim that never got a provider id.

use jiff::Timestamp;
use spokeshave_catalog::launch::attempt::{self, Attempt, Outcome, PREPARING, State, Stored};
use spokeshave_lifecycle::{liveness::LAUNCH_TIMEOUT, termination::Launch};
use spokeshave_model::{InstanceId, NodeClaim, ProviderId, labels};
use spokeshave_ports::{Cluster, Decision, Ec2, Queues, StateTable, ec2::Filter};

use crate::{Trouble, run::Run};

impl<C: Cluster, E: Ec2, A, S: StateTable, Q: Queues> Run<'_, C, E, A, S, Q> {
    /// Whether an instance of this claim may exist, and which.
    ///
    /// Without a record of the attempt, or with fewer instances than claims when the launch has timed out, nobody can
    /// say which is this claim's: what is left over is then collected as an instance without a claim.
    pub async fn launch_of(&self, claim: &NodeClaim) -> Result<Launch, Trouble> {
        let Some(id) = attempt::of_claim(claim) else { return Ok(Launch::Never) };
        let Some(Stored { attempt, version }) = attempt::load(self.state, id).await? else {
            return Ok(Launch::Never);
        };
        let uid = &claim.metadata.uid;
        if attempt.releases(uid) {
            return Ok(Launch::Never);
        }
        if let Some(Outcome::Instance { instance }) = attempt.outcome(uid) {
            return Ok(self.found(&instance.zone, &instance.id));
        }
        let created = attempt.created.unwrap_or(self.now);
        if attempt.state == State::Preparing {
            return self.end_preparing(attempt, version, created).await;
        }
        let tag = Filter::new(&format!("tag:{}", labels::TAG_LAUNCH), &[id]);
        let mut instances = self.ec2.find_instances(&[tag]).await?;
        instances.sort_by(|a, b| a.id.cmp(&b.id));
        if instances.len() == attempt.claims.len() {
            // All are there: dealt by sorted id to sorted UIDs.
            let position = attempt.claims.keys().position(|it| it == uid);
            if let Some(instance) = position.and_then(|it| instances.get(it)) {
                return Ok(self.found(&instance.zone, &instance.id));
            }
        }
        let times_out = created.checked_add(LAUNCH_TIMEOUT).unwrap_or(Timestamp::MAX);
        if self.now < times_out {
            return Ok(Launch::Open(self.next_look(created).min(times_out)));
        }
        Ok(Launch::Never)
    }

    fn found(&self, zone: &str, id: &InstanceId) -> Launch {
        let id = ProviderId::aws(zone, id);
        let kwok = self.cx.settings.ec2_mode == "kwok";
        Launch::Found(if kwok { ProviderId(format!("kwok-{id}")) } else { id })
    }

    /// Nothing has been sent while an attempt is being prepared: one whose run has died is ended.
    async fn end_preparing(
        &self,
        attempt: Attempt,
        version: u64,
        created: Timestamp,
    ) -> Result<Launch, Trouble> {
        let dead_at = created.checked_add(PREPARING).unwrap_or(Timestamp::MAX);
        if self.now <= dead_at {
            return Ok(Launch::Open(self.next_look(created)));
        }
        let ended = Attempt { state: State::Void, ..attempt };
        attempt::save(self.state, &ended, version, self.now).await?;
        let reason = "its run died before anything was sent";
        self.cx.decide(Decision::new("void", format!("Attempt/{}", ended.id), reason));
        Ok(Launch::Never)
    }

    /// Soon at first, then less and less often.
    fn next_look(&self, since: Timestamp) -> Timestamp {
        let elapsed = self.now.duration_since(since).as_secs();
        let pause = jiff::SignedDuration::from_secs((elapsed / 2).clamp(5, 60));
        self.now.checked_add(pause).unwrap_or(Timestamp::MAX)
    }
}
