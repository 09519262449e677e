//! The hashes that decide static drift, bit for bit Karpenter's (`spec` api 17).
//!
//! [`node_pool`] is version `v3`. [`ec2_node_class`] is version `v6`; [`ec2_node_class_v5`] exists to check, at
//! take-over, what an older controller wrote. A hash says nothing across versions: compare only equal ones.
//!
//! The functions hash an object as the API server stores it: with the defaults of the CRD filled in. `None` for
//! `metadataOptions` or one of its fields therefore counts as left out.

use jiff::Timestamp;

use crate::{
    EC2NodeClass, NodePool, Taint,
    duration::{NillableDuration, PlainDuration},
    ec2_node_class::{BlockDeviceMapping, EC2NodeClassSpec, MetadataOptions, NetworkInterface},
    meta::StringMap,
    node_pool::{NodeClaimTemplate, NodeClassRef},
};

mod kubelet;

/// Version of [`node_pool`], as the annotation says it.
pub const NODE_POOL_VERSION: &str = "v3";
/// Version of [`ec2_node_class`], as the annotation says it.
pub const EC2_NODE_CLASS_VERSION: &str = "v6";
/// `expireAfter` of a pool that does not say, from the CRD.
const DEFAULT_EXPIRE_AFTER: &str = "720h";

/// FNV-1, 64 bits: multiply, then exclusive or.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(*byte)
    })
}

/// The string hash, as profile names use it too (`spec` api 13.3).
pub fn text(text: &str) -> u64 {
    fnv(text.as_bytes())
}

fn boolean(value: bool) -> u64 {
    fnv(&[u8::from(value)])
}

fn int32(value: i32) -> u64 {
    fnv(&value.to_le_bytes())
}

fn int64(value: i64) -> u64 {
    fnv(&value.to_le_bytes())
}

fn ordered(a: u64, b: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&a.to_le_bytes());
    bytes[8..].copy_from_slice(&b.to_le_bytes());
    fnv(&bytes)
}

fn finish(hash: u64) -> u64 {
    fnv(&hash.to_le_bytes())
}

/// Order does not count, and equal pairs cancel out.
fn list(hashes: impl IntoIterator<Item = u64>) -> u64 {
    hashes.into_iter().fold(0, |sum, hash| sum ^ hash)
}

fn map(entries: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    finish(list(entries.into_iter().map(|(key, value)| ordered(key, value))))
}

fn texts(entries: &StringMap) -> u64 {
    map(entries.iter().map(|(key, value)| (text(key), text(value))))
}

/// A struct: each included field is folded in and finished, so the order of declaration counts.
struct Struct {
    hash: u64,
    is_zero: bool,
}

impl Struct {
    fn new(name: &str) -> Self {
        Self { hash: text(name), is_zero: true }
    }

    /// Includes a field unless it is left out.
    fn field(mut self, name: &str, value: Option<u64>) -> Self {
        if let Some(value) = value {
            self.hash = finish(self.hash ^ ordered(text(name), value));
            self.is_zero = false;
        }
        self
    }

    /// An optional text: present counts even when empty.
    fn text(self, name: &str, value: Option<&String>) -> Self {
        self.field(name, value.map(|it| text(it)))
    }

    /// A text that is not optional: empty is left out.
    fn required_text(self, name: &str, value: &str) -> Self {
        self.field(name, (!value.is_empty()).then(|| text(value)))
    }

    fn boolean(self, name: &str, value: Option<bool>) -> Self {
        self.field(name, value.map(boolean))
    }

    fn int32(self, name: &str, value: Option<i32>) -> Self {
        self.field(name, value.map(int32))
    }

    fn int64(self, name: &str, value: Option<i64>) -> Self {
        self.field(name, value.map(int64))
    }

    /// The value of a pointer to this struct: present even when all its fields are left out.
    fn pointed_to(self) -> u64 {
        self.hash
    }

    /// The value of the struct itself: left out when all its fields are.
    fn unless_zero(self) -> Option<u64> {
        (!self.is_zero).then_some(self.hash)
    }
}

/// Nanoseconds, wrapping as 64 bits do.
fn nanoseconds(length: jiff::SignedDuration) -> i64 {
    length.as_nanos() as i64
}

/// The hash of a NodePool, version `v3`, in decimal.
pub fn node_pool(pool: &NodePool) -> String {
    let spec = &pool.spec.template.spec;
    let taints = |taints: &Vec<Taint>| list(taints.iter().map(taint));
    template(
        &pool.spec.template,
        Some(class_ref(&spec.node_class_ref)),
        spec.taints.as_option().map(taints),
        spec.startup_taints.as_option().map(taints),
    )
}

/// What a manifest that no API server has looked at may say, and [`NodePool`] cannot hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The effects of `taints` as they are written, empty where there is none.
    pub effects: Vec<String>,
    /// The same of `startupTaints`.
    pub startup_effects: Vec<String>,
    /// There is no `nodeClassRef`.
    pub lacks_class: bool,
}

