//! The cluster: EKS's own view of it, access entries, and what the API server says of definitions, permissions, the
//! bridge's Lease and the EC2NodeClasses.

use std::{collections::BTreeSet, fs};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use spokeshave_cluster_bridge_function::lease;
use spokeshave_model::{NodePool, crds};
use spokeshave_ports::Concern;
use spokeshave_signing::percent_encoded;

use super::{
    Args,
    finding::{Findings, Status},
    functions::Roles,
};
use crate::{Failure, live::{Session, http::Http, queues::logical}};

/// The chart's permissions: no part of them is filled in by Helm.
const RBAC: &str = include_str!("../../../../infra/chart/templates/rbac.yaml");

/// A Lease of the bridge that is older than this is nobody's: it is renewed every 10 s, or once a minute by `poll`.
const SILENT_AFTER: SignedDuration = SignedDuration::from_secs(180);

const CHART: &str = "install the chart (infra/chart), or apply infra/crds";

const BIND: &str = "install the chart (infra/chart), or apply infra/chart/templates/rbac.yaml";

/// An API server, and how it knows us.
struct Api {
    http: Http,
    url: String,
    token: Option<String>,
}

/// An answer that is none: the status, 0 without a connection, and what was said.
struct Refused(u16, String);

impl Api {
    fn call(&self, path: &str, body: Option<&Value>) -> Result<Value, Refused> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        request = request.header("accept", "application/json");
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = body.map(ToString::to_string).unwrap_or_default().into_bytes();
        let request = request.body(body).map_err(|it| Refused(0, it.to_string()))?;
        let answer = self.http.send(request).map_err(|it| Refused(0, it))?;
        let status = answer.status().as_u16();
        let value: Value = serde_json::from_str(answer.body()).unwrap_or(Value::Null);
        if answer.status().is_success() {
            return Ok(value);
        }
        Err(Refused(status, value["message"].as_str().unwrap_or("no reason given").to_owned()))
    }

    fn get(&self, path: &str) -> Result<Value, Refused> {
        self.call(path, None)
    }
}

/// Looks at all of it.
///
/// # Errors
/// An option that names no readable file.
pub fn check(
    args: &Args,
    session: &Session,
    name: &str,
    roles: &Roles,
    only_watches: bool,
    to: &mut Findings,
) -> Result<(), Failure> {
    let path = format!("/clusters/{}", percent_encoded(name));
    let found = match session.aws.get("eks", "DescribeCluster", &path) {
        Ok(found) => found["cluster"].clone(),
        Err(error) => {
            to.failed("cluster", name, &error, "give the stack the name of an EKS cluster in this region");
            Value::Null
        }
    };
    if found.is_object() {
        let status = found["status"].as_str().unwrap_or("unknown");
        let mode = found["accessConfig"]["authenticationMode"].as_str().unwrap_or("API");
        if status == "ACTIVE" || status == "UPDATING" {
            let version = found["version"].as_str().unwrap_or("?");
            to.ok("cluster", name, format!("{status}, Kubernetes {version}"));
        } else {
            to.fault("cluster", name, format!("it is {status}"), "wait until EKS has it ACTIVE");
        }
        if mode != "CONFIG_MAP" {
            access(session, name, roles, to);
        }
    }
    let by_config_map = found["accessConfig"]["authenticationMode"] == "CONFIG_MAP";
    let api = match api(args, session, name, &found)? {
        Ok(api) => api,
        Err(problem) => {
            to.fault("apiServer", name, problem, "give --api-server, or --no-cluster to leave the cluster out");
            return Ok(());
        }
    };
    match api.get("/version") {
        Ok(version) => to.ok("apiServer", name, version["gitVersion"].as_str().unwrap_or("it answers")),
        Err(Refused(status, message)) => {
            let fix = match status {
                401 => "make an access entry for the caller, or go through `kubectl proxy` with --api-server",
                403 => "give the caller's access entry a policy, for instance AmazonEKSAdminViewPolicy",
                _ => "the end point may be private: ask from inside the VPC, or through `kubectl proxy` with --api-server",
            };
            let what = if status == 0 { message } else { format!("{status}: {message}") };
            to.fault("apiServer", name, what, fix);
            return Ok(());
        }
    }
    if by_config_map {
        config_map(&api, session, roles, to);
    }
    definitions(&api, to);
    permissions(&api, to);
    bridge(&api, session, only_watches, to);
    classes(&api, session, to);
    pools(&api, to);
    Ok(())
}

