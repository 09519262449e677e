//! One attempt from the gate to its recorded answer, and attempts that somebody else began.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use spokeshave_bootstrap::{
    BootstrapInput, MAX_USER_DATA_BYTES, NodeFacts, RenderError, WARN_USER_DATA_BYTES,
};
use spokeshave_catalog::{
    CatalogError, Resolved,
    launch::{
        self, LaunchInput, Plan, PlanError,
        answer::{self, Consequence, NoInstance},
        attempt::{self, Attempt, Outcome, State, Stored},
        instance::Launched,
        tags, template,
    },
    offerings::overlay_prices,
    stored::{self, ReservationEvent},
};
use spokeshave_model::{
    CapacityType, ConditionStatus, EC2NodeClass, InstanceId, InstanceType, Kind, NodeClaim,
    NodeOverlay, NodePool, ObjectKey, Uid, conditions, labels,
};
use spokeshave_ports::{
    AwsError, Cluster, ClusterError, Concern, Decision, Ec2, Precondition, Queues, StateError,
    StateTable, Work,
    cluster::KubeEvent,
    ec2::{Filter, FleetAnswer, FleetError, Instance},
};
use spokeshave_scheduling::{PoolInput, overlays};

use crate::{
    Next, Run, Trouble,
    claims::{Claim, Refusal},
    surroundings::{Surroundings, per_subnet},
};

const LAUNCH_FAILURES: &str = "karpenter_cloudprovider_instance_launch_failures_total";
/// Claims that share a fleet.
const BATCH_SIZE: &str = "karpenter_cloudprovider_batcher_batch_size";
/// So long the errors of a fleet say something of what can be had now.
const NEWS: SignedDuration = SignedDuration::from_mins(1);
/// Instance states that count as alive: an instance in any other is not adopted.
const ALIVE: &[&str] = &["pending", "running"];
/// Another run is at the same claims: look again when it must be done.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// What became of claims that named an attempt.
pub struct Resumed {
    pub next: BTreeMap<String, Next>,
    /// Free for another attempt.
    pub released: Vec<Claim>,
}

fn names_of(claims: &[Claim], next: Next) -> BTreeMap<String, Next> {
    claims.iter().map(|it| (it.metadata.name.clone(), next)).collect()
}

