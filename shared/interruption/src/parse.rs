//! From a message body to a [`Message`].

use jiff::Timestamp;
use serde::de::MapAccess;
use spokeshave_model::InstanceId;

use crate::{
    Kind, Message,
    loose::{Fields, List, Object, Text, Texts, skip},
};

/// Why a body is none that we can read. It is recorded and deleted: trying again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("not JSON: {0}")]
    NotJson(String),
    #[error("neither an object nor null")]
    NotAnObject,
    #[error("field {0} has the wrong type")]
    WrongType(&'static str),
    #[error("field time is not in RFC 3339 form: {0:?}")]
    Time(String),
}

#[derive(Default)]
struct Envelope<'a> {
    version: Text<'a>,
    source: Text<'a>,
    detail_type: Text<'a>,
    id: Text<'a>,
    account: Text<'a>,
    region: Text<'a>,
    time: Text<'a>,
    resources: Texts,
    detail: Object<Detail<'a>>,
    /// An SNS envelope: `Type` is `Notification` and `Message` holds the real body.
    sns_type: Text<'a>,
    sns_message: Text<'a>,
}

impl<'de: 'a, 'a> Fields<'de> for Envelope<'a> {
    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "version" => self.version = map.next_value()?,
            "source" => self.source = map.next_value()?,
            "detail-type" => self.detail_type = map.next_value()?,
            "id" => self.id = map.next_value()?,
            "account" => self.account = map.next_value()?,
            "region" => self.region = map.next_value()?,
            "time" => self.time = map.next_value()?,
            "resources" => self.resources = map.next_value()?,
            "detail" => self.detail = map.next_value()?,
            "Type" => self.sns_type = map.next_value()?,
            "Message" => self.sns_message = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Detail<'a> {
    instance_id: Text<'a>,
    state: Text<'a>,
    service: Text<'a>,
    category: Text<'a>,
    status_code: Text<'a>,
    start_time: Text<'a>,
    entities: List<Object<Entity<'a>>>,
    reservation_id: Text<'a>,
}

impl<'de: 'a, 'a> Fields<'de> for Detail<'a> {
    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "instance-id" => self.instance_id = map.next_value()?,
            "state" => self.state = map.next_value()?,
            "service" => self.service = map.next_value()?,
            "eventTypeCategory" => self.category = map.next_value()?,
            "statusCode" => self.status_code = map.next_value()?,
            "startTime" => self.start_time = map.next_value()?,
            "affectedEntities" => self.entities = map.next_value()?,
            "capacity-reservation-id" => self.reservation_id = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Entity<'a> {
    value: Text<'a>,
}

impl<'de: 'a, 'a> Fields<'de> for Entity<'a> {
    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "entityValue" => self.value = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

/// The text of a field that must be one; missing ones are empty.
fn text<'t>(field: &'t Text<'_>, name: &'static str) -> Result<&'t str, Malformed> {
    match field {
        Text::Missing => Ok(""),
        Text::Is(text) => Ok(text),
        Text::Wrong => Err(Malformed::WrongType(name)),
    }
}

/// Reads the body of a message in the interruption queue.
///
/// An empty body, JSON `null`, and every object that is none of the known events is [`Kind::NoOp`]. Unknown fields are
/// passed over, missing ones are empty. The body of an SNS notification is unwrapped once.
///
/// # Errors
/// When the body is no JSON, JSON of another type, or a known field in it has the wrong type.
pub fn parse(body: &str) -> Result<Message, Malformed> {
    read(body, true)
}

fn read(body: &str, unwrap: bool) -> Result<Message, Malformed> {
    if body.is_empty() {
        return Ok(Message::no_op(None));
    }
    let envelope: Object<Envelope<'_>> =
        serde_json::from_str(body).map_err(|error| Malformed::NotJson(error.to_string()))?;
    let envelope = match envelope {
        Object::Missing => return Ok(Message::no_op(None)),
        Object::Wrong => return Err(Malformed::NotAnObject),
        Object::Is(envelope) => envelope,
    };
    if unwrap
        && let (Text::Is(kind), Text::Is(inner)) = (&envelope.sns_type, &envelope.sns_message)
        && kind == "Notification"
        && envelope.detail_type == Text::Missing
    {
        // What somebody publishes by hand need not be JSON: that is no event of ours.
        let looks_like_an_object = inner.trim_start().starts_with('{');
        return if looks_like_an_object { read(inner, false) } else { Ok(Message::no_op(None)) };
    }
    let version = text(&envelope.version, "version")?;
    let source = text(&envelope.source, "source")?;
    let detail_type = text(&envelope.detail_type, "detail-type")?;
    text(&envelope.id, "id")?;
    text(&envelope.account, "account")?;
    text(&envelope.region, "region")?;
    // DIFFERENCE: Karpenter refuses `resources` given as one text, as AWS's documentation shows it for
    // reservation warnings, and loses the warning. The field is not used.
    if envelope.resources == Texts::Wrong {
        return Err(Malformed::WrongType("resources"));
    }
    let time = match &envelope.time {
        Text::Missing => None,
        Text::Wrong => return Err(Malformed::WrongType("time")),
        Text::Is(text) => Some(rfc3339(text).ok_or_else(|| Malformed::Time(text.to_string()))?),
    };
    let Some(event) = Event::of(version, source, detail_type) else {
        return Ok(Message::no_op(time));
    };
    let detail = match envelope.detail {
        Object::Missing => Detail::default(),
        Object::Wrong => return Err(Malformed::WrongType("detail")),
        Object::Is(detail) => detail,
    };
    event.read(&detail, time)
}

