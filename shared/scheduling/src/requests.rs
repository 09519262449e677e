//! What one pod asks for (`spec` scheduling 3.1).

use spokeshave_model::{
    Quantity, Resources,
    core::{Container, ContainerStatus, Pod},
    resources::{CPU, MEMORY, PODS},
};

/// Requests of a pod, `pods: 1` included: containers, init containers and sidecars, resizes under way, pod-level
/// requests and overhead.
pub fn pod_requests(pod: &Pod) -> Resources {
    let mut total = container_requests(pod);
    if let Some(level) = &pod.spec.resources {
        for (name, amount) in level.requests.iter() {
            if matches!(name, CPU | MEMORY) || name.starts_with("hugepages-") {
                total.set(name, amount);
            }
        }
    }
    if let Some(overhead) = &pod.spec.overhead {
        total.add(overhead);
    }
    total.set(PODS, Quantity::units(1));
    total
}

fn container_requests(pod: &Pod) -> Resources {
    let infeasible = pod
        .condition("PodResizePending")
        .is_some_and(|it| it.status != "False" && it.reason == "Infeasible");
    let mut total = Resources::new();
    for container in &pod.spec.containers {
        total.add(&effective(container, &pod.status.container_statuses, infeasible));
    }
    let mut side = Resources::new();
    let mut peaks = Vec::new();
    for init in &pod.spec.init_containers {
        if init.restart_policy == "Always" {
            let requests = effective(init, &pod.status.init_container_statuses, infeasible);
            total.add(&requests);
            side.add(&requests);
            peaks.push(side.clone());
        } else {
            let mut peak = init.resources.requests.clone();
            peak.add(&side);
            peaks.push(peak);
        }
    }
    for peak in &peaks {
        total.raise_to(peak);
    }
    total
}

/// A container's requests, with an in-place resize that is under way.
fn effective(container: &Container, statuses: &[ContainerStatus], infeasible: bool) -> Resources {
    let requests = &container.resources.requests;
    let Some((status, actual)) = statuses
        .iter()
        .find(|it| it.name == container.name)
        .and_then(|it| Some((it, it.resources.as_ref()?)))
    else {
        return requests.clone();
    };
    let mut result = if infeasible { Resources::new() } else { requests.clone() };
    if let Some(allocated) = &status.allocated_resources {
        result.raise_to(allocated);
    }
    result.raise_to(&actual.requests);
    result
}

/// Copies limits into missing requests, as the API server does for pods but not for templates.
pub fn default_requests(pod: &mut Pod) {
    for container in pod.spec.containers.iter_mut().chain(&mut pod.spec.init_containers) {
        let limits = container.resources.limits.clone();
        for (name, amount) in limits.iter() {
            if !container.resources.requests.0.contains_key(name) {
                container.resources.requests.set(name, amount);
            }
        }
    }
}