/// As [`node_pool`], with the texts of `written` for what `pool` says there.
pub fn node_pool_as_written(pool: &NodePool, written: &Written) -> String {
    let spec = &pool.spec.template.spec;
    let hashed = |taints: &Vec<Taint>, effects: &[String]| {
        let of = |(at, it): (usize, &Taint)| {
            let effect = effects.get(at).map_or("", String::as_str);
            taint_of(it, effect)
        };
        list(taints.iter().enumerate().map(of))
    };
    template(
        &pool.spec.template,
        (!written.lacks_class).then(|| class_ref(&spec.node_class_ref)),
        spec.taints.as_option().map(|it| hashed(it, &written.effects)),
        spec.startup_taints.as_option().map(|it| hashed(it, &written.startup_effects)),
    )
}

/// The hash of a template. What it refers to and its taints are hashed already; `None` is left out.
fn template(
    template: &NodeClaimTemplate,
    class: Option<u64>,
    taints: Option<u64>,
    startup_taints: Option<u64>,
) -> String {
    let NodeClaimTemplate { metadata, spec } = template;
    let meta = Struct::new("ObjectMeta")
        .field("Labels", metadata.labels.as_option().map(texts))
        .field("Annotations", metadata.annotations.as_option().map(texts));
    let expire_after = match &spec.expire_after {
        Some(duration) => duration.clone(),
        None => NillableDuration(DEFAULT_EXPIRE_AFTER.into()),
    };
    let expire_after = Struct::new("NillableDuration")
        .int64("Duration", expire_after.get().map(nanoseconds))
        .unless_zero();
    let spec = Struct::new("NodeClaimTemplateSpec")
        .field("Taints", taints)
        .field("StartupTaints", startup_taints)
        .field("NodeClassRef", class)
        .field("TerminationGracePeriod", spec.termination_grace_period.as_ref().map(plain_duration))
        .field("ExpireAfter", expire_after);
    Struct::new("NodeClaimTemplate")
        .field("ObjectMeta", meta.unless_zero())
        .field("Spec", spec.unless_zero())
        .pointed_to()
        .to_string()
}

fn class_ref(class: &NodeClassRef) -> u64 {
    Struct::new("NodeClassReference")
        .required_text("Kind", &class.kind)
        .required_text("Name", &class.name)
        .required_text("Group", &class.group)
        .pointed_to()
}

fn plain_duration(duration: &PlainDuration) -> u64 {
    let length = duration.get().map(nanoseconds).filter(|it| *it != 0);
    Struct::new("Duration").int64("Duration", length).pointed_to()
}

fn taint(taint: &Taint) -> u64 {
    taint_of(taint, &format!("{:?}", taint.effect))
}

fn taint_of(taint: &Taint, effect: &str) -> u64 {
    Struct::new("Taint")
        .required_text("Key", &taint.key)
        .required_text("Value", &taint.value)
        .required_text("Effect", effect)
        .field("TimeAdded", taint.time_added.map(timestamp))
        .pointed_to()
}

/// Go's binary form of a time whose zone is an offset of zero minutes.
fn timestamp(at: Timestamp) -> u64 {
    /// From 0001-01-01T00:00:00Z to 1970-01-01T00:00:00Z.
    const YEAR_ONE: i64 = 62_135_596_800;
    let mut bytes = vec![1];
    bytes.extend((at.as_second() + YEAR_ONE).to_be_bytes());
    bytes.extend(at.subsec_nanosecond().to_be_bytes());
    bytes.extend([0, 0]);
    Struct::new("Time").field("Time", Some(fnv(&bytes))).pointed_to()
}

/// The family as it is hashed: what `spec.amiFamily` says, though it may be none of ours, else what the alias says.
fn family(class: &EC2NodeClass) -> &str {
    let inferred = || class.spec.ami_family().as_str();
    class.spec.ami_family.as_deref().unwrap_or_else(inferred)
}

/// The hash of an EC2NodeClass, version `v6`, in decimal. `ca` is the cluster's CA bundle as one text: the base64 that
/// `DescribeCluster` returns, or `CLUSTER_CA_BUNDLE` verbatim; empty when unknown.
pub fn ec2_node_class(class: &EC2NodeClass, ca: &str) -> String {
    let parts = [
        class_spec(&class.spec, None).pointed_to(),
        text(family(class)),
        text(ca),
        text(&kubelet::canonical(class.spec.kubelet.as_ref())),
    ];
    list(parts).to_string()
}

/// The same in version `v5`, Karpenter 1.12 to 1.14, for comparison with what such a controller wrote.
/// `None` when the kubelet settings cannot be expressed in its typed fields.
pub fn ec2_node_class_v5(class: &EC2NodeClass, ca: &str) -> Option<String> {
    let kubelet = class.spec.kubelet.as_ref().map(kubelet::typed);
    let kubelet = match kubelet {
        Some(None) => return None,
        Some(Some(hash)) => Some(hash),
        None => None,
    };
    let parts = [class_spec(&class.spec, kubelet).pointed_to(), text(family(class)), text(ca)];
    Some(list(parts).to_string())
}

