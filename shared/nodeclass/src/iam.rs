//! What each function may do in AWS (`spec` aws-nodeclass 28).
//!
//! [`policy`] gives one document per function: its log, its queue, the state table where it has one, and of EC2, IAM,
//! SSM, EKS and the price list only the calls that it makes. Every call that changes something in EC2 or IAM carries
//! conditions on the tags that Karpenter's own policies use, so either product may own a cluster's resources.
//!
//! By default names are `${...}` as CloudFormation's `Fn::Sub` fills them in; the template and the command
//! `spokeshave iam` show the same documents.

use serde_json::{Map, Value, json};
use spokeshave_model::Settings;
use spokeshave_ports::Concern;

/// What the documents are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub partition: String,
    pub region: String,
    pub account: String,
    pub cluster: String,
    /// ARN of the role that nodes get.
    pub node_role: String,
    /// Prefix of the names of the stack's own resources; `None`: as references of the template.
    pub stack: Option<String>,
}

impl Default for Scope {
    /// Placeholders as `Fn::Sub` fills them in.
    fn default() -> Self {
        Self {
            partition: "${AWS::Partition}".into(),
            region: "${AWS::Region}".into(),
            account: "${AWS::AccountId}".into(),
            cluster: "${ClusterName}".into(),
            node_role: "arn:${AWS::Partition}:iam::${AWS::AccountId}:role/${NodeRole}".into(),
            stack: None,
        }
    }
}

/// Longest cluster name that is taken into names of our own as it is: SQS allows 80 characters.
const LONGEST_IN_NAMES: usize = 40;

/// Longest name of a role. Source: IAM quotas.
const LONGEST_ROLE_NAME: usize = 64;

/// `spokeshave-<cluster>`, short enough for every kind of name.
pub fn stack_prefix(cluster: &str) -> String {
    if cluster.len() <= LONGEST_IN_NAMES {
        return format!("spokeshave-{cluster}");
    }
    let kept: String = cluster.chars().take(LONGEST_IN_NAMES - 9).collect();
    let number = spokeshave_model::hash::text(cluster) & 0xffff_ffff;
    format!("spokeshave-{kept}-{number:08x}")
}

impl Scope {
    /// The same with what is known filled in. `node_role` defaults to Karpenter's name for it, as far as IAM
    /// takes it.
    #[must_use]
    pub fn filled(
        mut self,
        cluster: Option<&str>,
        account: Option<&str>,
        region: Option<&str>,
        node_role: Option<&str>,
    ) -> Self {
        if let Some(region) = region {
            let settings = Settings { region: region.to_owned(), ..Settings::default() };
            self.partition = settings.partition().to_owned();
            self.region = region.to_owned();
        }
        if let Some(account) = account {
            self.account = account.to_owned();
        }
        if let Some(cluster) = cluster {
            self.cluster = cluster.to_owned();
            self.stack = Some(stack_prefix(cluster));
            let role: String =
                format!("KarpenterNodeRole-{cluster}").chars().take(LONGEST_ROLE_NAME).collect();
            self.node_role = format!("arn:{}:iam::{}:role/{role}", self.partition, self.account);
        }
        if let Some(node_role) = node_role {
            self.node_role = node_role.to_owned();
        }
        self
    }

    fn regional(&self, service: &str, resource: &str) -> String {
        format!("arn:{}:{service}:{}:{}:{resource}", self.partition, self.region, self.account)
    }

    /// EC2 resources of any account: shared subnets, images and reservations belong to others.
    fn ec2(&self, resource: &str) -> String {
        format!("arn:{}:ec2:{}:*:{resource}/*", self.partition, self.region)
    }

    fn cluster_arn(&self) -> String {
        self.regional("eks", &format!("cluster/{}", self.cluster))
    }

    fn profiles(&self) -> String {
        format!("arn:{}:iam::{}:instance-profile/*", self.partition, self.account)
    }

    /// A resource of the stack by its logical name in the template and by the end of its own name.
    fn own(&self, service: &str, logical: &str, name: impl Fn(&str) -> String) -> String {
        match &self.stack {
            Some(stack) => self.regional(service, &name(stack)),
            None => format!("${{{logical}.Arn}}"),
        }
    }

