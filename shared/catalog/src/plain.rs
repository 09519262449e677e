//! Instance types as plain JSON: what `spokeshave instance-types` writes and `--catalog` reads.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value};
use spokeshave_model::{
    CapacityType, InstanceType, Offering, Operator, Quantity, Requirement, Requirements, Resources,
    instance_type::{Overhead, Reservation},
    labels,
};

/// A document that is not in the plain form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct PlainError {
    /// `instanceTypes[3].offerings[0].price`
    pub path: String,
    pub problem: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    instance_types: Vec<PlainType<'a>>,
}

#[derive(Serialize)]
struct PlainType<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, Vec<&'a str>>,
    capacity: &'a Resources,
    allocatable: Resources,
    overhead: PlainOverhead<'a>,
    offerings: Vec<PlainOffering<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlainOverhead<'a> {
    kube_reserved: &'a Resources,
    system_reserved: &'a Resources,
    eviction_threshold: &'a Resources,
    total: Resources,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlainOffering<'a> {
    capacity_type: CapacityType,
    zone: &'a str,
    zone_id: &'a str,
    price: Option<f64>,
    available: bool,
    reservation: Option<&'a Reservation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<&'a Resources>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<&'a Resources>,
}

/// Labels of instances: absent on a type that does not list them. What a type has is then the same whether its list came
/// from EC2 or from a file.
pub fn is_instance_label(key: &str) -> bool {
    labels::is_well_known(key)
        && !matches!(
            key,
            labels::NODEPOOL
                | labels::REGION
                | labels::PLACEMENT_GROUP_ID
                | labels::PLACEMENT_GROUP_PARTITION
                | labels::ZONE_ID
        )
}

/// Writes the plain form.
pub fn write(types: &[InstanceType]) -> Value {
    let plain = types.iter().map(|it| PlainType {
        name: &it.name,
        labels: labels::WELL_KNOWN
            .iter()
            .filter(|key| is_instance_label(key))
            .map(|key| (*key, Vec::new()))
            .chain(it.requirements.iter().filter(|label| !label.complement).map(|label| {
                (label.key.as_str(), label.values.iter().map(String::as_str).collect())
            }))
            .collect(),
        capacity: &it.capacity,
        allocatable: it.allocatable(),
        overhead: PlainOverhead {
            kube_reserved: &it.overhead.kube_reserved,
            system_reserved: &it.overhead.system_reserved,
            eviction_threshold: &it.overhead.eviction_threshold,
            total: it.overhead.total(),
        },
        offerings: it
            .offerings
            .iter()
            .map(|offering| PlainOffering {
                capacity_type: offering.capacity_type,
                zone: &offering.zone,
                zone_id: &offering.zone_id,
                price: offering.price,
                available: offering.available,
                reservation: offering.reservation.as_ref(),
                partition: offering.partition,
                capacity: offering.capacity.as_deref(),
                overhead: offering.overhead.as_deref(),
            })
            .collect(),
    });
    // Plain data with text keys: writing it as JSON cannot fail.
    serde_json::to_value(Document { instance_types: plain.collect() }).unwrap_or_default()
}

/// Reads the plain form. Unknown keys are passed over.
///
/// # Errors
/// The first value of the wrong type or out of range, with its path.
pub fn read(document: &Value) -> Result<Vec<InstanceType>, PlainError> {
    let root = Reader { path: String::new(), value: document };
    let types = root.object()?.required("instanceTypes")?;
    let mut names = std::collections::BTreeSet::new();
    let mut result = Vec::new();
    for entry in types.items()? {
        let it = read_type(&entry)?;
        if !names.insert(it.name.clone()) {
            return Err(entry.field("name").error(format!("{:?} is given twice", it.name)));
        }
        result.push(it);
    }
    Ok(result)
}