/// The same in version `v4`, Karpenter 1.1 to 1.11: `v5` without the CA bundle.
pub fn ec2_node_class_v4(class: &EC2NodeClass) -> Option<String> {
    // Equal texts cancel out in a list, so this removes the bundle's part again.
    let with_empty: u64 = ec2_node_class_v5(class, "")?.parse().ok()?;
    Some((with_empty ^ text("")).to_string())
}

fn class_spec(spec: &EC2NodeClassSpec, kubelet: Option<u64>) -> Struct {
    let placement_group = spec.placement_group_selector.as_ref().map(|it| {
        Struct::new("PlacementGroupSelector")
            .text("Name", it.name.as_ref())
            .text("ID", it.id.as_ref())
            .pointed_to()
    });
    let connection_tracking = spec.connection_tracking.as_ref().map(|it| {
        Struct::new("ConnectionTracking")
            .int32("TCPEstablishedTimeout", it.tcp_established_timeout)
            .int32("UDPStreamTimeout", it.udp_stream_timeout)
            .int32("UDPTimeout", it.udp_timeout)
            .pointed_to()
    });
    let cpu_options = spec.cpu_options.as_ref().map(|it| {
        Struct::new("CPUOptions")
            .text("NestedVirtualization", it.nested_virtualization.as_ref())
            .pointed_to()
    });
    let devices = |it: &Vec<BlockDeviceMapping>| list(it.iter().map(block_device_mapping));
    let interfaces = |it: &Vec<NetworkInterface>| list(it.iter().map(network_interface));
    Struct::new("EC2NodeClassSpec")
        .field("PlacementGroupSelector", placement_group)
        .boolean("AssociatePublicIPAddress", spec.associate_public_ip_address)
        .text("UserData", spec.user_data.as_ref())
        .required_text("Role", spec.role.as_deref().unwrap_or_default())
        .text("InstanceProfile", spec.instance_profile.as_ref())
        .field("Tags", spec.tags.as_option().map(texts))
        .field("Kubelet", kubelet)
        .field("BlockDeviceMappings", spec.block_device_mappings.as_option().map(devices))
        .text("InstanceStorePolicy", spec.instance_store_policy.as_ref())
        .field("NetworkInterfaces", spec.network_interfaces.as_option().map(interfaces))
        .boolean("DetailedMonitoring", spec.detailed_monitoring)
        .field("MetadataOptions", spec.metadata_options.as_ref().map(metadata_options))
        .field("ConnectionTracking", connection_tracking)
        .text("Context", spec.context.as_ref())
        .field("CPUOptions", cpu_options)
}

fn metadata_options(it: &MetadataOptions) -> u64 {
    Struct::new("MetadataOptions")
        .text("HTTPEndpoint", it.http_endpoint.as_ref())
        .text("HTTPProtocolIPv6", it.http_protocol_ipv6.as_ref())
        .int64("HTTPPutResponseHopLimit", it.http_put_response_hop_limit)
        .text("HTTPTokens", it.http_tokens.as_ref())
        .pointed_to()
}

fn block_device_mapping(it: &BlockDeviceMapping) -> u64 {
    let ebs = it.ebs.as_ref().map(|ebs| {
        // Equal sizes hash alike however they are written; a text that is no quantity counts as it is.
        let size = ebs.volume_size.as_ref().map(|size| {
            size.parse::<crate::Quantity>().map_or_else(|_| size.clone(), |it| it.to_string())
        });
        Struct::new("BlockDevice")
            .boolean("DeleteOnTermination", ebs.delete_on_termination)
            .boolean("Encrypted", ebs.encrypted)
            .int64("IOPS", ebs.iops)
            .text("KMSKeyID", ebs.kms_key_id.as_ref())
            .text("SnapshotID", ebs.snapshot_id.as_ref())
            .int64("Throughput", ebs.throughput)
            .int32("VolumeInitializationRate", ebs.volume_initialization_rate)
            .text("VolumeSize", size.as_ref())
            .text("VolumeType", ebs.volume_type.as_ref())
            .pointed_to()
    });
    Struct::new("BlockDeviceMapping")
        .text("DeviceName", it.device_name.as_ref())
        .field("EBS", ebs)
        .boolean("RootVolume", it.root_volume.then_some(true))
        .pointed_to()
}

fn network_interface(it: &NetworkInterface) -> u64 {
    let number = |n: i32| (n != 0).then_some(n);
    Struct::new("NetworkInterface")
        .int32("NetworkCardIndex", number(it.network_card_index))
        .int32("DeviceIndex", number(it.device_index))
        .required_text("InterfaceType", &it.interface_type)
        .pointed_to()
}

#[cfg(test)]
mod tests;
