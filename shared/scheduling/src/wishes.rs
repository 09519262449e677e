//! What pods ask for, worked out once for all solves over one view: the thousands of simulations of one pass ask about the
//! same pods and the same rows.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use spokeshave_model::{Requirement, Resources, Toleration, core::Pod, taints};

use crate::{
    bits::Bits,
    daemons::has_resource_claims,
    dims::Amounts,
    planner::Planner,
    ports::{HostPort, host_ports},
    requests::pod_requests,
    sets::SetId,
    shapes::{self, VolumePlace},
    volumes::{self, Attachments},
};

/// Why pods with resource claims have no place.
pub const DRA_REFUSAL: &str =
    "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter";
/// The same where `IGNORE_DRA_REQUESTS` is off.
pub const DRA_UNRESOLVED: &str =
    "pod has resource claims, and devices of ResourceSlices are not allocated in plans";

/// Position of a wish.
pub(crate) type WishId = usize;

/// What a pod asks for, as far as it is the same in every solve.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) id: WishId,
    pub(crate) pod: Arc<Pod>,
    /// With the heaviest preference as if required.
    pub(crate) set: SetId,
    pub(crate) strict: SetId,
    pub(crate) host: Option<Requirement>,
    pub(crate) strict_host: Option<Requirement>,
    pub(crate) tolerations: usize,
    pub(crate) requests: Amounts,
    /// The same by name, as it will be written.
    pub(crate) asked: Resources,
    pub(crate) requests_id: usize,
    /// Something is asked for that nothing in the world has.
    pub(crate) impossible: bool,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) places: Vec<VolumePlace>,
    pub(crate) attachments: Attachments,
    /// Same requirements, tolerations, ports and requests: fails for good on the same claims.
    pub(crate) fit: usize,
    /// Refused whatever there is.
    pub(crate) refusal: Option<String>,
    /// What its constraints and its required anti-affinity ask of topology.
    pub(crate) questions: Vec<usize>,
    pub(crate) inverse_questions: Vec<usize>,
}

/// Requirements, tolerations, ports and requests: what makes a pod fit a claim, topology aside.
type FitKey = (SetId, Option<Requirement>, usize, Vec<HostPort>, usize);
/// Requirements, host name and tolerations: what makes a row suit a pod, what is left on it aside.
type SuitKey = (SetId, Option<Requirement>, usize);

/// All wishes, and what rows make of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    list: Vec<Arc<Wish>>,
    by_fingerprint: FxHashMap<u64, SmallVec<[WishId; 1]>>,
    /// Pods with volumes are each a wish of their own: by address, and the pod, so that the address stays taken.
    by_pod: FxHashMap<usize, (Arc<Pod>, WishId)>,
    tolerations: FxHashMap<Vec<Toleration>, usize>,
    requests: FxHashMap<Amounts, usize>,
    fits: FxHashMap<FitKey, usize>,
    /// By the wish and the one that it was before anything was given up: the next, and what is given up for it.
    relaxed: FxHashMap<(WishId, WishId), Option<(WishId, &'static str)>>,
    /// By tolerations and template.
    tolerated: FxHashMap<(usize, usize), bool>,
    suitable: FxHashMap<SuitKey, Arc<Bits>>,
    /// Rows with room for such requests, as they are before anything is placed.
    roomy: FxHashMap<usize, Arc<Bits>>,
}

impl Wishes {
    /// Whether the pod, which has volumes, has been asked about.
    pub(crate) fn knows(&self, pod: &Arc<Pod>) -> bool {
        self.by_pod.contains_key(&(Arc::as_ptr(pod) as usize))
    }

    /// The labels by which rows are compared have changed.
    pub(crate) fn forget_rows(&mut self) {
        self.suitable.clear();
    }
}

fn number<T: std::hash::Hash + Eq>(of: &mut FxHashMap<T, usize>, it: T) -> usize {
    let next = of.len();
    *of.entry(it).or_insert(next)
}

