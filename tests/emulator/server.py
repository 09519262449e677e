"""An AWS for tests: moto, and what it lacks of what we use.

    server.py PORT [READY_FILE]

Serves on loopback. Added to moto: fleets that find no capacity, the price order of overrides, client tokens that launch
once, the parameters by which EKS names its images, and capacity reservations (none). Its instance types are fewer. Then
it makes what a stack has: cluster, network, queues, table and bus. When all is there, READY_FILE is written.

`POST /_control/no-capacity` takes a list of [instance type, zone]: EC2 has none of these from then on.
"""

import json
import sys
import threading
import urllib.request

import boto3
from moto.core.responses import ActionResult
from moto.ec2.models import instance_types
from moto.ec2.models.fleets import Fleet
from moto.ec2.responses.fleets import Fleets
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.ssm.models import Parameter, ssm_backends
from werkzeug.serving import make_server

ACCOUNT = "123456789012"
REGION = "us-west-2"
CLUSTER = "prod"

no_capacity = set()
fleets_by_token = {}


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


def control(app):
    def serve(environ, start_response):
        if environ["PATH_INFO"] == "/_control/no-capacity":
            length = int(environ.get("CONTENT_LENGTH") or 0)
            no_capacity.clear()
            no_capacity.update(tuple(it) for it in json.loads(environ["wsgi.input"].read(length)))
            start_response("204 No Content", [])
            return []
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


def seed_stack(endpoint):
    def client(service):
        return boto3.client(
            service,
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

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

    policy = {"Version": "2012-10-17", "Statement": []}
    role = client("iam").create_role(RoleName="node", AssumeRolePolicyDocument=json.dumps(policy))
    client("eks").create_cluster(
        name=CLUSTER,
        version="1.34",
        roleArn=role["Role"]["Arn"],
        resourcesVpcConfig={"subnetIds": [it["SubnetId"] for it in subnets[:2]]},
    )


def main():
    port = int(sys.argv[1])
    app = control(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", port, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{port}"
    urllib.request.urlopen(f"{endpoint}/moto-api/data.json").read()
    seed_parameters()
    seed_stack(endpoint)
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as ready:
            ready.write(endpoint + "\n")
    threading.Event().wait()


if __name__ == "__main__":
    main()
