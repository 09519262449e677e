//! Answers of the API server as [`ClusterError`].

use kube::core::response::{Status, StatusCause};
use spokeshave_ports::{ClusterError, chain};

/// The error that an answer means for `object`.
pub fn cluster_error(error: &kube::Error, object: &str) -> ClusterError {
    let kube::Error::Api(status) = error else {
        return ClusterError::Unavailable { message: chain(error) };
    };
    let object = object.to_owned();
    match status.code {
        404 => ClusterError::NotFound { object },
        409 if status.reason == "AlreadyExists" => ClusterError::AlreadyExists { object },
        409 => ClusterError::Conflict { object },
        // A patch that names another UID is an attempt to change it.
        422 if causes(status).iter().any(|it| it.field == "metadata.uid") => {
            ClusterError::Conflict { object }
        }
        401 => ClusterError::Refused {
            object,
            message: "the cluster does not know this identity (401): give its role an access entry"
                .to_owned(),
        },
        403 => ClusterError::Refused {
            object,
            message: format!("not allowed (403), a role or binding is missing: {}", status.message),
        },
        408 | 410 | 429 | 500.. => {
            ClusterError::Unavailable { message: format!("{}: {}", status.code, status.message) }
        }
        _ => ClusterError::Refused { object, message: status.message.clone() },
    }
}

/// The error that an answer means for a list of a kind. What is not found then is the kind itself: its definition is missing,
/// or serves other versions.
pub fn list_error(error: &kube::Error, kind: &str, api_version: &str) -> ClusterError {
    match cluster_error(error, kind) {
        ClusterError::NotFound { .. } => {
            let own = api_version.contains("karpenter") || api_version.contains("x-k8s.io");
            let fix = if own { ": install the chart, or apply infra/crds" } else { "" };
            let object = format!("{kind} of {api_version} (this cluster does not serve it{fix})");
            ClusterError::NotFound { object }
        }
        other => other,
    }
}

/// The causes in a status.
pub(crate) fn causes(status: &Status) -> &[StatusCause] {
    status.details.as_ref().map_or(&[], |it| &it.causes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str, field: &str) -> kube::Error {
        let status = serde_json::from_value(serde_json::json!({
            "code": code, "reason": reason, "message": "m", "details": {"causes": [{"field": field}]},
        }));
        kube::Error::Api(Box::new(status.expect("a status")))
    }

    #[test]
    fn answers_are_told_apart_by_code_and_reason() {
        let object = || "Pod/a".to_owned();
        let refused =
            |message: &str| ClusterError::Refused { object: object(), message: message.to_owned() };
        for (code, reason, field, expected) in [
            (404, "NotFound", "", ClusterError::NotFound { object: object() }),
            (409, "AlreadyExists", "", ClusterError::AlreadyExists { object: object() }),
            (409, "Conflict", "", ClusterError::Conflict { object: object() }),
            (422, "Invalid", "metadata.uid", ClusterError::Conflict { object: object() }),
            (422, "Invalid", "spec.x", refused("m")),
            (400, "BadRequest", "", refused("m")),
            (
                429,
                "TooManyRequests",
                "",
                ClusterError::Unavailable { message: "429: m".to_owned() },
            ),
            (503, "", "", ClusterError::Unavailable { message: "503: m".to_owned() }),
            (410, "Expired", "", ClusterError::Unavailable { message: "410: m".to_owned() }),
        ] {
            assert_eq!(cluster_error(&status(code, reason, field), "Pod/a"), expected, "{code}");
        }
        // B-090: the version that is wanted is named.
        let missing = status(404, "NotFound", "");
        assert_eq!(
            list_error(&missing, "NodePool", "karpenter.sh/v1").to_string(),
            "NodePool of karpenter.sh/v1 (this cluster does not serve it: install the chart, or apply infra/crds) not found"
        );
        assert_eq!(
            list_error(&missing, "ResourceSlice", "resource.k8s.io/v1").to_string(),
            "ResourceSlice of resource.k8s.io/v1 (this cluster does not serve it) not found"
        );
        let busy = status(503, "", "");
        assert_eq!(
            list_error(&busy, "NodePool", "karpenter.sh/v1"),
            cluster_error(&busy, "NodePool")
        );
        assert!(!cluster_error(&status(401, "Unauthorized", ""), "Pod/a").is_retryable());
        assert!(!cluster_error(&status(403, "Forbidden", ""), "Pod/a").is_retryable());
    }
}