impl Planner<'_> {
    /// What `pod`, of this fingerprint, asks for. `original` is the same pod as the view or the caller has it.
    pub(crate) fn wish_of(&mut self, pod: &Arc<Pod>, original: &Arc<Pod>, print: u64) -> Arc<Wish> {
        let alone = volumes::has_claims(pod);
        let address = Arc::as_ptr(original) as usize;
        let wishes = &self.wishes;
        let known = if alone {
            wishes.by_pod.get(&address).map(|it| it.1)
        } else {
            wishes.by_fingerprint.get(&print).and_then(|known| {
                known.iter().copied().find(|at| shapes::same_shape(&wishes.list[*at].pod, pod))
            })
        };
        if let Some(known) = known {
            return Arc::clone(&self.wishes.list[known]);
        }
        let made = self.make_wish(pod);
        if alone {
            self.wishes.by_pod.insert(address, (Arc::clone(original), made.id));
        } else {
            self.wishes.by_fingerprint.entry(print).or_default().push(made.id);
        }
        made
    }

    /// What is asked for next when `wish`, which once was `original`, finds no place, and what is given up for it.
    pub(crate) fn relaxed_wish(
        &mut self,
        wish: &Wish,
        original: &Wish,
    ) -> Option<(Arc<Wish>, &'static str)> {
        let question = (wish.id, original.id);
        let answer = match self.wishes.relaxed.get(&question) {
            Some(known) => *known,
            None => {
                let policy = self.options.preference_policy;
                let relaxed = shapes::relax(&wish.pod, &original.pod, policy, self.tolerate_prefer);
                let made = relaxed.map(|it| (self.make_wish(&Arc::new(it.pod)).id, it.what));
                self.wishes.relaxed.insert(question, made);
                made
            }
        };
        answer.map(|(id, what)| (Arc::clone(&self.wishes.list[id]), what))
    }

    fn make_wish(&mut self, pod: &Arc<Pod>) -> Arc<Wish> {
        let full = shapes::requirements(pod);
        let strict = shapes::strict_requirements(pod);
        let host = shapes::host_requirement(&full);
        let strict_host = shapes::host_requirement(&strict);
        let set = self.sets.intern(full);
        let strict = self.sets.intern(strict);
        let tolerations = number(&mut self.wishes.tolerations, pod.spec.tolerations.clone());
        let asked = pod_requests(pod);
        let (requests, known) = self.dims.amounts(&asked);
        let requests_id = number(&mut self.wishes.requests, requests.clone());
        let ports = host_ports(pod);
        let fit_key = (set, host.clone(), tolerations, ports.clone(), requests_id);
        let fit = number(&mut self.wishes.fits, fit_key);
        let (mut places, mut attachments) = (Vec::new(), Attachments::new());
        if volumes::has_claims(pod) {
            places = volumes::alternatives(pod, self.view)
                .into_iter()
                .map(|place| VolumePlace {
                    host: shapes::host_requirement(&place),
                    set: self.sets.intern(place),
                })
                .collect();
            attachments = volumes::attachments(pod, self.view);
        }
        let refusal = has_resource_claims(pod).then(|| {
            // DIFFERENCE: devices are not allocated yet, so such a pod has no place either way; Karpenter simulates it.
            let ignored = self.options.ignore_dra_requests;
            if ignored { DRA_REFUSAL } else { DRA_UNRESOLVED }.to_owned()
        });
        let questions = self.bases.of_constraints(pod, self.view, &mut self.sets);
        let inverse_questions = self.bases.of_repulsion(pod, self.view, &mut self.sets);
        let made = Arc::new(Wish {
            id: self.wishes.list.len(),
            pod: Arc::clone(pod),
            set,
            strict,
            host,
            strict_host,
            tolerations,
            requests,
            asked,
            requests_id,
            impossible: !known,
            ports,
            places,
            attachments,
            fit,
            refusal,
            questions,
            inverse_questions,
        });
        self.wishes.list.push(Arc::clone(&made));
        made
    }

    /// Whether the pod tolerates the taints of a template.
    pub(crate) fn tolerates(&mut self, template: usize, wish: &Wish) -> bool {
        *self.wishes.tolerated.entry((wish.tolerations, template)).or_insert_with(|| {
            let taints = &self.templates[template].taints;
            taints::untolerated(taints, &wish.pod.spec.tolerations).is_none()
        })
    }

    /// Rows whose labels and taints suit the pod.
    pub(crate) fn suitable_rows(&mut self, wish: &Wish) -> Arc<Bits> {
        let question = (wish.set, wish.host.clone(), wish.tolerations);
        if let Some(known) = self.wishes.suitable.get(&question) {
            return Arc::clone(known);
        }
        let classes: Vec<bool> = self
            .rows
            .classes
            .iter()
            .map(|(set, list)| {
                taints::untolerated(list, &wish.pod.spec.tolerations).is_none()
                    && self.sets.carries(*set, wish.set)
            })
            .collect();
        let bits: Bits = self
            .rows
            .iter()
            .filter(|row| classes.get(row.class).copied().unwrap_or(false))
            .filter(|row| wish.host.as_ref().is_none_or(|it| it.has(row.host_name())))
            .map(|row| row.at)
            .collect();
        let bits = Arc::new(bits);
        self.wishes.suitable.insert(question, Arc::clone(&bits));
        bits
    }

    /// Rows that may receive pods and have room for this one as long as nothing has been placed on them.
    pub(crate) fn roomy_rows(&mut self, wish: &Wish) -> Arc<Bits> {
        if let Some(known) = self.wishes.roomy.get(&wish.requests_id) {
            return Arc::clone(known);
        }
        let fits = |row: &usize| {
            let room = &self.rows.get(*row).room;
            wish.requests.iter().zip(room).all(|(wanted, room)| wanted <= room)
        };
        let bits: Bits = self.open_rows.iter().filter(fits).collect();
        let bits = Arc::new(bits);
        self.wishes.roomy.insert(wish.requests_id, Arc::clone(&bits));
        bits
    }
}
