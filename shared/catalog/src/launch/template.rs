//! Launch templates: which are needed, what they hold, and that they exist (`spec` aws-capacity 15).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sha2::{Digest, Sha256};
use spokeshave_model::{
    CapacityType, EC2NodeClass, InstanceType, Quantity, Requirements, Settings,
    ec2_node_class::MetadataOptions, instance_type::Reservation, labels, resources::PODS,
};
use spokeshave_ports::{
    AwsError, Ec2, StateError, StateKey, StateTable, When,
    ec2::{LaunchBlockDevice, LaunchMetadataOptions, LaunchTemplateData, Tags},
};

use super::{PlanError, Selected, interfaces};
use crate::{
    RenderUserData,
    capacity::EFA,
    kubelet::{KubeletError, KubeletSettings, Reserved},
};

/// Types that one template serves, and what they have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    pub image: String,
    pub types: BTreeSet<String>,
    pub capacity_type: CapacityType,
    /// EFA interfaces where the claim asks for EFA, else 0.
    pub efa: i64,
    pub pods: i64,
    /// The class's reserved amounts with expressions evaluated; `None` where the class has no expressions.
    pub kube_reserved: Option<BTreeMap<String, String>>,
    pub system_reserved: Option<BTreeMap<String, String>>,
    pub reservation: Option<Reservation>,
}

/// Splits the chosen types by image, and by what their templates must differ in.
///
/// `expressions` says that gate `NodeClassCEL` is on.
///
/// # Errors
/// When the class has no images, or none for any type.
pub fn groups(
    class: &EC2NodeClass,
    selected: &Selected,
    wants_efa: bool,
    expressions: bool,
    dropped: &[(String, KubeletError)],
) -> Result<Vec<Group>, PlanError> {
    let images = &class.status.amis;
    if images.is_empty() {
        return Err(PlanError::create(
            "LaunchFailed",
            "the EC2NodeClass has no images in its status",
        ));
    }
    let kubelet = KubeletSettings::of(class).unwrap_or_default();
    let image_requirements: Vec<Requirements> =
        images.iter().map(|it| Requirements::from_api(&it.requirements)).collect();
    // By position of the image, then by everything else in a fixed order.
    let mut found: BTreeMap<(usize, i64, i64, String, String, String), Group> = BTreeMap::new();
    for it in &selected.types {
        let served_by = image_requirements
            .iter()
            .position(|image| it.requirements.compatible(image, labels::is_well_known).is_ok());
        let Some(at) = served_by else { continue };
        let Some(image) = images.get(at) else { continue };
        let efa = if wants_efa { it.capacity.get(EFA).value() } else { 0 };
        let pods = it.capacity.get(PODS).value();
        let texts = |field: &str| reserved_texts(field, &kubelet, it, expressions, dropped);
        let (kube_reserved, system_reserved) = (texts("kubeReserved"), texts("systemReserved"));
        let mut reservations: BTreeMap<String, Option<Reservation>> = BTreeMap::new();
        if selected.capacity_type == CapacityType::Reserved {
            for offering in it.offerings.iter().filter(|offering| offering.available) {
                if let Some(its) = &offering.reservation {
                    reservations.insert(its.id.clone(), Some(its.clone()));
                }
            }
        } else {
            reservations.insert(String::new(), None);
        }
        for (id, reservation) in reservations {
            let key =
                (at, efa, pods, format!("{kube_reserved:?}"), format!("{system_reserved:?}"), id);
            let group = found.entry(key).or_insert_with(|| Group {
                image: image.id.clone(),
                types: BTreeSet::new(),
                capacity_type: selected.capacity_type,
                efa,
                pods,
                kube_reserved: kube_reserved.clone(),
                system_reserved: system_reserved.clone(),
                reservation,
            });
            group.types.insert(it.name.clone());
        }
    }
    if found.is_empty() {
        return Err(PlanError::create(
            "LaunchFailed",
            "no image of the EC2NodeClass serves any of the instance types",
        ));
    }
    Ok(found.into_values().collect())
}