/// How the API server is reached; `Ok(Err)` when nobody says.
fn api(
    args: &Args,
    session: &Session,
    name: &str,
    found: &Value,
) -> Result<Result<Api, String>, Failure> {
    let read = |path: &str| {
        fs::read_to_string(path)
            .map_err(|error| Failure::new(error.to_string()).file(path).fix("give a readable file"))
    };
    if let Some(url) = &args.api_server {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Failure::new(format!("--api-server {url}: not a URL"))
                .fix("give for instance http://127.0.0.1:8001"));
        }
        let http = match &args.certificate_authority {
            Some(path) => Http::trusting(&read(path)?).map_err(|it| Failure::new(it).file(path))?,
            None => Http::new(),
        };
        let token = args.token_file.as_deref().map(read).transpose()?;
        let token = token.map(|it| it.trim().to_owned());
        return Ok(Ok(Api { http, url: url.trim_end_matches('/').to_owned(), token }));
    }
    let Some(url) = found["endpoint"].as_str() else {
        return Ok(Err("EKS names no end point".to_owned()));
    };
    let authority = found["certificateAuthority"]["data"].as_str().unwrap_or_default();
    let pem = STANDARD.decode(authority).ok().and_then(|it| String::from_utf8(it).ok());
    Ok(match pem.map(|it| Http::trusting(&it)) {
        Some(Ok(http)) => session.aws.cluster_token(name).map(|token| Api {
            http,
            url: url.trim_end_matches('/').to_owned(),
            token: Some(token),
        }),
        _ => Err("EKS names no usable certificate authority".to_owned()),
    })
}

/// Access entries of the functions, and of the nodes.
fn access(session: &Session, name: &str, roles: &Roles, to: &mut Findings) {
    let entry = |arn: &str| {
        let path = format!("/clusters/{}/access-entries/{}", percent_encoded(name), percent_encoded(arn));
        session.aws.get("eks", "DescribeAccessEntry", &path)
    };
    let add = "deploy the stack with ManageAccessEntries=true, or add the entry by hand (docs/security.md)";
    for (concern, arn) in roles {
        // It asks nothing of the cluster.
        if *concern == Concern::CatalogRefresh {
            continue;
        }
        let subject = format!("{}Role", logical(*concern));
        let group = format!("spokeshave:{concern}");
        match entry(arn) {
            Err(error) => to.failed("accessEntry", &subject, &error, add),
            Ok(found) => {
                let groups = found["accessEntry"]["kubernetesGroups"].as_array();
                let there = groups.is_some_and(|it| it.iter().any(|it| *it == group));
                let problems = if there { vec![] } else { vec![format!("its entry is not in the group {group}")] };
                to.judged("accessEntry", &subject, &problems, &group, add);
            }
        }
    }
    if let Some(arn) = node_role(session, roles) {
        match entry(&arn) {
            Err(error) => to.failed("accessEntry", "NodeRole", &error, "nodes cannot join: make an entry of type EC2_LINUX for their role"),
            Ok(found) => {
                let kind = found["accessEntry"]["type"].as_str().unwrap_or("unknown");
                let good = ["EC2_LINUX", "EC2_WINDOWS", "EC2"].contains(&kind);
                let problems = if good { vec![] } else { vec![format!("its entry is of type {kind}")] };
                to.judged("accessEntry", "NodeRole", &problems, kind, "make it anew with type EC2_LINUX");
            }
        }
    }
}

/// The ARN of the nodes' role: the stack's own, or the one that it was told of.
fn node_role(session: &Session, roles: &Roles) -> Option<String> {
    let named = session.stack.parameters.get("NodeRoleName").map(String::as_str).filter(|it| !it.is_empty());
    let role = session.stack.physical("NodeRole").or(named)?;
    let (prefix, _) = roles.values().next()?.split_once(":role/")?;
    Some(format!("{prefix}:role/{role}"))
}