    fn queue(&self, concern: Concern) -> String {
        let end = if concern.is_fifo() { ".fifo" } else { "" };
        self.own("sqs", &format!("{}Queue", logical(concern)), |stack| {
            format!("{stack}-{concern}{end}")
        })
    }

    fn wake_queue(&self, concern: Concern) -> String {
        self.own("sqs", &format!("{}WakeQueue", logical(concern)), |stack| {
            format!("{stack}-{concern}-wake")
        })
    }
}

/// `InstanceGc` for `instance-gc`: resources in the template are named so.
pub fn logical(concern: Concern) -> String {
    let capital = |part: &str| {
        let mut chars = part.chars();
        chars.next().map_or_else(String::new, |first| {
            first.to_ascii_uppercase().to_string() + chars.as_str()
        })
    };
    concern.as_str().split('-').map(capital).collect()
}

fn statement(sid: &str, actions: &[&str], resources: Vec<String>, condition: Value) -> Value {
    let mut statement = Map::new();
    statement.insert("Sid".into(), sid.into());
    statement.insert("Effect".into(), "Allow".into());
    statement.insert("Action".into(), one_or_list(actions.iter().map(|&it| it.to_owned())));
    statement.insert("Resource".into(), one_or_list(resources.into_iter()));
    if condition.as_object().is_some_and(|it| !it.is_empty()) {
        statement.insert("Condition".into(), condition);
    }
    Value::Object(statement)
}

fn one_or_list(items: impl Iterator<Item = String>) -> Value {
    let mut items: Vec<Value> = items.map(Value::from).collect();
    if items.len() == 1 { items.swap_remove(0) } else { Value::Array(items) }
}

/// What a function does besides reading its queue and writing its log.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    /// The Kubernetes API, whose end point EKS tells.
    cluster: bool,
    state: bool,
    /// Queues of the stack that work is sent to; the wiring says the same.
    sends: &'static [Concern],
    bus: bool,
    /// Describe calls of EC2.
    reads: &'static [&'static str],
    launches: bool,
    /// Creates launch templates for dry runs, and profiles.
    prepares: bool,
    deletes_templates: bool,
    terminates: bool,
    answers_hooks: bool,
    shifts: bool,
    tags: bool,
    prices: bool,
    parameters: bool,
    collects_profiles: bool,
}

const fn needs(concern: Concern) -> Needs {
    const NOTHING: Needs = Needs {
        cluster: true,
        state: true,
        sends: &[],
        bus: false,
        reads: &[],
        launches: false,
        prepares: false,
        deletes_templates: false,
        terminates: false,
        answers_hooks: false,
        shifts: false,
        tags: false,
        prices: false,
        parameters: false,
        collects_profiles: false,
    };
    match concern {
        Concern::ClusterBridge => Needs { bus: true, ..NOTHING },
        Concern::Provision => Needs { sends: &[Concern::Provision, Concern::Launch], ..NOTHING },
        Concern::Launch => Needs {
            sends: &[Concern::Launch, Concern::Nodeclass],
            reads: &[
                "DescribeImages",
                "DescribeInstances",
                "DescribeLaunchTemplates",
                "DescribePlacementGroups",
                "DescribeSecurityGroups",
                "DescribeSubnets",
            ],
            launches: true,
            terminates: true,
            ..NOTHING
        },
        Concern::Lifecycle => Needs {
            sends: &[Concern::Lifecycle],
            reads: &["DescribeInstances", "DescribePlacementGroups"],
            ..NOTHING
        },
        Concern::Tagging => Needs {
            sends: &[Concern::Tagging],
            reads: &["DescribeInstances"],
            tags: true,
            ..NOTHING
        },
        Concern::Interruption => {
            Needs { sends: &[Concern::Provision, Concern::Termination], ..NOTHING }
        }
        Concern::Disruption => {
            Needs { sends: &[Concern::Disruption, Concern::Launch, Concern::Provision], ..NOTHING }
        }
        Concern::Termination => Needs {
            sends: &[Concern::Termination],
            reads: &["DescribeInstances"],
            terminates: true,
            answers_hooks: true,
            ..NOTHING
        },
        Concern::Nodeclass => Needs {
            sends: &[Concern::Nodeclass],
            reads: &[
                "DescribeCapacityReservations",
                "DescribeImages",
                "DescribeInstances",
                "DescribeLaunchTemplates",
                "DescribePlacementGroups",
                "DescribeSecurityGroups",
                "DescribeSubnets",
            ],
            launches: true,
            prepares: true,
            deletes_templates: true,
            parameters: true,
            ..NOTHING
        },
        Concern::Nodepool => NOTHING,
        Concern::InstanceGc => Needs {
            sends: &[Concern::Interruption],
            reads: &["DescribeInstances", "DescribeInstanceStatus"],
            terminates: true,
            ..NOTHING
        },
        Concern::InstanceProfileGc => Needs { collects_profiles: true, ..NOTHING },
        Concern::CatalogRefresh => Needs {
            cluster: false,
            sends: &[Concern::CatalogRefresh, Concern::Nodepool],
            reads: &[
                "DescribeAvailabilityZones",
                "DescribeCapacityReservations",
                "DescribeInstanceTypeOfferings",
                "DescribeInstanceTypes",
                "DescribeLaunchTemplates",
                "DescribeSpotPriceHistory",
            ],
            deletes_templates: true,
            prices: true,
            shifts: true,
            ..NOTHING
        },
    }
}

