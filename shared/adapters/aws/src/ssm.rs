//! The parameter store.

use aws_sdk_ssm::Client;
use spokeshave_ports::{AwsError, Ssm, aws::Parameter};

use crate::{Call, Connection};

const GET: Call = Call("ssm", "GetParameter");
const BY_PATH: Call = Call("ssm", "GetParametersByPath");

/// The parameter store of one region.
#[derive(Clone, Debug)]
pub struct ParameterStore {
    client: Client,
}

impl ParameterStore {
    pub fn new(connection: &Connection) -> Self {
        Self { client: counted!(aws_sdk_ssm, connection.config()) }
    }
}

impl Ssm for ParameterStore {
    async fn get_parameter(&self, name: &str) -> Result<Option<String>, AwsError> {
        match self.client.get_parameter().name(name).send().await {
            Ok(answer) => Ok(answer.parameter.and_then(|it| it.value)),
            Err(error) => {
                let error = GET.failed(error);
                // `ParameterVersionNotFound`: the name is there, the label or version after the colon is not.
                if error.is_not_found() || error.code == "ParameterVersionNotFound" {
                    Ok(None)
                } else {
                    Err(error)
                }
            }
        }
    }

    async fn get_parameters_by_path(&self, path: &str) -> Result<Vec<Parameter>, AwsError> {
        let request = self.client.get_parameters_by_path().path(path).recursive(true);
        let mut pages = request.into_paginator().send();
        let mut parameters = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| BY_PATH.failed(error))?;
            for found in page.parameters.unwrap_or_default() {
                if let (Some(name), Some(value)) = (found.name, found.value) {
                    parameters.push(Parameter { name, value });
                }
            }
        }
        Ok(parameters)
    }
}