/// For a cluster that knows callers by the ConfigMap aws-auth alone: whether it has every role with its groups.
fn config_map(api: &Api, session: &Session, roles: &Roles, to: &mut Findings) {
    let text = match api.get("/api/v1/namespaces/kube-system/configmaps/aws-auth") {
        Ok(found) => found["data"]["mapRoles"].as_str().unwrap_or_default().to_owned(),
        Err(Refused(404, _)) => String::new(),
        Err(Refused(status, message)) => return unknown(to, "awsAuth", "aws-auth", status, &message),
    };
    let mapped: Vec<Value> = if text.trim().is_empty() {
        vec![]
    } else {
        match serde_saphyr::from_str(&text) {
            Ok(mapped) => mapped,
            Err(error) => {
                let what = format!("mapRoles is no list of roles: {error}");
                return to.fault("awsAuth", "aws-auth", what, "mend the ConfigMap aws-auth in kube-system");
            }
        }
    };
    let mut wanted: Vec<(String, String, String, Vec<String>)> = Vec::new();
    // The catalog's function asks nothing of the cluster.
    for (concern, arn) in roles.iter().filter(|it| *it.0 != Concern::CatalogRefresh) {
        let group = format!("spokeshave:{concern}");
        wanted.push((format!("{}Role", logical(*concern)), arn.clone(), group.clone(), vec![group]));
    }
    if let Some(arn) = node_role(session, roles) {
        let groups = ["system:bootstrappers", "system:nodes"].map(str::to_owned);
        wanted.push(("NodeRole".into(), arn, "system:node:{{EC2PrivateDNSName}}".into(), groups.into()));
    }
    for (subject, arn, user, groups) in wanted {
        let mut of_role = mapped.iter().filter(|it| it["rolearn"] == arn.as_str());
        let has_all = of_role.any(|it| {
            let given = it["groups"].as_array().map_or(&[] as &[Value], Vec::as_slice);
            groups.iter().all(|group| given.iter().any(|it| it == group.as_str()))
        });
        let problems = if has_all { vec![] } else { vec![format!("aws-auth does not put it in {}", groups.join(", "))] };
        let line = json!({ "rolearn": arn, "username": user, "groups": groups });
        let fix = format!("add to mapRoles of the ConfigMap aws-auth in kube-system, or let EKS keep access entries: - {line}");
        to.judged("awsAuth", &subject, &problems, &groups.join(", "), &fix);
    }
}

fn definitions(api: &Api, to: &mut Findings) {
    for crd in crds::all() {
        let name = crd.name();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let found = match api.get(&path) {
            Ok(found) => found,
            Err(Refused(404, _)) => {
                to.fault("crd", &name, "it is not there", CHART);
                continue;
            }
            Err(Refused(status, message)) => {
                unknown(to, "crd", &name, status, &message);
                continue;
            }
        };
        to.judged("crd", &name, &differences(&crd.definition, &found), "as this version needs it", "apply infra/crds of this version: the cluster's definition is older, or broken");
    }
}

fn unknown(to: &mut Findings, check: &'static str, subject: &str, status: u16, message: &str) {
    let finding = super::finding::Finding {
        check,
        subject: subject.to_owned(),
        status: Status::Unknown,
        message: format!("not checked: {status} {message}"),
        fix: (status == 403).then(|| "allow the caller to read it".to_owned()),
    };
    to.0.push(finding);
}

/// What of our definition an installed one lacks: versions, and the fields that we read or write.
fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let established = theirs["status"]["conditions"].as_array().into_iter().flatten();
    let mut established = established.filter(|it| it["type"] == "Established");
    if established.next().is_some_and(|it| it["status"] != "True") {
        problems.push("it is not established".to_owned());
    }
    // Karpenter's own had one before 1.1. Its service goes with Karpenter, and then no object can be read.
    let conversion = &theirs["spec"]["conversion"];
    if conversion["strategy"] == "Webhook" {
        let service = &conversion["webhook"]["clientConfig"]["service"];
        let text = |field: &str| service[field].as_str().unwrap_or("?");
        problems.push(format!(
            "its objects are converted by a webhook of the service {}/{}",
            text("namespace"),
            text("name")
        ));
    }
    let versions = |of: &Value| of["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let installed = versions(theirs);
    for version in versions(ours) {
        let name = version["name"].as_str().unwrap_or_default();
        let same = installed.iter().find(|it| it["name"] == name);
        let Some(same) = same.filter(|it| it["served"] == true) else {
            let served: Vec<&str> = installed
                .iter()
                .filter(|it| it["served"] == true)
                .filter_map(|it| it["name"].as_str())
                .collect();
            let only = if served.is_empty() { String::new() } else { format!(", only {}", served.join(", ")) };
            problems.push(format!("it does not serve {name}{only}"));
            continue;
        };
        let mut missing = BTreeSet::new();
        fields(&version["schema"]["openAPIV3Schema"], &same["schema"]["openAPIV3Schema"], "", &mut missing);
        // A field whose parent is missing says nothing new.
        if !missing.is_empty() {
            let missing: Vec<String> = missing.into_iter().collect();
            problems.push(format!("{name} lacks {}", some_of(&missing)));
        }
    }
    problems
}

