//! The instance profile of a class (`spec` aws-nodeclass 15.2).

use serde_json::{Value, json};
use spokeshave_model::{ConditionStatus, EC2NodeClass, Kind};
use spokeshave_nodeclass::{
    facts as rules,
    profiles::{
        self, MISSING_ROLE_REMEMBERED_FOR, PROTECTED_FOR, RECREATION_REMEMBERED_FOR,
        ROLE_REMEMBERED_FOR, Wanted, records, role_name,
    },
    reconcile,
};
use spokeshave_ports::{
    AwsError, Cluster, Decision, Ec2, Eks, Iam, Ssm, StateError, StateKey, StateTable, When,
};

use crate::{Trouble, pass::Pass};

impl<C: Cluster, E2: Ec2, I: Iam, S: Ssm, K: Eks, T: StateTable> Pass<'_, C, E2, I, S, K, T> {
    /// Finds or makes the profile and sets the status and the condition.
    pub(crate) async fn profile(&self, class: &mut EC2NodeClass) -> Result<(), Trouble> {
        let gate = self.cx.settings.gates.reserved_capacity;
        match self.resolve_profile(class).await {
            Ok(()) => {
                let type_ = EC2NodeClass::INSTANCE_PROFILE_READY;
                class.conditions_mut(gate).set_true(type_, self.now);
                Ok(())
            }
            Err(error) => {
                // DIFFERENCE: a class that never had a profile says why. One that has keeps what it had.
                if class.status.instance_profile.is_empty()
                    && let Some((reason, message)) = reason(&error)
                {
                    let (type_, no) =
                        (EC2NodeClass::INSTANCE_PROFILE_READY, ConditionStatus::False);
                    reconcile::set_condition(class, gate, type_, no, reason, &message, self.now);
                }
                Err(error)
            }
        }
    }

    async fn resolve_profile(&self, class: &mut EC2NodeClass) -> Result<(), Trouble> {
        let old = class.status.instance_profile.clone();
        if let Some(given) = class.spec.instance_profile.clone() {
            if !old.is_empty() && old != given {
                self.protect(&old).await?;
            }
            class.status.instance_profile = given;
            return Ok(());
        }
        let role = class.spec.role.clone().unwrap_or_default();
        let recreation = format!("{}/{}", role_name(&role), class.metadata.uid);
        let recreated = self.recall(records::RECREATED, &recreation).await?;
        if let Some(name) = recreated.and_then(|it| text(&it.data, "name")) {
            class.status.instance_profile = name;
        }
        let current = class.status.instance_profile.clone();
        if current.is_empty() || self.role_of(&current).await?.as_deref() != Some(role_name(&role))
        {
            let name = self.make(class, &role).await?;
            let data = json!({"name": name});
            self.remember(records::RECREATED, &recreation, data, RECREATION_REMEMBERED_FOR).await?;
            self.protect(&name).await?;
            class.status.instance_profile = name;
        }
        if !old.is_empty() && old != class.status.instance_profile {
            // A launch in flight may still use it.
            self.protect(&old).await?;
        }
        Ok(())
    }

    /// The role of a profile by its path-less name; `None` for a profile that is gone or has none.
    async fn role_of(&self, profile: &str) -> Result<Option<String>, Trouble> {
        if let Some(record) = self.recall(records::ROLE, profile).await?
            && let Some(role) = text(&record.data, "role")
        {
            return Ok(Some(role));
        }
        let found = self.iam.get_instance_profile(profile).await?;
        let role = found.and_then(|it| it.roles.first().map(|it| role_name(it).to_owned()));
        if let Some(role) = &role {
            self.remember_role(profile, role).await?;
        }
        Ok(role)
    }

    async fn remember_role(&self, profile: &str, role: &str) -> Result<(), StateError> {
        self.remember(records::ROLE, profile, json!({"role": role}), ROLE_REMEMBERED_FOR).await
    }

    async fn protect(&self, profile: &str) -> Result<(), StateError> {
        self.remember(records::PROTECTED, profile, json!({}), PROTECTED_FOR).await
    }

    /// A profile with `role` for this class: one that is there already, else a new one.
    async fn make(&self, class: &EC2NodeClass, role: &str) -> Result<String, Trouble> {
        let role = role_name(role);
        if self.recall(records::MISSING_ROLE, role).await?.is_some() {
            return Err(Trouble::MissingRole(role.to_owned(), None));
        }
        // IAM has no client token: only one run at a time may make a profile for a class.
        let lease = StateKey::new(records::LEASE, class.metadata.uid.as_str());
        let until = self.now.saturating_add(RECREATION_REMEMBERED_FOR).ok();
        match self.state.write(&lease, json!({}), until, When::Absent).await {
            Ok(_) => {}
            Err(StateError::Conflict(_)) => {
                return Err(Trouble::Busy(class.metadata.name.clone()));
            }
            Err(error) => return Err(error.into()),
        }
        let made = self.make_alone(class, role).await;
        self.state.remove(&lease, When::Always).await?;
        made
    }

    async fn make_alone(&self, class: &EC2NodeClass, role: &str) -> Result<String, Trouble> {
        let settings = self.cx.settings;
        let (cluster, region) = (settings.cluster_name.as_str(), settings.region.as_str());
        let uid = class.metadata.uid.as_str();
        let path = profiles::class_path(region, cluster, uid);
        let of_class = self.iam.list_instance_profiles(&path).await?;
        let (name, attach, created) = match profiles::decide(role, &of_class) {
            Wanted::Adopt { name, attach } => (name, attach, false),
            Wanted::Create => {
                // The instant makes the name one that was never used before, and the UID keeps classes apart.
                let unique = format!("{uid}/{}", self.cx.now.as_nanosecond());
                let name = profiles::name(cluster, region, &class.metadata.name, &unique);
                let facts = self.facts.eks().await?;
                let arn = rules::cluster_arn(settings, &facts);
                let class_tags = class.spec.tags.clone().into_inner();
                let tags = profiles::tags(&class_tags, settings, &class.metadata.name, &arn);
                match self.iam.create_instance_profile(&name, &path, &tags).await {
                    Ok(_) => {}
                    Err(error) if error.is_already_exists() => {}
                    Err(error) => return Err(error.into()),
                }
                (name, true, true)
            }
        };
        if attach && let Err(error) = self.iam.add_role(&name, role).await {
            let missing = error.code.starts_with("NoSuchEntity")
                && error.message.to_ascii_lowercase().contains("role");
            if missing {
                let life = MISSING_ROLE_REMEMBERED_FOR;
                self.remember(records::MISSING_ROLE, role, json!({}), life).await?;
            }
            if created {
                // Should this fail too, the next try finds the profile under its path and uses it.
                if let Err(left) = self.iam.delete_instance_profile(&name).await {
                    let object = format!("InstanceProfile/{name}");
                    self.cx
                        .decide(Decision::new("skip", object, left.to_string()).with_error(&left));
                }
            }
            return Err(match missing {
                true => Trouble::MissingRole(role.to_owned(), Some(Box::new(error))),
                false => error.into(),
            });
        }
        let reason = if created { "created" } else { "found under the path of the class" };
        let decision = Decision::new("profile", class.reference(), reason);
        self.cx.decide(decision.with("instance_profile", name.as_str()).with("role", role));
        self.remember_role(&name, role).await?;
        Ok(name)
    }
}

/// Why there is no profile, when trying again does not help.
fn reason(error: &Trouble) -> Option<(&'static str, String)> {
    match error {
        // Without what IAM said again: it is not asked again for a while, and the text is to be the same.
        Trouble::MissingRole(role, _) => {
            let text = "name one that exists in spec.role, or create it";
            Some(("RoleNotFound", format!("IAM does not know the role \"{role}\"; {text}")))
        }
        Trouble::Aws(error) => refusal(error),
        _ => None,
    }
}

fn refusal(error: &AwsError) -> Option<(&'static str, String)> {
    if error.is_unauthorized() {
        Some(("InstanceProfileNotAuthorized", error.explain()))
    } else if error.code.starts_with("LimitExceeded") {
        Some(("InstanceProfileQuotaExceeded", error.explain()))
    } else {
        None
    }
}

fn text(data: &Value, field: &str) -> Option<String> {
    Some(data.get(field)?.as_str()?.to_owned())
}