/// A reserved map with its expressions as the numbers they gave for this type; `None` where there is none, or where the gate
/// is off: rendering then leaves expressions out, so that kubelet does what it does without the entry.
fn reserved_texts(
    field: &str,
    kubelet: &KubeletSettings,
    it: &InstanceType,
    expressions: bool,
    dropped: &[(String, KubeletError)],
) -> Option<BTreeMap<String, String>> {
    let (set, amounts) = match field {
        "kubeReserved" => (&kubelet.kube_reserved, &it.overhead.kube_reserved),
        _ => (&kubelet.system_reserved, &it.overhead.system_reserved),
    };
    let is_expression = |entry: &Reserved| matches!(entry, Reserved::Expression(_));
    if !expressions || !set.values().any(is_expression) {
        return None;
    }
    let was_dropped = |key: &str| {
        dropped
            .iter()
            .any(|(name, error)| *name == it.name && error.field == format!("{field}.{key}"))
    };
    let texts = set
        .keys()
        .filter(|key| !was_dropped(key))
        .filter_map(|key| Some((key.clone(), amounts.0.get(key)?.to_string())));
    Some(texts.collect())
}

/// What all templates of one launch share.
pub(crate) struct Surroundings<'a> {
    pub class: &'a EC2NodeClass,
    pub settings: &'a Settings,
    pub capacity_type: CapacityType,
    pub tenancy: &'a str,
    pub placement_group: Option<&'a str>,
    pub partition: Option<i64>,
    pub tags: &'a Tags,
    pub enclave: bool,
    pub wants_efa: bool,
    pub ipv6: bool,
    pub render: RenderUserData<'a>,
}

impl Surroundings<'_> {
    /// The content of the template of one group.
    pub fn template(&self, group: &Group) -> Result<LaunchTemplateData, PlanError> {
        let class = self.class;
        if class.status.security_groups.is_empty() {
            return Err(PlanError::create(
                "LaunchFailed",
                "the EC2NodeClass has no security groups in its status",
            ));
        }
        let gate = self.settings.gates.reserved_capacity;
        let reservation = group.reservation.as_ref();
        let preference = match reservation {
            Some(_) => "capacity-reservations-only",
            // Or open reservations would be used up unseen.
            None => "none",
        };
        let market_type = reservation.and_then(|it| match (it.type_.as_str(), it.interruptible) {
            ("capacity-block", _) => Some("capacity-block"),
            (_, true) => Some("interruptible-capacity-reservation"),
            _ => None,
        });
        let mut tags = BTreeMap::from([("network-interface".to_owned(), self.tags.clone())]);
        if self.capacity_type == CapacityType::Spot {
            tags.insert("spot-instances-request".to_owned(), self.tags.clone());
        }
        Ok(LaunchTemplateData {
            image_id: group.image.clone(),
            instance_profile: class.status.instance_profile.clone(),
            user_data: (self.render)(group)?,
            detailed_monitoring: class.spec.detailed_monitoring.unwrap_or(false),
            block_devices: block_devices(class),
            metadata_options: metadata_options(class, &self.settings.region),
            nested_virtualization: class
                .spec
                .cpu_options
                .as_ref()
                .and_then(|it| it.nested_virtualization.clone()),
            network_interfaces: interfaces::interfaces(
                class,
                if self.wants_efa { group.efa } else { 0 },
                self.ipv6,
            ),
            enclave: self.enclave,
            tenancy: self.tenancy.to_owned(),
            placement_group_id: self.placement_group.map(str::to_owned),
            partition: self.partition,
            reservation_preference: gate.then(|| preference.to_owned()),
            reservation_id: reservation.filter(|_| gate).map(|it| it.id.clone()),
            market_type: market_type.filter(|_| gate).map(str::to_owned),
            tags,
        })
    }
}

/// GiB, rounded up.
fn whole_gib(size: Quantity) -> i64 {
    let bytes = size.value();
    bytes / (1 << 30) + i64::from(bytes % (1 << 30) != 0)
}

fn block_devices(class: &EC2NodeClass) -> Vec<LaunchBlockDevice> {
    let mappings = class.spec.effective_block_devices();
    mappings
        .into_iter()
        .filter_map(|mapping| {
            let ebs = mapping.ebs.unwrap_or_default();
            Some(LaunchBlockDevice {
                device_name: mapping.device_name?,
                delete_on_termination: ebs.delete_on_termination,
                encrypted: ebs.encrypted,
                iops: ebs.iops.filter(|it| *it != 0),
                kms_key_id: ebs.kms_key_id,
                snapshot_id: ebs.snapshot_id,
                throughput: ebs.throughput.filter(|it| *it != 0),
                volume_initialization_rate: ebs.volume_initialization_rate,
                volume_size: ebs.volume_size.and_then(|it| it.parse().ok()).map(whole_gib),
                volume_type: ebs.volume_type,
            })
        })
        .collect()
}

