//! The state table of a stack, read over the wire.
//!
//! Items are as the functions write them: `pk`, `sk` (`#` and the sort key), `version`, `data` (JSON text) or `packed`
//! (the same, gzip), `expires_ms`.

use std::{
    future::Future,
    io::Read,
    pin::pin,
    task::{Context, Poll, Waker},
};

use base64::Engine;
use flate2::read::GzDecoder;
use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_catalog::{
    Memo,
    stored::{self, StoredCatalog},
};
use spokeshave_ports::{AwsError, Record, StateError, StateKey, StateTable, When};

use crate::{
    Failure,
    live::{aws::Aws, credentials::Environment},
};

/// What a packed record may unpack to at most.
const UNPACKED_LIMIT: u64 = 64 * 1024 * 1024;

/// A table, for reading.
struct Table<'a> {
    aws: &'a Aws,
    name: &'a str,
}

fn refused(operation: &'static str, code: &str, message: &str) -> AwsError {
    AwsError::new("dynamodb", operation, code, message)
}

fn unpacked(packed: &str) -> Option<String> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(packed).ok()?;
    let mut text = String::new();
    GzDecoder::new(&bytes[..]).take(UNPACKED_LIMIT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The record of an item; expired ones count as absent.
fn record(item: &Value) -> Option<Record> {
    let number = |name: &str| item.get(name)?.get("N")?.as_str()?.parse::<i64>().ok();
    let text = match item.get("data").and_then(|it| it.get("S")?.as_str()) {
        Some(text) => text.to_owned(),
        None => unpacked(item.get("packed")?.get("B")?.as_str()?)?,
    };
    let expires_at =
        number("expires_ms").and_then(|millis| Timestamp::from_millisecond(millis).ok());
    Some(Record {
        version: number("version").and_then(|it| u64::try_from(it).ok()).unwrap_or(0),
        data: serde_json::from_str(&text).ok()?,
        expires_at,
    })
}

impl StateTable for Table<'_> {
    async fn read(&self, key: &StateKey) -> Result<Option<Record>, StateError> {
        let body = json!({
            "TableName": self.name,
            "ConsistentRead": true,
            "Key": {"pk": {"S": key.partition}, "sk": {"S": format!("#{}", key.sort)}},
        });
        let answer = self.aws.json("dynamodb", "DynamoDB_20120810.GetItem", "1.0", &body);
        let answer = answer.map_err(|it| refused("GetItem", &it.code, &it.message))?;
        let alive = |it: &Record| it.expires_at.is_none_or(|at| at > Timestamp::now());
        Ok(answer.get("Item").and_then(record).filter(alive))
    }

    async fn query(&self, _: &str, _: &str) -> Result<Vec<(String, Record)>, StateError> {
        Err(refused("Query", "Unsupported", "the catalog is read record by record").into())
    }

    async fn write(
        &self,
        _: &StateKey,
        _: Value,
        _: Option<Timestamp>,
        _: When,
    ) -> Result<u64, StateError> {
        Err(refused("UpdateItem", "Unsupported", "the command only reads").into())
    }

    async fn remove(&self, _: &StateKey, _: When) -> Result<(), StateError> {
        Err(refused("DeleteItem", "Unsupported", "the command only reads").into())
    }
}

/// Runs a future whose calls all return at once.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// The catalog that a stack works with.
///
/// # Errors
/// Without credentials, when DynamoDB refuses or does not answer, or when the table has no catalog of the region.
pub fn load(name: &str, region: &str, partition: &'static str) -> Result<StoredCatalog, Failure> {
    let environment = Environment::of_process(None);
    let aws = Aws::new(environment.credentials()?, region.to_owned(), partition, &environment);
    let table = Table { aws: &aws, name };
    let failure = |problem: String| {
        Failure::new(format!("--table {name}: {problem}"))
            .fix("name the stack's state table, and its region with --region")
    };
    match at_once(stored::load_catalog(&table, region, &Memo::new())) {
        Some(Ok(known)) if known.index.chunks > 0 || !known.catalog.fixed.is_empty() => Ok(known),
        Some(Ok(_)) => Err(failure(format!("it has no catalog of {region} yet"))),
        Some(Err(StateError::Aws(error))) => {
            Err(failure(format!("{}: {}", error.code, error.message)))
        }
        Some(Err(error)) => Err(failure(error.to_string())),
        None => Err(failure("it does not answer".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn items_are_read_plain_and_packed() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(b"{\"a\":1}").expect("in memory");
        let packed = packer.finish().expect("in memory");
        let packed = base64::engine::general_purpose::STANDARD.encode(packed);
        for item in [
            json!({"version": {"N": "3"}, "data": {"S": "{\"a\":1}"}, "expires_ms": {"N": "5"}}),
            json!({"version": {"N": "3"}, "packed": {"B": packed}, "expires_ms": {"N": "5"}}),
        ] {
            let expected = Record {
                version: 3,
                data: json!({"a": 1}),
                expires_at: Timestamp::from_millisecond(5).ok(),
            };
            assert_eq!(record(&item), Some(expected), "{item}");
        }
        assert_eq!(record(&json!({"version": {"N": "3"}})), None);
    }
}
