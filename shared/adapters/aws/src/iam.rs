//! Instance profiles.

use std::collections::BTreeMap;

use aws_sdk_iam::{Client, types};
use jiff::Timestamp;
use spokeshave_ports::{AwsError, Iam, aws::InstanceProfile};

use crate::{Call, Connection};

const GET: Call = Call("iam", "GetInstanceProfile");
const CREATE: Call = Call("iam", "CreateInstanceProfile");
const TAG: Call = Call("iam", "TagInstanceProfile");
const ADD_ROLE: Call = Call("iam", "AddRoleToInstanceProfile");
const REMOVE_ROLE: Call = Call("iam", "RemoveRoleFromInstanceProfile");
const DELETE: Call = Call("iam", "DeleteInstanceProfile");
const LIST: Call = Call("iam", "ListInstanceProfiles");
const GET_ROLE: Call = Call("iam", "GetRole");

/// IAM of the account.
#[derive(Clone, Debug)]
pub struct IamApi {
    client: Client,
}

impl IamApi {
    pub fn new(connection: &Connection) -> Self {
        Self { client: counted!(aws_sdk_iam, connection.config()) }
    }
}

impl Iam for IamApi {
    async fn get_instance_profile(&self, name: &str) -> Result<Option<InstanceProfile>, AwsError> {
        let answer = self.client.get_instance_profile().instance_profile_name(name).send().await;
        match answer {
            Ok(answer) => Ok(answer.instance_profile.map(profile)),
            Err(error) => absent(GET.failed(error)),
        }
    }

    async fn create_instance_profile(
        &self,
        name: &str,
        path: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<InstanceProfile, AwsError> {
        let request = self.client.create_instance_profile().instance_profile_name(name).path(path);
        let answer = request.set_tags(Some(to_tags(tags, CREATE)?)).send().await;
        let answer = answer.map_err(|error| CREATE.failed(error))?;
        answer
            .instance_profile
            .map(profile)
            .ok_or_else(|| CREATE.error("Response", "the answer names no profile"))
    }

    async fn tag_instance_profile(
        &self,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<(), AwsError> {
        let request = self.client.tag_instance_profile().instance_profile_name(name);
        let answer = request.set_tags(Some(to_tags(tags, TAG)?)).send().await;
        answer.map(drop).map_err(|error| TAG.failed(error))
    }

    async fn add_role(&self, profile: &str, role: &str) -> Result<(), AwsError> {
        let request = self.client.add_role_to_instance_profile();
        let answer = request.instance_profile_name(profile).role_name(role).send().await;
        answer.map(drop).map_err(|error| ADD_ROLE.failed(error))
    }

    async fn remove_role(&self, profile: &str, role: &str) -> Result<(), AwsError> {
        let request = self.client.remove_role_from_instance_profile();
        let answer = request.instance_profile_name(profile).role_name(role).send().await;
        gone_is_done(answer.map(drop).map_err(|error| REMOVE_ROLE.failed(error)))
    }

    async fn delete_instance_profile(&self, name: &str) -> Result<(), AwsError> {
        let answer = self.client.delete_instance_profile().instance_profile_name(name).send().await;
        gone_is_done(answer.map(drop).map_err(|error| DELETE.failed(error)))
    }

    /// ListInstanceProfiles leaves tags out, so each profile is read by itself.
    async fn list_instance_profiles(
        &self,
        path_prefix: &str,
    ) -> Result<Vec<InstanceProfile>, AwsError> {
        let request = self.client.list_instance_profiles().path_prefix(path_prefix);
        let mut pages = request.into_paginator().items().send();
        let mut profiles = Vec::new();
        while let Some(found) = pages.next().await {
            let found = found.map_err(|error| LIST.failed(error))?;
            // The filter is IAM's; checked again, since a profile outside the path is none of ours to collect.
            if found.path.starts_with(path_prefix)
                && let Some(whole) = self.get_instance_profile(&found.instance_profile_name).await?
            {
                profiles.push(whole);
            }
        }
        profiles.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(profiles)
    }

    async fn get_role(&self, name: &str) -> Result<Option<String>, AwsError> {
        match self.client.get_role().role_name(name).send().await {
            Ok(answer) => Ok(answer.role.map(|it| it.arn)),
            Err(error) => absent(GET_ROLE.failed(error)),
        }
    }
}

fn absent<T>(error: AwsError) -> Result<Option<T>, AwsError> {
    if error.is_not_found() { Ok(None) } else { Err(error) }
}

fn gone_is_done(result: Result<(), AwsError>) -> Result<(), AwsError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

fn profile(found: types::InstanceProfile) -> InstanceProfile {
    InstanceProfile {
        created: Timestamp::from_second(found.create_date.secs()).ok(),
        roles: found.roles.into_iter().map(|it| it.role_name).collect(),
        tags: found.tags.unwrap_or_default().into_iter().map(|it| (it.key, it.value)).collect(),
        name: found.instance_profile_name,
        path: found.path,
        arn: found.arn,
    }
}

fn to_tags(tags: &BTreeMap<String, String>, call: Call) -> Result<Vec<types::Tag>, AwsError> {
    tags.iter()
        .map(|(key, value)| {
            let tag = types::Tag::builder().key(key).value(value).build();
            tag.map_err(|error| call.error("Request", &error.to_string()))
        })
        .collect()
}
