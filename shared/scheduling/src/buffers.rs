//! CapacityBuffers: virtual pods that keep room (`spec` scheduling 21, api 15).

use std::sync::Arc;

use spokeshave_model::{
    CapacityBuffer, ObjectKey, Resources,
    core::{Pod, PodTemplateSpec},
};

use crate::{
    requests::{default_requests, pod_requests},
    solution::Solution,
    view::ClusterView,
};

/// Annotation of virtual pods.
pub const FAKE_POD: &str = "karpenter.sh/capacity-buffer-fake-pod";
const BUFFER_NAME: &str = "karpenter.sh/capacity-buffer-name";
const BUFFER_NAMESPACE: &str = "karpenter.sh/capacity-buffer-namespace";
/// The only strategy that is ours, and the default.
pub const ACTIVE_CAPACITY: &str = "buffer.x-k8s.io/active-capacity";

/// Why a buffer gives no pods: reason and message of `ReadyForProvisioning`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    pub reason: &'static str,
    pub message: String,
}

/// A buffer as it counts now.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    pub replicas: i64,
    pub template: PodTemplateSpec,
    /// Of the PodTemplate, if it is one.
    pub template_generation: Option<i64>,
}

/// Whether the buffer is ours to keep.
///
/// DIFFERENCE: Karpenter takes every strategy for its own; a buffer with another strategy belongs to another autoscaler.
pub fn is_ours(buffer: &CapacityBuffer) -> bool {
    !buffer.metadata.deleting()
        && buffer.spec.provisioning_strategy.as_deref().is_none_or(|it| it == ACTIVE_CAPACITY)
}

/// How many virtual pods a buffer has, and of which kind.
///
/// # Errors
/// What it refers to is not there, or it refers to nothing.
pub fn resolve(buffer: &CapacityBuffer, view: &ClusterView) -> Result<Resolved, Unresolved> {
    let wrong = |reason, message: String| Err(Unresolved { reason, message });
    let here = |name: &str| ObjectKey::namespaced(&buffer.metadata.namespace, name);
    let spec = &buffer.spec;
    let mut resolved = Resolved::default();
    let mut scale: Option<i64> = None;
    match (&spec.pod_template_ref, &spec.scalable_ref) {
        (Some(_), Some(_)) => {
            return wrong(
                "ResolutionFailed",
                "You must define either PodTemplateRef or ScalableRef, but not both".to_owned(),
            );
        }
        (None, None) => {
            return wrong(
                "ResolutionFailed",
                "Neither podTemplateRef nor scalableRef is set".to_owned(),
            );
        }
        (Some(to), None) => match view.pod_templates.get(&here(&to.name)) {
            Some(found) => {
                resolved.template = found.template.clone();
                resolved.template_generation = Some(found.metadata.generation);
            }
            None => {
                return wrong(
                    "PodTemplateNotFound",
                    format!("PodTemplate {:?} not found", to.name),
                );
            }
        },
        (None, Some(to)) => {
            let group = if to.api_group.is_empty() { "apps" } else { to.api_group.as_str() };
            let key = here(&to.name);
            let found = match (group, to.kind.as_str()) {
                ("apps", "Deployment") => view
                    .deployments
                    .get(&key)
                    .map(|it| (it.spec.replicas, it.spec.template.clone())),
                ("apps", "StatefulSet") => view
                    .stateful_sets
                    .get(&key)
                    .map(|it| (it.spec.replicas, it.spec.template.clone())),
                ("apps", "ReplicaSet") => view
                    .replica_sets
                    .get(&key)
                    .map(|it| (it.spec.replicas, it.spec.template.clone())),
                _ => {
                    let text = format!("unsupported scalable {group}/{}", to.kind);
                    return wrong("ResolutionFailed", text);
                }
            };
            let Some((replicas, template)) = found else {
                return wrong(
                    "ScalableRefNotFound",
                    format!("{} {:?} not found", to.kind, to.name),
                );
            };
            scale = Some(i64::from(replicas.unwrap_or(1)));
            resolved.template = template;
        }
    }
    let share = match (spec.percentage, scale) {
        (Some(percent), Some(scale)) if scale > 0 => {
            let rounded = (scale * i64::from(percent)).div_ceil_positive(100);
            Some(if percent > 0 { rounded.max(1) } else { rounded })
        }
        _ => None,
    };
    let wanted = spec.replicas.map(i64::from).into_iter().chain(share).max();
    let cap = spec.limits.as_ref().and_then(|limits| cap(limits, &sample(&resolved.template)));
    resolved.replicas = match (wanted, cap) {
        (Some(wanted), Some(cap)) => wanted.min(cap),
        (Some(it), None) | (None, Some(it)) => it,
        (None, None) => 0,
    };
    Ok(resolved)
}

trait DivCeil {
    fn div_ceil_positive(self, by: i64) -> i64;
}