/// The first five, and how many more there are.
fn some_of(all: &[String]) -> String {
    let more = all.len().saturating_sub(5);
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{tail}", all[..all.len() - more].join(", "))
}

/// Paths of properties of `ours` that `theirs` does not have.
fn fields(ours: &Value, theirs: &Value, path: &str, missing: &mut BTreeSet<String>) {
    if theirs["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, schema) in ours["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match theirs["properties"].get(name) {
            Some(same) => fields(schema, same, &path, missing),
            None => {
                missing.insert(path);
            }
        }
    }
    if ours["items"].is_object() && theirs["items"].is_object() {
        fields(&ours["items"], &theirs["items"], &format!("{path}[]"), missing);
    }
}

/// An object of the chart's permissions.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Permission {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    rules: Vec<Rule>,
    role_ref: Option<Metadata>,
    #[serde(default)]
    subjects: Vec<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// The questions about one group: attributes of SubjectAccessReviews.
fn questions(objects: &[Permission], group: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for binding in objects.iter().filter(|it| it.subjects.iter().any(|it| it.name == group)) {
        let role = binding.role_ref.as_ref().map(|it| it.name.as_str());
        let namespace = binding.metadata.namespace.as_deref();
        let kind = binding.kind.trim_end_matches("Binding");
        let role = objects.iter().find(|it| it.kind == kind && Some(it.metadata.name.as_str()) == role);
        for rule in role.into_iter().flat_map(|it| &it.rules) {
            for api in &rule.api_groups {
                for resource in &rule.resources {
                    for verb in &rule.verbs {
                        // Who may list may get and watch: all three come from one rule.
                        if rule.verbs.iter().any(|it| it == "list") && verb != "list" {
                            continue;
                        }
                        let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
                        found.push(json!({
                            "group": api,
                            "resource": resource,
                            "subresource": sub,
                            "verb": verb,
                            "namespace": namespace,
                            "name": rule.resource_names.first(),
                        }));
                    }
                }
            }
        }
    }
    found
}

fn permissions(api: &Api, to: &mut Findings) {
    let objects: Vec<Permission> = serde_saphyr::from_multiple(RBAC).unwrap_or_default();
    for concern in Concern::ALL {
        let group = format!("spokeshave:{concern}");
        let mut problems = Vec::new();
        let asked = questions(&objects, &group);
        if asked.is_empty() {
            continue;
        }
        let mut refused = None;
        for attributes in asked {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": "spokeshave-doctor",
                    "groups": [group, "system:authenticated"],
                    "resourceAttributes": attributes,
                },
            });
            match api.call("/apis/authorization.k8s.io/v1/subjectaccessreviews", Some(&review)) {
                Ok(answer) if answer["status"]["allowed"] == true => {}
                Ok(_) => {
                    let text = |name: &str| attributes[name].as_str().unwrap_or_default();
                    let sub = text("subresource");
                    let slash = if sub.is_empty() { "" } else { "/" };
                    problems.push(format!("{} {}{slash}{sub}", text("verb"), text("resource")));
                }
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        match refused {
            Some(Refused(status, message)) => {
                unknown(to, "rbac", &group, status, &message);
                // Nobody else's question will be answered either.
                return;
            }
            None if problems.is_empty() => to.ok("rbac", &group, "may do what its function does"),
            None => to.fault("rbac", &group, format!("it may not {}", some_of(&problems)), BIND),
        }
    }
}