/// The events that we know, by version, source and detail type.
#[derive(Clone, Copy)]
enum Event {
    Instance(Kind),
    StateChange,
    Health,
    BlockExpiration,
}

impl Event {
    fn of(version: &str, source: &str, detail_type: &str) -> Option<Self> {
        if version != "0" {
            return None;
        }
        match (source, detail_type) {
            ("aws.ec2", "EC2 Spot Instance Interruption Warning") => {
                Some(Self::Instance(Kind::SpotInterruption))
            }
            ("aws.ec2", "EC2 Instance Rebalance Recommendation") => {
                Some(Self::Instance(Kind::RebalanceRecommendation))
            }
            // DIFFERENCE: the second is an older documented name, which Karpenter does not know.
            (
                "aws.ec2",
                "EC2 Capacity Reservation Instance Interruption Warning"
                | "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
            ) => Some(Self::Instance(Kind::CapacityReservationInterruption)),
            ("aws.ec2", "EC2 Instance State-change Notification") => Some(Self::StateChange),
            ("aws.ec2", "Capacity Block Reservation Expiration Warning") => {
                Some(Self::BlockExpiration)
            }
            ("aws.health", "AWS Health Event") => Some(Self::Health),
            _ => None,
        }
    }

    fn read(self, detail: &Detail<'_>, time: Option<Timestamp>) -> Result<Message, Malformed> {
        let message = |kind: Kind, ids: Vec<InstanceId>| Message {
            kind,
            instance_ids: ids,
            reservation_id: None,
            starts: None,
            time,
        };
        match self {
            Self::Instance(kind) => Ok(message(kind, instance(detail)?)),
            Self::StateChange => {
                let ids = instance(detail)?;
                let state = text(&detail.state, "detail.state")?.to_ascii_lowercase();
                // DIFFERENCE: Karpenter accepts a state in any case, but takes only lower-case ones for a stop.
                Ok(match state.as_str() {
                    "stopping" | "stopped" => message(Kind::InstanceStopped, ids),
                    "shutting-down" | "terminated" => message(Kind::InstanceTerminated, ids),
                    _ => Message::no_op(time),
                })
            }
            Self::Health => {
                let service = text(&detail.service, "detail.service")?;
                let category = text(&detail.category, "detail.eventTypeCategory")?;
                let status = text(&detail.status_code, "detail.statusCode")?;
                let ids = entities(&detail.entities)?;
                // DIFFERENCE: Karpenter drains nodes for changes that are cancelled or over, too.
                let wanted = service == "EC2"
                    && category == "scheduledChange"
                    && !status.eq_ignore_ascii_case("closed");
                if !wanted {
                    return Ok(Message::no_op(time));
                }
                let starts = match &detail.start_time {
                    Text::Is(text) => http_date(text),
                    // Karpenter does not read the field: whatever else it is keeps nobody from leaving.
                    Text::Missing | Text::Wrong => None,
                };
                Ok(Message { starts, ..message(Kind::ScheduledChange, ids) })
            }
            Self::BlockExpiration => {
                let id = text(&detail.reservation_id, "detail.capacity-reservation-id")?;
                Ok(Message {
                    reservation_id: (!id.is_empty()).then(|| id.to_owned()),
                    ..message(Kind::CapacityReservationExpiration, Vec::new())
                })
            }
        }
    }
}

fn instance(detail: &Detail<'_>) -> Result<Vec<InstanceId>, Malformed> {
    let id = text(&detail.instance_id, "detail.instance-id")?;
    Ok(if id.is_empty() { Vec::new() } else { vec![InstanceId::from(id)] })
}

fn entities(list: &List<Object<Entity<'_>>>) -> Result<Vec<InstanceId>, Malformed> {
    let list = match list {
        List::Missing => return Ok(Vec::new()),
        List::Wrong => return Err(Malformed::WrongType("detail.affectedEntities")),
        List::Is(list) => list,
    };
    let mut ids = Vec::with_capacity(list.len());
    for entity in list {
        match entity {
            Object::Missing => {}
            Object::Wrong => return Err(Malformed::WrongType("detail.affectedEntities")),
            Object::Is(entity) => {
                let id = text(&entity.value, "detail.affectedEntities.entityValue")?;
                if !id.is_empty() {
                    ids.push(InstanceId::from(id));
                }
            }
        }
    }
    Ok(ids)
}

/// A time as AWS Health writes it: `Tue, 18 Nov 2025 12:00:00 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// A time in RFC 3339 form, strictly: upper-case `T`, `Z` or an offset with a colon, no leap second.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let (head, mut rest) = bytes.split_at_checked(shape.len())?;
    let fits = |(byte, wanted): (&u8, &u8)| match wanted {
        b'd' => byte.is_ascii_digit(),
        _ => byte == wanted,
    };
    let leap_second = head.ends_with(b"60");
    if !head.iter().zip(shape).all(fits) || head.get(11..13)? > b"23".as_slice() || leap_second {
        return None;
    }
    let mut digits = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        digits = fraction.iter().take_while(|it| it.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        rest = fraction.get(digits..)?;
    }
    let offset = match rest {
        b"Z" => true,
        [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].iter().all(|it| it.is_ascii_digit()),
        _ => false,
    };
    if !offset {
        return None;
    }
    // More than nine digits of a fraction are cut off: nobody needs less than a nanosecond.
    if digits > 9 {
        let end = bytes.len() - rest.len();
        let kept = text.get(..shape.len() + 1 + 9)?;
        return format!("{kept}{}", text.get(end..)?).parse().ok();
    }
    text.parse().ok()
}
