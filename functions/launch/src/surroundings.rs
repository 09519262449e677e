//! What a launch reads besides the claim: catalog, marks, the cluster's facts, free addresses. Read once per run.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_bootstrap::ClusterInfo;
use spokeshave_catalog::{Catalog, MarketView, Memo, launch::subnets::FreeAddresses, stored};
use spokeshave_model::{EC2NodeClass, ObjectKey, Settings, core::Service};
use spokeshave_ports::{
    Cluster, Decision, Ec2, Queues, StateKey, StateTable, When, ec2::Filter, facts,
};

use crate::{Run, Trouble};

/// What this process has read and worked out before.
static MEMO: Memo = Memo::new();

/// Partition of the state table with free addresses by class. Lost: subnets are read again.
const ADDRESSES: &str = "addresses";

/// Read lazily, kept for the run.
#[derive(Default)]
pub struct Surroundings {
    catalog: Option<Catalog>,
    cluster: Option<(ClusterInfo, bool)>,
}

impl<C: Cluster, E: Ec2, S: StateTable, Q: Queues> Run<'_, C, E, S, Q> {
    /// What the region sells.
    pub async fn catalog<'s>(&self, known: &'s mut Surroundings) -> Result<&'s Catalog, Trouble> {
        if known.catalog.is_none() {
            let stored = stored::load_catalog(self.state, &self.cx.settings.region, &MEMO).await?;
            known.catalog = Some(stored.catalog);
        }
        Ok(known.catalog.get_or_insert_default())
    }

    /// Marks, counts and observations. Without the table launches go on with none of them.
    pub async fn view<'s>(&self, settings: &'s Settings) -> MarketView<'s> {
        let (view, problem) = stored::load_view(self.state, settings, self.cx.now).await;
        if let Some(problem) = problem {
            let reason = format!("marks of unavailable offerings cannot be read: {problem}");
            self.cx.decide(Decision::new("skip", "StateTable/unavailable", reason).as_error());
        }
        view
    }

    /// The cluster as nodes are told of it, and whether it uses IPv6.
    pub async fn cluster_info(
        &self,
        known: &mut Surroundings,
    ) -> Result<(ClusterInfo, bool), Trouble> {
        if let Some(info) = &known.cluster {
            return Ok(info.clone());
        }
        let settings = self.cx.settings;
        let facts = facts::load(self.state).await?.unwrap_or_default();
        let dns = self
            .cluster
            .get::<Service>(&ObjectKey::namespaced("kube-system", "kube-dns"))
            .await?
            .map(|it| it.spec.cluster_ip.clone())
            .filter(|it| !it.is_empty() && it != "None");
        let given = |set: &str, told: String| if set.is_empty() { told } else { set.to_owned() };
        let cidr = [facts.service_ipv4_cidr, facts.service_ipv6_cidr];
        let info = ClusterInfo {
            name: settings.cluster_name.clone(),
            endpoint: given(&settings.cluster_endpoint, facts.endpoint),
            ca_bundle: given(&settings.cluster_ca_bundle, facts.certificate_authority),
            service_cidr: cidr.into_iter().find(|it| !it.is_empty()),
            dns_ip: dns.clone(),
        };
        // The DNS address alone decides, as nodes of a dual-stack cluster have both.
        let ipv6 = dns.is_some_and(|it| it.contains(':'));
        known.cluster = Some((info.clone(), ipv6));
        Ok((info, ipv6))
    }

    /// Free addresses of the class's subnets. Zones with one subnet leave nothing to choose and cost no call.
    pub async fn addresses(&self, class: &EC2NodeClass) -> (FreeAddresses, u64) {
        let zones: BTreeSet<&str> =
            class.status.subnets.iter().map(|it| it.zone.as_str()).collect();
        if zones.len() == class.status.subnets.len() {
            return (FreeAddresses::default(), 0);
        }
        let key = StateKey::new(ADDRESSES, &class.metadata.name);
        let record = self.state.read(&key).await.ok().flatten();
        let version = record.as_ref().map_or(0, |it| it.version);
        let mut known: FreeAddresses =
            record.and_then(|it| serde_json::from_value(it.data).ok()).unwrap_or_default();
        let all_known = class.status.subnets.iter().all(|it| known.free.contains_key(&it.id));
        if !all_known || !known.is_fresh(self.cx.settings.subnet_refresh_interval, self.cx.now) {
            let ids: Vec<&str> = class.status.subnets.iter().map(|it| it.id.as_str()).collect();
            // Without an answer the order in the class's status decides: most free addresses first.
            if let Ok(subnets) = self.ec2.describe_subnets(&[Filter::new("subnet-id", &ids)]).await
            {
                let read = subnets.into_iter().map(|it| (it.id, it.available_addresses));
                known.set(read, self.cx.now);
            }
        }
        (known, version)
    }

    /// Changes the stored free addresses. They only order subnets: a lost change does no harm.
    pub async fn change_addresses(
        &self,
        class: &str,
        mut known: (FreeAddresses, u64),
        change: impl Fn(&mut FreeAddresses),
    ) {
        let key = StateKey::new(ADDRESSES, class);
        for _ in 0..3 {
            let (mut addresses, version) = known;
            change(&mut addresses);
            let when = if version == 0 { When::Absent } else { When::Version(version) };
            let data = serde_json::to_value(&addresses).unwrap_or_default();
            if self.state.write(&key, data, None, when).await.is_ok() {
                return;
            }
            let Ok(Some(record)) = self.state.read(&key).await else { return };
            let Ok(read) = serde_json::from_value(record.data) else { return };
            known = (read, record.version);
        }
    }

    /// The stored free addresses as they are now.
    pub async fn stored_addresses(&self, class: &str) -> Option<(FreeAddresses, u64)> {
        let record = self.state.read(&StateKey::new(ADDRESSES, class)).await.ok()??;
        Some((serde_json::from_value(record.data).ok()?, record.version))
    }
}

/// How many instances of an answer are in each subnet.
pub fn per_subnet<'a>(subnets: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, i64> {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for subnet in subnets {
        *counts.entry(subnet.to_owned()).or_default() += 1;
    }
    counts
}
