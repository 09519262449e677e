//! The check whether a class may launch (`spec` aws-nodeclass 8, aws-capacity 21).

use serde_json::{Value, json};
use spokeshave_bootstrap::{
    BootstrapInput, ClusterInfo, NodeFacts, RenderError, render, to_base64,
};
use spokeshave_catalog::{Catalog, MarketView, Memo, kubelet::KubeletSettings, stored};
use spokeshave_model::{
    AmiFamily, ConditionStatus, EC2NodeClass, InstanceType, Kind, NodeClaim, NodePool,
    Requirements, hash, labels, validation::kubelet,
};
use spokeshave_nodeclass::{
    facts as rules, images, reconcile, tags, template,
    validation::{
        self, Answer, Call, Check, Evaluation, Inputs, ServiceRange, VERDICT_REMEMBERED_FOR,
        Verdict,
    },
};
use spokeshave_ports::{
    AwsError, Cluster, Decision, Ec2, Eks, Iam, Selector, Ssm, StateTable,
    ec2::{FleetConfig, FleetOverride, FleetRequest, LaunchTemplateData, Tags},
};

use crate::{Trouble, pass::Pass};

/// What this process has read and worked out before.
static MEMO: Memo = Memo::new();

/// What the dry runs ask for.
struct Probe {
    template: String,
    data: LaunchTemplateData,
    tags: Tags,
    instance_type: String,
    image: String,
}