/// A value and where it stands.
struct Reader<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Reader<'a> {
    fn error(&self, problem: impl Into<String>) -> PlainError {
        let path = if self.path.is_empty() { "the document".to_owned() } else { self.path.clone() };
        PlainError { path, problem: problem.into() }
    }

    fn wrong(&self, wanted: &str) -> PlainError {
        let shown = self.value.to_string();
        let shown: String = shown.chars().take(40).collect();
        self.error(format!("must be {wanted}, not {shown}"))
    }

    fn object(&self) -> Result<Fields<'a>, PlainError> {
        match self.value {
            Value::Object(map) => Ok(Fields { path: self.path.clone(), map }),
            _ => Err(self.wrong("an object")),
        }
    }

    fn items(&self) -> Result<Vec<Reader<'a>>, PlainError> {
        let Value::Array(items) = self.value else { return Err(self.wrong("a list")) };
        Ok(items
            .iter()
            .enumerate()
            .map(|(at, value)| Reader { path: format!("{}[{at}]", self.path), value })
            .collect())
    }

    /// The field of an object, null when there is none.
    fn field(&self, name: &str) -> Reader<'a> {
        const NULL: &Value = &Value::Null;
        Reader { path: join(&self.path, name), value: self.value.get(name).unwrap_or(NULL) }
    }

    fn text(&self) -> Result<&'a str, PlainError> {
        match self.value.as_str() {
            Some("") => Err(self.error("must not be empty")),
            Some(text) => Ok(text),
            None => Err(self.wrong("a text")),
        }
    }

    fn flag(&self) -> Result<bool, PlainError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    fn amounts(&self) -> Result<Resources, PlainError> {
        let fields = self.object()?;
        let amount = |it: Reader<'_>| {
            serde_json::from_value::<Quantity>(it.value.clone())
                .map_err(|_| it.wrong("a quantity such as \"500m\", 2 or \"1.5Gi\""))
        };
        fields
            .map
            .iter()
            .map(|(name, value)| {
                let reader = Reader { path: join(&fields.path, name), value };
                Ok((name.clone(), amount(reader)?))
            })
            .collect()
    }

    /// A flat map, or the nested form, which counts as its total. Its parts are kept where they make up that total.
    fn overhead(&self) -> Result<Overhead, PlainError> {
        let flat = |kube_reserved| Overhead { kube_reserved, ..Overhead::default() };
        let fields = self.object()?;
        if !fields.map.values().any(Value::is_object) {
            return Ok(flat(self.amounts()?));
        }
        let part = |name| {
            let part = fields.optional(name).map(|it| it.amounts()).transpose()?;
            Ok(part.unwrap_or_default())
        };
        let parts = Overhead {
            kube_reserved: part("kubeReserved")?,
            system_reserved: part("systemReserved")?,
            eviction_threshold: part("evictionThreshold")?,
        };
        let total = fields.optional("total").map(|it| it.amounts()).transpose()?;
        Ok(match total {
            Some(total) if total != parts.total() => flat(total),
            _ => parts,
        })
    }
}

struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// A field that is there and not null.
    fn optional(&self, name: &str) -> Option<Reader<'a>> {
        let value = self.map.get(name).filter(|it| !it.is_null())?;
        Some(Reader { path: join(&self.path, name), value })
    }

    fn required(&self, name: &str) -> Result<Reader<'a>, PlainError> {
        self.optional(name).ok_or_else(|| PlainError {
            path: join(&self.path, name),
            problem: "is missing".to_owned(),
        })
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Keys that follow from the name and the offerings.
const DERIVED: &[&str] = &[
    labels::INSTANCE_TYPE,
    labels::ZONE,
    labels::ZONE_ID,
    labels::CAPACITY_TYPE,
    labels::CAPACITY_RESERVATION_ID,
    labels::CAPACITY_RESERVATION_TYPE,
    labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
];

