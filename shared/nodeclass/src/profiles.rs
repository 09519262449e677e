//! Instance profiles: names, path, tags, and which to use (`spec` aws-nodeclass 15 and 16).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{Settings, hash, labels};
use spokeshave_ports::aws::InstanceProfile;

/// How long a profile that a launch may just be using is kept from collection.
pub const PROTECTED_FOR: SignedDuration = SignedDuration::from_hours(1);
/// A name that was just made is used again for so long, should the status not have been written.
pub const RECREATION_REMEMBERED_FOR: SignedDuration = SignedDuration::from_mins(1);
/// A role that IAM does not know is not tried again for so long.
pub const MISSING_ROLE_REMEMBERED_FOR: SignedDuration = SignedDuration::from_mins(1);
/// What is known of a profile's role is believed for so long.
pub const ROLE_REMEMBERED_FOR: SignedDuration = SignedDuration::from_mins(15);
/// Profiles younger than this are never collected: their claims may not be visible yet.
pub const COLLECTED_FROM_AGE: SignedDuration = SignedDuration::from_hours(1);

/// Partitions of the state table.
pub mod records {
    /// Sort key: profile name. Lost: a profile that a launch in flight uses may be deleted, and that launch fails.
    pub const PROTECTED: &str = "profile-protected";
    /// Sort key: `<role>/<class uid>`, data: `name`. Lost: one profile more, collected later.
    pub const RECREATED: &str = "profile-recreated";
    /// Sort key: role name. Lost: one profile is made and deleted again.
    pub const MISSING_ROLE: &str = "profile-missing-role";
    /// Sort key: profile name, data: `role`. Lost: one read more.
    pub const ROLE: &str = "profile-role";
    /// Sort key: class uid. Whoever holds it may create a profile for the class.
    pub const LEASE: &str = "profile-lease";
}

/// The name of a new profile; `unique` must never have been used before for this class.
pub fn name(cluster: &str, region: &str, class: &str, unique: &str) -> String {
    format!("{cluster}_{}", hash::text(&format!("{region}{class}{unique}")))
}

/// The name that releases of Karpenter before 1.7 gave; still cleaned up.
pub fn legacy_name(cluster: &str, region: &str, class: &str) -> String {
    name(cluster, region, class, "")
}

/// Whether IAM accepts the name: 1 to 128 of its characters.
pub fn is_valid_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c);
    (1..=128).contains(&name.len()) && name.chars().all(allowed)
}

/// A path of segments: `/`, `/eks/`, `/a/b/`.
pub fn path(segments: &[&str]) -> String {
    segments.iter().fold("/".to_owned(), |path, segment| format!("{path}{segment}/"))
}

/// The path of the profiles of one class.
pub fn class_path(region: &str, cluster: &str, uid: &str) -> String {
    path(&["karpenter", region, cluster, uid])
}

/// The path above all profiles of one cluster. The final slash keeps clusters out whose name begins alike.
pub fn cluster_path(region: &str, cluster: &str) -> String {
    path(&["karpenter", region, cluster])
}

/// The part of a role's name that IAM calls take: what follows the last slash.
///
/// DIFFERENCE: roles are compared and remembered by this part everywhere. IAM answers without path, so comparing with
/// the full text would make another profile whenever a memory ends.
pub fn role_name(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

/// The tags of a new profile: the class's, and over them ours.
pub fn tags(
    class_tags: &BTreeMap<String, String>,
    settings: &Settings,
    class: &str,
    cluster_arn: &str,
) -> BTreeMap<String, String> {
    let cluster = &settings.cluster_name;
    let mut tags = class_tags.clone();
    for (key, value) in [
        (crate::tags::cluster_key(cluster), "owned"),
        (labels::TAG_CLUSTER_NAME.to_owned(), cluster.as_str()),
        (labels::NODECLASS.to_owned(), class),
        (labels::REGION.to_owned(), settings.region.as_str()),
        (labels::TAG_CLUSTER_ARN.to_owned(), cluster_arn),
    ] {
        tags.insert(key, value.to_owned());
    }
    tags
}

/// Where the profile of a class with `spec.role` comes from, when the one in its status does not have the role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Another profile of this class has it already, or has none: attach the role and use it.
    Adopt { name: String, attach: bool },
    /// Roles are never swapped on a profile that instances may be using: make a new one.
    Create,
}