impl<C: Cluster, E2: Ec2, I: Iam, S: Ssm, K: Eks, T: StateTable> Pass<'_, C, E2, I, S, K, T> {
    /// Sets the condition. `false`: nothing can be said before something else is there, look again soon.
    pub(crate) async fn validate(&self, class: &mut EC2NodeClass) -> Result<bool, Trouble> {
        let gate = self.cx.settings.gates.reserved_capacity;
        let Some(verdict) = self.verdict(class).await? else { return Ok(false) };
        let waits = verdict.reason == "DependenciesNotReady";
        let type_ = EC2NodeClass::VALIDATION_SUCCEEDED;
        let Verdict { status, reason, message } = verdict;
        reconcile::set_condition(class, gate, type_, status, reason, &message, self.now);
        Ok(!waits)
    }

    async fn verdict(&self, class: &EC2NodeClass) -> Result<Option<Verdict>, Trouble> {
        let kubelet = class.spec.kubelet.as_ref();
        let expressions =
            validation::has_expressions(kubelet) && self.cx.settings.gates.node_class_cel;
        let catalog = if expressions { Some(self.catalog().await?) } else { None };
        let inputs = Inputs {
            service_range: self.service_range(class).await,
            kubelet_problems: &kubelet_problems(class),
            evaluation: &catalog.as_ref().map_or(Evaluation::Fine, |it| self.evaluate(class, it)),
            node_class_cel: self.cx.settings.gates.node_class_cel,
        };
        match validation::before_calls(class, &inputs) {
            Check::Settled(verdict) => return Ok(Some(verdict)),
            Check::Retry => return Ok(None),
            Check::Ask => {}
        }
        if let Err(verdict) = self.user_data(class, None).await? {
            return Ok(Some(verdict));
        }
        let uid = class.metadata.uid.as_str();
        let key = validation::content_key(class);
        if let Some(verdict) = self.remembered(uid, &key).await? {
            return Ok(Some(verdict));
        }
        if self.cx.settings.disable_dry_run {
            return Ok(Some(Verdict::yes()));
        }
        let catalog = match catalog {
            Some(catalog) => catalog,
            None => self.catalog().await?,
        };
        let (verdict, remember) = self.ask_ec2(class, &catalog).await?;
        if remember {
            let data = json!({
                "key": key,
                "status": format!("{:?}", verdict.status),
                "reason": verdict.reason,
                "message": verdict.message,
            });
            self.remember(validation::RECORDS, uid, data, VERDICT_REMEMBERED_FOR).await?;
        }
        Ok(Some(verdict))
    }

    async fn catalog(&self) -> Result<Catalog, Trouble> {
        let stored = stored::load_catalog(self.state, &self.cx.settings.region, &MEMO).await?;
        Ok(stored.catalog)
    }

    async fn service_range(&self, class: &EC2NodeClass) -> ServiceRange {
        if class.ami_family() != AmiFamily::Al2023 {
            return ServiceRange::Known;
        }
        match self.facts.eks().await {
            Ok(facts) if rules::service_cidr(&facts).is_some() => ServiceRange::Known,
            Err(error) if error.is_retryable() => ServiceRange::NotYet,
            Err(error) => ServiceRange::Missing(Some(error.explain())),
            Ok(_) => ServiceRange::Missing(None),
        }
    }

    fn evaluate(&self, class: &EC2NodeClass, catalog: &Catalog) -> Evaluation {
        let settings = match KubeletSettings::of(class) {
            Ok(settings) => settings,
            Err(error) => return Evaluation::Invalid(error.to_string()),
        };
        for (field, expression) in settings.expressions() {
            if let Err(error) = expression.check() {
                return Evaluation::Invalid(format!("spec.kubelet.{field}: {error}"));
            }
        }
        let view = MarketView::new(self.cx.settings, self.now);
        match catalog.resolve(class, &view, |_| true) {
            Ok(resolved) if resolved.types.is_empty() => Evaluation::NotYet,
            Ok(resolved) => resolved.dropped.first().map_or(Evaluation::Fine, |(name, error)| {
                Evaluation::Failed(format!("{error} (instance type {name})"))
            }),
            Err(error) => Evaluation::Failed(error.to_string()),
        }
    }

    async fn remembered(&self, uid: &str, key: &str) -> Result<Option<Verdict>, Trouble> {
        let Some(record) = self.recall(validation::RECORDS, uid).await? else { return Ok(None) };
        let text = |field: &str| record.data.get(field).and_then(Value::as_str).unwrap_or_default();
        if text("key") != key {
            return Ok(None);
        }
        if text("status") == "True" {
            return Ok(Some(Verdict::yes()));
        }
        // Only the refusals of the three calls are remembered.
        let reason = [
            "CreateLaunchTemplateAuthCheckFailed",
            "CreateFleetAuthCheckFailed",
            "RunInstancesAuthCheckFailed",
            "UserDataSizeLimitExceeded",
        ]
        .into_iter()
        .find(|it| *it == text("reason"));
        Ok(reason.map(|reason| Verdict {
            status: ConditionStatus::False,
            reason,
            message: text("message").to_owned(),
        }))
    }

    /// The three calls. Returns the verdict and whether to remember it.
    async fn ask_ec2(
        &self,
        class: &EC2NodeClass,
        catalog: &Catalog,
    ) -> Result<(Verdict, bool), Trouble> {
        let probe = match self.probe(class, catalog).await? {
            Ok(probe) => probe,
            Err(verdict) => return Ok((verdict, false)),
        };
        let created = self
            .ec2
            .create_launch_template(&probe.template, &probe.data, &probe.tags, false)
            .await
            .map(|_| ());
        // A run that was cut short may have left the template.
        let created =
            created.or_else(|error| if error.is_already_exists() { Ok(()) } else { Err(error) });
        let is_there = created.is_ok();
        let verdict = self.launch_allowed(class, &probe, created).await;
        if is_there {
            // Launches make templates of their own.
            match self.ec2.delete_launch_template(&probe.template).await {
                Ok(()) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    let object = format!("LaunchTemplate/{}", probe.template);
                    self.cx
                        .decide(Decision::new("skip", object, error.to_string()).caused_by(&error));
                }
            }
        }
        verdict
    }

    async fn launch_allowed(
        &self,
        class: &EC2NodeClass,
        probe: &Probe,
        created: Result<(), AwsError>,
    ) -> Result<(Verdict, bool), Trouble> {
        if let Some(settled) = self.read(class, Call::CreateLaunchTemplate, created).await? {
            return Ok(settled);
        }
        let overrides = class.status.subnets.iter().map(|subnet| FleetOverride {
            instance_type: probe.instance_type.clone(),
            subnet_id: subnet.id.clone(),
            zone: subnet.zone.clone(),
            image_id: probe.image.clone(),
            ..FleetOverride::default()
        });
        let request = FleetRequest {
            context: class.spec.context.clone(),
            target: 1,
            capacity_type: "on-demand".into(),
            on_demand_allocation: Some("lowest-price".into()),
            tags: probe.tags.clone(),
            configs: vec![FleetConfig {
                launch_template: probe.template.clone(),
                overrides: overrides.collect(),
            }],
            dry_run: true,
            ..FleetRequest::default()
        };
        let fleet = self.ec2.create_fleet(&request).await.map(|_| ());
        if let Some(settled) = self.read(class, Call::CreateFleet, fleet).await? {
            return Ok(settled);
        }
        let mut first: Option<AwsError> = None;
        for subnet in &class.status.subnets {
            let run = self
                .ec2
                .dry_run_instances(&probe.template, &probe.instance_type, &subnet.id, &probe.tags)
                .await;
            match run {
                Ok(()) => return Ok((Verdict::yes(), true)),
                Err(error) if error.is_dry_run_passed() => return Ok((Verdict::yes(), true)),
                Err(error) if error.is_retryable() => return Err(error.into()),
                Err(error) => {
                    let reason = format!("no launch in {}: {error}", subnet.id);
                    let decision = Decision::new("skip", class.reference(), reason);
                    self.cx.decide(decision.with_error(&error));
                    first = first.or(Some(error));
                }
            }
        }
        let answer = first.map_or(Ok(()), Err);
        let settled = self.read(class, Call::RunInstances, answer).await?;
        Ok(settled.unwrap_or((Verdict::yes(), true)))
    }

    /// Tells a refusal where it is not remembered: in the log and as an event.
    async fn refused(
        &self,
        class: &EC2NodeClass,
        verdict: &Verdict,
        answer: &Result<(), AwsError>,
    ) {
        let Err(error) = answer else { return };
        let reason = format!("{}: {}", verdict.reason, verdict.message);
        let decision = Decision::new("refuse", class.reference(), reason);
        self.cx.decide(decision.with_error(error).as_error());
        self.warn_of(class, verdict.reason, error).await;
    }

    /// `None`: go on.
    async fn read(
        &self,
        class: &EC2NodeClass,
        call: Call,
        answer: Result<(), AwsError>,
    ) -> Result<Option<(Verdict, bool)>, Trouble> {
        match validation::judge(call, answer.as_ref().map(|_| ()), class) {
            Answer::Passed => Ok(None),
            Answer::Settled(verdict) => {
                self.refused(class, &verdict, &answer).await;
                Ok(Some((verdict, true)))
            }
            Answer::SettledButRetry(verdict) => {
                self.refused(class, &verdict, &answer).await;
                Ok(Some((verdict, false)))
            }
            Answer::Retry => answer.map(|()| None).map_err(Trouble::NoVerdict),
            Answer::Failed => answer.map(|()| None).map_err(Trouble::from),
        }
    }

    /// The user data of a node without labels; `Err` when there is none.
    ///
    /// DIFFERENCE: user data that cannot be rendered is said on the class, not at the first launch.
    async fn user_data(
        &self,
        class: &EC2NodeClass,
        max_pods: Option<i64>,
    ) -> Result<Result<(ClusterInfo, String), Verdict>, Trouble> {
        let info = self.facts.info().await?;
        let facts = NodeFacts { max_pods, ..NodeFacts::default() };
        let claim = NodeClaim::default();
        let input = BootstrapInput::for_claim(&info, class, &claim, "on-demand", &facts);
        Ok(match render(&input) {
            Ok(text) => Ok((info, text)),
            Err(error) => Err(Verdict {
                status: ConditionStatus::False,
                reason: match error {
                    RenderError::NoServiceCidr => "ClusterCIDRResolutionFailed",
                    _ => "InvalidUserData",
                },
                message: error.to_string(),
            }),
        })
    }

    /// What to ask for; `Err` when that settles the condition.
    async fn probe(
        &self,
        class: &EC2NodeClass,
        catalog: &Catalog,
    ) -> Result<Result<Probe, Verdict>, Trouble> {
        let pools = self.cluster.list::<NodePool>(&Selector::all()).await?;
        let pools: Vec<&NodePool> = pools
            .iter()
            .map(AsRef::as_ref)
            .filter(|it: &&NodePool| {
                it.is_managed() && it.spec.template.spec.node_class_ref.name == class.metadata.name
            })
            .collect();
        let view = MarketView::new(self.cx.settings, self.now);
        let types = match catalog.instance_types(class, &view) {
            Ok(types) => types,
            Err(error) => {
                let verdict = Verdict {
                    status: ConditionStatus::False,
                    reason: "InvalidKubeletConfiguration",
                    message: error.to_string(),
                };
                return Ok(Err(verdict));
            }
        };
        let Some((instance_type, image)) = choose(class, &pools, &types) else {
            return Err(Trouble::NoType);
        };
        let pods = instance_type.capacity.get("pods").value();
        let (info, user_data) = match self.user_data(class, Some(pods)).await? {
            Ok(rendered) => rendered,
            Err(verdict) => return Ok(Err(verdict)),
        };
        let dedicated = pools.iter().any(|it| allows_dedicated(it));
        let tags = tags::at_creation(class, &self.cx.settings.cluster_name, "");
        let data = LaunchTemplateData {
            image_id: image.clone(),
            instance_profile: class.status.instance_profile.clone(),
            user_data: to_base64(&user_data),
            detailed_monitoring: class.spec.detailed_monitoring.unwrap_or(false),
            block_devices: template::block_devices(&class.spec),
            metadata_options: template::metadata_options(&class.spec, &self.cx.settings.region),
            nested_virtualization: class
                .spec
                .cpu_options
                .as_ref()
                .and_then(|it| it.nested_virtualization.clone()),
            network_interfaces: template::network_interfaces(class, info.dns_ip.as_deref(), 0),
            tenancy: if dedicated { "dedicated" } else { "default" }.into(),
            tags: [("network-interface".to_owned(), tags.clone())].into(),
            ..LaunchTemplateData::default()
        };
        let content = serde_json::to_string(&data).unwrap_or_default();
        let number = hash::text(&format!("{}/{content}", class.metadata.uid));
        Ok(Ok(Probe {
            template: format!("karpenter.k8s.aws/{number}"),
            data,
            tags,
            instance_type: instance_type.name.clone(),
            image,
        }))
    }
}