fn bridge(api: &Api, session: &Session, only_watches: bool, to: &mut Findings) {
    if only_watches {
        let what = "it looks whether the other autoscaler is gone, and does not watch until then";
        return to.ok("bridge", lease::NAME, what);
    }
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}", lease::NAMESPACE, lease::NAME);
    let fix = "look into the log of cluster-bridge, and whether its schedule is enabled";
    match api.get(&path) {
        Err(Refused(404, _)) => to.fault("bridge", lease::NAME, "nobody has watched the cluster yet", fix),
        Err(Refused(status, message)) => unknown(to, "bridge", lease::NAME, status, &message),
        Ok(found) => {
            let renewed: Option<Timestamp> = found["spec"]["renewTime"].as_str().and_then(|it| it.parse().ok());
            let age = renewed.map(|it| Timestamp::now().duration_since(it));
            let mode = session.stack.parameters.get("BridgeMode").map_or("watch", String::as_str);
            match age {
                Some(age) if age <= SILENT_AFTER => to.ok("bridge", lease::NAME, format!("{mode}, renewed {} s ago", age.as_secs())),
                Some(age) => to.fault("bridge", lease::NAME, format!("nobody has watched the cluster for {} s", age.as_secs()), fix),
                None => to.fault("bridge", lease::NAME, "nobody holds it", fix),
            }
        }
    }
}

fn classes(api: &Api, session: &Session, to: &mut Findings) {
    let found = match api.get("/apis/karpenter.k8s.aws/v1/ec2nodeclasses") {
        Ok(found) => found,
        // Said by its definition already.
        Err(Refused(404, _)) => return,
        Err(Refused(status, message)) => return unknown(to, "nodeClass", "ec2nodeclasses", status, &message),
    };
    let items = found["items"].as_array().cloned().unwrap_or_default();
    if items.is_empty() {
        to.warning("nodeClass", "ec2nodeclasses", "there is none, so nothing can be launched", "apply an EC2NodeClass and a NodePool (docs/quick-start.md)");
    }
    for class in items {
        let name = class["metadata"]["name"].as_str().unwrap_or_default();
        let mut problems = not_ready(&class);
        for (field, operation) in [("subnetSelectorTerms", "DescribeSubnets"), ("securityGroupSelectorTerms", "DescribeSecurityGroups")] {
            for (at, term) in class["spec"][field].as_array().into_iter().flatten().enumerate() {
                match session.aws.query("ec2", operation, "2016-11-15", &filters(term)) {
                    Ok(answer) if answer.contains("<item>") => {}
                    Ok(_) => problems.push(format!("spec.{field}[{at}] selects nothing")),
                    Err(error) => to.failed("nodeClass", name, &error, "check the selector term"),
                }
            }
        }
        to.judged("nodeClass", name, &problems, "ready, and its terms select something", "mend the EC2NodeClass, or tag what it is to select");
    }
}

