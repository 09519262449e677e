//! The state table in DynamoDB.
//!
//! One item per record: `pk` (partition), `sk` (`#` and the sort key, since DynamoDB allows no empty key), `version`,
//! `data` (JSON text) or `packed` (the same, compressed, when it is long), `expires` (seconds, the table's TTL
//! attribute, later than the exact time) and `expires_ms` (the exact time, by which reads and conditions go: DynamoDB
//! may take days to remove what has expired).

use std::{collections::HashMap, io::Read, io::Write};

use aws_sdk_dynamodb::{
    Client,
    primitives::Blob,
    types::{AttributeValue, ReturnValue},
};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use jiff::Timestamp;
use serde_json::Value;
use spokeshave_ports::{AwsError, Record, StateError, StateKey, StateTable, When};

use crate::{Call, Connection};

const GET: Call = Call("dynamodb", "GetItem");
const QUERY: Call = Call("dynamodb", "Query");
const UPDATE: Call = Call("dynamodb", "UpdateItem");
const DELETE: Call = Call("dynamodb", "DeleteItem");

/// Texts longer than this are compressed: the catalog is, nearly nothing else.
const PACK_FROM: usize = 16 * 1024;

/// What a packed record may unpack to at most. The catalog of the largest region is about 2 MB.
const UNPACKED_LIMIT: u64 = 64 * 1024 * 1024;

/// The state table, over DynamoDB.
#[derive(Clone, Debug)]
pub struct DynamoTable {
    client: Client,
    name: String,
}

impl DynamoTable {
    /// `name` is the table's name or ARN.
    pub fn new(connection: &Connection, name: &str) -> Self {
        Self { client: counted!(aws_sdk_dynamodb, connection.config()), name: name.to_owned() }
    }
}

type Item = HashMap<String, AttributeValue>;

impl StateTable for DynamoTable {
    async fn read(&self, key: &StateKey) -> Result<Option<Record>, StateError> {
        let request = self.client.get_item().table_name(&self.name).set_key(Some(item_key(key)));
        let answer = request.consistent_read(true).send().await;
        let answer = answer.map_err(|error| GET.failed(error))?;
        let Some(item) = answer.item else { return Ok(None) };
        let record = record(&item).map_err(|problem| GET.error("Response", &problem))?;
        Ok(Some(record).filter(|it| is_alive(it, Timestamp::now())))
    }

    async fn query(
        &self,
        partition: &str,
        prefix: &str,
    ) -> Result<Vec<(String, Record)>, StateError> {
        let request = self
            .client
            .query()
            .table_name(&self.name)
            .consistent_read(true)
            .key_condition_expression("pk = :pk AND begins_with(sk, :sk)")
            .expression_attribute_values(":pk", text(partition))
            .expression_attribute_values(":sk", text(&format!("#{prefix}")));
        let mut pages = request.into_paginator().items().send();
        let now = Timestamp::now();
        let mut records = Vec::new();
        while let Some(item) = pages.next().await {
            let item = item.map_err(|error| QUERY.failed(error))?;
            let record = record(&item).map_err(|problem| QUERY.error("Response", &problem))?;
            let sort = item.get("sk").and_then(|it| it.as_s().ok()?.strip_prefix('#'));
            if let Some(sort) = sort.filter(|_| is_alive(&record, now)) {
                records.push((sort.to_owned(), record));
            }
        }
        Ok(records)
    }

    async fn write(
        &self,
        key: &StateKey,
        data: Value,
        expires_at: Option<Timestamp>,
        when: When,
    ) -> Result<u64, StateError> {
        let json = data.to_string();
        let request = self.client.update_item().table_name(&self.name);
        let mut request = request
            .set_key(Some(item_key(key)))
            .expression_attribute_values(":one", number(1))
            .return_values(ReturnValue::UpdatedNew);
        let (mut set, mut remove) = if json.len() < PACK_FROM {
            request = request.expression_attribute_values(":data", text(&json));
            ("SET #data = :data".to_owned(), "REMOVE packed".to_owned())
        } else {
            let packed = pack(&json).map_err(|problem| UPDATE.error("Request", &problem))?;
            request = request.expression_attribute_values(":data", packed);
            ("SET packed = :data".to_owned(), "REMOVE #data".to_owned())
        };
        request = request.expression_attribute_names("#data", "data");
        if let Some(at) = expires_at {
            set.push_str(", expires = :expires, expires_ms = :expires_ms");
            request = request
                .expression_attribute_values(":expires", number(at.as_second().saturating_add(1)))
                .expression_attribute_values(":expires_ms", number(at.as_millisecond()));
        } else {
            remove.push_str(", expires, expires_ms");
        }
        request = request.update_expression(format!("{set} {remove} ADD version :one"));
        if let Some((condition, values)) = condition(when, Timestamp::now()) {
            request = request.condition_expression(condition);
            for (name, value) in values {
                request = request.expression_attribute_values(name, value);
            }
        }
        let answer = request.send().await.map_err(|error| refused(UPDATE.failed(error), key))?;
        let version = answer.attributes.as_ref().and_then(|it| integer(it, "version"));
        let version = version.and_then(|it| u64::try_from(it).ok());
        Ok(version.ok_or_else(|| UPDATE.error("Response", "the answer names no version"))?)
    }

