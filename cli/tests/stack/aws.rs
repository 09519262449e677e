//! An AWS and an API server that say what a whole stack of template.yaml looks like, and whatever else a test has them
//! say. Resources are called in AWS as they are in the template.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use serde_json::{Value, json};
use spokeshave_model::crds;
use spokeshave_nodeclass::iam::{Scope, policies};

pub const STACK: &str = "spokeshave-prod";
const ACCOUNT: &str = "123456789012";
const REGION: &str = "us-west-2";

/// Conditions of the template that its defaults make false.
const OFF: [&str; 4] = ["Drains", "TakesHooks", "HasKey", "HasDashboard"];

/// A message of a queue.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub id: String,
    pub body: String,
    pub group: Option<String>,
    /// The queue that it came from, by its name in the template.
    pub origin: Option<String>,
    pub attributes: Value,
    pub in_flight: bool,
}

impl Message {
    pub fn of(id: &str, origin: &str) -> Self {
        Self {
            id: id.into(),
            body: json!({"reason": "Test", "keys": []}).to_string(),
            origin: Some(origin.into()),
            ..Self::default()
        }
    }
}

/// What can be changed, and what was asked.
pub struct State {
    template: Value,
    url: String,
    pub parameters: BTreeMap<&'static str, String>,
    pub stack_status: &'static str,
    /// Instead of the usual: `OPERATION subject` or `OPERATION`, a status and a body.
    pub instead: BTreeMap<String, (u16, String)>,
    /// The same, but only from the n-th such call on, counted from 0.
    pub instead_from: BTreeMap<String, (usize, u16, String)>,
    /// Changes of what is usually said: `OPERATION subject`, a JSON pointer, and the value there.
    pub changed: Vec<(&'static str, &'static str, Value)>,
    pub queues: BTreeMap<String, Vec<Message>>,
    /// By partition and `#` with the sort key.
    pub records: BTreeMap<(String, String), Value>,
    /// Whether the interruption function answers warnings that are made up.
    pub answers_probes: bool,
    /// `OPERATION subject`, in order.
    pub calls: Vec<String>,
}

/// A running server.
#[derive(Clone)]
pub struct Aws(Arc<Mutex<State>>);

impl Aws {
    pub fn start() -> Self {
        let template = include_str!("../../../template.yaml");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let stored =
            [(("catalog".to_owned(), "#index".to_owned()), json!({"pk": {"S": "catalog"}}))];
        let this = Self(Arc::new(Mutex::new(State {
            template: serde_saphyr::from_str(template).expect("YAML"),
            url,
            parameters: [("ClusterName", "prod".to_owned()), ("BridgeMode", "watch".to_owned())]
                .into(),
            stack_status: "UPDATE_COMPLETE",
            instead: BTreeMap::new(),
            instead_from: BTreeMap::new(),
            changed: Vec::new(),
            queues: BTreeMap::new(),
            records: stored.into(),
            answers_probes: true,
            calls: Vec::new(),
        })));
        let served = this.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let served = served.clone();
                thread::spawn(move || served.serve(stream));
            }
        });
        this
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the command; exit status, standard output as JSON, standard error.
    pub fn spokeshave(&self, arguments: &[&str]) -> (i32, Value, String) {
        let (status, out, error) = self.run(&[arguments, &["--output", "json"]].concat());
        (status, serde_json::from_str(&out).unwrap_or(Value::Null), error)
    }

    /// Runs the command; exit status, standard output, standard error.
    pub fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let url = self.state().url.clone();
        let mut command = Command::new(env!("CARGO_BIN_EXE_spokeshave"));
        command.env_clear().env("AWS_ENDPOINT_URL", &url).env("AWS_REGION", REGION);
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        let output = command.args(arguments).output().expect("the command runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").replace(&url, "URL");
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// `doctor` over everything.
    pub fn doctor(&self, more: &[&str]) -> (i32, Value, String) {
        let url = self.state().url.clone();
        let arguments = ["doctor", "--stack", STACK, "--api-server", &url, "--probe-seconds", "0"];
        self.spokeshave(&[&arguments, more].concat())
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let target = line.split_whitespace().nth(1)?.to_owned();
        let (mut length, mut operation) = (0, String::new());
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let header = header.trim();
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':')?;
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "x-amz-target" => operation = value.trim().rsplit('.').next()?.to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body = String::from_utf8(body).ok()?;
        let (status, answer) = self.state().answer(&target, &operation, &body);
        let mut stream = stream;
        write!(
            stream,
            "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
            answer.len()
        )
        .ok()
    }
}