/// Whether the NodePools can be used: a pool that is not ready gets no nodes, and says why in its conditions.
fn pools(api: &Api, to: &mut Findings) {
    let found = match api.get("/apis/karpenter.sh/v1/nodepools") {
        Ok(found) => found,
        // Said by its definition already.
        Err(Refused(404, _)) => return,
        Err(Refused(status, message)) => return unknown(to, "nodePool", "nodepools", status, &message),
    };
    let items = found["items"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    if items.is_empty() {
        to.warning("nodePool", "nodepools", "there is none, so nothing can be launched", "apply a NodePool (docs/quick-start.md)");
    }
    for pool in items {
        let name = pool["metadata"]["name"].as_str().unwrap_or_default();
        let problems = not_ready(pool);
        to.judged("nodePool", name, &problems, "ready", "mend the NodePool, or the EC2NodeClass that it names");
        // Told apart from being ready: launches go on.
        let conditions = pool["status"]["conditions"].as_array().into_iter().flatten();
        let mut ailing = conditions.filter(|it| it["type"] == NodePool::NODE_REGISTRATION_HEALTHY && it["status"] == "False");
        if let Some(it) = ailing.next() {
            let what = format!("its nodes do not register: {}", it["message"].as_str().unwrap_or_default());
            to.warning("nodePool", name, what, "see \"The instance runs, but the node does not register\" in docs/troubleshooting.md");
        }
    }
}

/// What the conditions of an object say against its being ready.
fn not_ready(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let is = |it: &&Value, type_: &str, status: &str| it["type"] == type_ && it["status"] == status;
    if conditions.iter().any(|it| is(&it, "Ready", "True")) {
        return vec![];
    }
    let of_ready = conditions.iter().filter(|it| it["status"] == "False" && it["type"] != "Ready");
    let mut problems: Vec<String> = of_ready
        .map(|it| {
            let text = |field: &str| it[field].as_str().unwrap_or_default();
            format!("{}: {}", text("type"), text("message"))
        })
        .collect();
    if problems.is_empty() {
        problems.push("nobody has said yet that it is ready".to_owned());
    }
    problems
}

/// A selector term as filters of EC2's Describe calls.
fn filters(term: &Value) -> Vec<(String, String)> {
    let mut wanted: Vec<(String, String)> = Vec::new();
    for (key, value) in term["tags"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        // `*` alone: the tag is there, whatever it says.
        wanted.push(if value == "*" { ("tag-key".into(), key.clone()) } else { (format!("tag:{key}"), value.into()) });
    }
    if let Some(id) = term["id"].as_str() {
        wanted.push((if id.starts_with("sg-") { "group-id" } else { "subnet-id" }.into(), id.into()));
    }
    if let Some(name) = term["name"].as_str() {
        wanted.push(("group-name".into(), name.into()));
    }
    let fields = wanted.into_iter().enumerate().flat_map(|(at, (name, value))| {
        let at = at + 1;
        [(format!("Filter.{at}.Name"), name), (format!("Filter.{at}.Value.1"), value)]
    });
    fields.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // aws-nodeclass 27, case 6
    fn every_group_of_the_chart_is_asked_about() {
        let objects: Vec<Permission> = serde_saphyr::from_multiple(RBAC).expect("YAML");
        let asked = |group: &str| -> Vec<String> {
            let all = questions(&objects, group);
            let text = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
            all.iter().map(|it| format!("{} {}/{}", text(it, "verb"), text(it, "resource"), text(it, "subresource"))).collect()
        };
        let termination = asked("spokeshave:termination");
        assert!(termination.contains(&"create pods/eviction".to_owned()), "{termination:?}");
        assert!(termination.contains(&"list nodeclaims/".to_owned()));
        assert!(!termination.contains(&"watch nodeclaims/".to_owned()));
        assert!(asked("spokeshave:nobody").is_empty());
        let launch = questions(&objects, "spokeshave:launch");
        let dns = launch.iter().find(|it| it["resource"] == "services").expect("the DNS service");
        assert_eq!((&dns["namespace"], &dns["name"]), (&json!("kube-system"), &json!("kube-dns")));
    }

    #[test] // B-090
    fn an_older_definition_is_told_by_what_it_lacks() {
        for crd in crds::all() {
            assert_eq!(differences(&crd.definition, &crd.definition), [] as [String; 0]);
        }
        let ours = json!({"spec": {"versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema": {"properties": {
            "spec": {"properties": {"replicas": {}, "list": {"items": {"properties": {"x": {}}}}}}}}}}]}});
        let mut older = ours.clone();
        older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
            json!({"properties": {"list": {"items": {"properties": {}}}}});
        assert_eq!(differences(&ours, &older), ["v1 lacks spec.list[].x, spec.replicas"]);
        let beta = json!({"spec": {"versions": [{"name": "v1beta1", "served": true}]}, "status": {"conditions": [{"type": "Established", "status": "False"}]}});
        let mut webhook = ours.clone();
        webhook["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"namespace": "kube-system", "name": "karpenter"}}}});
        assert_eq!(differences(&ours, &webhook), ["its objects are converted by a webhook of the service kube-system/karpenter"]);
        assert_eq!(differences(&ours, &beta), ["it is not established", "it does not serve v1, only v1beta1"]);
    }

    #[test]
    fn terms_become_filters() {
        let of = |term: Value| filters(&term);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            of(json!({"tags": {"a": "b", "c": "*"}})),
            [pair("Filter.1.Name", "tag:a"), pair("Filter.1.Value.1", "b"), pair("Filter.2.Name", "tag-key"), pair("Filter.2.Value.1", "c")]
        );
        assert_eq!(of(json!({"id": "sg-1"}))[0], pair("Filter.1.Name", "group-id"));
        assert_eq!(of(json!({"id": "subnet-1"}))[0], pair("Filter.1.Name", "subnet-id"));
        assert_eq!(of(json!({"name": "nodes"}))[0], pair("Filter.1.Name", "group-name"));
    }
}