/// The type and image to ask for: of what the pools allow (else m5.large or m6g.large, else anything), the first whose
/// image is a standard one, in the order of the images.
fn choose<'a>(
    class: &EC2NodeClass,
    pools: &[&NodePool],
    types: &'a [InstanceType],
) -> Option<(&'a InstanceType, String)> {
    let mut candidates: Vec<&InstanceType> = Vec::new();
    for pool in pools {
        let wanted = pool_requirements(pool);
        for it in types.iter().filter(|it| it.requirements.meets(&wanted)) {
            if !candidates.iter().any(|known| known.name == it.name) {
                candidates.push(it);
            }
        }
    }
    if candidates.is_empty() || class.ami_family().is_windows() {
        candidates = types
            .iter()
            .filter(|it| matches!(it.name.as_str(), "m5.large" | "m6g.large"))
            .collect();
        if candidates.is_empty() {
            candidates = types.iter().collect();
        }
    }
    let served = |standard: bool| {
        class.status.amis.iter().filter(move |it| images::is_standard(it) || !standard).find_map(
            |image| {
                candidates
                    .iter()
                    .find(|it| {
                        images::choose(&class.status.amis, &it.requirements)
                            .is_some_and(|chosen| chosen == image)
                    })
                    .map(|it| (*it, image.id.clone()))
            },
        )
    };
    served(true).or_else(|| served(false))
}

fn pool_requirements(pool: &NodePool) -> Requirements {
    let template = &pool.spec.template;
    let mut wanted = Requirements::from_api(&template.spec.requirements);
    let labels = template.metadata.labels.clone().into_inner();
    wanted.add_all(&Requirements::from_labels(&labels));
    wanted
}

fn allows_dedicated(pool: &NodePool) -> bool {
    let wanted = Requirements::from_api(&pool.spec.template.spec.requirements);
    wanted.get(labels::INSTANCE_TENANCY).is_some_and(|it| it.has("dedicated"))
}

/// Problems of `spec.kubelet` by themselves.
fn kubelet_problems(class: &EC2NodeClass) -> Vec<String> {
    kubelet(class.spec.kubelet.as_ref()).into_iter().map(|it| it.message).collect()
}
