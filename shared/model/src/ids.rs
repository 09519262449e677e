//! Identifiers that must not be mixed up.

use std::{borrow::Borrow, fmt};

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The text of the identifier.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether nothing has been filled in yet.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id!(
    /// `metadata.uid` of a Kubernetes object. A later object of the same name has another one.
    Uid
);
id!(
    /// An EC2 instance id, `i-` and 17 hexadecimal digits (8 in old ones).
    InstanceId
);
id!(
    /// `spec.providerID` of a node: `aws:///<zone>/<instance-id>`, or `kwok-aws:///<zone>/<instance-id>`.
    ProviderId
);

impl ProviderId {
    /// The provider id that the AWS cloud provider gives a node.
    pub fn aws(zone: &str, instance: &InstanceId) -> Self {
        Self(format!("aws:///{zone}/{instance}"))
    }

    /// The instance id in it, in both forms; `None` when the text has another shape.
    pub fn instance_id(&self) -> Option<InstanceId> {
        let rest =
            self.0.strip_prefix("aws:///").or_else(|| self.0.strip_prefix("kwok-aws:///"))?;
        let (_zone, id) = rest.split_once('/')?;
        let well_formed = id.len() > 2
            && id.starts_with("i-")
            && id[2..].bytes().all(|byte| byte.is_ascii_alphanumeric());
        well_formed.then(|| InstanceId(id.to_owned()))
    }

    /// The zone in it.
    pub fn zone(&self) -> Option<&str> {
        let rest =
            self.0.strip_prefix("aws:///").or_else(|| self.0.strip_prefix("kwok-aws:///"))?;
        rest.split_once('/').map(|(zone, _)| zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_instance_id_of_both_forms() {
        for (text, id) in [
            ("aws:///us-west-2a/i-0123456789abcdef0", Some("i-0123456789abcdef0")),
            ("kwok-aws:///us-west-2a/i-0123456789abcdef0", Some("i-0123456789abcdef0")),
            ("aws:///us-west-2a/", None),
            ("aws:///us-west-2a/x-1", None),
            ("gce:///a/i-1", None),
            ("", None),
        ] {
            assert_eq!(ProviderId::from(text).instance_id(), id.map(InstanceId::from), "{text}");
        }
    }
}