impl DivCeil for i64 {
    fn div_ceil_positive(self, by: i64) -> i64 {
        self.div_euclid(by) + i64::from(self.rem_euclid(by) != 0)
    }
}

/// A pod of the template, limits copied into missing requests as the API server does for real pods.
///
/// DIFFERENCE: Karpenter plans virtual pods without that, so containers with limits alone ask for nothing.
fn sample(template: &PodTemplateSpec) -> Pod {
    let mut pod =
        Pod { metadata: template.metadata.clone(), spec: template.spec.clone(), ..Pod::default() };
    default_requests(&mut pod);
    pod
}

/// How many pods the limits allow; resources that the pod does not ask for do not count.
fn cap(limits: &Resources, pod: &Pod) -> Option<i64> {
    let requests = pod_requests(pod);
    limits
        .iter()
        .filter_map(|(name, limit)| {
            let each = requests.get(name).nanos();
            (each > 0 && name != spokeshave_model::resources::PODS)
                .then(|| i64::try_from(limit.nanos() / each).unwrap_or(i64::MAX).max(0))
        })
        .min()
}

/// Whether a pod is virtual.
pub fn is_virtual(pod: &Pod) -> bool {
    pod.metadata.annotation(FAKE_POD) == Some("true")
}

/// The virtual pods of one buffer.
pub fn pods_of(buffer: &CapacityBuffer, resolved: &Resolved) -> Vec<Arc<Pod>> {
    (1..=resolved.replicas)
        .map(|at| {
            let mut pod = sample(&resolved.template);
            let meta = &mut pod.metadata;
            meta.name = format!("capacity-buffer-{}-{at}", buffer.metadata.name);
            meta.namespace.clone_from(&buffer.metadata.namespace);
            meta.uid = format!("{}-{at}", buffer.metadata.uid).into();
            meta.creation_timestamp = buffer.metadata.creation_timestamp;
            meta.annotations.insert(FAKE_POD.to_owned(), "true".to_owned());
            meta.annotations.insert(BUFFER_NAME.to_owned(), buffer.metadata.name.clone());
            meta.annotations.insert(BUFFER_NAMESPACE.to_owned(), buffer.metadata.namespace.clone());
            pod.spec
                .volumes
                .retain(|it| it.persistent_volume_claim.is_none() && it.ephemeral.is_none());
            pod.spec.node_name.clear();
            pod.spec.priority = Some(i32::MIN);
            Arc::new(pod)
        })
        .collect()
}

/// The virtual pods of all buffers of the view, by namespace and name of the buffer.
pub fn virtual_pods(view: &ClusterView) -> Vec<Arc<Pod>> {
    view.buffers
        .values()
        .filter(|it| is_ours(it))
        .filter_map(|it| Some(pods_of(it, &resolve(it, view).ok()?)))
        .flatten()
        .collect()
}

/// What a plan says about a buffer: condition `Provisioning`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provisioning {
    pub fits: bool,
    pub reason: &'static str,
    pub message: String,
}

/// The condition `Provisioning` after a plan; `None` leaves it as it is.
pub fn provisioning(
    buffer: &CapacityBuffer,
    resolved: Result<&Resolved, &Unresolved>,
    solution: &Solution,
) -> Option<Provisioning> {
    let not = |reason, message: String| Some(Provisioning { fits: false, reason, message });
    let Ok(resolved) = resolved else {
        return not("NotReadyForProvisioning", "Buffer is not ReadyForProvisioning".to_owned());
    };
    if resolved.replicas == 0 {
        return not("BufferEmpty", "Buffer has zero desired replicas".to_owned());
    }
    let mine = |pod: &Pod| {
        is_virtual(pod)
            && pod.metadata.namespace == buffer.metadata.namespace
            && pod.metadata.annotation(BUFFER_NAME) == Some(buffer.metadata.name.as_str())
    };
    let count = |pods: &[Arc<Pod>]| pods.iter().filter(|it| mine(it)).count();
    let existing: usize = solution.existing.iter().map(|it| count(&it.pods)).sum();
    let new: usize = solution.new_claims.iter().map(|it| count(&it.pods)).sum();
    let prefix = format!("capacity-buffer-{}-", buffer.metadata.name);
    let failed = solution
        .unschedulable
        .keys()
        .filter(|key| key.namespace == buffer.metadata.namespace)
        .filter_map(|key| key.name.strip_prefix(&prefix))
        .filter(|number| number.bytes().all(|it| it.is_ascii_digit()))
        .count();
    let total = existing + new + failed;
    if new + failed > 0 {
        let text = format!("{new}/{total} virtual pods required new capacity, {failed} failed");
        return not("RequiresNewCapacity", text);
    }
    let wanted = usize::try_from(resolved.replicas).unwrap_or(usize::MAX);
    (existing > 0 && existing >= wanted).then(|| Provisioning {
        fits: true,
        reason: "FitsExistingCapacity",
        message: format!("All {existing} virtual pods fit on existing capacity"),
    })
}