fn read_type(entry: &Reader<'_>) -> Result<InstanceType, PlainError> {
    let fields = entry.object()?;
    let name = fields.required("name")?.text()?.to_owned();
    let mut requirements = Requirements::new();
    let mut listed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    if let Some(given) = fields.optional("labels") {
        let given = given.object()?;
        for (key, value) in given.map {
            let reader = Reader { path: join(&given.path, key), value };
            let values = reader.items()?;
            let values = values
                .iter()
                // The empty text is a value too: bare metal's hypervisor.
                .map(|it| it.value.as_str().map(str::to_owned).ok_or_else(|| it.wrong("a text")))
                .collect::<Result<Vec<_>, _>>()?;
            listed.insert(labels::normalize(key).to_owned(), values);
        }
    }
    for key in labels::WELL_KNOWN.iter().filter(|key| is_instance_label(key)) {
        requirements.replace(Requirement::does_not_exist(key));
    }
    for (key, values) in &listed {
        if !DERIVED.contains(&key.as_str()) {
            requirements.replace(Requirement::new(key, Operator::In, values));
        }
    }
    let capacity = fields.optional("capacity").map(|it| it.amounts()).transpose()?;
    let overhead = fields.optional("overhead").map(|it| it.overhead()).transpose()?;
    let mut offerings = Vec::new();
    if let Some(given) = fields.optional("offerings") {
        for it in given.items()? {
            offerings.push(read_offering(&it)?);
        }
    }
    derive(&mut requirements, &name, &offerings, &listed);
    Ok(InstanceType {
        name,
        requirements,
        capacity: capacity.unwrap_or_default(),
        overhead: overhead.unwrap_or_default(),
        offerings,
    })
}

/// Adds the labels that follow from the name and the offerings. A listed zone, zone id or capacity type may leave some of
/// the offerings' out: those that the class cannot use.
fn derive(
    requirements: &mut Requirements,
    name: &str,
    offerings: &[Offering],
    listed: &BTreeMap<String, Vec<String>>,
) {
    requirements.replace(Requirement::equals(labels::INSTANCE_TYPE, name));
    let all = |of: &dyn Fn(&Offering) -> Option<String>| -> Vec<String> {
        offerings.iter().filter_map(of).collect()
    };
    for (key, values) in [
        (labels::ZONE, all(&|it| Some(it.zone.clone()))),
        (labels::ZONE_ID, all(&|it| Some(it.zone_id.clone()).filter(|id| !id.is_empty()))),
        (labels::CAPACITY_TYPE, all(&|it| Some(it.capacity_type.to_string()))),
    ] {
        let narrower =
            listed.get(key).filter(|chosen| chosen.iter().all(|value| values.contains(value)));
        let values = narrower.unwrap_or(&values);
        if key != labels::ZONE_ID || !values.is_empty() {
            requirements.replace(Requirement::new(key, Operator::In, values));
        }
    }
    let reserved: Vec<&Reservation> =
        offerings.iter().filter_map(|it| it.reservation.as_ref()).collect();
    for (key, values) in [
        (labels::CAPACITY_RESERVATION_ID, reserved.iter().map(|it| it.id.clone()).collect()),
        (labels::CAPACITY_RESERVATION_TYPE, reserved.iter().map(|it| it.type_.clone()).collect()),
        (
            labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
            reserved.iter().map(|it| it.interruptible.to_string()).collect::<Vec<String>>(),
        ),
    ] {
        requirements.replace(Requirement::new(key, Operator::In, values));
    }
}

fn read_offering(entry: &Reader<'_>) -> Result<Offering, PlainError> {
    let fields = entry.object()?;
    let kind = fields.required("capacityType")?;
    let capacity_type = CapacityType::parse(kind.text()?)
        .ok_or_else(|| kind.wrong("reserved, spot or on-demand"))?;
    let price = fields
        .optional("price")
        .map(|it| match it.value.as_f64() {
            Some(price) if price >= 0.0 => Ok(price),
            _ => Err(it.wrong("a number of dollars per hour, at least 0, or null")),
        })
        .transpose()?;
    let reservation = match (capacity_type, fields.optional("reservation")) {
        (CapacityType::Reserved, Some(it)) => Some(read_reservation(&it)?),
        (CapacityType::Reserved, None) => {
            return Err(fields.required("reservation").err().unwrap_or_else(|| kind.wrong("")));
        }
        (_, Some(it)) => return Err(it.error("only reserved offerings have one")),
        (_, None) => None,
    };
    let available = fields.optional("available").map(|it| it.flag()).transpose()?.unwrap_or(true);
    let text = |name: &str| match fields.optional(name) {
        Some(it) => it.value.as_str().map(str::to_owned).ok_or_else(|| it.wrong("a text")),
        None => Ok(String::new()),
    };
    let partition = match fields.optional("partition") {
        Some(it) => Some(it.value.as_i64().ok_or_else(|| it.wrong("a whole number"))?),
        None => None,
    };
    Ok(Offering {
        capacity_type,
        zone: fields.required("zone")?.text()?.to_owned(),
        zone_id: text("zoneId")?,
        price,
        available: available && reservation.as_ref().is_none_or(|it| it.count != 0),
        reservation,
        partition,
        capacity: fields.optional("capacity").map(|it| it.amounts()).transpose()?.map(Arc::new),
        overhead: fields
            .optional("overhead")
            .map(|it| it.overhead())
            .transpose()?
            .map(|it| Arc::new(it.total())),
        price_overlaid: false,
    })
}

