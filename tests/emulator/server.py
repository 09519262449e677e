"""An AWS for tests: moto, and what it lacks of what we use.

    server.py PORT [READY_FILE [TEMPLATE]]

Serves on loopback. Added to moto: fleets that find no capacity, the price order of overrides, client tokens that launch
once, the parameters by which EKS names its images, and capacity reservations (none). Its instance types are fewer. Then
it makes what a stack has: cluster, network, queues, table and bus. TEMPLATE, as translate.py makes it of template.yaml,
is deployed as the stack `spokeshave-prod`. When all is there, READY_FILE is written.

`GET /_control/started` gives the events that rules have sent to functions since it was last asked.
`POST /_control/no-capacity` takes a list of [instance type, zone]: EC2 has none of these from then on.
"""

import copy
import io
import json
import sys
import threading
import urllib.parse
import urllib.request
import zipfile
from unittest.mock import MagicMock

# CloudFormation imports every service; this library is one that no service of ours needs.
for name in ["", ".validation", ".validation.exceptions"]:
    sys.modules["openapi_spec_validator" + name] = MagicMock(__path__=[], __spec__=None)

import boto3
from moto.core.common_models import CloudFormationModel
from moto.core.responses import ActionResult
from moto.ec2.models import ec2_backends, instance_types
from moto.ec2.models.fleets import Fleet
from moto.ec2.responses.fleets import Fleets
from moto.events.models import EventBus, Rule
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.scheduler.models import scheduler_backends
from moto.sqs.models import Queue, SQSBackend, sqs_backends
from moto.sqs.responses import SQSResponse
from moto.ssm.models import Parameter, ssm_backends
from werkzeug.serving import make_server

ACCOUNT = "123456789012"
REGION = "us-west-2"
CLUSTER = "prod"
STACK = "spokeshave-prod"
BUS = f"{STACK}-bus"

no_capacity = set()
access_entries = {}
fleets_by_token = {}
started = []


def zone_of(fleet, spec):
    subnet = fleet.ec2_backend.get_subnet(spec.subnet_id)
    return subnet.availability_zone


def priority(spec):
    return float((spec.overrides or {}).get("Priority", 0))


def launch_spec_counts(fleet, weight):
    """Cheapest first; what has no capacity is left out and kept as an error."""
    fleet.errors, left = [], []
    for spec in sorted(fleet.launch_specs, key=priority):
        if (spec.instance_type, zone_of(fleet, spec)) in no_capacity:
            fleet.errors.append(spec)
        else:
            left.append(spec)
    if not left:
        return {}, 0
    return {left[0]: int(weight)}, weight


create_fleet_of_moto = Fleets.create_fleet


def create_fleet(responses):
    responses.error_on_dryrun()
    token = responses._get_param("ClientToken")
    if token in fleets_by_token:
        return ActionResult(fleets_by_token[token])
    answer = create_fleet_of_moto(responses)
    result = answer._result
    fleet = responses.ec2_backend.get_fleet(result["FleetId"])
    result["Errors"] = [
        {
            "ErrorCode": "InsufficientInstanceCapacity",
            "ErrorMessage": "We currently do not have sufficient capacity in the Availability Zone you requested.",
            "Lifecycle": "on-demand",
            "LaunchTemplateAndOverrides": {
                "LaunchTemplateSpecification": spec.launch_template_spec,
                "Overrides": dict(spec.overrides or {}, AvailabilityZone=zone_of(fleet, spec)),
            },
        }
        for spec in getattr(fleet, "errors", [])
    ]
    if token:
        fleets_by_token[token] = result
    return ActionResult(result)


Fleet.get_launch_spec_counts = launch_spec_counts
Fleets.create_fleet = create_fleet


# moto answers all 1,395 types at once, without pages; that takes longer than any call of AWS.
FAMILIES = {"c5", "c6g", "c7g", "g4dn", "inf2", "m5", "m5d", "m6g", "p3", "r5", "t3", "t4g"}
for name in list(instance_types.INSTANCE_TYPES):
    if name.split(".")[0] not in FAMILIES:
        del instance_types.INSTANCE_TYPES[name]
backend = instance_types.InstanceTypeBackend
backend.instance_types = [
    it for it in backend.instance_types if it["InstanceType"].split(".")[0] in FAMILIES
]


def no_reservations(_responses):
    return ActionResult({"CapacityReservationSet": []})


Fleets.describe_capacity_reservations = no_reservations


# moto starts no functions: whoever does takes the events from here.
send_of_moto = Rule.send_to_targets


def send_to_targets(rule, event, *arguments, **named):
    functions = [it for it in rule.targets if ":lambda:" in it["Arn"]]
    if functions and rule.event_pattern.matches_event(event):
        started.extend({"function": it["Arn"].rsplit(":", 1)[-1], "event": event} for it in functions)
    others = copy.copy(rule)
    others.targets = [it for it in rule.targets if it not in functions]
    send_of_moto(others, event, *arguments, **named)


Rule.send_to_targets = send_to_targets


# moto does not say of a dead letter which queue it came from.
receive_of_moto = SQSBackend.receive_message
receive_response_of_moto = SQSResponse.receive_message