/// The policy document of a function.
pub fn policy(concern: Concern, scope: &Scope) -> Value {
    let needs = needs(concern);
    let mut statements = own_resources(concern, scope, &needs);
    if needs.cluster {
        statements.push(statement(
            "AllowAPIServerEndpointDiscovery",
            &["eks:DescribeCluster"],
            vec![scope.cluster_arn()],
            json!({}),
        ));
    }
    if !needs.reads.is_empty() {
        let reads: Vec<String> = needs.reads.iter().map(|it| format!("ec2:{it}")).collect();
        let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
        let region = json!({"StringEquals": {"aws:RequestedRegion": scope.region}});
        statements.push(statement("AllowRegionalReadActions", &reads, vec!["*".into()], region));
    }
    if needs.launches {
        // A check launches on-demand, into no reservation and no placement group.
        statements.extend(launching(scope, needs.prepares));
    }
    if needs.tags {
        statements.push(tagging(scope));
    }
    statements.extend(deleting(scope, &needs));
    if needs.answers_hooks {
        statements.push(answering(scope));
    }
    if needs.prepares || needs.collects_profiles {
        statements.extend(profiles(scope, needs.prepares));
    }
    if needs.parameters {
        let path = format!("arn:{}:ssm:{}::parameter/aws/service/*", scope.partition, scope.region);
        let actions = &["ssm:GetParameter"];
        statements.push(statement("AllowSSMReadActions", actions, vec![path], json!({})));
    }
    if needs.prices {
        let actions = &["pricing:GetProducts"];
        statements.push(statement("AllowPricingReadActions", actions, vec!["*".into()], json!({})));
    }
    if needs.shifts {
        let cluster = json!({"arc-zonal-shift:ResourceIdentifier": scope.cluster_arn()});
        statements.push(statement(
            "AllowZonalShiftStatusReadOnly",
            &["arc-zonal-shift:GetManagedResource"],
            vec!["*".into()],
            json!({"StringEquals": cluster}),
        ));
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}

/// Every function's document by its folder name.
pub fn policies(scope: &Scope) -> Map<String, Value> {
    let mut all: Vec<(String, Value)> =
        Concern::ALL.iter().map(|it| (it.as_str().to_owned(), policy(*it, scope))).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.into_iter().collect()
}

fn own_resources(concern: Concern, scope: &Scope, needs: &Needs) -> Vec<Value> {
    let log = match &scope.stack {
        Some(stack) => {
            scope.regional("logs", &format!("log-group:/aws/lambda/{stack}-{concern}:*"))
        }
        None => format!("${{{}Logs.Arn}}", logical(concern)),
    };
    let mut statements = vec![statement(
        "AllowOwnLog",
        &["logs:CreateLogStream", "logs:PutLogEvents"],
        vec![log],
        json!({}),
    )];
    // The bridge is started by its schedule, and hands over by an event.
    let mut own = vec![scope.queue(concern)];
    if concern.is_fifo() {
        own.push(scope.wake_queue(concern));
    }
    let mut sends: Vec<String> = Vec::new();
    for to in needs.sends {
        sends.push(scope.queue(*to));
        // Only a solver wakes itself later; others hand over at once.
        if *to == concern && to.is_fifo() {
            sends.push(scope.wake_queue(*to));
        }
    }
    let reads = ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"];
    if concern != Concern::ClusterBridge {
        let mut actions = reads.to_vec();
        // A function that wakes nobody but itself needs one statement for both.
        if sends == own {
            actions.push("sqs:SendMessage");
            sends.clear();
        }
        statements.push(statement("AllowOwnQueue", &actions, own, json!({})));
    }
    if !sends.is_empty() {
        statements.push(statement("AllowHandOver", &["sqs:SendMessage"], sends, json!({})));
    }
    if needs.state {
        let table = scope.own("dynamodb", "StateTable", |stack| format!("table/{stack}"));
        statements.push(statement(
            "AllowStateTable",
            &["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"],
            vec![table],
            json!({}),
        ));
    }
    if needs.bus {
        let bus = scope.own("events", "Bus", |stack| format!("event-bus/{stack}"));
        statements.push(statement("AllowOwnBus", &["events:PutEvents"], vec![bus], json!({})));
    }
    statements
}

/// Kinds of resources that a launch makes.
const MADE: &[&str] = &["fleet", "instance", "volume", "network-interface", "launch-template"];
/// The one that only a spot launch makes.
const MADE_FOR_SPOT: &str = "spot-instances-request";

fn request_tags(cluster: &str) -> Value {
    json!({
        format!("aws:RequestTag/kubernetes.io/cluster/{cluster}"): "owned",
        "aws:RequestTag/eks:eks-cluster-name": cluster,
    })
}

fn owned(cluster: &str) -> Value {
    json!({format!("aws:ResourceTag/kubernetes.io/cluster/{cluster}"): "owned"})
}

fn launching(scope: &Scope, only_checks: bool) -> Vec<Value> {
    let cluster = scope.cluster.as_str();
    let launch = ["ec2:RunInstances", "ec2:CreateFleet"];
    let public = |kind: &str| format!("arn:{}:ec2:{}::{kind}/*", scope.partition, scope.region);
    let mut used = vec![public("image"), public("snapshot")];
    used.extend(["security-group", "subnet"].iter().map(|it| scope.ec2(it)));
    let mut made: Vec<String> = MADE.iter().map(|it| scope.ec2(it)).collect();
    // Tags at creation are bound to what the three calls create anyway: where space is short, that says it.
    let mut tagged = vec![format!("arn:{}:ec2:{}:*:*/*", scope.partition, scope.region)];
    let mut template_use = launch.to_vec();
    let mut template_sid = "AllowScopedEC2LaunchTemplateAccessActions";
    if only_checks {
        template_sid = "AllowOwnTemplates";
        template_use.push("ec2:DeleteLaunchTemplate");
    } else {
        used.extend(["capacity-reservation", "placement-group"].iter().map(|it| scope.ec2(it)));
        made.push(scope.ec2(MADE_FOR_SPOT));
        tagged.clone_from(&made);
    }
    let any_pool = json!({"aws:RequestTag/karpenter.sh/nodepool": "*"});
    let mut tagging = request_tags(cluster);
    if let Value::Object(keys) = &mut tagging {
        keys.insert(
            "ec2:CreateAction".into(),
            json!(["RunInstances", "CreateFleet", "CreateLaunchTemplate"]),
        );
    }
    vec![
        statement("AllowScopedEC2InstanceAccessActions", &launch, used, json!({})),
        statement(
            template_sid,
            &template_use,
            vec![scope.ec2("launch-template")],
            json!({
                "StringEquals": owned(cluster),
                "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"},
            }),
        ),
        statement(
            "AllowScopedEC2InstanceActionsWithTags",
            &["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
            made,
            json!({"StringEquals": request_tags(cluster), "StringLike": any_pool}),
        ),
        statement(
            "AllowScopedResourceCreationTagging",
            &["ec2:CreateTags"],
            tagged,
            json!({"StringEquals": tagging, "StringLike": any_pool}),
        ),
        statement(
            "AllowPassingInstanceRole",
            &["iam:PassRole"],
            vec![scope.node_role.clone()],
            json!({"StringEquals": {
                "iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"],
            }}),
        ),
    ]
}

