//! What the selectors of a class mean in EC2.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};
use spokeshave_catalog::stored::{self, ReservationEvent};
use spokeshave_model::{
    EC2NodeClass, Kind,
    ec2_node_class::{CapacityReservationStatus, SecurityGroupStatus, SubnetStatus},
};
use spokeshave_nodeclass::{
    images::{self, ImageQuery},
    reconcile::{Images, Placement},
    resources, selectors,
};
use spokeshave_ports::{
    AwsError, Cluster, Decision, Ec2, Eks, Iam, Ssm, StateTable, ec2::PlacementGroup,
};

use crate::{
    Trouble,
    failure::{Failure, Part},
    pass::Pass,
};

/// Partition of the state table: image ids by alias and Kubernetes version. Lost: the parameters are read again.
const PARAMETERS: &str = "image-parameters";
/// The value of an alias' parameters is believed for so long, as in Karpenter.
const ALIAS_REMEMBERED_FOR: SignedDuration = SignedDuration::from_hours(24);
/// Partition of the state table: the last good answer by placement group name or id. Lost: during an outage of EC2
/// classes with a placement group become not ready.
pub(crate) const PLACEMENT: &str = "placement-group";
/// The last good placement group counts for so long, as in Karpenter.
const PLACEMENT_REMEMBERED_FOR: SignedDuration = SignedDuration::from_hours(24);
/// A placement group is not looked up again for so long, as in Karpenter: classes that name the same one share the call.
const PLACEMENT_READ_EVERY: SignedDuration = SignedDuration::from_mins(1);

