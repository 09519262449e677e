//! The AWS adapters over the wire, against the emulator of `tests/emulator`.
//!
//! Each test has its own objects, since all share one emulator.

use std::{collections::BTreeMap, io::Write, net::TcpStream};

use aws_sdk_sqs::{
    Client,
    types::{MessageSystemAttributeName, QueueAttributeName},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use spokeshave_aws::{
    Connection, DynamoTable, EksApi, EventBus, IamApi, ParameterStore, QueueUrls, SqsQueues,
};
use spokeshave_ec2::Ec2Api;
use spokeshave_model::{InstanceId, Settings};
use spokeshave_ports::{
    Bus, Concern, Ec2, Eks, Iam, Key, Queues, Ssm, StateError, StateKey, StateTable, When, Work,
    ec2::{
        Filter, FleetConfig, FleetOverride, FleetRequest, LaunchMetadataOptions,
        LaunchNetworkInterface, LaunchTemplateData, Tags,
    },
    queues::BusEvent,
};
use spokeshave_tests::server;

async fn connection() -> Connection {
    server("AWS_ENDPOINT_URL");
    let settings = Settings { region: "us-west-2".into(), ..Settings::default() };
    Connection::from_env(&settings).await
}

fn url(queue: &str) -> String {
    format!("{}/123456789012/{queue}", server("AWS_ENDPOINT_URL"))
}

/// Takes one message: body, message group, attribute `group`.
async fn receive(client: &Client, queue: &str) -> Option<(String, String, String)> {
    let answer = client
        .receive_message()
        .queue_url(url(queue))
        .message_attribute_names("All")
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .wait_time_seconds(1)
        .send()
        .await
        .expect("the emulator answers");
    let message = answer.messages.unwrap_or_default().into_iter().next()?;
    let group = message
        .attributes()
        .and_then(|it| it.get(&MessageSystemAttributeName::MessageGroupId))
        .cloned()
        .unwrap_or_default();
    let attribute = message.message_attributes().and_then(|it| it.get("group"));
    let attribute = attribute.and_then(|it| it.string_value.clone()).unwrap_or_default();
    let receipt = message.receipt_handle.clone().unwrap_or_default();
    let delete = client.delete_message().queue_url(url(queue)).receipt_handle(receipt);
    delete.send().await.expect("deleted");
    Some((message.body.unwrap_or_default(), group, attribute))
}

fn work(reason: &str) -> Work {
    let key = Key { kind: "NodeClaim".into(), name: "a".into(), ..Key::default() };
    Work::new(reason, vec![key])
}

#[tokio::test]
async fn messages_carry_what_they_go_back_to() {
    let connection = connection().await;
    let main = BTreeMap::from([(Concern::Interruption, url("interruption"))]);
    let queues = SqsQueues::new(&connection, QueueUrls { main, ..QueueUrls::default() });
    let root = "Root=1-5e1b4151-000000000000000000000001;Sampled=0";
    spokeshave_aws::trace::begin("e-1,e-2", root);
    let sent = queues.send(Concern::Interruption, &Work::default(), SignedDuration::ZERO, "").await;
    spokeshave_aws::trace::begin("", "");
    sent.expect("sent");
    let client = Client::new(connection.config());
    let request = client.receive_message().queue_url(url("interruption")).wait_time_seconds(1);
    let request = request
        .message_attribute_names("All")
        .message_system_attribute_names(MessageSystemAttributeName::All);
    let messages = request.send().await.expect("the emulator answers").messages.unwrap_or_default();
    let attributes = messages[0].message_attributes().expect("attributes");
    assert_eq!(attributes["correlation"].string_value(), Some("e-1,e-2"));
    let system = messages[0].attributes().expect("attributes");
    assert_eq!(system[&MessageSystemAttributeName::AwsTraceHeader], root);
}

#[tokio::test]
async fn work_goes_to_the_queue_of_its_concern() {
    let connection = connection().await;
    let client = Client::new(connection.config());
    let urls = QueueUrls {
        main: BTreeMap::from([
            (Concern::Launch, url("launch")),
            (Concern::Provision, url("provision.fifo")),
        ]),
        wake: BTreeMap::from([(Concern::Provision, url("provision-wake"))]),
    };
    let queues = SqsQueues::new(&connection, urls);

    queues.send(Concern::Launch, &work("Launch"), SignedDuration::ZERO, "").await.expect("sent");
    let (body, _, _) = receive(&client, "launch").await.expect("a message");
    assert_eq!(body, r#"{"reason":"Launch","keys":[{"kind":"NodeClaim","name":"a"}]}"#);

    // Delayed: there, but not yet to be seen.
    let delay = SignedDuration::from_secs(60);
    queues.send(Concern::Launch, &work("Wake"), delay, "").await.expect("sent");
    assert_eq!(receive(&client, "launch").await, None);
    let attributes = client
        .get_queue_attributes()
        .queue_url(url("launch"))
        .attribute_names(QueueAttributeName::ApproximateNumberOfMessagesDelayed)
        .send()
        .await
        .expect("attributes");
    let delayed = attributes
        .attributes()
        .and_then(|it| it.get(&QueueAttributeName::ApproximateNumberOfMessagesDelayed).cloned());
    assert_eq!(delayed.as_deref(), Some("1"));

    // To a solver: at once to the FIFO queue, twice the same body is two messages; delayed to the wake queue.
    for _ in 0..2 {
        queues
            .send(Concern::Provision, &work("Pods"), SignedDuration::ZERO, "")
            .await
            .expect("sent");
    }
    for _ in 0..2 {
        let (_, group, _) = receive(&client, "provision.fifo").await.expect("a message");
        assert_eq!(group, "pass");
    }
    let delay = SignedDuration::from_secs(1);
    queues.send(Concern::Provision, &work("Wake"), delay, "commands").await.expect("sent");
    let mut due = None;
    while due.is_none() {
        due = receive(&client, "provision-wake").await;
    }
    let (body, _, group) = due.expect("the wake-up");
    assert_eq!(group, "commands");
    // Forwarded twice, as after a crash: one message.
    for _ in 0..2 {
        queues.forward(Concern::Provision, &body, &group, "wake-1").await.expect("forwarded");
    }
    let (forwarded, group, _) = receive(&client, "provision.fifo").await.expect("a message");
    assert_eq!((forwarded, group.as_str()), (body, "commands"));
    assert_eq!(receive(&client, "provision.fifo").await, None);

    let unknown = queues.send(Concern::Tagging, &work("x"), SignedDuration::ZERO, "").await;
    assert_eq!(unknown.expect_err("no such queue").code, "QueueNotConfigured");
}

#[tokio::test]
async fn events_reach_their_rule_s_queue() {
    let connection = connection().await;
    let client = Client::new(connection.config());
    let bus = EventBus::new(&connection, "spokeshave");
    let mut events: Vec<BusEvent> = (0..12)
        .map(|n| BusEvent { detail_type: "Sweep", work: work(&format!("sweep {n}")) })
        .collect();
    events.push(BusEvent { detail_type: "NodeChanged", work: work("NodeChanged") });
    assert_eq!(bus.put(&events).await.expect("accepted"), [] as [usize; 0]);
    let (body, _, _) = receive(&client, "bus-target").await.expect("one event");
    let record = spokeshave_lambda::SqsRecord { body, ..spokeshave_lambda::SqsRecord::default() };
    assert_eq!(record.work().expect("an envelope"), work("NodeChanged"));
    assert_eq!(receive(&client, "bus-target").await, None);
}

#[tokio::test]
async fn records_are_written_under_conditions() {
    let table = DynamoTable::new(&connection().await, "state");
    let key = StateKey::new("attempt", "a");
    assert_eq!(table.read(&key).await.expect("read"), None);
    assert_eq!(table.write(&key, json!({"n": 1}), None, When::Absent).await, Ok(1));
    let taken = table.write(&key, json!({"n": 2}), None, When::Absent).await;
    assert_eq!(taken, Err(StateError::Conflict(key.clone())));
    assert_eq!(table.write(&key, json!({"n": 2}), None, When::Version(1)).await, Ok(2));
    let stale = table.write(&key, json!({"n": 3}), None, When::Version(1)).await;
    assert_eq!(stale, Err(StateError::Conflict(key.clone())));
    assert_eq!(table.write(&key, json!({"n": 4}), None, When::Always).await, Ok(3));
    let record = table.read(&key).await.expect("read").expect("there");
    assert_eq!((record.version, record.data), (3, json!({"n": 4})));

    // A long record is packed and comes back whole; a short one in its place is plain again.
    let long = json!({"types": vec!["m5.large"; 5000]});
    table.write(&key, long.clone(), None, When::Always).await.expect("written");
    assert_eq!(table.read(&key).await.expect("read").map(|it| it.data), Some(long));
    table.write(&key, json!([]), None, When::Always).await.expect("written");
    assert_eq!(table.read(&key).await.expect("read").map(|it| it.data), Some(json!([])));

    // Expired is absent, to the millisecond, whether or not DynamoDB has removed it.
    let now = Timestamp::now();
    let gone = StateKey::new("attempt", "b");
    table.write(&gone, json!(1), Some(now), When::Absent).await.expect("written");
    assert_eq!(table.read(&gone).await.expect("read"), None);
    let stale = table.write(&gone, json!(2), None, When::Version(1)).await;
    assert_eq!(stale, Err(StateError::Conflict(gone.clone())));
    table.write(&gone, json!(2), None, When::Absent).await.expect("as if it were absent");

    let later = now + SignedDuration::from_mins(5);
    let kept = StateKey::new("attempt", "ba");
    table.write(&kept, json!(3), Some(later), When::Absent).await.expect("written");
    let other = StateKey::new("nomination", "b");
    table.write(&other, json!(4), None, When::Absent).await.expect("written");
    let found = table.query("attempt", "b").await.expect("queried");
    let found: Vec<(&str, &serde_json::Value)> =
        found.iter().map(|(sort, it)| (sort.as_str(), &it.data)).collect();
    assert_eq!(found, [("b", &json!(2)), ("ba", &json!(3))]);
    assert_eq!(table.query("attempt", "").await.expect("queried").len(), 3);

    let stale = table.remove(&gone, When::Version(7)).await;
    assert_eq!(stale, Err(StateError::Conflict(gone.clone())));
    table.remove(&gone, When::Always).await.expect("removed");
    table.remove(&gone, When::Always).await.expect("a repeat changes nothing");
    assert_eq!(table.read(&gone).await.expect("read"), None);
}

#[tokio::test]
async fn instance_profiles_are_made_and_removed() {
    let iam = IamApi::new(&connection().await);
    let tags = BTreeMap::from([("eks:eks-cluster-name".to_owned(), "prod".to_owned())]);
    let (name, path) = ("prod_1", "/karpenter/us-west-2/prod/");
    assert_eq!(iam.get_instance_profile(name).await.expect("read"), None);
    iam.create_instance_profile(name, path, &tags).await.expect("created");
    let again = iam.create_instance_profile(name, path, &tags).await;
    assert!(again.expect_err("it is there").is_already_exists());
    iam.add_role(name, "node").await.expect("added");
    let found = iam.get_instance_profile(name).await.expect("read").expect("there");
    assert_eq!(
        (found.roles, found.tags, found.path.as_str()),
        (vec!["node".to_owned()], tags, path)
    );
    let listed = iam.list_instance_profiles("/karpenter/").await.expect("listed");
    assert_eq!(listed.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), [name]);
    assert!(!listed[0].tags.is_empty());
    assert_eq!(iam.list_instance_profiles("/other/").await.expect("listed"), []);
    iam.remove_role(name, "node").await.expect("removed");
    iam.delete_instance_profile(name).await.expect("deleted");
    iam.delete_instance_profile(name).await.expect("gone is done");
    assert!(iam.get_role("node").await.expect("read").is_some_and(|it| it.ends_with(":role/node")));
    assert_eq!(iam.get_role("nobody").await.expect("read"), None);
}

#[tokio::test]
async fn the_cluster_and_its_parameters_are_found() {
    let connection = connection().await;
    let facts = EksApi::new(&connection).describe_cluster("prod").await.expect("described");
    assert_eq!((facts.name.as_str(), facts.version.as_str()), ("prod", "1.34"));
    assert!(facts.endpoint.starts_with("https://") && !facts.certificate_authority.is_empty());
    let missing = EksApi::new(&connection).describe_cluster("other").await;
    let missing = missing.expect_err("no such cluster");
    assert_eq!((missing.code.as_str(), missing.status), ("ResourceNotFoundException", 404));

    let ssm = ParameterStore::new(&connection);
    let path = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023";
    let one = format!("{path}/arm64/standard/recommended/image_id");
    let found = ssm.get_parameter(&one).await.expect("read");
    assert_eq!(found.as_deref(), Some("ami-0a00000000000002"));
    assert_eq!(ssm.get_parameter("/aws/service/none").await.expect("read"), None);
    let all = ssm.get_parameters_by_path(path).await.expect("read");
    assert_eq!(all.len(), 2);
}

/// Tells the emulator of which (type, zone) EC2 has none.
fn no_capacity(offerings: &[(&str, &str)]) {
    let endpoint = server("AWS_ENDPOINT_URL");
    let address = endpoint.trim_start_matches("http://");
    let body = json!(offerings).to_string();
    let mut stream = TcpStream::connect(address).expect("the emulator");
    write!(
        stream,
        "POST /_control/no-capacity HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("told");
    std::io::copy(&mut stream, &mut std::io::sink()).expect("an answer");
}

fn template_data(image: &str, groups: &[String]) -> LaunchTemplateData {
    LaunchTemplateData {
        image_id: image.into(),
        instance_profile: "prod_1".into(),
        user_data: "IyEvYmluL3No".into(),
        metadata_options: LaunchMetadataOptions {
            http_endpoint: "enabled".into(),
            http_protocol_ipv6: Some("disabled".into()),
            http_put_response_hop_limit: 1,
            http_tokens: "required".into(),
            instance_metadata_tags: "disabled".into(),
        },
        network_interfaces: vec![LaunchNetworkInterface {
            groups: groups.to_vec(),
            ..LaunchNetworkInterface::default()
        }],
        tenancy: "default".into(),
        ..LaunchTemplateData::default()
    }
}

#[tokio::test]
async fn a_fleet_launches_once_and_says_what_had_no_capacity() {
    let ec2 = Ec2Api::new(&connection().await);
    let discovery = Filter::new("tag:karpenter.sh/discovery", &["prod"]);
    let mut subnets =
        ec2.describe_subnets(std::slice::from_ref(&discovery)).await.expect("subnets");
    subnets.sort_by(|a, b| a.zone.cmp(&b.zone));
    assert!(subnets.len() >= 3 && subnets.iter().all(|it| it.zone.starts_with("us-west-2")));
    assert!(subnets.iter().all(|it| it.available_addresses > 0 && !it.zone_id.is_empty()));
    let groups = ec2.describe_security_groups(&[discovery]).await.expect("groups");
    let groups: Vec<String> = groups.into_iter().map(|it| it.id).collect();
    let (owners, filters) = (["amazon".into()], [Filter::new("architecture", &["x86_64"])]);
    let images = ec2.describe_images(&[], &owners, &filters);
    let image = images.await.expect("images").into_iter().next().expect("an image");

    let tags = Tags::from([
        ("karpenter.sh/nodepool".into(), "default".into()),
        ("spokeshave.dev/launch".into(), "attempt-1".into()),
    ]);
    let name = "karpenter.k8s.aws/1";
    let data = template_data(&image.id, &groups);
    assert_eq!(ec2.get_launch_template(name).await.expect("read"), None);
    ec2.create_launch_template(name, &data, &tags, false).await.expect("created");
    let again = ec2.create_launch_template(name, &data, &tags, false).await;
    assert!(again.expect_err("it is there").is_already_exists());
    let found = ec2.get_launch_template(name).await.expect("read").expect("there");
    assert_eq!((found.name.as_str(), &found.tags), (name, &tags));

    let override_in = |subnet: &spokeshave_ports::ec2::Subnet, price: f64| FleetOverride {
        instance_type: "m5.large".into(),
        subnet_id: subnet.id.clone(),
        image_id: image.id.clone(),
        zone: subnet.zone.clone(),
        priority: price,
    };
    let mut request = FleetRequest {
        client_token: "attempt-1".into(),
        target: 2,
        capacity_type: "on-demand".into(),
        on_demand_allocation: Some("lowest-price".into()),
        tags: tags.clone(),
        configs: vec![FleetConfig {
            launch_template: name.into(),
            overrides: vec![override_in(&subnets[0], 0.096), override_in(&subnets[1], 0.098)],
        }],
        ..FleetRequest::default()
    };
    no_capacity(&[("m5.large", &subnets[0].zone)]);
    let answer = ec2.create_fleet(&request).await.expect("answered");
    let ids: Vec<InstanceId> = answer.instances.iter().flat_map(|it| it.ids.clone()).collect();
    assert_eq!(ids.len(), 2);
    let error = answer.errors.first().expect("one zone had none");
    assert_eq!(
        (error.code.as_str(), error.instance_type.as_str(), error.zone.as_str()),
        ("InsufficientInstanceCapacity", "m5.large", subnets[0].zone.as_str())
    );
    // Sent again with the same token: the same answer, nothing launched.
    let repeated = ec2.create_fleet(&request).await.expect("answered");
    assert_eq!(repeated.instances, answer.instances);

    let by_attempt = [Filter::new("tag:spokeshave.dev/launch", &["attempt-1"])];
    let launched = ec2.find_instances(&by_attempt);
    let launched = launched.await.expect("found");
    assert_eq!(launched.len(), 2);
    assert!(launched.iter().all(|it| {
        it.instance_type == "m5.large"
            && it.zone == subnets[1].zone
            && matches!(it.state.as_str(), "pending" | "running")
            && it.tags.get("karpenter.sh/nodepool").map(String::as_str) == Some("default")
            && !it.spot
    }));

    // Nothing anywhere: no instance, and every override is named.
    no_capacity(&[("m5.large", &subnets[0].zone), ("m5.large", &subnets[1].zone)]);
    request.client_token = "attempt-2".into();
    let answer = ec2.create_fleet(&request).await.expect("answered");
    assert!(answer.instances.iter().all(|it| it.ids.is_empty()));
    assert_eq!(answer.errors.len(), 2);
    no_capacity(&[]);

    // The checks of a class: a dry run says so by an error of its own.
    request.dry_run = true;
    let dry = ec2.create_fleet(&request).await.expect_err("a dry run");
    assert!(dry.is_dry_run_passed(), "{dry}");
    let dry = ec2.dry_run_instances(name, "m5.large", &subnets[0].id, &tags).await;
    assert!(dry.expect_err("a dry run").is_dry_run_passed());

    let name_tag = Tags::from([("Name".into(), "ip-10-0-0-1".into())]);
    let texts: Vec<String> = ids.iter().map(|it| it.0.clone()).collect();
    ec2.create_tags(&texts, &name_tag).await.expect("tagged");
    let unknown = InstanceId::from("i-00000000000000000");
    let asked = [ids[0].clone(), unknown.clone()];
    let described = ec2.describe_instances(&asked).await.expect("described");
    assert_eq!(described.len(), 1);
    assert_eq!(described[0].tags.get("Name").map(String::as_str), Some("ip-10-0-0-1"));

    // One unknown id does not save the others, and is no error.
    ec2.terminate_instances(&[ids[0].clone(), unknown, ids[1].clone()]).await.expect("ended");
    ec2.terminate_instances(&ids).await.expect("a repeat changes nothing");
    let left = ec2.describe_instances(&ids).await.expect("described");
    assert!(left.iter().all(|it| matches!(it.state.as_str(), "shutting-down" | "terminated")));

    ec2.delete_launch_template(name).await.expect("deleted");
    request.client_token = "attempt-3".into();
    request.dry_run = false;
    let gone = ec2.create_fleet(&request).await.expect_err("no template");
    assert_eq!(gone.code, "InvalidLaunchTemplateName.NotFoundException");
}

#[tokio::test]
async fn instance_types_are_read_with_what_the_catalog_needs() {
    let ec2 = Ec2Api::new(&connection().await);
    let types = ec2.describe_instance_types().await.expect("types");
    assert!(types.len() > 50, "{}", types.len());
    let find = |name: &str| types.iter().find(|it| it.name == name).expect(name);
    let m5 = find("m5.large");
    assert_eq!((m5.vcpus, m5.memory_mib, m5.hypervisor.as_str()), (2, 8192, "nitro"));
    assert_eq!((m5.network.max_interfaces, m5.network.ipv4_per_interface), (3, 10));
    assert_eq!(m5.architectures, ["x86_64"]);
    assert!(m5.usage_classes.contains(&"spot".to_owned()) && !m5.bare_metal);
    let g4dn = find("g4dn.xlarge");
    assert_eq!((g4dn.gpus[0].name.as_str(), g4dn.gpus[0].count), ("T4", 1));
    assert!(g4dn.instance_storage.as_ref().is_some_and(|it| it.nvme && it.total_gb == 125));
    let offerings = ec2.describe_instance_type_offerings().await.expect("offerings");
    assert!(offerings.iter().any(|it| it.instance_type == "m5.large" && it.zone == "us-west-2a"));
    let zones = ec2.describe_zones().await.expect("zones");
    assert!(zones.iter().any(|it| it.name == "us-west-2a" && it.id.starts_with("usw2-")));
    assert!(!ec2.describe_spot_prices().await.expect("prices").is_empty());
}
