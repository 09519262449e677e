//! EC2NodeClass (`spec` api 10 and 13.1).

use serde_json::json;

use super::{
    Crd, Names,
    schema::{Schema, conditions, root},
};
use crate::EC2NodeClass;

/// `volumeSize`: 1 to 59000 Gi, 1 to 64000 G, some of 1 to 58 Ti, 1 to 64 T. The empty alternatives are Karpenter's.
const VOLUME_SIZE: &str = "^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$";

/// Families that an alias can name: as aliases spell them, as `amiFamily` does, and with the article of the message.
const FAMILIES: &[(&str, &str, &str)] = &[
    ("al2", "AL2", "an"),
    ("al2023", "AL2023", "an"),
    ("bottlerocket", "Bottlerocket", "a"),
    ("windows2019", "Windows2019", "a"),
    ("windows2022", "Windows2022", "a"),
    ("windows2025", "Windows2025", "a"),
];

const ENABLED: &[&str] = &["enabled", "disabled"];

pub(super) fn crd() -> Crd {
    let names = Names {
        singular: "ec2nodeclass",
        short: &["ec2nc", "ec2ncs"],
        category: "karpenter",
        scale: false,
        columns: &[
            ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
            ("Role", "string", ".spec.role", 1),
        ],
    };
    let help = "A class says how EC2 instances are made: images, subnets, security groups, role, disks, kubelet.";
    super::crd::<EC2NodeClass>(&names, &root(help, spec(), status(), false))
}

/// Tags of a selector term: what is looked for has a key and a value.
fn term_tags() -> Schema {
    Schema::map(Schema::text()).max_properties(20).rule(
        "self.all(key, key != '' && self[key] != '')",
        "empty tag keys or values aren't supported",
    )
}

const TAGS_HELP: &str = "Tags to look for; the value * stands for any.";

fn subnet_terms() -> Schema {
    let term = Schema::object(&[
        ("id", "Id of the subnet.", Schema::text().pattern("subnet-[0-9a-z]+")),
        ("tags", TAGS_HELP, term_tags()),
    ]);
    Schema::list(term)
        .max_items(30)
        .rule("self.size() != 0", "subnetSelectorTerms cannot be empty")
        .rule(
            "self.all(it, has(it.tags) || has(it.id))",
            "expected at least one, got none, ['tags', 'id']",
        )
        .rule(
            "!self.all(it, has(it.id) && has(it.tags))",
            "'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term",
        )
}

fn security_group_terms() -> Schema {
    let term = Schema::object(&[
        ("id", "Id of the security group.", Schema::text().pattern("sg-[0-9a-z]+")),
        ("name", "Name of the security group; not its Name tag.", Schema::text()),
        ("tags", TAGS_HELP, term_tags()),
    ]);
    Schema::list(term)
        .max_items(30)
        .rule("self.size() != 0", "securityGroupSelectorTerms cannot be empty")
        .rule(
            "self.all(it, has(it.tags) || has(it.id) || has(it.name))",
            "expected at least one, got none, ['tags', 'id', 'name']",
        )
        .rule(
            "!self.all(it, has(it.id) && (has(it.tags) || has(it.name)))",
            "'id' is mutually exclusive, cannot be set with a combination of other fields in a security group \
             selector term",
        )
        .rule(
            "!self.all(it, has(it.name) && (has(it.tags) || has(it.id)))",
            "'name' is mutually exclusive, cannot be set with a combination of other fields in a security group \
             selector term",
        )
}