/// The fields of a form.
fn form(body: &str) -> BTreeMap<String, String> {
    let pairs = body.split('&').filter_map(|it| it.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap_or(0), rest.next().unwrap_or(0)];
            let digits = std::str::from_utf8(&digits).expect("digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("digits"));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).expect("text")
}

/// A refusal in the form of the services that speak JSON.
pub fn refused(code: &str) -> (u16, String) {
    (400, json!({"__type": code, "message": "no"}).to_string())
}

/// The same of those that speak XML.
pub fn refused_xml(code: &str) -> (u16, String) {
    (400, format!("<E><Error><Code>{code}</Code><Message>no</Message></Error></E>"))
}

impl State {
    fn resources(&self) -> Vec<(String, Value)> {
        let all = self.template["Resources"].as_object().expect("resources");
        let there = all.iter().filter(|(_, it)| {
            let condition = it["Condition"].as_str().unwrap_or_default();
            let given = self.parameters.contains_key("InterruptionQueueArn");
            let is_off =
                OFF.contains(&condition) || (given && condition == "MakesInterruptionQueue");
            !is_off
        });
        there.map(|(name, it)| (name.clone(), it.clone())).collect()
    }

    fn properties(&self, name: &str) -> &Value {
        &self.template["Resources"][name]["Properties"]
    }

    /// The name in AWS.
    fn name(&self, logical: &str) -> String {
        let is_fifo = self.properties(logical)["FifoQueue"] == true;
        format!("{logical}{}", if is_fifo { ".fifo" } else { "" })
    }

    fn physical(&self, logical: &str, kind: &str) -> String {
        let name = self.name(logical);
        if kind == "AWS::SQS::Queue" { format!("{}/{ACCOUNT}/{name}", self.url) } else { name }
    }

    fn arn(&self, logical: &str) -> String {
        let name = self.name(logical);
        let (service, name) = match self.template["Resources"][logical]["Type"].as_str() {
            Some("AWS::SQS::Queue") => ("sqs", name),
            Some("AWS::DynamoDB::Table") => ("dynamodb", format!("table/{name}")),
            Some("AWS::Events::EventBus") => ("events", format!("event-bus/{name}")),
            Some("AWS::Logs::LogGroup") => ("logs", format!("log-group:{name}:*")),
            _ => ("lambda", format!("function:{name}")),
        };
        format!("arn:aws:{service}:{REGION}:{ACCOUNT}:{name}")
    }

    fn answer(&mut self, target: &str, operation: &str, body: &str) -> (u16, String) {
        let (operation, subject, usual) = self.usual(target, operation, body);
        let call = format!("{operation} {subject}").trim().to_owned();
        self.calls.push(call.clone());
        let made = self.calls.iter().filter(|it| **it == call).count();
        for key in [&call, &operation] {
            if let Some((from, status, body)) = self.instead_from.get(key)
                && made > *from
            {
                return (*status, body.clone());
            }
            if let Some(instead) = self.instead.get(key) {
                return instead.clone();
            }
        }
        let usual = match operation.as_str() {
            "SendMessage" | "ReceiveMessage" | "DeleteMessage" | "ChangeMessageVisibility" => self
                .queue_call(
                    &operation,
                    &subject,
                    &serde_json::from_str(body).unwrap_or(Value::Null),
                ),
            _ => usual,
        };
        let Usual::Json(mut value) = usual else {
            return match usual {
                Usual::Xml(text) => (200, text),
                _ => (
                    404,
                    json!({"code": "NotFound", "message": format!("no {call} here")}).to_string(),
                ),
            };
        };
        for (of, pointer, new) in self.changed.iter().filter(|it| it.0 == call) {
            match value.pointer_mut(pointer) {
                Some(place) => place.clone_from(new),
                None => panic!("{of} has no {pointer}: {value}"),
            }
        }
        (200, value.to_string())
    }

    /// What the call is, what it is about, and its answer.
    fn usual(&self, target: &str, operation: &str, body: &str) -> (String, String, Usual) {
        let given: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        let text = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
        let of = |operation: &str, subject: &str, usual: Usual| {
            (operation.to_owned(), subject.to_owned(), usual)
        };
        let path: Vec<String> = target.split(['?', '/']).skip(1).map(decoded).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        if !operation.is_empty() {
            let queue = text("QueueUrl");
            let queue = queue.rsplit('/').next().unwrap_or_default().trim_end_matches(".fifo");
            return match operation {
                "GetQueueAttributes" => of(operation, queue, Usual::Json(self.queue(queue))),
                "GetQueueUrl" => {
                    let name = text("QueueName");
                    let url = format!("{}/{ACCOUNT}/{name}", self.url);
                    of(operation, &name, Usual::Json(json!({"QueueUrl": url})))
                }
                "DescribeEventBus" => of(operation, "", Usual::Json(json!({"Name": "Bus"}))),
                "DescribeRule" => {
                    let name = text("Name");
                    let pattern = self.properties(&name)["EventPattern"].to_string();
                    of(
                        operation,
                        &name,
                        Usual::Json(json!({"State": "ENABLED", "EventPattern": pattern})),
                    )
                }
                "ListTargetsByRule" => {
                    let name = text("Rule");
                    let arn =
                        self.properties(&name)["Targets"][0]["Arn"].as_str().unwrap_or_default();
                    let arn = self.arn(arn.trim_end_matches(".Arn"));
                    of(operation, &name, Usual::Json(json!({"Targets": [{"Arn": arn}]})))
                }
                "DescribeKey" => {
                    of(operation, "", Usual::Json(json!({"KeyMetadata": {"KeyState": "Enabled"}})))
                }
                "GetKeyPolicy" => {
                    let statements = json!([
                        {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "kms:*"},
                        {"Effect": "Allow", "Principal": {"Service": ["events.amazonaws.com", "scheduler.amazonaws.com"]},
                            "Action": ["kms:Decrypt", "kms:GenerateDataKey"]},
                    ]);
                    let policy = json!({ "Statement": statements }).to_string();
                    of(operation, "", Usual::Json(json!({ "Policy": policy })))
                }
                "DescribeTable" => {
                    of(operation, "", Usual::Json(json!({"Table": {"TableStatus": "ACTIVE"}})))
                }
                "GetItem" => {
                    let part = |name: &str| {
                        given["Key"][name]["S"].as_str().unwrap_or_default().to_owned()
                    };
                    let key = (part("pk"), part("sk"));
                    let item =
                        self.records.get(&key).map_or_else(|| json!({}), |it| json!({"Item": it}));
                    of(operation, &key.0, Usual::Json(item))
                }
                _ => of(operation, queue, Usual::Nothing),
            };
        }
        match path.as_slice() {
            [""] => self.by_form(&form(body)),
            ["schedules", name] => {
                let rate = self.properties(name)["ScheduleExpression"].clone();
                let found = json!({"State": "ENABLED", "ScheduleExpression": rate});
                of("GetSchedule", name, Usual::Json(found))
            }
            ["2015-03-31", "functions", name, "configuration"] => {
                let timeout = &self.properties(name)["Timeout"];
                let given = self.parameters.contains_key("InterruptionQueueArn");
                let timeout = if timeout.is_array() {
                    timeout[if given { 2 } else { 1 }].clone()
                } else {
                    timeout.clone()
                };
                let found = json!({
                    "State": "Active", "LastUpdateStatus": "Successful", "Runtime": "provided.al2023",
                    "Timeout": timeout, "Role": format!("arn:aws:iam::{ACCOUNT}:role/{name}Role"),
                    "Environment": {"Variables": {"CLUSTER_NAME": "prod"}},
                });
                of("GetFunctionConfiguration", name, Usual::Json(found))
            }
            ["2015-03-31", "event-source-mappings", "", query] => {
                let name = query.trim_start_matches("FunctionName=");
                of("ListEventSourceMappings", name, Usual::Json(self.event_sources(name)))
            }
            ["clusters", name] => {
                let cluster = json!({"status": "ACTIVE", "version": "1.34", "accessConfig": {"authenticationMode": "API"}});
                of("DescribeCluster", name, Usual::Json(json!({"cluster": cluster})))
            }
            ["clusters", _, "access-entries", arn @ ..] => {
                let role = arn.last().copied().unwrap_or_default();
                let role = role.rsplit('/').next().unwrap_or_default();
                let group = self.template["Resources"]
                    .get(role.replace("Role", "Access"))
                    .map_or_else(|| json!([]), |it| it["Properties"]["KubernetesGroups"].clone());
                let kind = if role == "NodeRole" { "EC2_LINUX" } else { "STANDARD" };
                let entry = json!({"accessEntry": {"kubernetesGroups": group, "type": kind}});
                of("DescribeAccessEntry", role, Usual::Json(entry))
            }
            ["api", "v1", "namespaces", _, "configmaps", name] => {
                let mapped: Vec<Value> = self
                    .resources()
                    .iter()
                    .filter(|(_, it)| it["Type"] == "AWS::EKS::AccessEntry")
                    .map(|(name, it)| {
                        let role = name.replace("Access", "Role");
                        let mut groups = it["Properties"]["KubernetesGroups"].clone();
                        if role == "NodeRole" {
                            groups = json!(["system:bootstrappers", "system:nodes"]);
                        }
                        json!({"rolearn": format!("arn:aws:iam::{ACCOUNT}:role/{role}"), "groups": groups})
                    })
                    .collect();
                let data = json!({"mapRoles": Value::from(mapped).to_string()});
                of("configmap", name, Usual::Json(json!({ "data": data })))
            }
            ["version"] => of("version", "", Usual::Json(json!({"gitVersion": "v1.34.2"}))),
            ["apis", group, _, rest @ ..] => self.api_server(group, rest, &given),
            _ => of("?", target, Usual::Nothing),
        }
    }

    fn queue(&self, name: &str) -> Value {
        let messages = self.queues.get(name).map_or(&[] as &[Message], Vec::as_slice);
        let count = |in_flight: bool| {
            messages.iter().filter(|it| it.in_flight == in_flight).count().to_string()
        };
        let properties = self.properties(name);
        let dead = properties["RedrivePolicy"]["deadLetterTargetArn"].as_str().unwrap_or_default();
        let policy = json!({"Statement": [{"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage"}]});
        let mut attributes = json!({
            "ApproximateNumberOfMessages": count(false),
            "ApproximateNumberOfMessagesNotVisible": count(true),
            "VisibilityTimeout": properties["VisibilityTimeout"].as_u64().unwrap_or(30).to_string(),
            "Policy": policy.to_string(),
        });
        if properties["FifoQueue"] == true {
            attributes["FifoQueue"] = json!("true");
        }
        if !dead.is_empty() {
            let arn = self.arn(dead.trim_end_matches(".Arn"));
            attributes["RedrivePolicy"] = json!(json!({"deadLetterTargetArn": arn}).to_string());
        }
        json!({ "Attributes": attributes })
    }

    fn event_sources(&self, function: &str) -> Value {
        let events = self.properties(function)["Events"].as_object().into_iter().flatten();
        let sources = events.map(|(_, it)| {
            let properties = &it["Properties"];
            let queue = if properties["Queue"].is_array() {
                &properties["Queue"][1]
            } else {
                &properties["Queue"]
            };
            let queue = queue.as_str().unwrap_or_default().trim_end_matches(".Arn");
            let enabled = properties.get("Enabled").is_none_or(|it| *it == true || it[2] == true);
            json!({
                "EventSourceArn": self.arn(queue),
                "State": if enabled { "Enabled" } else { "Disabled" },
                "FunctionResponseTypes": ["ReportBatchItemFailures"],
            })
        });
        json!({"EventSourceMappings": sources.collect::<Vec<Value>>()})
    }

    fn by_form(&self, fields: &BTreeMap<String, String>) -> (String, String, Usual) {
        let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
        let operation = field("Action");
        match operation.as_str() {
            "DescribeStacks" => {
                let parameters: String = self
                    .parameters
                    .iter()
                    .map(|(name, it)| format!("<member><ParameterKey>{name}</ParameterKey><ParameterValue>{it}</ParameterValue></member>"))
                    .collect();
                let status = self.stack_status;
                let text = format!(
                    "<R><Stacks><member><StackStatus>{status}</StackStatus><Parameters>{parameters}</Parameters></member></Stacks></R>"
                );
                (operation, field("StackName"), Usual::Xml(text))
            }
            "ListStackResources" => {
                let all: String = self
                    .resources()
                    .iter()
                    .map(|(name, it)| {
                        let kind = it["Type"].as_str().unwrap_or_default();
                        let id = self.physical(name, kind);
                        format!("<member><LogicalResourceId>{name}</LogicalResourceId><PhysicalResourceId>{id}</PhysicalResourceId><ResourceType>{kind}</ResourceType><ResourceStatus>CREATE_COMPLETE</ResourceStatus></member>")
                    })
                    .collect();
                (operation, field("StackName"), Usual::Xml(format!("<R><L>{all}</L></R>")))
            }
            "GetRolePolicy" => {
                let scope = Scope {
                    partition: "aws".into(),
                    region: REGION.into(),
                    account: ACCOUNT.into(),
                    cluster: "prod".into(),
                    node_role: format!("arn:aws:iam::{ACCOUNT}:role/NodeRole"),
                    stack: None,
                };
                let mut text = policies(&scope)[&field("PolicyName")].to_string();
                for (name, _) in self.resources() {
                    text = text.replace(&format!("${{{name}.Arn}}"), &self.arn(&name));
                }
                if let Some(given) = self.parameters.get("InterruptionQueueArn") {
                    text = text.replace("${InterruptionQueue.Arn}", given);
                }
                let text: String = text.bytes().map(|it| format!("%{it:02X}")).collect();
                let answer = format!("<R><PolicyDocument>{text}</PolicyDocument></R>");
                (operation, field("RoleName"), Usual::Xml(answer))
            }
            "DescribeSubnets" | "DescribeSecurityGroups" => {
                let subject = field("Filter.1.Value.1");
                (operation, subject, Usual::Xml("<R><set><item><id/></item></set></R>".into()))
            }
            _ => (operation, String::new(), Usual::Nothing),
        }
    }

    fn api_server(&self, group: &str, rest: &[&str], given: &Value) -> (String, String, Usual) {
        let of = |kind: &str, subject: &str, value: Value| {
            (kind.to_owned(), subject.to_owned(), Usual::Json(value))
        };
        let ready = |type_: &str| json!({"type": type_, "status": "True", "message": ""});
        match (group, rest) {
            ("apiextensions.k8s.io", [_, name]) => {
                let found = crds::all().into_iter().find(|it| it.name() == *name);
                match found {
                    Some(it) => of("crd", name, it.definition.clone()),
                    None => ("crd".into(), (*name).into(), Usual::Nothing),
                }
            }
            ("authorization.k8s.io", ["subjectaccessreviews"]) => {
                let asked = &given["spec"]["resourceAttributes"];
                let text = |name: &str| asked[name].as_str().unwrap_or_default();
                let who = given["spec"]["groups"][0].as_str().unwrap_or_default();
                let subject =
                    format!("{who} {} {} {}", text("verb"), text("resource"), text("subresource"));
                of("review", subject.trim(), json!({"status": {"allowed": true}}))
            }
            ("coordination.k8s.io", [_, _, _, name]) => {
                let now = jiff::Timestamp::now();
                of("lease", name, json!({"spec": {"renewTime": now.to_string()}}))
            }
            ("karpenter.k8s.aws", _) => {
                let terms = json!([{"tags": {"karpenter.sh/discovery": "prod"}}]);
                of(
                    "ec2nodeclasses",
                    "",
                    json!({"items": [{
                        "metadata": {"name": "default"},
                        "spec": {"subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms},
                        "status": {"conditions": [ready("SubnetsReady"), ready("AMIsReady"), ready("Ready")]},
                    }]}),
                )
            }
            ("karpenter.sh", _) => of(
                "nodepools",
                "",
                json!({"items": [{
                    "metadata": {"name": "general"},
                    "status": {"conditions": [ready("NodeClassReady"), ready("Ready")]},
                }]}),
            ),
            _ => ("?".into(), group.into(), Usual::Nothing),
        }
    }

    /// What SQS does with messages.
    fn queue_call(&mut self, operation: &str, queue: &str, given: &Value) -> Usual {
        let is_fifo = self.properties(queue)["FifoQueue"] == true;
        let text = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
        let receipt = text("ReceiptHandle");
        match operation {
            "SendMessage" => {
                let body: Value = serde_json::from_str(&text("MessageBody")).unwrap_or(Value::Null);
                if queue == "InterruptionQueue" && self.answers_probes {
                    let id = body["id"].as_str().unwrap_or_default();
                    self.records
                        .insert(("probe".into(), format!("#{id}")), json!({"pk": {"S": "probe"}}));
                    return Usual::Json(json!({"MessageId": "sent"}));
                }
                let message = Message {
                    id: format!("again-{}", self.calls.len()),
                    body: text("MessageBody"),
                    group: given["MessageGroupId"].as_str().map(str::to_owned),
                    attributes: given["MessageAttributes"].clone(),
                    ..Message::default()
                };
                self.queues.entry(queue.to_owned()).or_default().push(message);
                Usual::Json(json!({"MessageId": "sent"}))
            }
            "ReceiveMessage" => {
                let all = self.queues.entry(queue.to_owned()).or_default();
                let busy: Vec<Option<String>> = all
                    .iter()
                    .filter(|it| is_fifo && it.in_flight)
                    .map(|it| it.group.clone())
                    .collect();
                let free = all
                    .iter_mut()
                    .filter(|it| !it.in_flight && (!is_fifo || !busy.contains(&it.group)));
                let taken: Vec<Message> = free
                    .take(10)
                    .map(|it| {
                        it.in_flight = true;
                        it.clone()
                    })
                    .collect();
                let shown = |it: &Message| {
                    let mut system =
                        json!({"SentTimestamp": "1700000000000", "ApproximateReceiveCount": "11"});
                    if let Some(group) = &it.group {
                        system["MessageGroupId"] = json!(group);
                    }
                    if let Some(origin) = &it.origin {
                        system["DeadLetterQueueSourceArn"] = json!(self.arn(origin));
                    }
                    json!({"MessageId": it.id, "ReceiptHandle": it.id, "Body": it.body, "Attributes": system, "MessageAttributes": it.attributes})
                };
                Usual::Json(json!({"Messages": taken.iter().map(shown).collect::<Vec<Value>>()}))
            }
            "DeleteMessage" => {
                self.queues.entry(queue.to_owned()).or_default().retain(|it| it.id != receipt);
                Usual::Json(json!({}))
            }
            _ => {
                let all = self.queues.entry(queue.to_owned()).or_default();
                all.iter_mut().filter(|it| it.id == receipt).for_each(|it| it.in_flight = false);
                Usual::Json(json!({}))
            }
        }
    }

    /// Ids of the messages of a queue, those in flight in brackets.
    pub fn ids(&self, queue: &str) -> Vec<String> {
        let all = self.queues.get(queue).into_iter().flatten();
        all.map(|it| if it.in_flight { format!("({})", it.id) } else { it.id.clone() }).collect()
    }
}

/// An answer that nothing has been said against.
enum Usual {
    Json(Value),
    Xml(String),
    Nothing,
}