impl<C: Cluster, E2: Ec2, I: Iam, S: Ssm, K: Eks, T: StateTable> Pass<'_, C, E2, I, S, K, T> {
    pub(crate) async fn subnets(
        &self,
        class: &EC2NodeClass,
        failures: &mut Vec<Failure>,
    ) -> Option<Vec<SubnetStatus>> {
        let mut found = Vec::new();
        for query in selectors::subnets(&class.spec.subnet_selector_terms) {
            match self.ec2.describe_subnets(&query).await {
                Ok(subnets) => found.extend(subnets),
                Err(error) => {
                    failures.push(Part::Subnets.failed(error));
                    return None;
                }
            }
        }
        Some(resources::subnets(found))
    }

    pub(crate) async fn security_groups(
        &self,
        class: &EC2NodeClass,
        failures: &mut Vec<Failure>,
    ) -> Option<Vec<SecurityGroupStatus>> {
        let mut found = Vec::new();
        for query in selectors::security_groups(&class.spec.security_group_selector_terms) {
            match self.ec2.describe_security_groups(&query).await {
                Ok(groups) => found.extend(groups),
                Err(error) => {
                    failures.push(Part::SecurityGroups.failed(error));
                    return None;
                }
            }
        }
        Some(resources::security_groups(found))
    }

    /// `None` also with the gate off.
    pub(crate) async fn reservations(
        &self,
        class: &EC2NodeClass,
        failures: &mut Vec<Failure>,
    ) -> Option<Vec<CapacityReservationStatus>> {
        if !self.cx.settings.gates.reserved_capacity {
            return None;
        }
        let mut found = Vec::new();
        let terms = &class.spec.capacity_reservation_selector_terms;
        for query in selectors::capacity_reservations(terms) {
            let answer = self.ec2.describe_capacity_reservations(&query.ids, &query.filters).await;
            match answer {
                Ok(reservations) => found.extend(reservations),
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    failures.push(Part::Reservations.failed(error));
                    return None;
                }
            }
        }
        for it in &found {
            let read = ReservationEvent::Read(it.available);
            if let Err(error) = stored::count_reservation(self.state, &it.id, read, self.now).await
            {
                failures.push(Part::Reservations.failed(error));
            }
        }
        let (known, unknown) = resources::capacity_reservations(found, self.now);
        for text in unknown {
            self.cx.decide(Decision::new("skip", class.reference(), text).as_error());
        }
        Some(known)
    }

    pub(crate) async fn placement(
        &self,
        class: &EC2NodeClass,
        failures: &mut Vec<Failure>,
    ) -> Placement {
        let Some(selector) = &class.spec.placement_group_selector else { return Placement::Fine };
        let (names, ids) = selectors::placement_group(selector);
        let Some(key) = names.first().or_else(|| ids.first()) else { return Placement::Fine };
        if self.was_just_read(key).await {
            return Placement::Fine;
        }
        match self.ec2.describe_placement_groups(&names, &ids).await {
            Ok(groups) => {
                let group = resources::placement_group(groups);
                let kept = match &group {
                    Some(group) => self.remember_group(key, group).await,
                    None => self.forget(PLACEMENT, key).await,
                };
                if let Err(error) = kept {
                    failures.push(Part::Placement.failed(error));
                }
                if group.is_some() { Placement::Fine } else { Placement::NotFound }
            }
            // DIFFERENCE: a name or id that EC2 does not know is not found, no failed call.
            Err(error) if error.is_not_found() => {
                if let Err(error) = self.forget(PLACEMENT, key).await {
                    failures.push(Part::Placement.failed(error));
                }
                Placement::NotFound
            }
            Err(error) => {
                let text = error.explain();
                failures.push(Part::Placement.failed(error));
                match self.recall(PLACEMENT, key).await {
                    Ok(Some(_)) => Placement::Stale,
                    Ok(None) => Placement::Failed(text),
                    Err(error) => {
                        failures.push(Part::Placement.failed(error));
                        Placement::Stale
                    }
                }
            }
        }
    }

    /// Whether a placement group was found less than a minute ago: its record says until when it counts.
    async fn was_just_read(&self, key: &str) -> bool {
        let record = self.recall(PLACEMENT, key).await.ok().flatten();
        let counts_until = record.and_then(|it| it.expires_at);
        let recent = PLACEMENT_REMEMBERED_FOR - PLACEMENT_READ_EVERY;
        counts_until.is_some_and(|it| it.duration_since(self.now) > recent)
    }

    async fn remember_group(
        &self,
        key: &str,
        group: &PlacementGroup,
    ) -> Result<(), spokeshave_ports::StateError> {
        let data = serde_json::to_value(group).unwrap_or(Value::Null);
        self.remember(PLACEMENT, key, data, PLACEMENT_REMEMBERED_FOR).await
    }

    pub(crate) async fn images(&self, class: &EC2NodeClass, failures: &mut Vec<Failure>) -> Images {
        match self.find_images(class).await {
            Ok(images) => images,
            Err(error) => {
                failures.push(Part::Images.failed(error));
                Images::Failed
            }
        }
    }

    async fn find_images(&self, class: &EC2NodeClass) -> Result<Images, Trouble> {
        let Some(alias) = class.spec.alias() else {
            let queries = images::queries(&class.spec, &self.parameters(class).await?);
            let answers = self.ask(queries).await?;
            return Ok(Images::Found(images::to_status(answers, self.now)));
        };
        let version = self.facts.eks().await?.version;
        let paths = match images::alias_paths(alias, &version) {
            Ok(paths) => paths,
            Err(error) => return Ok(Images::Unsupported(error.to_string())),
        };
        let key = format!("{alias}/{version}");
        let remembered: Option<BTreeMap<String, String>> = self
            .recall(PARAMETERS, &key)
            .await?
            .and_then(|it| serde_json::from_value(it.data.get("values")?.clone()).ok());
        let fresh = remembered.is_none();
        let values = match remembered {
            Some(values) => values,
            None => {
                let mut values = BTreeMap::new();
                for parameter in &paths {
                    // DIFFERENCE: only a parameter that does not exist is passed over. On any other error the class
                    // keeps the images it had; losing some of them would drift their nodes.
                    match self.ssm.get_parameter(&parameter.path).await {
                        Ok(Some(id)) => {
                            values.insert(parameter.path.clone(), id);
                        }
                        Ok(None) => {}
                        Err(error) if error.is_not_found() => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                values
            }
        };
        if values.is_empty() {
            return Ok(Images::Unpublished(alias.to_owned()));
        }
        let known: Vec<_> = paths
            .into_iter()
            .filter_map(|it| Some((values.get(&it.path)?.clone(), it.variants)))
            .collect();
        let answers = self.ask(images::alias_query(&known).into_iter().collect()).await?;
        let status = images::to_status(answers, self.now);
        if fresh {
            let data = json!({"values": values});
            self.remember(PARAMETERS, &key, data, ALIAS_REMEMBERED_FOR).await?;
        } else if images::is_mutable(alias) && status.iter().any(|it| it.deprecated) {
            // A release is taken back by deprecating it: read the parameters anew in the next pass.
            self.forget(PARAMETERS, &key).await?;
        }
        Ok(Images::Found(status))
    }

    /// Image ids that `ssmParameter` terms hold.
    async fn parameters(&self, class: &EC2NodeClass) -> Result<Vec<String>, AwsError> {
        let mut ids = Vec::new();
        for name in images::parameters(&class.spec) {
            let value = match self.ssm.get_parameter(name).await {
                Err(error) if !error.is_not_found() => return Err(error),
                other => other.ok().flatten(),
            };
            match value.filter(|it| it.starts_with("ami-")) {
                Some(id) => ids.push(id),
                None => {
                    let reason = format!("parameter {name:?} holds no image id");
                    self.cx.decide(Decision::new("skip", class.reference(), reason));
                }
            }
        }
        Ok(ids)
    }

    async fn ask(
        &self,
        queries: Vec<ImageQuery>,
    ) -> Result<Vec<(ImageQuery, Vec<spokeshave_ports::ec2::Image>)>, AwsError> {
        let mut answers = Vec::new();
        for query in queries {
            let found = self.ec2.describe_images(&[], &query.owners, &query.filters).await?;
            answers.push((query, found));
        }
        Ok(answers)
    }
}