fn ami_terms() -> Schema {
    let aliases: Vec<String> = FAMILIES.iter().map(|(alias, ..)| format!("'{alias}'")).collect();
    let windows: Vec<String> =
        aliases.iter().filter(|it| it.contains("windows")).cloned().collect();
    let aliases = aliases.join(", ");
    let alias = Schema::text()
        .max_length(30)
        .rule(
            "self.matches('^[a-zA-Z0-9]+@.+$')",
            "'alias' is improperly formatted, must match the format 'family@version'",
        )
        .rule(
            &format!("self.split('@')[0] in [{aliases}]"),
            &format!("family is not supported, must be one of the following: {aliases}"),
        )
        .rule(
            &format!(
                "self.split('@')[0] in [{}] ? self.split('@')[1] == 'latest' : true",
                windows.join(", ")
            ),
            "windows families may only specify version 'latest'",
        );
    let term = Schema::object(&[
        (
            "alias",
            "family@version, for instance al2023@latest: an image that AWS publishes.",
            alias,
        ),
        ("id", "Id of the image.", Schema::text().pattern("ami-[0-9a-z]+")),
        ("name", "Name of the image; not its Name tag.", Schema::text()),
        (
            "owner",
            "Owner of the image: an account id, self, amazon or aws-marketplace.",
            Schema::text(),
        ),
        ("ssmParameter", "Name or ARN of an SSM parameter that holds the id.", Schema::text()),
        ("tags", TAGS_HELP, term_tags()),
    ]);
    Schema::list(term)
        .min_items(1)
        .max_items(30)
        .rule(
            "self.all(it, has(it.tags) || has(it.id) || has(it.name) || has(it.alias) || has(it.ssmParameter))",
            "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']",
        )
        .rule(
            "!self.exists(it, has(it.id) && (has(it.alias) || has(it.tags) || has(it.name) || has(it.owner)))",
            "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
        )
        .rule(
            "!self.exists(it, has(it.alias) && (has(it.id) || has(it.tags) || has(it.name) || has(it.owner)))",
            "'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
        )
        .rule(
            "!(self.exists(it, has(it.alias)) && self.size() != 1)",
            "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms",
        )
}

fn capacity_reservation_terms() -> Schema {
    let term = Schema::object(&[
        ("id", "Id of the reservation.", Schema::text().pattern("^cr-[0-9a-z]+$")),
        ("ownerID", "Account that owns it.", Schema::text().pattern("^[0-9]{12}$")),
        (
            "instanceMatchCriteria",
            "Whether it is open or targeted.",
            Schema::one_of(&["open", "targeted"]),
        ),
        ("tags", TAGS_HELP, term_tags()),
    ]);
    Schema::list(term)
        .max_items(30)
        .rule(
            "self.all(it, has(it.tags) || has(it.id) || has(it.instanceMatchCriteria))",
            "expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']",
        )
        .rule(
            "!self.all(it, has(it.id) && (has(it.tags) || has(it.ownerID) || has(it.instanceMatchCriteria)))",
            "'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term",
        )
}

fn tags() -> Schema {
    let mut tags = Schema::map(Schema::text())
        .rule("self.all(key, key != '')", "empty tag keys aren't supported")
        .rule(
            "!self.exists(key, key == 'eks:eks-cluster-name')",
            "tag contains a restricted tag matching eks:eks-cluster-name",
        )
        .rule(
            "!self.exists(key, key.startsWith('kubernetes.io/cluster'))",
            "tag contains a restricted tag matching kubernetes.io/cluster/",
        );
    for key in ["karpenter.sh/nodepool", "karpenter.sh/nodeclaim", "karpenter.k8s.aws/ec2nodeclass"]
    {
        tags = tags.rule(
            &format!("!self.exists(key, key == '{key}')"),
            &format!("tag contains a restricted tag matching {key}"),
        );
    }
    tags
}

fn metadata_options() -> Schema {
    Schema::object(&[
        (
            "httpEndpoint",
            "Whether instances can read their metadata.",
            Schema::one_of(ENABLED).default(json!("enabled")),
        ),
        (
            "httpProtocolIPv6",
            "Whether they can do so over IPv6.",
            Schema::one_of(ENABLED).default(json!("disabled")),
        ),
        (
            "httpPutResponseHopLimit",
            "Network hops to the metadata; 1 keeps it from pods outside the host network.",
            Schema::int64().min(1).max(64).default(json!(1)),
        ),
        (
            "httpTokens",
            "Whether a session token is needed.",
            Schema::one_of(&["required", "optional"]).default(json!("required")),
        ),
    ])
    .default(json!({
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }))
}

