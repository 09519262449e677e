//! What several kinds have in common: requirements, taints, class references.

use super::schema::{LABEL_VALUE, QUALIFIED_KEY, Schema};

/// What users may say of the domain `karpenter.k8s.aws`, without the domain. N has `nitro-sandbox`; NodeOverlays lack the last six.
const AWS_KEYS: &[&str] = &[
    "ec2nodeclass",
    "instance-encryption-in-transit-supported",
    "nitro-sandbox",
    "instance-category",
    "instance-hypervisor",
    "instance-family",
    "instance-generation",
    "instance-local-nvme",
    "instance-size",
    "instance-cpu",
    "instance-cpu-manufacturer",
    "instance-cpu-sustained-clock-speed-mhz",
    "instance-memory",
    "instance-ebs-bandwidth",
    "instance-network-bandwidth",
    "instance-gpu-name",
    "instance-gpu-manufacturer",
    "instance-gpu-count",
    "instance-gpu-memory",
    "instance-accelerator-name",
    "instance-accelerator-manufacturer",
    "instance-accelerator-count",
    "instance-capability-flex",
    "instance-tenancy",
    "capacity-reservation-type",
    "capacity-reservation-id",
    "capacity-reservation-interruptible",
    "placement-group-id",
    "placement-group-partition",
];
const NOT_IN_OVERLAYS: usize = 6;

/// Which keys a kind allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    Pool,
    Claim,
    Overlay,
}

impl Keys {
    fn aws(self) -> &'static [&'static str] {
        match self {
            Self::Pool | Self::Claim => AWS_KEYS,
            Self::Overlay => &AWS_KEYS[..AWS_KEYS.len() - NOT_IN_OVERLAYS],
        }
    }

    /// The predicates for the key `variable`, each with its message. The domain is the text before the first slash.
    fn rules(self, variable: &str) -> Vec<(String, &'static str)> {
        let domain = format!("{variable}.split('/')[0]");
        let aws: Vec<String> =
            self.aws().iter().map(|key| format!("'karpenter.k8s.aws/{key}'")).collect();
        let mut rules = vec![(
            format!(
                "{variable} in ['karpenter.sh/capacity-type', 'karpenter.sh/nodepool'] || \
                 !{domain}.endsWith('karpenter.sh')"
            ),
            "label domain \"karpenter.sh\" is restricted",
        )];
        if self == Self::Pool {
            rules.push((
                format!("{variable} != 'karpenter.sh/nodepool'"),
                "label \"karpenter.sh/nodepool\" is restricted",
            ));
        }
        rules.push((
            format!("{variable} != 'kubernetes.io/hostname'"),
            "label \"kubernetes.io/hostname\" is restricted",
        ));
        rules.push((
            format!(
                "{variable} in [{}] || !{domain}.endsWith('karpenter.k8s.aws')",
                aws.join(", ")
            ),
            "label domain \"karpenter.k8s.aws\" is restricted",
        ));
        rules
    }

    /// Adds the rules to a key.
    pub(super) fn on_key(self, schema: Schema) -> Schema {
        self.rules("self")
            .into_iter()
            .fold(schema, |schema, (rule, message)| schema.rule(&rule, message))
    }

    /// Adds the rules to a map, for each of its keys.
    pub(super) fn on_map(self, schema: Schema) -> Schema {
        self.rules("key").into_iter().fold(schema, |schema, (rule, message)| {
            schema.rule(&format!("self.all(key, {rule})"), message)
        })
    }
}

const BOUNDS: &str = "self.all(it, it.operator in ['Gt', 'Lt', 'Gte', 'Lte'] ? \
    (it.values.size() == 1 && int(it.values[0]) >= 0) : true)";

/// A list of requirements. NodeOverlays know no `minValues`, and want values for `NotIn`, too.
pub(super) fn requirements(keys: Keys) -> Schema {
    let key = keys.on_key(Schema::text().pattern(QUALIFIED_KEY).max_length(316));
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];
    let mut fields = vec![
        ("key", "The label that the requirement is about.", key),
        ("operator", "How values limit the label.", Schema::one_of(&operators)),
        (
            "values",
            "Values of the label; none for Exists and DoesNotExist, one integer for Gt, Lt, Gte and Lte.",
            Schema::list(Schema::text()).atomic(),
        ),
    ];
    if keys != Keys::Overlay {
        fields.push((
            "minValues",
            "Least number of different values that the instance types of a claim must offer. Alpha.",
            Schema::int32().min(1).max(50),
        ));
    }
    let item = Schema::object(&fields).required(&["key", "operator"]);
    let mut list = Schema::list(item).max_items(100).atomic();
    if keys == Keys::Overlay {
        list = list.rule(
            "self.all(it, it.operator == 'NotIn' ? it.values.size() != 0 : true)",
            "requirements with operator 'NotIn' must have a value defined",
        );
    }
    list = list.rule(
        "self.all(it, it.operator == 'In' ? it.values.size() != 0 : true)",
        "requirements with operator 'In' must have a value defined",
    );
    if keys == Keys::Overlay {
        // No comma before "or" here.
        return list.rule(
            BOUNDS,
            "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value",
        );
    }
    list.rule(
        BOUNDS,
        "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value",
    )
    .rule(
        "self.all(it, (it.operator == 'In' && has(it.minValues)) ? it.values.size() >= it.minValues : true)",
        "requirements with 'minValues' must have at least that many values specified in the 'values' field",
    )
}

/// `taints` and `startupTaints`.
pub(super) fn taints() -> Schema {
    let taint = Schema::object(&[
        ("key", "Key of the taint.", Schema::text().pattern(QUALIFIED_KEY).min_length(1)),
        ("value", "Value of the taint.", Schema::text().pattern(QUALIFIED_KEY)),
        (
            "effect",
            "What happens to pods that do not tolerate it.",
            Schema::one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]),
        ),
        ("timeAdded", "When the taint was added.", Schema::time()),
    ]);
    Schema::list(taint.required(&["effect", "key"])).atomic()
}

/// `nodeClassRef`.
pub(super) fn node_class_ref() -> Schema {
    Schema::object(&[
        (
            "group",
            "API group of the class, karpenter.k8s.aws for EC2.",
            Schema::text().pattern("^[^/]*$").rule("self != ''", "group may not be empty"),
        ),
        (
            "kind",
            "Kind of the class, EC2NodeClass for EC2.",
            Schema::text().rule("self != ''", "kind may not be empty"),
        ),
        ("name", "Name of the class.", Schema::text().rule("self != ''", "name may not be empty")),
    ])
    .required(&["group", "kind", "name"])
}

/// Labels that nodes are to carry.
pub(super) fn label_map() -> Schema {
    Schema::map(Schema::text().pattern(LABEL_VALUE).max_length(63)).max_properties(100)
}

/// A map of quantities.
pub(super) fn quantities() -> Schema {
    Schema::map(Schema::quantity())
}