/// Decides which profile to use, from what is under the class's path.
///
/// DIFFERENCE: before a profile is made, those of the class are looked at. So a failed attachment or status write
/// cannot leave a new profile behind with every try.
pub fn decide(role: &str, of_class: &[InstanceProfile]) -> Wanted {
    let role = role_name(role);
    let mut sorted: Vec<&InstanceProfile> = of_class.iter().collect();
    sorted.sort_by_key(|it| (it.roles.is_empty(), std::cmp::Reverse(it.created), &it.name));
    let has_role = |it: &InstanceProfile| it.roles.first().map(|it| role_name(it)) == Some(role);
    sorted.into_iter().find(|it| it.roles.is_empty() || has_role(it)).map_or(Wanted::Create, |it| {
        Wanted::Adopt { name: it.name.clone(), attach: it.roles.is_empty() }
    })
}

/// What collection looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// `status.instanceProfile` of every class, and the annotation of every claim.
    pub named: BTreeSet<String>,
    /// Profiles with a protection record.
    pub protected: BTreeSet<String>,
}

/// The profiles to delete: nobody names them, nothing protects them, and they are old enough to be known.
pub fn collect<'a>(
    profiles: &'a [InstanceProfile],
    uses: &Uses,
    now: Timestamp,
) -> Vec<&'a InstanceProfile> {
    let old = |it: &InstanceProfile| {
        it.created.is_none_or(|created| now.duration_since(created) >= COLLECTED_FROM_AGE)
    };
    let mut unused: Vec<&InstanceProfile> = profiles
        .iter()
        .filter(|it| !uses.named.contains(&it.name) && !uses.protected.contains(&it.name))
        .filter(|it| old(it))
        .collect();
    unused.sort_by_key(|it| &it.name);
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // aws-nodeclass 15, cases 1 to 4; api 13.3
    fn names() {
        assert_eq!(legacy_name("demo", "us-west-2", "default"), "demo_4067990795380418201");
        assert_eq!(legacy_name("demo", "eu-central-1", "gpu-nodes"), "demo_4459911700399994829");
        assert_eq!(
            name("demo", "us-west-2", "default", "6f1c2f0e-6d0e-4b7e-9c39-2f3a7e1f0a11"),
            "demo_9358726213345274277"
        );
        assert_eq!(
            name("demo", "eu-central-1", "gpu-nodes", "00000000-0000-4000-8000-000000000001"),
            "demo_15543850302829096852"
        );
    }

    #[test] // B-089: profiles are global, clusters and regions are not
    fn names_of_two_clusters_and_two_regions_differ() {
        let made = |cluster: &str, region: &str| {
            (name(cluster, region, "default", "u"), class_path(region, cluster, "u"))
        };
        let (names, paths): (BTreeSet<String>, BTreeSet<String>) =
            [made("blue", "eu-west-1"), made("green", "eu-west-1"), made("blue", "us-east-1")]
                .into_iter()
                .unzip();
        assert_eq!((names.len(), paths.len()), (3, 3), "{names:?} {paths:?}");
        // A listing by path never reaches into another cluster's.
        assert!(
            !class_path("eu-west-1", "blue2", "u").starts_with(&cluster_path("eu-west-1", "blue"))
        );
    }

    #[test] // aws-nodeclass 1, cases 3 to 5; 16, case 6
    fn paths() {
        assert_eq!(
            class_path("eu-west-1", "demo", "7f0c2b1e-1111-4222-8333-944444444444"),
            "/karpenter/eu-west-1/demo/7f0c2b1e-1111-4222-8333-944444444444/"
        );
        assert_eq!(cluster_path("eu-west-1", "demo"), "/karpenter/eu-west-1/demo/");
        assert!(
            !cluster_path("eu-west-1", "demo2").starts_with(&cluster_path("eu-west-1", "demo"))
        );
        assert_eq!(path(&[]), "/");
        assert_eq!(path(&["eks"]), "/eks/");
    }

    #[test] // aws-nodeclass 16, case 3
    fn legal_names() {
        for (cluster, class, want) in
            [("demo", "my.class", true), ("my cluster", "default", false), ("", "default", true)]
        {
            assert_eq!(is_valid_name(&legacy_name(cluster, "eu-west-1", class)), want, "{cluster}");
        }
        assert!(!is_valid_name(&"a".repeat(129)));
        assert!(!is_valid_name(""));
    }

    #[test] // aws-nodeclass 15, case 10
    fn tags_of_a_profile() {
        let settings = Settings {
            cluster_name: "demo".into(),
            region: "eu-west-1".into(),
            account_id: "111122223333".into(),
            ..Settings::default()
        };
        let class_tags = BTreeMap::from([
            ("team".to_owned(), "a".to_owned()),
            ("eks:eks-cluster-arn".to_owned(), "mine".to_owned()),
        ]);
        let tags = tags(&class_tags, &settings, "default", &settings.cluster_arn());
        let text: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            text,
            [
                "eks:eks-cluster-arn=arn:aws:eks:eu-west-1:111122223333:cluster/demo",
                "eks:eks-cluster-name=demo",
                "karpenter.k8s.aws/ec2nodeclass=default",
                "kubernetes.io/cluster/demo=owned",
                "team=a",
                "topology.kubernetes.io/region=eu-west-1",
            ]
        );
    }

    fn profile(name: &str, roles: &[&str], created: &str) -> InstanceProfile {
        InstanceProfile {
            name: name.into(),
            roles: roles.iter().map(|&it| it.to_owned()).collect(),
            created: Some(format!("2025-01-01T{created}Z").parse().expect("a time")),
            ..InstanceProfile::default()
        }
    }

    #[test] // B-062; aws-nodeclass 15, cases 6 and 9
    fn a_profile_of_the_class_is_used_before_another_is_made() {
        let old = profile("demo_1", &["R"], "10:00:00");
        let new = profile("demo_2", &["R"], "11:00:00");
        let other = profile("demo_3", &["S"], "12:00:00");
        let empty = profile("demo_4", &[], "12:00:00");
        let adopt = |name: &str, attach| Wanted::Adopt { name: name.into(), attach };
        assert_eq!(decide("R", &[]), Wanted::Create);
        assert_eq!(decide("R", std::slice::from_ref(&other)), Wanted::Create);
        assert_eq!(decide("R", &[old.clone(), new.clone(), empty.clone()]), adopt("demo_2", false));
        assert_eq!(decide("path/to/R", &[old]), adopt("demo_1", false));
        assert_eq!(decide("R", &[other, empty]), adopt("demo_4", true));
        assert_eq!(role_name("path/to/R"), "R");
    }

    #[test] // aws-nodeclass 16, cases 4 and 5
    fn what_is_collected() {
        let profiles = [
            profile("named", &["R"], "10:00:00"),
            profile("protected", &["R"], "10:00:00"),
            profile("unused", &["R"], "10:00:00"),
            profile("young", &["R"], "11:00:01"),
        ];
        let uses = Uses {
            named: BTreeSet::from(["named".to_owned()]),
            protected: BTreeSet::from(["protected".to_owned()]),
        };
        let now: Timestamp = "2025-01-01T12:00:00Z".parse().expect("a time");
        let names: Vec<&str> =
            collect(&profiles, &uses, now).into_iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["unused"]);
    }
}