fn read_reservation(entry: &Reader<'_>) -> Result<Reservation, PlainError> {
    let fields = entry.object()?;
    let type_ = match fields.optional("type") {
        None => "default",
        Some(it) => match it.text()? {
            known @ ("default" | "capacity-block") => known,
            _ => return Err(it.wrong("default or capacity-block")),
        },
    };
    let count = fields.required("count")?;
    Ok(Reservation {
        id: fields.required("id")?.text()?.to_owned(),
        type_: type_.to_owned(),
        interruptible: fields
            .optional("interruptible")
            .map(|it| it.flag())
            .transpose()?
            .unwrap_or(false),
        count: count
            .value
            .as_i64()
            .filter(|it| *it >= 0)
            .ok_or_else(|| count.wrong("a whole number, at least 0"))?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({"instanceTypes": [{
        "name": "m5.large",
        "labels": {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["linux"],
                   "karpenter.k8s.aws/instance-cpu": ["2"], "karpenter.k8s.aws/instance-hypervisor": [""],
                   "karpenter.k8s.aws/instance-gpu-name": [], "example.com/rack": ["r1", "r2"]},
        "capacity": {"cpu": "2", "memory": "8Gi", "pods": 29, "ephemeral-storage": "20Gi"},
        "overhead": {"cpu": "80m", "memory": "1Gi"},
        "offerings": [
            {"capacityType": "spot", "zone": "us-west-2a", "zoneId": "usw2-az1", "price": 0.035, "available": true},
            {"capacityType": "on-demand", "zone": "us-west-2b", "price": null},
            {"capacityType": "reserved", "zone": "us-west-2a", "zoneId": "usw2-az1", "price": 0.0001,
             "reservation": {"id": "cr-1", "type": "default", "interruptible": false, "count": 3}},
            {"capacityType": "reserved", "zone": "us-west-2a", "price": 0.0001,
             "reservation": {"id": "cr-2", "count": 0}},
        ]}]})
    }

    #[test]
    fn reads_what_the_contract_shows() {
        let types = read(&document()).expect("valid");
        let [it] = &types[..] else { panic!("one type") };
        assert_eq!(it.allocatable().get("cpu"), "1920m".parse().expect("valid"));
        assert_eq!(it.allocatable().get("memory"), Quantity::gibibytes(7));
        let operator = |key: &str| it.requirements.get(key).map(Requirement::operator);
        assert_eq!(it.requirements.single("karpenter.k8s.aws/instance-hypervisor"), Some(""));
        assert_eq!(operator("karpenter.k8s.aws/instance-gpu-name"), Some(Operator::DoesNotExist));
        assert_eq!(operator("karpenter.k8s.aws/instance-memory"), Some(Operator::DoesNotExist));
        assert_eq!(operator("example.com/rack"), Some(Operator::In));
        assert_eq!(operator("example.com/other"), None);
        assert_eq!(operator(labels::REGION), None);
        assert_eq!(it.requirements.single(labels::INSTANCE_TYPE), Some("m5.large"));
        let values = |key: &str| -> Vec<&str> {
            let found = it.requirements.get(key).expect(key);
            found.values.iter().map(String::as_str).collect()
        };
        assert_eq!(values(labels::ZONE), ["us-west-2a", "us-west-2b"]);
        assert_eq!(values(labels::ZONE_ID), ["usw2-az1"]);
        assert_eq!(values(labels::CAPACITY_TYPE), ["on-demand", "reserved", "spot"]);
        assert_eq!(values(labels::CAPACITY_RESERVATION_ID), ["cr-1", "cr-2"]);
        let available: Vec<bool> = it.offerings.iter().map(|it| it.available).collect();
        assert_eq!(available, [true, true, true, false]);
        assert_eq!(it.offerings[1].price, None);
    }

    #[test]
    fn what_is_written_reads_back() {
        let types = read(&document()).expect("valid");
        assert_eq!(read(&write(&types)).expect("valid"), types);
    }

    #[test] // An export of an export says the same as the export.
    fn the_parts_of_an_overhead_read_back() {
        let mut document = document();
        let parts = json!({"kubeReserved": {"cpu": "70m", "memory": "574Mi"}, "systemReserved": {"cpu": "100m"},
            "evictionThreshold": {"memory": "100Mi"}, "total": {"cpu": "170m", "memory": "674Mi"}});
        document["instanceTypes"][0]["overhead"] = parts.clone();
        let types = read(&document).expect("valid");
        assert_eq!(write(&types)["instanceTypes"][0]["overhead"], parts);
        // Without a total the parts are all there is.
        document["instanceTypes"][0]["overhead"].as_object_mut().expect("a map").remove("total");
        assert_eq!(read(&document).expect("valid"), types);
    }

    #[test]
    fn the_nested_overhead_counts_as_its_total() {
        let mut document = document();
        document["instanceTypes"][0]["overhead"] = json!({"kubeReserved": {"cpu": "1"}, "systemReserved": {},
            "evictionThreshold": {}, "total": {"cpu": "300m"}});
        let types = read(&document).expect("valid");
        assert_eq!(types[0].overhead.total(), Resources::new().with("cpu", Quantity::millis(300)));
    }

    #[test]
    fn errors_name_the_place() {
        for (pointer, value, message) in [
            ("/instanceTypes", json!(3), "instanceTypes: must be a list, not 3"),
            ("/instanceTypes", json!(null), "instanceTypes: is missing"),
            ("/instanceTypes/0/name", json!(""), "instanceTypes[0].name: must not be empty"),
            (
                "/instanceTypes/0/labels",
                json!({"a": "b"}),
                "instanceTypes[0].labels.a: must be a list, not \"b\"",
            ),
            (
                "/instanceTypes/0/capacity/memory",
                json!("8 GB"),
                "instanceTypes[0].capacity.memory: must be a quantity such as \"500m\", 2 or \"1.5Gi\", not \"8 GB\"",
            ),
            (
                "/instanceTypes/0/offerings/0/price",
                json!(-1),
                "instanceTypes[0].offerings[0].price: must be a number of dollars per hour, at least 0, or null, not -1",
            ),
            (
                "/instanceTypes/0/offerings/0/capacityType",
                json!("xspot"),
                "instanceTypes[0].offerings[0].capacityType: must be reserved, spot or on-demand, not \"xspot\"",
            ),
            (
                "/instanceTypes/0/offerings/0/zone",
                json!(null),
                "instanceTypes[0].offerings[0].zone: is missing",
            ),
            (
                "/instanceTypes/0/offerings/2/reservation",
                json!(null),
                "instanceTypes[0].offerings[2].reservation: is missing",
            ),
            (
                "/instanceTypes/0/offerings/2/reservation/count",
                json!("3"),
                "instanceTypes[0].offerings[2].reservation.count: must be a whole number, at least 0, not \"3\"",
            ),
        ] {
            let mut document = document();
            *document.pointer_mut(pointer).expect(pointer) = value;
            assert_eq!(read(&document).expect_err(message).to_string(), message);
        }
        let twice = json!({"instanceTypes": [{"name": "a"}, {"name": "a"}]});
        assert_eq!(
            read(&twice).expect_err("twice").to_string(),
            "instanceTypes[1].name: \"a\" is given twice"
        );
        assert_eq!(
            read(&json!([])).expect_err("list").to_string(),
            "the document: must be an object, not []"
        );
    }
}
