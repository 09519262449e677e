//! The thirteen functions behind the simulator's [`Functions`].

use jiff::Timestamp;
use spokeshave_cluster_bridge_function::Bridge;
use spokeshave_model::{Kind, Settings};
use spokeshave_ports::{Concern, Invocation, queues::BusEvent, watch::Change};
use spokeshave_sim::{Functions, InvocationSpec, ObjectChange, Ports, engine::Running};
use spokeshave_warm::Cache;

/// Calls the same handlers that the Lambda binaries call.
pub struct AllFunctions {
    bridge: Bridge,
    /// Every run is the first one of its process.
    cold: bool,
}

impl AllFunctions {
    pub fn new(settings: &Settings) -> Self {
        Self { bridge: Bridge::new(settings), cold: false }
    }

    /// The same, but nothing is kept in memory from one run to the next.
    pub fn cold(settings: &Settings) -> Self {
        Self { cold: true, ..Self::new(settings) }
    }
}

impl Functions for AllFunctions {
    fn invoke(&self, run: InvocationSpec, ports: Ports) -> Running {
        if self.cold {
            Cache::forget();
        }
        Box::pin(async move {
            let InvocationSpec { concern, batch, now, deadline, settings } = run;
            let cx = Invocation { concern, now, deadline, settings: &settings, journal: &ports };
            let it = &ports;
            match concern {
                Concern::Provision => {
                    spokeshave_provision_function::handle(&batch, it, it, it, it, &cx).await
                }
                Concern::Launch => {
                    spokeshave_launch_function::handle(&batch, it, it, it, it, &cx).await
                }
                Concern::Lifecycle => {
                    spokeshave_lifecycle_function::handle(&batch, it, it, it, it, &cx).await
                }
                Concern::Tagging => {
                    spokeshave_tagging_function::handle(&batch, it, it, it, &cx).await
                }
                Concern::Interruption => {
                    spokeshave_interruption_function::handle(&batch, it, it, it, &cx).await
                }
                Concern::Disruption => {
                    spokeshave_disruption_function::handle(&batch, it, it, it, it, &cx).await
                }
                Concern::Termination => {
                    spokeshave_termination_function::handle(&batch, it, it, it, it, it, &cx).await
                }
                Concern::Nodeclass => {
                    spokeshave_nodeclass_function::handle(&batch, it, it, it, it, it, it, it, &cx)
                        .await
                }
                Concern::Nodepool => {
                    spokeshave_nodepool_function::handle(&batch, it, it, &cx).await
                }
                Concern::InstanceGc => {
                    spokeshave_instance_gc_function::handle(&batch, it, it, it, it, &cx).await
                }
                Concern::InstanceProfileGc => {
                    spokeshave_instance_profile_gc_function::handle(&batch, it, it, it, &cx).await
                }
                Concern::CatalogRefresh => {
                    let shifts = &spokeshave_ports::NoZonalShifts;
                    spokeshave_catalog_refresh_function::handle(&batch, it, it, shifts, it, it, &cx)
                        .await
                }
                // The bridge is started directly; it has no queue.
                Concern::ClusterBridge => spokeshave_lambda::BatchAnswer::done(),
            }
        })
    }

    fn changed(&mut self, change: &ObjectChange, now: Timestamp) {
        if let Some(change) = watched(change) {
            self.bridge.observe(&change, now);
        }
    }

    fn bridge_due(&self) -> Option<Timestamp> {
        self.bridge.due()
    }

    fn bridge_take(&mut self, now: Timestamp) -> Vec<BusEvent> {
        self.bridge.take(now)
    }
}

/// The change as the bridge's watches see it; kinds that it does not watch are passed over.
fn watched(change: &ObjectChange) -> Option<Change> {
    fn of<K: Kind>(change: &ObjectChange) -> Option<Change> {
        let (old, new) = change.of::<K>()?;
        Change::of::<K>(old, new)
    }
    use spokeshave_model::core;
    match change.kind {
        "Pod" => of::<core::Pod>(change),
        "Node" => of::<core::Node>(change),
        "NodeClaim" => of::<spokeshave_model::NodeClaim>(change),
        "NodePool" => of::<spokeshave_model::NodePool>(change),
        "EC2NodeClass" => of::<spokeshave_model::EC2NodeClass>(change),
        "NodeOverlay" => of::<spokeshave_model::NodeOverlay>(change),
        "CapacityBuffer" => of::<spokeshave_model::CapacityBuffer>(change),
        "DaemonSet" => of::<core::DaemonSet>(change),
        "PodDisruptionBudget" => of::<core::PodDisruptionBudget>(change),
        "PersistentVolumeClaim" => of::<core::PersistentVolumeClaim>(change),
        "StorageClass" => of::<core::StorageClass>(change),
        "VolumeAttachment" => of::<core::VolumeAttachment>(change),
        _ => None,
    }
}