fn block_devices() -> Schema {
    let ebs = Schema::object(&[
        ("deleteOnTermination", "Whether the volume goes with the instance.", Schema::boolean()),
        ("encrypted", "Whether the volume is encrypted.", Schema::boolean()),
        ("iops", "Operations per second.", Schema::int64()),
        ("kmsKeyID", "Key that it is encrypted with.", Schema::text()),
        ("snapshotID", "Snapshot that it is made from.", Schema::text()),
        ("throughput", "MiB per second.", Schema::int64()),
        (
            "volumeInitializationRate",
            "MiB per second at which it is filled from the snapshot.",
            Schema::int32().min(100).max(300),
        ),
        ("volumeSize", "Size, for instance 20Gi.", Schema::text().pattern(VOLUME_SIZE)),
        (
            "volumeType",
            "Kind of volume.",
            Schema::one_of(&["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]),
        ),
    ])
    .rule(
        "has(self.snapshotID) || has(self.volumeSize)",
        "snapshotID or volumeSize must be defined",
    )
    .rule(
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
        "snapshotID must be set when volumeInitializationRate is set",
    );
    let mapping = Schema::object(&[
        ("deviceName", "Name of the device, for instance /dev/xvda.", Schema::text()),
        ("ebs", "The volume.", ebs),
        ("rootVolume", "Whether pods' ephemeral storage is on it.", Schema::boolean()),
    ]);
    Schema::list(mapping).max_items(50).rule(
        "self.filter(it, has(it.rootVolume) && it.rootVolume).size() <= 1",
        "must have only one blockDeviceMappings with rootVolume",
    )
}

fn network_interfaces() -> Schema {
    let interface = Schema::object(&[
        ("networkCardIndex", "Network card, from 0.", Schema::int32().min(0)),
        ("deviceIndex", "Position on the card, from 0.", Schema::int32().min(0)),
        (
            "interfaceType",
            "An ordinary interface, or one for EFA traffic alone.",
            Schema::one_of(&["interface", "efa-only"]),
        ),
    ])
    .required(&["deviceIndex", "interfaceType", "networkCardIndex"]);
    Schema::list(interface)
        .max_items(150)
        .rule(
            "self.size() == 0 || self.exists(it, it.networkCardIndex == 0 && it.deviceIndex == 0 && \
             it.interfaceType == 'interface')",
            "networkInterfaces must include a primary interface with interfaceType='interface'",
        )
        .rule(
            "self.all(it, self.exists_one(other, other.networkCardIndex == it.networkCardIndex && \
             other.deviceIndex == it.deviceIndex) && (it.interfaceType != 'efa-only' || self.exists_one(other, \
             other.networkCardIndex == it.networkCardIndex && other.interfaceType == 'efa-only')))",
            "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most \
             one efa device per network card",
        )
}

fn spec() -> Schema {
    let placement_group = Schema::object(&[
        ("name", "Name of the placement group.", Schema::text().min_length(1)),
        ("id", "Id of the placement group.", Schema::text().pattern("^pg-[0-9a-z]+$")),
    ])
    .rule("has(self.name) || has(self.id)", "expected at least one, got none, ['name', 'id']")
    .rule("!(has(self.name) && has(self.id))", "'name' and 'id' are mutually exclusive");
    let connection_tracking = Schema::object(&[
        (
            "tcpEstablishedTimeout",
            "Seconds until an idle TCP connection is forgotten.",
            Schema::int32().min(60).max(432_000),
        ),
        (
            "udpStreamTimeout",
            "Seconds until an idle UDP stream is forgotten.",
            Schema::int32().min(60).max(180),
        ),
        (
            "udpTimeout",
            "Seconds until an idle UDP flow of one request is forgotten.",
            Schema::int32().min(30).max(60),
        ),
    ])
    .rule(
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
        "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
    );
    let cpu_options = Schema::object(&[(
        "nestedVirtualization",
        "Whether instances can run virtual machines of their own.",
        Schema::one_of(ENABLED),
    )]);
    let families =
        ["AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025"];
    let mut spec = Schema::object(&[
        ("subnetSelectorTerms", "Which subnets; terms are alternatives.", subnet_terms()),
        (
            "securityGroupSelectorTerms",
            "Which security groups; all that match are attached.",
            security_group_terms(),
        ),
        ("amiSelectorTerms", "Which images; the newest that fits is used.", ami_terms()),
        (
            "capacityReservationSelectorTerms",
            "Which capacity reservations may be used.",
            capacity_reservation_terms(),
        ),
        ("placementGroupSelector", "Placement group of the instances.", placement_group),
        (
            "amiFamily",
            "How nodes are set up; by default what the alias says.",
            Schema::one_of(&families),
        ),
        (
            "role",
            "IAM role of the nodes; the instance profile is made for it.",
            Schema::text().rule("self != ''", "role cannot be empty"),
        ),
        (
            "instanceProfile",
            "Instance profile of the nodes, in place of role.",
            Schema::text().rule("self != ''", "instanceProfile cannot be empty"),
        ),
        ("tags", "Tags of everything that is made for the nodes.", tags()),
        ("userData", "What the nodes run at boot besides what makes them join.", Schema::text()),
        ("context", "Context of EC2 Fleet, handed on as it is.", Schema::text()),
        (
            "associatePublicIPAddress",
            "Whether nodes get public addresses; by default what the subnet says.",
            Schema::boolean(),
        ),
        (
            "ipPrefixCount",
            "Address prefixes on the first network interface.",
            Schema::int32().min(0),
        ),
        ("detailedMonitoring", "Metrics every minute.", Schema::boolean()),
        (
            "instanceStorePolicy",
            "How local disks are used.",
            Schema::one_of(&["RAID0"]),
        ),
        ("metadataOptions", "Access to instance metadata.", metadata_options()),
        ("connectionTracking", "Time-outs of tracked connections; Nitro instances only.", connection_tracking),
        ("cpuOptions", "", cpu_options),
        ("blockDeviceMappings", "Disks; by default what the family needs.", block_devices()),
        ("networkInterfaces", "Network interfaces; by default one.", network_interfaces()),
        (
            "kubelet",
            "Settings of the kubelet, in its own names; maxPods and reserved amounts may be expressions.",
            Schema::open(),
        ),
    ])
    .required(&["amiSelectorTerms", "securityGroupSelectorTerms", "subnetSelectorTerms"])
    .rule(
        "has(self.role) != has(self.instanceProfile)",
        "must specify exactly one of ['role', 'instanceProfile']",
    );
    for (alias, family, article) in FAMILIES {
        spec = spec.rule(
            &format!(
                "!has(self.amiFamily) || self.amiFamily in ['{family}', 'Custom'] || \
                 !self.amiSelectorTerms.exists(it, has(it.alias) && it.alias.split('@')[0] == '{alias}')"
            ),
            &format!("if set, amiFamily must be '{family}' or 'Custom' when using {article} {family} alias"),
        );
    }
    spec.rule(
        "self.amiSelectorTerms.exists(it, has(it.alias)) || has(self.amiFamily)",
        "must specify amiFamily if amiSelectorTerms does not contain an alias",
    )
}

fn status() -> Schema {
    let requirement = Schema::object(&[
        ("key", "", Schema::text()),
        ("operator", "", Schema::text()),
        ("values", "", Schema::list(Schema::text()).atomic()),
    ])
    .required(&["key", "operator"]);
    let ami = Schema::object(&[
        ("id", "", Schema::text()),
        ("name", "", Schema::text()),
        ("deprecated", "Whether the image is deprecated.", Schema::boolean()),
        ("requirements", "Which instance types it is for.", Schema::list(requirement)),
    ])
    .required(&["id", "requirements"]);
    let subnet = Schema::object(&[
        ("id", "", Schema::text()),
        ("zone", "", Schema::text()),
        ("zoneID", "", Schema::text()),
    ])
    .required(&["id", "zone"]);
    let group = Schema::object(&[("id", "", Schema::text()), ("name", "", Schema::text())])
        .required(&["id"]);
    let reservation = Schema::object(&[
        ("id", "", Schema::text().pattern("^cr-[0-9a-z]+$")),
        ("availabilityZone", "", Schema::text()),
        ("instanceType", "", Schema::text()),
        ("instanceMatchCriteria", "", Schema::one_of(&["open", "targeted"])),
        ("ownerID", "", Schema::text().pattern("^[0-9]{12}$")),
        (
            "reservationType",
            "",
            Schema::one_of(&["default", "capacity-block"]).default(json!("default")),
        ),
        ("state", "", Schema::one_of(&["active", "expiring"]).default(json!("active"))),
        ("interruptible", "", Schema::boolean()),
        ("endTime", "", Schema::time()),
    ])
    .required(&["availabilityZone", "id", "instanceMatchCriteria", "instanceType", "ownerID"]);
    Schema::object(&[
        ("subnets", "Subnets found, most free addresses first.", Schema::list(subnet)),
        ("securityGroups", "Security groups found.", Schema::list(group)),
        ("amis", "Images found, newest first.", Schema::list(ami)),
        ("capacityReservations", "Capacity reservations found.", Schema::list(reservation)),
        ("instanceProfile", "The instance profile in use.", Schema::text()),
        ("conditions", "", conditions()),
    ])
}