def receive_message(backend, queue_name, *arguments, **named):
    queue = backend.get_queue(queue_name)
    for message in list(queue._messages):
        if not hasattr(message, "first_queue"):
            message.first_queue = queue.queue_arn
    return receive_of_moto(backend, queue_name, *arguments, **named)


def receive_response(responses):
    answer = receive_response_of_moto(responses)
    queue = responses.sqs_backend.get_queue(responses._get_queue_name())
    origins = {it.id: getattr(it, "first_queue", queue.queue_arn) for it in queue._messages}
    for message in answer.result.get("Messages", []):
        origin = origins.get(message["MessageId"], queue.queue_arn)
        if origin != queue.queue_arn and "Attributes" in message:
            message["Attributes"]["DeadLetterQueueSourceArn"] = origin
    return answer


SQSBackend.receive_message = receive_message

set_attributes_of_moto = Queue._set_attributes


def set_attributes(queue, attributes, now=None):
    """A queue keeps its policy when something else is set."""
    kept = getattr(queue, "_policy_json", None)
    set_attributes_of_moto(queue, attributes, now)
    if kept and "Policy" not in attributes:
        queue._policy_json = kept


Queue._set_attributes = set_attributes
SQSResponse.receive_message = receive_response


# What moto's CloudFormation lacks: the name of a bus, and schedules.
EventBus.physical_resource_id = property(lambda bus: bus.name)


class ScheduleOfStack(CloudFormationModel):
    # moto tells a model's service by its module.
    __module__ = "moto.scheduler.models"

    def __init__(self, schedule):
        self.physical_resource_id = schedule.name
        self.type = self.cloudformation_type()

    @staticmethod
    def cloudformation_name_type():
        return "Name"

    @staticmethod
    def cloudformation_type():
        return "AWS::Scheduler::Schedule"

    @classmethod
    def has_cfn_attr(cls, attr):
        return attr == "Arn"

    @classmethod
    def create_from_cloudformation_json(cls, name, template, account_id, region_name, **_):
        it = template["Properties"]
        return cls(
            scheduler_backends[account_id][region_name].create_schedule(
                description="",
                end_date="",
                flexible_time_window=it["FlexibleTimeWindow"],
                group_name="default",
                kms_key_arn="",
                name=name,
                schedule_expression=it["ScheduleExpression"],
                schedule_expression_timezone="",
                start_date="",
                state=it.get("State", "ENABLED"),
                target=it["Target"],
                action_after_completion=None,
            )
        )


def control(app):
    def serve(environ, start_response):
        if environ["PATH_INFO"] == "/_control/no-capacity":
            length = int(environ.get("CONTENT_LENGTH") or 0)
            no_capacity.clear()
            no_capacity.update(tuple(it) for it in json.loads(environ["wsgi.input"].read(length)))
            start_response("204 No Content", [])
            return []
        if environ["PATH_INFO"] == "/_control/started":
            taken = [started.pop(0) for _ in range(len(started))]
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(taken, default=str).encode()]
        entries = f"/clusters/{CLUSTER}/access-entries/"
        if environ["PATH_INFO"].startswith(entries) and environ["REQUEST_METHOD"] == "GET":
            principal = urllib.parse.unquote(environ["PATH_INFO"][len(entries) :])
            entry = access_entries.get(principal)
            status = "200 OK" if entry else "404 Not Found"
            answer = {"accessEntry": entry} if entry else {"message": "no such entry"}
            headers = [("Content-Type", "application/json")]
            if not entry:
                headers.append(("x-amzn-ErrorType", "ResourceNotFoundException"))
            start_response(status, headers)
            return [json.dumps(answer).encode()]
        return app(environ, start_response)

    return serve


def seed_parameters():
    images = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023"
    for name, value in {
        f"{images}/x86_64/standard/recommended/image_id": "ami-0a00000000000001",
        f"{images}/arm64/standard/recommended/image_id": "ami-0a00000000000002",
    }.items():
        parameter = Parameter(
            account_id=ACCOUNT,
            name=name,
            value=value,
            parameter_type="String",
            description="",
            allowed_pattern=None,
            keyid=None,
            last_modified_date=1_700_000_000,
            version=1,
            data_type="text",
        )
        ssm_backends[ACCOUNT][REGION]._parameters[name].append(parameter)