fn tagging(scope: &Scope) -> Value {
    let cluster = scope.cluster.as_str();
    statement(
        "AllowScopedResourceTagging",
        &["ec2:CreateTags"],
        vec![scope.ec2("instance")],
        json!({
            "StringEquals": owned(cluster),
            "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"},
            "StringEqualsIfExists": {"aws:RequestTag/eks:eks-cluster-name": cluster},
            "ForAllValues:StringEquals": {
                "aws:TagKeys": ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"],
            },
        }),
    )
}

/// DIFFERENCE: the cluster's name counts besides the `kubernetes.io/cluster` key where an instance has it, so a value
/// and not only a key keeps the clusters of an account apart. Old instances do not have it.
fn deleting(scope: &Scope, needs: &Needs) -> Option<Value> {
    let mut actions = Vec::new();
    let mut resources = Vec::new();
    let mut condition = json!({
        "StringEquals": owned(&scope.cluster),
        "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"},
    });
    if needs.terminates {
        actions.push("ec2:TerminateInstances");
        resources.push(scope.ec2("instance"));
        if let Value::Object(operators) = &mut condition {
            let name = json!({"aws:ResourceTag/eks:eks-cluster-name": scope.cluster});
            operators.insert("StringEqualsIfExists".into(), name);
        }
    }
    // Whoever checks launches deletes templates by the statement that lets it use them.
    if needs.deletes_templates && !needs.prepares {
        actions.push("ec2:DeleteLaunchTemplate");
        resources.push(scope.ec2("launch-template"));
    }
    (!actions.is_empty()).then(|| statement("AllowScopedDeletion", &actions, resources, condition))
}

