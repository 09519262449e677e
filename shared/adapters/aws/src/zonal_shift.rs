//! Zonal shifts from the Application Recovery Controller.

use aws_sdk_arczonalshift::{
    Client,
    types::{AppliedStatus, ZonalShiftInResource},
};
use jiff::Timestamp;
use spokeshave_ports::{AwsError, ZonalShift, ZonalShifts};

use crate::{Call, Connection};

const GET: Call = Call("arc-zonal-shift", "GetManagedResource");

/// The Application Recovery Controller of one region.
#[derive(Clone, Debug)]
pub struct RecoveryController {
    client: Client,
}

impl RecoveryController {
    pub fn new(connection: &Connection) -> Self {
        Self { client: counted!(aws_sdk_arczonalshift, connection.config()) }
    }
}

impl ZonalShifts for RecoveryController {
    async fn zonal_shifts(&self, resource: &str) -> Result<Vec<ZonalShift>, AwsError> {
        let request = self.client.get_managed_resource().resource_identifier(resource);
        let answer = request.send().await.map_err(|error| GET.failed(error))?;
        Ok(answer.zonal_shifts.iter().map(zonal_shift).collect())
    }
}

fn zonal_shift(it: &ZonalShiftInResource) -> ZonalShift {
    ZonalShift {
        away_from: it.away_from.clone(),
        applied_status: AppliedStatus::as_str(&it.applied_status).to_owned(),
        // A fraction of a second of a shift matters to nobody.
        expires_at: Timestamp::from_second(it.expiry_time.secs()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_ports::ZonalShifts;

    use super::*;
    use crate::replay::Replay;

    const ARN: &str = "arn:aws:eks:us-west-2:123456789012:cluster/c1";

    #[tokio::test] // aws-capacity 12: what is asked, and what of the answer counts
    async fn shifts_of_the_cluster_are_read() {
        let answer = r#"{
            "arn": "arn:aws:eks:us-west-2:123456789012:cluster/c1", "name": "c1",
            "appliedWeights": {"usw2-az1": 0.0, "usw2-az2": 1.0},
            "zonalShifts": [
                {"appliedStatus": "APPLIED", "zonalShiftId": "a", "resourceIdentifier": "c1", "awayFrom": "usw2-az1",
                 "expiryTime": 1767265200.25, "startTime": 1767261600.0, "comment": "drill"},
                {"appliedStatus": "NOT_APPLIED", "zonalShiftId": "b", "resourceIdentifier": "c1", "awayFrom": "usw2-az2",
                 "expiryTime": 1767265200, "startTime": 1767261600, "comment": ""}
            ]}"#;
        let replay = Replay::of([(200, answer)]);
        let controller = RecoveryController::new(&replay.connection());
        let shifts = controller.zonal_shifts(ARN).await.expect("read");
        let shift = |zone: &str, status: &str| ZonalShift {
            away_from: zone.into(),
            applied_status: status.into(),
            expires_at: Timestamp::from_second(1_767_265_200).ok(),
        };
        assert_eq!(shifts, [shift("usw2-az1", "APPLIED"), shift("usw2-az2", "NOT_APPLIED")]);
        let encoded = ARN.replace(':', "%3A").replace('/', "%2F");
        let url = format!(
            "GET https://arc-zonal-shift.us-west-2.amazonaws.com/managedresources/{encoded}"
        );
        assert_eq!(replay.requests(), [url]);
    }

    #[tokio::test] // aws-nodeclass 21, case 6
    async fn a_sample_of_arc_is_read() {
        let sample = include_str!("../samples/managed-resource.json");
        let replay = Replay::of([(200, sample)]);
        let controller = RecoveryController::new(&replay.connection());
        let shifts = controller.zonal_shifts(ARN).await.expect("read");
        let applied = shifts.iter().filter(|it| it.applied_status == "APPLIED");
        let zones: Vec<&str> = applied.map(|it| it.away_from.as_str()).collect();
        assert_eq!(zones, ["euw1-az1"]);
        assert!(shifts.iter().all(|it| it.expires_at.is_some()), "{shifts:?}");
    }

    #[tokio::test]
    async fn a_cluster_that_is_not_registered_is_named_by_its_code() {
        let answer = r#"{"message": "no such managed resource"}"#;
        let replay = Replay::of([(404, answer)])
            .with_header("x-amzn-errortype", "ResourceNotFoundException");
        let controller = RecoveryController::new(&replay.connection());
        let error = controller.zonal_shifts(ARN).await.expect_err("refused");
        assert_eq!(
            (error.service, error.operation, error.code.as_str(), error.status),
            ("arc-zonal-shift", "GetManagedResource", "ResourceNotFoundException", 404)
        );
        assert_eq!(error.message, "no such managed resource");
        assert_eq!(replay.requests().len(), 1, "asking again does not help");
    }

    #[tokio::test]
    async fn throttling_is_tried_again_within_the_call() {
        let throttled = r#"{"message": "slow down"}"#;
        let replay =
            Replay::of([(429, throttled), (200, r#"{"appliedWeights": {}, "zonalShifts": []}"#)])
                .with_header("x-amzn-errortype", "ThrottlingException");
        let controller = RecoveryController::new(&replay.connection());
        assert_eq!(controller.zonal_shifts(ARN).await.expect("read"), []);
        assert_eq!(replay.requests().len(), 2);
    }
}