    async fn remove(&self, key: &StateKey, when: When) -> Result<(), StateError> {
        let request = self.client.delete_item().table_name(&self.name);
        let mut request = request.set_key(Some(item_key(key)));
        if let Some((condition, values)) = condition(when, Timestamp::now()) {
            request = request.condition_expression(condition);
            for (name, value) in values {
                request = request.expression_attribute_values(name, value);
            }
        }
        let answer = request.send().await;
        answer.map(drop).map_err(|error| refused(DELETE.failed(error), key))
    }
}

/// The condition of a write and the values in it.
fn condition(
    when: When,
    now: Timestamp,
) -> Option<(&'static str, Vec<(&'static str, AttributeValue)>)> {
    let now = || (":now", number(now.as_millisecond()));
    match when {
        When::Always => None,
        When::Absent => Some(("attribute_not_exists(pk) OR expires_ms <= :now", vec![now()])),
        When::Version(version) => Some((
            "version = :version AND (attribute_not_exists(expires_ms) OR expires_ms > :now)",
            vec![(":version", AttributeValue::N(version.to_string())), now()],
        )),
    }
}

fn refused(error: AwsError, key: &StateKey) -> StateError {
    if error.code == "ConditionalCheckFailedException" {
        StateError::Conflict(key.clone())
    } else {
        StateError::Aws(error)
    }
}

fn is_alive(record: &Record, now: Timestamp) -> bool {
    record.expires_at.is_none_or(|it| it > now)
}

fn item_key(key: &StateKey) -> Item {
    Item::from([
        ("pk".to_owned(), text(&key.partition)),
        ("sk".to_owned(), text(&format!("#{}", key.sort))),
    ])
}

fn record(item: &Item) -> Result<Record, String> {
    let version = integer(item, "version").and_then(|it| u64::try_from(it).ok());
    let version = version.ok_or("a record without a version")?;
    let json = match (item.get("data"), item.get("packed")) {
        (Some(AttributeValue::S(json)), _) => json.clone(),
        (_, Some(AttributeValue::B(packed))) => unpack(packed.as_ref())?,
        _ => return Err("a record without data".to_owned()),
    };
    let data = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let expires_at =
        integer(item, "expires_ms").and_then(|it| Timestamp::from_millisecond(it).ok());
    Ok(Record { version, data, expires_at })
}

fn integer(item: &Item, name: &str) -> Option<i64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn number(value: i64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn pack(json: &str) -> Result<AttributeValue, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(json.as_bytes()).map_err(|error| error.to_string())?;
    let packed = encoder.finish().map_err(|error| error.to_string())?;
    Ok(AttributeValue::B(Blob::new(packed)))
}

fn unpack(packed: &[u8]) -> Result<String, String> {
    let mut json = String::new();
    let mut decoder = GzDecoder::new(packed).take(UNPACKED_LIMIT);
    decoder.read_to_string(&mut json).map_err(|error| error.to_string())?;
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_records_are_packed_and_come_back_whole() {
        let json = format!("[\"{}\"]", "m5.large ".repeat(10_000));
        let AttributeValue::B(packed) = pack(&json).expect("packs") else { panic!("not bytes") };
        assert!(packed.as_ref().len() < json.len() / 50);
        assert_eq!(unpack(packed.as_ref()).expect("unpacks"), json);
        assert!(unpack(b"no gzip").is_err());
    }

    #[test]
    fn a_record_needs_a_version_and_data() {
        let mut item = item_key(&StateKey::new("attempt", "a"));
        assert!(record(&item).is_err());
        item.insert("version".into(), number(3));
        assert!(record(&item).is_err());
        item.insert("data".into(), text("{\"a\":1}"));
        item.insert("expires_ms".into(), number(1_500));
        let found = record(&item).expect("whole");
        let expected = Record {
            version: 3,
            data: serde_json::json!({"a": 1}),
            expires_at: Timestamp::from_millisecond(1_500).ok(),
        };
        assert_eq!(found, expected);
        assert!(is_alive(&found, Timestamp::from_millisecond(1_499).expect("valid")));
        assert!(!is_alive(&found, Timestamp::from_millisecond(1_500).expect("valid")));
    }
}