impl<C: Cluster, E: Ec2, S: StateTable, Q: Queues> Run<'_, C, E, S, Q> {
    /// Launches claims that can share a fleet. A template that vanished is made anew, once.
    pub async fn launch(
        &self,
        claims: Vec<Claim>,
        known: &mut Surroundings,
    ) -> Result<BTreeMap<String, Next>, Trouble> {
        let Some(first) = claims.first() else { return Ok(BTreeMap::new()) };
        let class_name = first.spec.node_class_ref.name.clone();
        let class = self.cluster.get::<EC2NodeClass>(&ObjectKey::cluster(&class_name)).await?;
        let Some(class) = class.filter(|it| !it.metadata.deleting()) else {
            for claim in &claims {
                let message = format!("EC2NodeClass {class_name} cannot be resolved");
                let event = KubeEvent::on(&**claim, true, "NodeClassNotFound", message);
                self.cluster.publish(event, SignedDuration::from_mins(2)).await;
            }
            let text = format!("EC2NodeClass {class_name} not found or being deleted");
            return self.refuse_all(&claims, &Refusal::InsufficientCapacity(text)).await;
        };
        let mut claims = claims;
        for again in [true, false] {
            match self.try_once(&claims, &class, known).await? {
                Tried::Settled(next) => return Ok(next),
                Tried::NoTemplate(rebound) if again => claims = rebound,
                Tried::NoTemplate(rebound) => {
                    let reason = answer::reason(answer::NO_TEMPLATE);
                    let refusal = Refusal::create(reason.reason, reason.message);
                    return self.refuse_all(&rebound, &refusal).await;
                }
            }
        }
        Ok(names_of(&claims, Next::BackOff))
    }

    async fn refuse_all(
        &self,
        claims: &[Claim],
        refusal: &Refusal,
    ) -> Result<BTreeMap<String, Next>, Trouble> {
        let mut next = BTreeMap::new();
        for claim in claims {
            next.insert(claim.metadata.name.clone(), self.refuse(claim, refusal).await?);
        }
        Ok(next)
    }

    async fn try_once(
        &self,
        claims: &[Claim],
        class: &EC2NodeClass,
        known: &mut Surroundings,
    ) -> Result<Tried, Trouble> {
        let Some(first) = claims.first() else { return Ok(Tried::Settled(BTreeMap::new())) };
        let addresses = self.addresses(class).await;
        let plan = match self.plan(first, class, known, &addresses.0).await? {
            Ok(plan) => plan,
            Err(refusal) => return Ok(Tried::Settled(self.refuse_all(claims, &refusal).await?)),
        };
        self.cx.decide(
            Decision::new(
                "plan",
                format!("EC2NodeClass/{}", class.name()),
                format!(
                    "{} x {} of {} types",
                    claims.len(),
                    plan.selected.capacity_type,
                    plan.selected.types.len()
                ),
            )
            .with("nodeclaims", claims.len()),
        );

        // 1. The record, before anything else can happen.
        let salt: String = claims.iter().filter_map(|it| attempt::of_claim(it)).collect();
        let uids = claims.iter().map(|it| it.metadata.uid.clone());
        let id = attempt::new_id(uids, &salt, self.cx.now);
        let mut attempt = Attempt {
            id: id.clone(),
            state: State::Preparing,
            created: Some(self.cx.now),
            claims: claims
                .iter()
                .map(|it| (it.metadata.uid.clone(), it.metadata.name.clone()))
                .collect(),
            class: class.name().to_owned(),
            class_hash: self.class_hash(class).await?,
            facts: plan.facts.clone(),
            ..Attempt::default()
        };
        let look_again = self.cx.now.saturating_add(LOOK_AGAIN).unwrap_or(self.cx.now);
        let version = match attempt::save(self.state, &attempt, 0, self.cx.now).await {
            Ok(version) => version,
            // The same claims at the same time: another run of this message.
            Err(StateError::Conflict(_)) => {
                return Ok(Tried::Settled(names_of(claims, Next::At(look_again))));
            }
            Err(error) => return Err(error.into()),
        };

        // 2. Every claim names the attempt, and has its finalizer, or it is not part of it.
        let mut bound: Vec<Claim> = Vec::new();
        let mut next = BTreeMap::new();
        for claim in claims {
            match self.bind(claim, &id).await {
                Ok(it) => bound.push(it),
                Err(ClusterError::NotFound { .. }) => {}
                Err(error) => {
                    next.insert(claim.metadata.name.clone(), Next::BackOff);
                    self.note_trouble(&claim.metadata.name, &error.into());
                }
            }
        }
        let bound_uids: Vec<&Uid> = bound.iter().map(|it| &it.metadata.uid).collect();
        attempt.claims.retain(|uid, _| bound_uids.contains(&uid));

        // 3. Templates, then the request itself, which from now on may have been sent.
        let ready = if bound.is_empty() {
            Err(None)
        } else {
            self.ensure_templates(&plan, class).await.map_err(Some)
        };
        if let Err(error) = ready {
            attempt.state = State::Void;
            attempt::save(self.state, &attempt, version, self.cx.now).await?;
            if let Some(error) = error {
                let refusal = failed_call(&error);
                next.extend(self.refuse_all(&bound, &refusal).await?);
            }
            return Ok(Tried::Settled(next));
        }
        let count = bound.len() as i64;
        attempt.state = State::Open;
        attempt.request = plan.request.clone();
        attempt.request.target = count;
        attempt.request.client_token = id.clone();
        attempt.request.tags.insert(labels::TAG_LAUNCH.to_owned(), id.clone());
        if let [only] = &bound[..] {
            let name = only.metadata.name.clone();
            attempt.request.tags.insert(labels::TAG_NODECLAIM.to_owned(), name);
        }
        let version = match attempt::save(self.state, &attempt, version, self.cx.now).await {
            Ok(version) => version,
            // Somebody took us for dead and ended the attempt; nothing was sent.
            Err(StateError::Conflict(_)) => {
                next.extend(names_of(&bound, Next::At(look_again)));
                return Ok(Tried::Settled(next));
            }
            Err(error) => return Err(error.into()),
        };
        let counted = addresses.0.read_at.is_some();
        if counted {
            let (chosen, predicted) = (&plan.subnets, &plan.facts.predicted);
            self.change_addresses(class.name(), addresses.clone(), |it| {
                it.deduct(chosen, predicted, count);
            })
            .await;
        }

        // 4. Buy.
        self.cx.sample(BATCH_SIZE, count as f64, "None", &[("batcher", "create_fleet")]);
        let result = self.ec2.create_fleet(&attempt.request).await;
        if counted && let Some(now_stored) = self.stored_addresses(class.name()).await {
            let used = result.as_ref().map(|it| {
                per_subnet(
                    it.instances
                        .iter()
                        .flat_map(|entry| entry.ids.iter().map(|_| entry.subnet_id.as_str())),
                )
            });
            let used = used.unwrap_or_default();
            let (chosen, predicted) = (&plan.subnets, &plan.facts.predicted);
            self.change_addresses(class.name(), now_stored, |it| {
                it.give_back(&addresses.0, chosen, predicted, count, |subnet| {
                    used.get(subnet).copied().unwrap_or(0)
                });
            })
            .await;
        }
        match result {
            Ok(fleet) => {
                let stored = Stored { attempt, version };
                let recorded = self.record(stored, &fleet, &[], false).await?;
                match recorded {
                    Some(attempt) => next.extend(self.settle(&attempt, None, known).await?),
                    None => next.extend(names_of(&bound, Next::At(look_again))),
                }
                Ok(Tried::Settled(next))
            }
            Err(error) if error.code == answer::NO_TEMPLATE => {
                for name in plan.templates.keys() {
                    template::forget(self.state, name).await?;
                }
                attempt.state = State::Failed;
                attempt::save(self.state, &attempt, version, self.cx.now).await?;
                for claim in claims.iter().filter(|it| !bound_uids.contains(&&it.metadata.uid)) {
                    next.entry(claim.metadata.name.clone()).or_insert(Next::BackOff);
                }
                if next.is_empty() {
                    Ok(Tried::NoTemplate(bound))
                } else {
                    Ok(Tried::Settled(next))
                }
            }
            Err(error) if is_certain(&error) => {
                let refusal = failed_call(&error);
                attempt.state = State::Failed;
                attempt::save(self.state, &attempt, version, self.cx.now).await?;
                next.extend(self.refuse_all(&bound, &refusal).await?);
                Ok(Tried::Settled(next))
            }
            // It may have been carried out: the same request is sent again.
            Err(error) => {
                for claim in &bound {
                    self.note_trouble(&claim.metadata.name, &Trouble::Aws(error.clone()));
                }
                next.extend(names_of(&bound, Next::BackOff));
                Ok(Tried::Settled(next))
            }
        }
    }

    /// Puts finalizer and attempt on a claim, if nobody changed it since it was read.
    async fn bind(&self, claim: &Claim, id: &str) -> Result<Claim, ClusterError> {
        let mut changed = (**claim).clone();
        if !changed.metadata.has_finalizer(labels::TERMINATION_FINALIZER) {
            changed.metadata.finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
        }
        changed.metadata.annotations.insert(labels::LAUNCH_ATTEMPT.to_owned(), id.to_owned());
        self.cluster.patch(&**claim, &changed, Precondition::ResourceVersion).await
    }

    async fn ensure_templates(&self, plan: &Plan, class: &EC2NodeClass) -> Result<(), AwsError> {
        let mut tags = plan.request.tags.clone();
        tags.insert(labels::NODECLASS.to_owned(), class.name().to_owned());
        for (name, data) in &plan.templates {
            template::ensure(self.ec2, self.state, name, data, &tags, self.cx.now).await?;
        }
        Ok(())
    }

    /// The gate (13) and the plan (14 to 17).
    async fn plan(
        &self,
        claim: &NodeClaim,
        class: &EC2NodeClass,
        known: &mut Surroundings,
        addresses: &launch::subnets::FreeAddresses,
    ) -> Result<Result<Plan, Refusal>, Trouble> {
        if let Err(refusal) = ready(class) {
            return Ok(Err(refusal));
        }
        let settings = self.cx.settings;
        let tags = match tags::tags(class, Some(claim), &settings.cluster_name) {
            Ok(tags) => tags,
            Err(error) => return Ok(Err(Refusal::NotReady(error.to_string()))),
        };
        let (cluster, ipv6) = self.cluster_info(known).await?;
        if launch::needs_service_cidr(class) && cluster.service_cidr.is_none() {
            // nodeclass asks EKS and writes it down.
            let work = Work::new("ClusterFactsMissing", vec![spokeshave_ports::Key::of(class)]);
            let delay = SignedDuration::ZERO;
            self.queues.send(Concern::Nodeclass, &work, delay, "").await?;
            return Ok(Err(Refusal::create(
                "ClusterCIDRUnknown",
                "the cluster's service CIDR is not known yet",
            )));
        }
        let mut view = self.view(settings).await;
        if class.spec.placement_group_selector.is_some() && view.placement_group(class).is_none() {
            // No launch goes without the group that the class wants.
            return Ok(Err(Refusal::create(
                "PlacementGroupUnknown",
                "the placement group of the EC2NodeClass is not known yet",
            )));
        }
        let overlays = self.overlays(claim).await?;
        view.overlay_prices = overlay_prices(overlays.iter().map(|it| &**it), false);
        let catalog = self.catalog(known).await?;
        let resolved = if class.status.subnets.is_empty() {
            Err("the EC2NodeClass has no subnets in its status".to_owned())
        } else {
            // Most claims name their types; the others need not be worked out.
            let requirements = launch::requirements_of(claim);
            let named = requirements.get(labels::INSTANCE_TYPE);
            let wanted = |name: &str| named.is_none_or(|it| it.has(name));
            let resolved: Result<Resolved, CatalogError> = catalog.resolve(class, &view, wanted);
            resolved.map_err(|error| {
                let mut text = error.to_string();
                if let Some(source) = std::error::Error::source(&error) {
                    let source = source.to_string();
                    if !text.contains(&source) {
                        text = format!("{text}: {source}");
                    }
                }
                text
            })
        };
        let mut resolved = match resolved {
            Ok(resolved) => resolved,
            Err(text) => {
                return Ok(Err(Refusal::create("InstanceTypeResolutionFailed", text)));
            }
        };
        if !overlays.is_empty() {
            resolved.types = self.overlaid(claim, resolved.types, &overlays).await?;
        }
        let render = |group: &template::Group| -> Result<String, PlanError> {
            let facts = NodeFacts {
                max_pods: Some(group.pods),
                kube_reserved: group.kube_reserved.clone(),
                system_reserved: group.system_reserved.clone(),
            };
            let input = BootstrapInput::for_claim(
                &cluster,
                class,
                claim,
                group.capacity_type.as_str(),
                &facts,
            );
            let text = spokeshave_bootstrap::render(&input).map_err(|error| match error {
                RenderError::NoServiceCidr => PlanError::NotReady(error.to_string()),
                other => PlanError::Create { reason: "LaunchFailed", message: other.to_string() },
            })?;
            self.cx.sample(
                "karpenter_ec2nodeclasses_userdata_bytes",
                text.len() as f64,
                "None",
                &[("nodeclass", class.name())],
            );
            if text.len() >= WARN_USER_DATA_BYTES {
                let reason = format!(
                    "the user data has {} bytes, EC2 takes at most {MAX_USER_DATA_BYTES}",
                    text.len()
                );
                self.cx.decide(Decision::new("warn", class.reference(), reason));
            }
            Ok(spokeshave_bootstrap::to_base64(&text))
        };
        let subnets = |_: &launch::Selected| addresses.choose(class);
        let planned = launch::plan(LaunchInput {
            claim,
            class,
            types: resolved.types,
            dropped: &resolved.dropped,
            settings,
            placement_group: view.placement_group(class),
            tags: &tags,
            subnets: &subnets,
            render: &render,
            ipv6,
        });
        Ok(planned.map_err(|error| match error {
            PlanError::NoCapacity(error) => Refusal::InsufficientCapacity(error.to_string()),
            PlanError::NotReady(text) => Refusal::NotReady(text),
            PlanError::Create { reason, message } => Refusal::create(reason, message),
        }))
    }

    /// The NodeOverlays that count for a claim: none with the gate off or for a claim of no pool.
    async fn overlays(&self, claim: &NodeClaim) -> Result<Vec<Arc<NodeOverlay>>, Trouble> {
        if !self.cx.settings.gates.node_overlay || claim.nodepool().is_none() {
            return Ok(Vec::new());
        }
        Ok(self.cluster.list::<NodeOverlay>(&spokeshave_ports::Selector::all()).await?)
    }

    /// The types with the overlays of the claim's pool applied.
    async fn overlaid(
        &self,
        claim: &NodeClaim,
        types: Vec<InstanceType>,
        overlays: &[Arc<NodeOverlay>],
    ) -> Result<Vec<InstanceType>, Trouble> {
        let name = claim.nodepool().unwrap_or_default();
        let pool = self.cluster.get::<NodePool>(&ObjectKey::cluster(name)).await?;
        let Some(pool) = pool else { return Ok(types) };
        let mut pools = [PoolInput {
            nodepool: pool,
            hash: String::new(),
            instance_types: Ok(types.into_iter().map(Arc::new).collect()),
        }];
        overlays::apply(&mut pools, overlays.iter().map(|it| &**it));
        let [pool] = pools;
        let types = pool.instance_types.unwrap_or_default();
        Ok(types.iter().map(|it| (**it).clone()).collect())
    }

    /// Brings claims of an attempt further that this run did not begin. Unless they were `handed_over`, the bridge merely
    /// saw them change, as it does while the run that began the attempt waits for EC2.
    pub async fn resume(
        &self,
        id: &str,
        claims: Vec<Claim>,
        handed_over: bool,
    ) -> Result<Resumed, Trouble> {
        let mut known = Surroundings::default();
        let Some(stored) = attempt::load(self.state, id).await? else {
            return self.without_record(id, claims).await;
        };
        let (released, held): (Vec<Claim>, Vec<Claim>) =
            claims.into_iter().partition(|it| stored.attempt.releases(&it.metadata.uid));
        let mut next = BTreeMap::new();
        let mut released = released;
        if held.is_empty() {
            return Ok(Resumed { next, released });
        }
        match stored.attempt.state {
            State::Launched => {
                // The run that recorded the answer may have died before it drew these.
                if self.lacks_consequences(&stored.attempt).await {
                    self.draw_consequences(&stored.attempt, &stored.attempt.errors).await;
                }
                next.extend(self.settle(&stored.attempt, Some(&held), &mut known).await?);
            }
            State::Preparing => {
                let begun = stored.attempt.created.unwrap_or(Timestamp::UNIX_EPOCH);
                let dead = begun.saturating_add(attempt::PREPARING).unwrap_or(self.cx.now);
                if dead > self.cx.now {
                    next.extend(names_of(&held, Next::At(dead)));
                } else {
                    let ended = Attempt { state: State::Void, ..stored.attempt };
                    match attempt::save(self.state, &ended, stored.version, self.cx.now).await {
                        Ok(_) => released.extend(held),
                        Err(StateError::Conflict(_)) => {
                            next.extend(names_of(&held, Next::BackOff));
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            State::Open => {
                let begun = stored.attempt.created.unwrap_or(Timestamp::UNIX_EPOCH);
                let answered = begun.saturating_add(LOOK_AGAIN).unwrap_or(self.cx.now);
                if !handed_over && answered > self.cx.now {
                    next.extend(names_of(&held, Next::At(answered)));
                } else {
                    next.extend(self.send_again(stored, &held, &mut known).await?);
                }
            }
            State::Failed | State::Void => released.extend(held),
        }
        Ok(Resumed { next, released })
    }

    /// Sends the stored request once more: the token gives the first answer again. What it does not tell, the tag does.
    async fn send_again(
        &self,
        stored: Stored,
        held: &[Claim],
        known: &mut Surroundings,
    ) -> Result<BTreeMap<String, Next>, Trouble> {
        let begun = attempt::made_at(&stored.attempt.id).unwrap_or(self.cx.now);
        let visible = begun.saturating_add(attempt::EC2_VIEW).unwrap_or(self.cx.now);
        let result = self.ec2.create_fleet(&stored.attempt.request).await;
        let fleet = match result {
            Ok(fleet) => fleet,
            Err(error) if !is_certain(&error) => return Err(error.into()),
            Err(error) => {
                FleetAnswer { errors: vec![as_fleet_error(&error)], ..FleetAnswer::default() }
            }
        };
        let told: usize = fleet.instances.iter().map(|it| it.ids.len()).sum();
        let mut found = Vec::new();
        if (told as i64) < stored.attempt.request.target {
            found = self.find(&stored.attempt.id).await?;
            if found.len() < stored.attempt.claims.len() && visible > self.cx.now {
                return Ok(names_of(held, Next::At(visible)));
            }
        }
        match self.record(stored, &fleet, &found, true).await? {
            Some(attempt) => self.settle(&attempt, None, known).await,
            None => Ok(names_of(held, Next::BackOff)),
        }
    }

    /// Instances of an attempt, by tag, alive ones.
    async fn find(&self, id: &str) -> Result<Vec<Instance>, Trouble> {
        let filters = [
            Filter::new(&format!("tag:{}", labels::TAG_LAUNCH), &[id]),
            Filter::new("instance-state-name", ALIVE),
        ];
        let mut found = self.ec2.find_instances(&filters).await?;
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }

    /// The table lost the record: the annotation and the tag decide.
    async fn without_record(&self, id: &str, claims: Vec<Claim>) -> Result<Resumed, Trouble> {
        let begun = attempt::made_at(id).unwrap_or(Timestamp::UNIX_EPOCH);
        let visible = begun.saturating_add(attempt::EC2_VIEW).unwrap_or(self.cx.now);
        if visible > self.cx.now {
            return Ok(Resumed {
                next: names_of(&claims, Next::At(visible)),
                released: Vec::new(),
            });
        }
        let mut found = self.find(id).await?;
        let all = self.cluster.list::<NodeClaim>(&spokeshave_ports::Selector::all()).await?;
        let family: Vec<&Claim> =
            all.iter().filter(|it| attempt::of_claim(it) == Some(id)).collect();
        let taken: Vec<InstanceId> =
            family.iter().filter_map(|it| it.status.provider_id.instance_id()).collect();
        found.retain(|it| !taken.contains(&it.id));
        let mut waiting: Vec<&Claim> =
            family.into_iter().filter(|it| it.status.provider_id.is_empty()).collect();
        waiting.sort_by(|a, b| a.metadata.uid.cmp(&b.metadata.uid));
        let gate = self.cx.settings.gates.reserved_capacity;
        let class = waiting.first().map(|it| it.spec.node_class_ref.name.clone());
        let mut lost = Attempt {
            id: id.to_owned(),
            state: State::Launched,
            created: Some(begun),
            class: class.unwrap_or_default(),
            ..Attempt::default()
        };
        for (claim, instance) in waiting.iter().zip(&found) {
            let uid = claim.metadata.uid.clone();
            lost.claims.insert(uid.clone(), claim.metadata.name.clone());
            let instance = Box::new(Launched::of(instance, gate));
            lost.outcomes.insert(uid, Outcome::Instance { instance });
        }
        if !lost.claims.is_empty() {
            if let Some(class) =
                self.cluster.get::<EC2NodeClass>(&ObjectKey::cluster(&lost.class)).await?
            {
                lost.class_hash = self.class_hash(&class).await?;
                lost.facts.zone_ids = class
                    .status
                    .subnets
                    .iter()
                    .map(|it| (it.zone.clone(), it.zone_id.clone()))
                    .collect();
            }
            match attempt::save(self.state, &lost, 0, self.cx.now).await {
                Ok(_) => {}
                Err(StateError::Conflict(_)) => {
                    return Ok(Resumed {
                        next: names_of(&claims, Next::BackOff),
                        released: Vec::new(),
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
        let mut known = Surroundings::default();
        let next = self.settle(&lost, Some(&claims), &mut known).await?;
        let released =
            claims.into_iter().filter(|it| !lost.claims.contains_key(&it.metadata.uid)).collect();
        Ok(Resumed { next, released })
    }

    /// Deals the instances to the claims, writes that down, and draws the consequences of errors. `None`: somebody else
    /// wrote the record first.
    async fn record(
        &self,
        stored: Stored,
        fleet: &FleetAnswer,
        found: &[Instance],
        again: bool,
    ) -> Result<Option<Attempt>, Trouble> {
        let Stored { mut attempt, version } = stored;
        let gate = self.cx.settings.gates.reserved_capacity;
        let mut instances: BTreeMap<InstanceId, Launched> = BTreeMap::new();
        for entry in &fleet.instances {
            for id in &entry.ids {
                let launched = from_answer(id, entry, &attempt);
                instances.insert(id.clone(), launched);
            }
        }
        for it in found {
            instances.entry(it.id.clone()).or_insert_with(|| as_asked(it, &attempt, gate));
        }
        let mut dealt = instances.into_values();
        let batched = attempt.request.target > 1 || again;
        let verdict = answer::no_instance(&fleet.errors, batched || fleet.errors.is_empty());
        attempt.errors = fleet.errors.clone();
        attempt.request_id.clone_from(&fleet.request_id);
        let origin = attempt.error().map(|it| it.origin());
        for uid in attempt.claims.keys() {
            let outcome = match dealt.next() {
                Some(instance) => Outcome::Instance { instance: Box::new(instance) },
                None => match &verdict {
                    NoInstance::InsufficientCapacity(message) => {
                        Outcome::InsufficientCapacity { message: message.clone() }
                    }
                    NoInstance::Create(it) => Outcome::Failed {
                        reason: it.reason.to_owned(),
                        message: match &origin {
                            Some(origin) => format!("{} ({origin})", it.message),
                            None => it.message.clone(),
                        },
                    },
                },
            };
            attempt.outcomes.insert(uid.clone(), outcome);
        }
        let surplus: Vec<Launched> = dealt.collect();
        attempt.state = State::Launched;
        match attempt::save(self.state, &attempt, version, self.cx.now).await {
            Ok(_) => {}
            Err(StateError::Conflict(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if !surplus.is_empty() {
            let ids: Vec<InstanceId> = surplus.into_iter().map(|it| it.id).collect();
            self.ec2.terminate_instances(&ids).await?;
            let reason = "the fleet returned more instances than were asked for";
            for id in &ids {
                self.cx.decide(Decision::new("terminate", format!("Instance/{id}"), reason));
            }
        }
        self.draw_consequences(&attempt, &fleet.errors).await;
        for outcome in attempt.outcomes.values() {
            if let Outcome::Instance { instance } = outcome
                && let Some(reservation) = &instance.reservation
            {
                let event = ReservationEvent::Launched(self.cx.now);
                let counted =
                    stored::count_reservation(self.state, &reservation.id, event, self.cx.now);
                // Counts are renewed every minute; a missed one costs a refused launch at most.
                let _ = counted.await;
            }
        }
        Ok(Some(attempt))
    }

    /// Whether what an answer said of capacity is still news, and was not written down. Drawn again with each look at a
    /// claim, marks would never end.
    async fn lacks_consequences(&self, attempt: &Attempt) -> bool {
        let begun = attempt.created.unwrap_or(Timestamp::UNIX_EPOCH);
        if attempt.errors.is_empty() || self.cx.now.duration_since(begun) > NEWS {
            return false;
        }
        let Ok(marks) = stored::load_unavailable(self.state, self.cx.now).await else {
            return false;
        };
        let consequences = answer::consequences(&attempt.errors, &attempt.facts);
        let mut wanted = consequences.iter().filter_map(|it| match it {
            Consequence::Mark(mark) => Some(mark.key()),
            _ => None,
        });
        wanted.any(|key| !marks.has(&key))
    }

    /// Marks, counts, metrics and events of a fleet's errors. None of them may stop a launch that succeeded.
    async fn draw_consequences(&self, attempt: &Attempt, errors: &[FleetError]) {
        let facts = &attempt.facts;
        for error in errors {
            let text = format!("{}: {}", error.code, error.message);
            self.cx.count(
                LAUNCH_FAILURES,
                &[
                    ("zone", &error.zone),
                    ("zone_id", facts.zone_ids.get(&error.zone).map_or("", String::as_str)),
                    ("capacity_type", facts.capacity_type.as_str()),
                    ("reason", answer::reason(&text).reason),
                ],
            );
        }
        let now = self.cx.now;
        for consequence in answer::consequences(errors, facts) {
            let written = match &consequence {
                Consequence::Mark(mark) => {
                    self.cx.decide(Decision::new(
                        "mark-unavailable",
                        format!("Offering/{}", mark.key()),
                        "EC2 has none",
                    ));
                    stored::mark_unavailable(self.state, mark, "launch failed", now).await
                }
                Consequence::ExhaustReservation(id) => {
                    let event = ReservationEvent::Exhausted;
                    stored::count_reservation(self.state, id, event, now).await
                }
                Consequence::ExhaustSubnet(subnet) => {
                    if let Some(known) = self.stored_addresses(&attempt.class).await {
                        self.change_addresses(&attempt.class, known, |it| it.exhausted(subnet))
                            .await;
                    }
                    Ok(())
                }
                Consequence::SpotRoleEvent(code) => {
                    for (uid, name) in &attempt.claims {
                        let mut claim = NodeClaim::default();
                        claim.metadata.name.clone_from(name);
                        claim.metadata.uid = uid.clone();
                        let message = format!(
                            "{code}: create the service-linked role with `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`"
                        );
                        let event = KubeEvent::on(&claim, true, "SpotSLRCreationFailed", message);
                        self.cluster.publish(event, SignedDuration::from_mins(2)).await;
                    }
                    Ok(())
                }
            };
            if let Err(error) = written {
                let reason = format!("could not be written down: {error}");
                self.cx.decide(Decision::new("skip", "StateTable/unavailable", reason).as_error());
            }
        }
    }
}

/// How one try ended.
enum Tried {
    Settled(BTreeMap<String, Next>),
    /// A template vanished: these claims are free again.
    NoTemplate(Vec<Claim>),
}

/// Whether a failed call certainly launched nothing. Throttling is a refusal; what EC2 did not answer may have happened.
fn is_certain(error: &AwsError) -> bool {
    error.is_throttled() || !error.is_retryable()
}

fn failed_call(error: &AwsError) -> Refusal {
    let reason = answer::reason(&answer::error_text(error));
    Refusal::Create {
        reason: reason.reason.to_owned(),
        message: reason.message,
        error: Some(Box::new(error.clone())),
    }
}

fn as_fleet_error(error: &AwsError) -> FleetError {
    FleetError { code: error.code.clone(), message: error.message.clone(), ..FleetError::default() }
}

/// The class's part of the gate: steps 2 and 3 of 13.
fn ready(class: &EC2NodeClass) -> Result<(), Refusal> {
    let Some(ready) = conditions::find(&class.status.conditions, conditions::READY) else {
        return Err(Refusal::create(
            "NodeClassReadinessUnknown",
            "the EC2NodeClass is awaiting reconciliation",
        ));
    };
    match ready.status {
        ConditionStatus::False => Err(Refusal::NotReady(ready.message.clone())),
        ConditionStatus::Unknown => {
            Err(Refusal::create("NodeClassReadinessUnknown", ready.message.clone()))
        }
        ConditionStatus::True if ready.observed_generation != class.metadata.generation => {
            Err(Refusal::NotReady(
                "the EC2NodeClass's status is not reconciled against its latest spec".into(),
            ))
        }
        ConditionStatus::True => Ok(()),
    }
}

/// An instance found by tag, as the request had it.
fn as_asked(instance: &Instance, attempt: &Attempt, gate: bool) -> Launched {
    let facts = &attempt.facts;
    let key = format!("{}/{}", instance.instance_type, instance.zone);
    Launched {
        capacity_type: facts.capacity_type,
        reservation: facts
            .reservations
            .get(&key)
            .filter(|_| facts.capacity_type == CapacityType::Reserved)
            .cloned(),
        ..Launched::of(instance, gate)
    }
}

fn from_answer(
    id: &InstanceId,
    entry: &spokeshave_ports::ec2::FleetInstances,
    attempt: &Attempt,
) -> Launched {
    let facts = &attempt.facts;
    // The answer may leave out what the request said.
    let asked = attempt
        .request
        .configs
        .iter()
        .flat_map(|it| &it.overrides)
        .find(|it| it.instance_type == entry.instance_type && it.subnet_id == entry.subnet_id);
    let zone = if entry.zone.is_empty() {
        asked.map(|it| it.zone.clone()).unwrap_or_default()
    } else {
        entry.zone.clone()
    };
    let image_id = if entry.image_id.is_empty() {
        asked.map(|it| it.image_id.clone()).unwrap_or_default()
    } else {
        entry.image_id.clone()
    };
    let reservation = facts.reservations.get(&format!("{}/{zone}", entry.instance_type)).cloned();
    Launched {
        id: id.clone(),
        instance_type: entry.instance_type.clone(),
        image_id,
        capacity_type: facts.capacity_type,
        tenancy: facts.tenancy.clone(),
        reservation: reservation.filter(|_| facts.capacity_type == CapacityType::Reserved),
        partition: facts.partition,
        efa: i64::from(facts.efa),
        zone,
    }
}