/// Only groups of this cluster: every group whose nodes join has this tag, and EKS sets it on those that it manages.
fn answering(scope: &Scope) -> Value {
    statement(
        "AllowLifecycleHooks",
        &["autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"],
        vec![scope.regional("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*")],
        json!({"StringEquals": owned(&scope.cluster)}),
    )
}

fn profiles(scope: &Scope, creates: bool) -> Vec<Value> {
    let cluster = scope.cluster.as_str();
    let profiles = || vec![scope.profiles()];
    let region = |side: &str| format!("aws:{side}Tag/topology.kubernetes.io/region");
    let class = |side: &str| format!("aws:{side}Tag/karpenter.k8s.aws/ec2nodeclass");
    let mut statements = Vec::new();
    if creates {
        let mut tags = request_tags(cluster);
        if let Value::Object(keys) = &mut tags {
            keys.insert(region("Request"), scope.region.as_str().into());
        }
        statements.push(statement(
            "AllowScopedInstanceProfileCreationActions",
            &["iam:CreateInstanceProfile"],
            profiles(),
            json!({"StringEquals": tags, "StringLike": {class("Request"): "*"}}),
        ));
    }
    let mut actions = vec!["iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"];
    let mut tags = owned(cluster);
    if let Value::Object(keys) = &mut tags {
        keys.insert(region("Resource"), scope.region.as_str().into());
    }
    if creates {
        actions.insert(0, "iam:AddRoleToInstanceProfile");
        // IAM asks for this one when a profile is made with tags, too.
        let mut both = tags.clone();
        if let (Value::Object(all), Value::Object(requested)) = (&mut both, request_tags(cluster)) {
            all.extend(requested);
            all.insert(region("Request"), scope.region.as_str().into());
        }
        statements.push(statement(
            "AllowScopedInstanceProfileTagActions",
            &["iam:TagInstanceProfile"],
            profiles(),
            json!({"StringEquals": both, "StringLike": {
                class("Request"): "*",
                class("Resource"): "*",
            }}),
        ));
    }
    statements.push(statement(
        "AllowScopedInstanceProfileActions",
        &actions,
        profiles(),
        json!({"StringEquals": tags, "StringLike": {class("Resource"): "*"}}),
    ));
    // IAM lists profiles for no single resource.
    statements.push(statement(
        "AllowInstanceProfileReadActions",
        &["iam:GetInstanceProfile", "iam:ListInstanceProfiles"],
        vec!["*".into()],
        json!({}),
    ));
    statements
}

#[cfg(test)]
#[path = "iam_tests.rs"]
mod tests;
