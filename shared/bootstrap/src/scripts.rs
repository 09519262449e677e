//! AL2 and Windows: a generated script after the user's own (`spec` aws-nodeclass 10 and 13).

use crate::{
    BootstrapInput, RenderError,
    kubelet::{self, Managed},
    mime::{self, Part},
};

pub(crate) const SHELL: &str = "text/x-shellscript; charset=\"us-ascii\"";

/// The user's parts of an archive: an archive is taken apart, any other text is one shell script.
pub(crate) fn user_parts(user_data: Option<&str>) -> Result<Vec<Part>, RenderError> {
    match user_data {
        None | Some("") => Ok(Vec::new()),
        Some(text) if mime::looks_like_mime(text) => Ok(mime::parse(text)?),
        Some(text) => Ok(vec![Part::new(SHELL, text)]),
    }
}

/// Cluster facts stand between single quotes.
fn check_quotable(input: &BootstrapInput) -> Result<(), RenderError> {
    let cluster = &input.cluster;
    for (field, text) in [
        ("cluster name", &cluster.name),
        ("cluster endpoint", &cluster.endpoint),
        ("cluster CA bundle", &cluster.ca_bundle),
    ] {
        if text.contains(['\'', '\n', '\r']) {
            return Err(RenderError::UnsafeText { field });
        }
    }
    Ok(())
}

pub(crate) fn al2(input: &BootstrapInput) -> Result<String, RenderError> {
    check_quotable(input)?;
    let mut parts = user_parts(input.user_data.as_deref())?;
    parts.push(Part::new(SHELL, al2_script(input)));
    Ok(mime::write(&parts))
}

fn al2_script(input: &BootstrapInput) -> String {
    let cluster = &input.cluster;
    let settings = Managed::read(&input.kubelet);
    let ca = match cluster.ca_bundle.as_str() {
        "" => String::new(),
        ca => format!("--b64-cluster-ca '{ca}'"),
    };
    let mut lines = vec![format!(
        "/etc/eks/bootstrap.sh '{}' --apiserver-endpoint '{}' {ca}",
        cluster.name, cluster.endpoint
    )];
    if settings.is_ipv6() {
        lines.push("--ip-family ipv6".to_owned());
    }
    if let Some(dns) = settings.dns() {
        lines.push(format!("--dns-cluster-ip '{dns}'"));
    }
    if settings.max_pods.is_some() {
        lines.push("--use-max-pods false".to_owned());
    }
    let arguments = kubelet::arguments(&input.labels, &input.taints, &settings);
    if !arguments.is_empty() {
        lines.push(format!("--kubelet-extra-args '{arguments}'"));
    }
    if input.raid0 {
        lines.push("--local-disks raid0".to_owned());
    }
    // The log pipe goes before anything that may fail, so that failures are seen on the console.
    format!(
        "#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n{}",
        lines.join(" \\\n")
    )
}

pub(crate) fn windows(input: &BootstrapInput) -> Result<String, RenderError> {
    check_quotable(input)?;
    let cluster = &input.cluster;
    let settings = Managed::read(&input.kubelet);
    let mut text = "<powershell>\n".to_owned();
    if let Some(user_data) = input.user_data.as_deref().filter(|it| !it.is_empty()) {
        text.push_str(user_data);
        text.push('\n');
    }
    text.push_str("[string]$EKSBootstrapScriptFile = \"$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1\"\n");
    text.push_str(&format!(
        "& $EKSBootstrapScriptFile -EKSClusterName '{}' -APIServerEndpoint '{}'",
        cluster.name, cluster.endpoint
    ));
    if !cluster.ca_bundle.is_empty() {
        text.push_str(&format!(" -Base64ClusterCA '{}'", cluster.ca_bundle));
    }
    let arguments = kubelet::arguments(&input.labels, &input.taints, &settings);
    if !arguments.is_empty() {
        text.push_str(&format!(" -KubeletExtraArgs '{arguments}'"));
    }
    if let Some(dns) = settings.dns() {
        text.push_str(&format!(" -DNSClusterIP '{dns}'"));
    }
    text.push_str("\n</powershell>");
    Ok(text)
}