def client_of(endpoint):
    def client(service):
        return boto3.client(
            service,
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    return client


def seed_stack(client):
    sqs, events = client("sqs"), client("events")
    for name in ["launch", "interruption", "provision-wake", "bus-target"]:
        sqs.create_queue(QueueName=name)
    sqs.create_queue(
        QueueName="provision.fifo",
        Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
    )
    client("dynamodb").create_table(
        TableName="state",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
    )
    events.create_event_bus(Name="spokeshave")
    events.put_rule(
        Name="to-queue",
        EventBusName="spokeshave",
        EventPattern=json.dumps({"source": ["spokeshave"], "detail-type": ["NodeChanged"]}),
    )
    queue = f"arn:aws:sqs:{REGION}:{ACCOUNT}:bus-target"
    events.put_targets(
        Rule="to-queue", EventBusName="spokeshave", Targets=[{"Id": "queue", "Arn": queue}]
    )

    ec2 = client("ec2")
    subnets = ec2.describe_subnets()["Subnets"]
    groups = ec2.describe_security_groups()["SecurityGroups"]
    ids = [it["SubnetId"] for it in subnets] + [it["GroupId"] for it in groups]
    ec2.create_tags(Resources=ids, Tags=[{"Key": "karpenter.sh/discovery", "Value": CLUSTER}])

    # moto forgets what an image is made for.
    for architecture in ["x86_64", "arm64"]:
        image = ec2.register_image(Name=f"end-to-end-{architecture}", RootDeviceName="/dev/xvda")["ImageId"]
        ec2_backends[ACCOUNT][REGION].amis[image].architecture = architecture

    policy = {"Version": "2012-10-17", "Statement": []}
    role = client("iam").create_role(RoleName="node", AssumeRolePolicyDocument=json.dumps(policy))
    client("eks").create_cluster(
        name=CLUSTER,
        version="1.34",
        roleArn=role["Role"]["Arn"],
        resourcesVpcConfig={"subnetIds": [it["SubnetId"] for it in subnets[:2]]},
    )


NOTHING = {"Ref": "AWS::NoValue"}


def for_moto(value):
    """What moto does not do by itself: a bus by its name, and nothing where a choice in a list gives nothing."""
    if value == {"Ref": "Bus"}:
        return BUS
    if isinstance(value, dict):
        choice = value.get("Fn::If")
        if choice and choice[0] == "HasKey":
            return for_moto(choice[2])
        if choice:
            return {"Fn::If": [for_moto(it) for it in choice]}
        return {key: it for key, old in value.items() if (it := for_moto(old)) != NOTHING}
    if isinstance(value, list):
        return [it for old in value if (it := for_moto(old)) != NOTHING]
    return value


def deploy(client, template):
    """template.yaml as a stack. What moto knows of no EKS access entries is kept here."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as it:
        it.writestr("bootstrap", "")
    s3 = client("s3")
    s3.create_bucket(Bucket="code", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket="code", Key="function.zip", Body=archive.getvalue())
    resources = template["Resources"]
    entries = [it for it in resources.values() if it["Type"] == "AWS::EKS::AccessEntry"]
    for name in [name for name, it in resources.items() if it in entries]:
        del resources[name]
    resources["Bus"]["Properties"]["Name"] = BUS
    for name, resource in resources.items():
        resource["Properties"] = for_moto(resource["Properties"])
        if "EventBusName" in resource["Properties"]:
            resource["DependsOn"] = "Bus"
        # CloudFormation ends the names that it makes up as their kind demands; moto does not.
        if resource["Type"] == "AWS::SQS::Queue" and resource["Properties"].get("FifoQueue"):
            resource["Properties"]["QueueName"] = f"{STACK}-{name}.fifo"
    s3.put_object(Bucket="code", Key="template.json", Body=json.dumps(template))
    cloudformation = client("cloudformation")
    cloudformation.create_stack(
        StackName=STACK,
        TemplateURL=f"https://code.s3.{REGION}.amazonaws.com/template.json",
        Parameters=[{"ParameterKey": "ClusterName", "ParameterValue": CLUSTER}],
        Capabilities=["CAPABILITY_IAM"],
    )
    stack = cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=STACK)
    made = {it["LogicalResourceId"]: it for page in pages for it in page["StackResourceSummaries"]}
    # The functions are not moto's to start: it would want a container engine.
    for queue in sqs_backends[ACCOUNT][REGION].queues.values():
        queue.lambda_event_source_mappings.clear()
    # Nor does it know queue policies in a stack. What their conditions refer to stays as it is written: nothing here reads it.
    for policy in [it for it in resources.values() if it["Type"] == "AWS::SQS::QueuePolicy"]:
        text = json.dumps(policy["Properties"]["PolicyDocument"])
        for queue in policy["Properties"]["Queues"]:
            name = queue.get("Ref") or queue["Fn::If"][1]["Ref"]
            client("sqs").set_queue_attributes(QueueUrl=made[name]["PhysicalResourceId"], Attributes={"Policy": text})
    iam = client("iam")
    for entry in entries:
        role = entry["Properties"]["PrincipalArn"]["Fn::GetAtt"][0]
        arn = iam.get_role(RoleName=made[role]["PhysicalResourceId"])["Role"]["Arn"]
        access_entries[arn] = {
            "principalArn": arn,
            "kubernetesGroups": entry["Properties"].get("KubernetesGroups", []),
            "type": entry["Properties"]["Type"],
        }


def main():
    port = int(sys.argv[1])
    app = control(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", port, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{port}"
    urllib.request.urlopen(f"{endpoint}/moto-api/data.json").read()
    seed_parameters()
    client = client_of(endpoint)
    seed_stack(client)
    if len(sys.argv) > 3:
        with open(sys.argv[3], encoding="utf-8") as template:
            deploy(client, json.load(template))
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as ready:
            ready.write(endpoint + "\n")
    threading.Event().wait()


if __name__ == "__main__":
    main()