/// Regions whose EC2 does not know the IPv6 endpoint of the metadata service.
const NO_METADATA_IPV6: &[&str] = &[
    "us-iso-east-1",
    "us-iso-west-1",
    "us-isob-east-1",
    "us-isob-west-1",
    "us-isof-east-1",
    "us-isof-south-1",
];

/// DIFFERENCE: an object that bypassed the CRD's defaults gets those defaults, not Karpenter's older ones.
fn metadata_options(class: &EC2NodeClass, region: &str) -> LaunchMetadataOptions {
    let MetadataOptions {
        http_endpoint,
        http_protocol_ipv6,
        http_put_response_hop_limit,
        http_tokens,
    } = class.spec.metadata_options.clone().unwrap_or_default();
    let or = |value: Option<String>, default: &str| value.unwrap_or_else(|| default.to_owned());
    LaunchMetadataOptions {
        http_endpoint: or(http_endpoint, "enabled"),
        http_protocol_ipv6: (!NO_METADATA_IPV6.contains(&region))
            .then(|| or(http_protocol_ipv6, "disabled")),
        http_put_response_hop_limit: http_put_response_hop_limit.unwrap_or(1),
        http_tokens: or(http_tokens, "required"),
        // Our tag keys contain `/`, which instance metadata does not take.
        instance_metadata_tags: "disabled".to_owned(),
    }
}

/// `karpenter.k8s.aws/` and a number that only the content decides. User data and tags are part of the content, so
/// cluster, pool, kubelet settings, labels and taints are in it.
pub fn name(
    data: &LaunchTemplateData,
    class: &EC2NodeClass,
    capacity_type: CapacityType,
) -> String {
    let mut data = data.clone();
    for interface in &mut data.network_interfaces {
        interface.groups.sort();
    }
    let shape = json!({
        "class": class.metadata.name,
        "capacityType": capacity_type.as_str(),
        "data": data,
    });
    let hash = Sha256::digest(shape.to_string());
    let number = hash.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    format!("karpenter.k8s.aws/{number}")
}

/// Partition of the state table: when a template was last used, by name. Lost: an extra look at EC2 per launch.
pub const PARTITION: &str = "launch-template";
/// A template unused for longer is deleted.
///
/// DIFFERENCE: Karpenter deletes after a minute and makes it anew at the next launch; in the end the same is there.
pub const UNUSED: SignedDuration = SignedDuration::from_hours(1);
/// A use is noted again when the last note is older.
const NOTE_AGAIN: SignedDuration = SignedDuration::from_mins(10);

/// Makes sure that a template exists. One that was used within the hour is taken to be there.
///
/// # Errors
/// What EC2 answers. The table may fail: then EC2 is asked.
pub async fn ensure(
    ec2: &impl Ec2,
    state: &impl StateTable,
    name: &str,
    data: &LaunchTemplateData,
    tags: &Tags,
    now: Timestamp,
) -> Result<(), AwsError> {
    let used_at = last_use(state, name).await.ok().flatten();
    let age = used_at.map(|at| now.duration_since(at));
    let known = age.is_some_and(|age| age < UNUSED - NOTE_AGAIN);
    if !known && ec2.get_launch_template(name).await?.is_none() {
        match ec2.create_launch_template(name, data, tags, false).await {
            Ok(_) => {}
            Err(error) if error.is_already_exists() => {}
            Err(error) => return Err(error),
        }
    }
    if age.is_none_or(|age| age >= NOTE_AGAIN) {
        note_use(state, name, now).await;
    }
    Ok(())
}

/// When a template was last used, as far as it was noted.
///
/// # Errors
/// When the table does not answer.
pub async fn last_use(
    state: &impl StateTable,
    name: &str,
) -> Result<Option<Timestamp>, StateError> {
    let record = state.read(&StateKey::new(PARTITION, name)).await?;
    Ok(record.and_then(|it| it.data.get("usedAt")?.as_str()?.parse().ok()))
}

/// Notes a use; without the note the template is looked up again, and deleted as unused later than it might be.
async fn note_use(state: &impl StateTable, name: &str, now: Timestamp) {
    let key = StateKey::new(PARTITION, name);
    let expires_at = now.saturating_add(UNUSED * 24).ok();
    let data = json!({"usedAt": now.to_string()});
    let _ = state.write(&key, data, expires_at, When::Always).await;
}

/// Forgets that a template exists, since EC2 says that it does not.
///
/// # Errors
/// When the table does not answer.
pub async fn forget(state: &impl StateTable, name: &str) -> Result<(), StateError> {
    state.remove(&StateKey::new(PARTITION, name), When::Always).await
}
