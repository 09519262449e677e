//! Pieces that schemas are put together from.

use serde_json::{Map, Value, json};

/// A schema that is being put together.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema(Map<String, Value>);

impl Schema {
    fn of(type_: &str) -> Self {
        let mut map = Map::new();
        map.insert("type".into(), json!(type_));
        Self(map)
    }

    pub fn text() -> Self {
        Self::of("string")
    }

    pub fn boolean() -> Self {
        Self::of("boolean")
    }

    pub fn int32() -> Self {
        Self::of("integer").with("format", json!("int32"))
    }

    pub fn int64() -> Self {
        Self::of("integer").with("format", json!("int64"))
    }

    /// RFC 3339.
    pub fn time() -> Self {
        Self::text().with("format", json!("date-time"))
    }

    /// One of a few texts.
    pub fn one_of(values: &[&str]) -> Self {
        Self::text().with("enum", json!(values))
    }

    /// A quantity: an integer, or a text such as `500m`.
    pub fn quantity() -> Self {
        let mut map = Map::new();
        map.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
        map.insert("pattern".into(), json!(QUANTITY));
        map.insert("x-kubernetes-int-or-string".into(), json!(true));
        Self(map)
    }

    /// A list of `items`.
    pub fn list(items: Self) -> Self {
        Self::of("array").with("items", items.build())
    }

    /// A map with any keys and `values`.
    pub fn map(values: Self) -> Self {
        Self::of("object").with("additionalProperties", values.build())
    }

    /// An object with these fields, each with its text for `kubectl explain`.
    pub fn object(fields: &[(&str, &str, Self)]) -> Self {
        let properties: Map<String, Value> = fields
            .iter()
            .map(|(name, help, schema)| {
                let mut schema = schema.clone();
                if !help.is_empty() {
                    schema = schema.with("description", json!(help));
                }
                ((*name).to_owned(), schema.build())
            })
            .collect();
        Self::of("object").with("properties", Value::Object(properties))
    }

    /// An object whose fields are all kept, known or not.
    pub fn open() -> Self {
        Self::of("object").with("x-kubernetes-preserve-unknown-fields", json!(true))
    }

    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.0.insert(key.to_owned(), value);
        self
    }

    #[must_use]
    pub fn help(self, text: &str) -> Self {
        self.with("description", json!(text))
    }

    #[must_use]
    pub fn required(self, fields: &[&str]) -> Self {
        self.with("required", json!(fields))
    }

    #[must_use]
    pub fn pattern(self, pattern: &str) -> Self {
        self.with("pattern", json!(pattern))
    }

    #[must_use]
    pub fn default(self, value: Value) -> Self {
        self.with("default", value)
    }

    #[must_use]
    pub fn min(self, n: i64) -> Self {
        self.with("minimum", json!(n))
    }

    #[must_use]
    pub fn max(self, n: i64) -> Self {
        self.with("maximum", json!(n))
    }

    #[must_use]
    pub fn min_length(self, n: i64) -> Self {
        self.with("minLength", json!(n))
    }

    #[must_use]
    pub fn max_length(self, n: i64) -> Self {
        self.with("maxLength", json!(n))
    }

    #[must_use]
    pub fn min_items(self, n: i64) -> Self {
        self.with("minItems", json!(n))
    }

    #[must_use]
    pub fn max_items(self, n: i64) -> Self {
        self.with("maxItems", json!(n))
    }

    #[must_use]
    pub fn max_properties(self, n: i64) -> Self {
        self.with("maxProperties", json!(n))
    }

    /// Server-side apply replaces the list as a whole.
    #[must_use]
    pub fn atomic(self) -> Self {
        let key = if self.0.get("type") == Some(&json!("array")) {
            "x-kubernetes-list-type"
        } else {
            "x-kubernetes-map-type"
        };
        self.with(key, json!("atomic"))
    }

    /// A list without repeats.
    #[must_use]
    pub fn set(self) -> Self {
        self.with("x-kubernetes-list-type", json!("set"))
    }

    /// A list whose items are told apart by one field.
    #[must_use]
    pub fn keyed_by(self, field: &str) -> Self {
        self.with("x-kubernetes-list-type", json!("map"))
            .with("x-kubernetes-list-map-keys", json!([field]))
    }

    /// Adds a CEL rule and the text for those who break it.
    #[must_use]
    pub fn rule(mut self, rule: &str, message: &str) -> Self {
        let rules = self.0.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        if let Some(rules) = rules.as_array_mut() {
            rules.push(json!({"rule": rule, "message": message}));
        }
        self
    }

    pub fn build(self) -> Value {
        Value::Object(self.0)
    }
}

/// Quantities, as the Kubernetes API machinery writes the pattern.
pub const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// Plain durations in hours, minutes and seconds.
pub const DURATION: &str = "^([0-9]+(s|m|h))+$";
/// The same, or `Never`.
pub const NILLABLE_DURATION: &str = "^(([0-9]+(s|m|h))+|Never)$";
/// Durations of budgets: hours and minutes.
pub const BUDGET_DURATION: &str = "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";
/// `nodes` of a budget.
pub const BUDGET_NODES: &str = "^((100|[0-9]{1,2})%|[0-9]+)$";
/// Schedules of budgets: looser than the cron parser, on purpose.
pub const BUDGET_SCHEDULE: &str =
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$";
/// An optional DNS prefix with `/`, and a name.
pub const QUALIFIED_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
/// Label values; empty is one.
pub const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// Types of conditions.
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
/// The same, or empty.
const NODE_CLAIM_REASON: &str = "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$";

/// `status.conditions`, a plain list; callers key it by type where the API does.
pub fn conditions() -> Schema {
    condition_list(
        Schema::text().pattern(CONDITION_REASON).min_length(1).max_length(1024),
        &["lastTransitionTime", "message", "reason", "status", "type"],
    )
}

/// The conditions of NodeClaims, whose reason may be empty.
pub fn node_claim_conditions() -> Schema {
    condition_list(
        Schema::text().pattern(NODE_CLAIM_REASON).max_length(1024),
        &["lastTransitionTime", "status", "type"],
    )
}

fn condition_list(reason: Schema, required: &[&str]) -> Schema {
    let condition = Schema::object(&[
        ("type", "What is said.", Schema::text().pattern(CONDITION_TYPE).max_length(316)),
        ("status", "Whether it holds.", Schema::one_of(&["True", "False", "Unknown"])),
        ("lastTransitionTime", "When status last changed.", Schema::time()),
        ("reason", "Why, in one word for programs.", reason),
        ("message", "Why, for people.", Schema::text().max_length(32768)),
        (
            "observedGeneration",
            "The metadata.generation that this was said about.",
            Schema::int64().min(0),
        ),
    ]);
    Schema::list(condition.required(required))
}

/// A whole object: `spec` and `status` with the metadata that every object has.
pub fn root(help: &str, spec: Schema, status: Schema, spec_is_required: bool) -> Value {
    let fields = [
        ("apiVersion", "Group and version of this schema.", Schema::text()),
        ("kind", "The kind of the object.", Schema::text()),
        ("metadata", "", Schema::of("object")),
        ("spec", "", spec),
        ("status", "", status),
    ];
    let object = Schema::object(&fields).help(help);
    if spec_is_required { object.required(&["spec"]) } else { object }.build()
}
