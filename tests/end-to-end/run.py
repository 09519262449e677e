"""The example of the README over built Lambda binaries, an AWS emulator and a real API server, with faults.

    run.py [--seed N] [--faults SECONDS] [--patience SECONDS] [--logs FOLDER]

`.ci/run` starts the servers, which it finds by AWS_ENDPOINT_URL and KUBECONFIG; SPOKESHAVE_FUNCTIONS is the folder with the
binaries. Event sources, rules and queues are those of template.yaml as the emulator has deployed it; instances are made up by
KWOK's launch mode, the scheduler and the controllers are real. For so many SECONDS (30) processes are killed at random, and a spot
interruption arrives. Halfway the API server is killed and started again, and a change made then must have gone through bridge,
bus, queue and function within ten seconds. Once the faults stop, all must be in order: every pod runs, the Job is done, every
claim has an instance of its own and every instance a claim, what was interrupted is gone, no message is dead.

All waits end by what they wait for; a busy machine only makes them longer, and gives functions more time, as more memory would.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import yaml
from cluster import Kubernetes, Player, now
from lambda_service import EventSource, Function, Killer

ROOT = Path(__file__).parent.parent.parent
STACK = "spokeshave-prod"
CONCERNS = sorted(it.name for it in (ROOT / "functions").iterdir())
# Seconds of an invocation, and how long its messages stay hidden: less than in AWS, so that what a killed process had
# taken comes again within the test.
SLOWNESS = min(4, max(1, os.getloadavg()[0] / (os.cpu_count() or 1)))
SECONDS = round(15 * SLOWNESS)
HIDDEN = SECONDS + 5
# From an API server that is ready again to a change that is acted upon: the bar, which a busy machine is not held to.
RECOVERED = 10


def pascal(concern):
    return "".join(it.capitalize() for it in concern.split("-"))


def client(service):
    return boto3.client(service, endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-west-2")


class World:
    def __init__(self, arguments):
        self.arguments = arguments
        self.cluster = Kubernetes(os.environ["KUBECONFIG"])
        self.sqs, self.events, self.dynamo = client("sqs"), client("events"), client("dynamodb")
        self.ended, self.faults, self.sweeping = threading.Event(), threading.Event(), threading.Event()
        self.sweeping.set()
        pages = client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=STACK)
        self.stack = {it["LogicalResourceId"]: it["PhysicalResourceId"] for page in pages for it in page["StackResourceSummaries"]}
        self.log = open(Path(arguments.logs) / "functions.log", "w", encoding="utf-8")
        self.functions = {it: self.function(it) for it in CONCERNS}

    def url(self, logical):
        return self.sqs.get_queue_url(QueueName=self.stack[logical].rsplit("/", 1)[-1])["QueueUrl"]

    def function(self, concern):
        configuration = client("lambda").get_function_configuration(FunctionName=self.stack[pascal(concern)])
        variables = {
            **{name: str(it) for name, it in configuration["Environment"]["Variables"].items()},
            **{name: it for name, it in os.environ.items() if name.startswith("AWS_") or name in ("KUBECONFIG", "PATH")},
            "SPOKESHAVE_EC2": "kwok",
            "SPOKESHAVE_KWOK": "join=2s",
            "ISOLATED_VPC": "true",
        }
        binary = str(Path(os.environ["SPOKESHAVE_FUNCTIONS"]) / concern)
        # The bridge hands over to its successor 20 seconds before its time is up; the emulator is slow to list types.
        seconds = max(60, 2 * SECONDS) if concern in ("cluster-bridge", "catalog-refresh") else SECONDS
        return Function(concern, binary, variables, self.log, seconds)

    def begin(self):
        for concern in CONCERNS:
            if concern == "cluster-bridge":
                continue
            for suffix in ("Queue", "WakeQueue"):
                logical = pascal(concern) + suffix
                if logical in self.stack:
                    url = self.url(logical)
                    attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
                    hidden = HIDDEN - SECONDS + self.functions[concern].seconds
                    EventSource(self.functions[concern], self.sqs, url, attributes["QueueArn"], hidden, self.ended).start()
        threading.Thread(target=self.schedules, daemon=True).start()
        self.killer = Killer(list(self.functions.values()), self.arguments.seed, self.faults, self.ended)
        self.killer.start()
        Player(self.cluster, self.ended).start()

    def schedules(self):
        """The stack's schedules, quicker."""
        beat = 0
        while not self.ended.wait(1):
            self.try_to(self.start_functions)
            if beat % 2 == 0:
                # It finds the bridge at work, or takes over from one that was killed or whose time is up.
                bridge = self.functions["cluster-bridge"]
                threading.Thread(target=bridge.invoke, args=({"reason": "Schedule"},), daemon=True).start()
            for concern, seconds in [("catalog-refresh", 60), ("nodeclass", 10), ("disruption", 10), ("instance-gc", 15)]:
                if beat % seconds == 0:
                    body = json.dumps({"reason": "Schedule", "due": now()})
                    group = {"MessageGroupId": "pass"} if concern == "disruption" else {}
                    self.try_to(self.sqs.send_message, QueueUrl=self.url(pascal(concern) + "Queue"), MessageBody=body, **group)
            if beat % 20 == 10 and self.sweeping.is_set():
                entry = {"Source": "spokeshave", "DetailType": "Sweep", "Detail": '{"reason":"Sweep"}', "EventBusName": self.stack["Bus"]}
                self.try_to(self.events.put_events, Entries=[entry])
            beat += 1

    def start_functions(self):
        """Functions that rules send events to, such as the bridge's successor."""
        with urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"] + "/_control/started", timeout=20) as answer:
            for it in json.loads(answer.read()):
                concern = next(name for name in CONCERNS if self.stack[pascal(name)] == it["function"])
                # The others look into queues that are polled for them here.
                if concern == "cluster-bridge":
                    threading.Thread(target=self.functions[concern].invoke, args=(it["event"],), daemon=True).start()

    def try_to(self, call, **arguments):
        try:
            call(**arguments)
        except Exception as error:
            print("schedule:", error, flush=True)

    def instances(self):
        """Instances that are not gone, by id: the records of the made-up EC2."""
        found = {}
        pages = self.dynamo.get_paginator("scan").paginate(TableName=self.stack["StateTable"])
        for item in (it for page in pages for it in page["Items"]):
            # The emulator shows an item that it is just making without its attributes.
            if item["pk"]["S"] == "kwok-instance" and "data" in item:
                instance = json.loads(item["data"]["S"])
                if instance["state"] != "terminated":
                    found[instance["id"]] = instance
        return found

    def claims(self):
        return self.cluster.list("apis/karpenter.sh/v1/nodeclaims")

    def apply(self):
        for path in sorted((ROOT / "infra" / "crds").glob("*.yaml")):
            self.cluster.create(yaml.safe_load(path.read_text(encoding="utf-8")))
        iam = client("iam")
        try:
            iam.create_role(RoleName="KarpenterNodeRole-spokeshave", AssumeRolePolicyDocument="{}")
        except iam.exceptions.EntityAlreadyExistsException:
            pass
        for name in ("nodepools", "workloads"):
            text = (ROOT / "infra" / "examples" / f"{name}.yaml").read_text(encoding="utf-8")
            # The emulator's network is tagged `prod`, and it knows no amd64 type above the fifth generation.
            text = text.replace("karpenter.sh/discovery: spokeshave", "karpenter.sh/discovery: prod").replace('["5"]', '["4"]')
            # It has no images of EKS either.
            text = text.replace("    - alias: al2023@latest", "    - name: end-to-end-*\n  amiFamily: AL2023")
            for manifest in yaml.safe_load_all(text):
                if manifest["kind"] == "Job":
                    # A node with all of its pods may be the one that is interrupted.
                    manifest["spec"]["backoffLimit"] = 100
                self.cluster.create(manifest)

    def restart_api_server(self):
        """Kills it and starts it again, and waits until it is ready. False: it is not ours."""
        folder = Path(os.environ["KUBECONFIG"]).parent
        pids = folder / "pids"
        if not pids.exists():
            print("the API server is not ours: it stays", flush=True)
            return False
        for pid in pids.read_text(encoding="utf-8").split():
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
            if command[1:2] == ["apiserver"]:
                os.kill(int(pid), 9)
                time.sleep(2)
                with open(folder / "apiserver.log", "a", encoding="utf-8") as log:
                    started = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
                with open(pids, "a", encoding="utf-8") as file:
                    file.write(f"{started.pid}\n")
        while not self.cluster.ready():
            if started.poll() is not None:
                sys.exit("the API server does not come back")
            time.sleep(0.05)
        print("API server restarted", flush=True)
        return True

    def told(self, pool):
        """Makes a NodePool that buys nothing, and waits until its function has looked at it. Seconds that took, and what is wrong."""
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
        requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
        template = {"spec": {"nodeClassRef": reference, "requirements": requirements}}
        manifest = {
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": pool},
            "spec": {"limits": {"cpu": "0"}, "template": template},
        }
        path, began = f"apis/karpenter.sh/v1/nodepools/{pool}", time.time()
        self.cluster.create(manifest)
        looked_at = lambda: self.cluster.call("GET", path).get("status", {}).get("conditions")
        problems = self.until(f"NodePool {pool}", self.arguments.patience, lambda: [] if looked_at() else [f"{pool} is not looked at"], 0.1)
        took = time.time() - began
        self.cluster.call("DELETE", path)
        return took, problems

    def recover(self):
        """The API server goes and comes, and nothing else does meanwhile: neither faults nor the sweep, which would hide what is
        not told. What is wrong."""
        self.faults.clear()
        self.sweeping.clear()
        # The bridge is at work, and the function warm.
        problems = self.told("before-restart")[1]
        if not problems and self.restart_api_server():
            took, problems = self.told("after-restart")
            busy = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
            print(f"recovered {took:.1f} s after the API server was ready{', on a busy machine' if busy else ''}", flush=True)
            if took > RECOVERED and not busy:
                problems.append(f"recovered after {took:.1f} s")
        self.sweeping.set()
        self.faults.set()
        return problems

    def interrupt(self):
        """A spot warning for an instance that holds a node; its id."""
        for claim in self.claims():
            labels = claim["metadata"]["labels"]
            if labels.get("karpenter.sh/capacity-type") == "spot" and claim.get("status", {}).get("nodeName"):
                instance = claim["status"]["providerID"].rsplit("/", 1)[-1]
                text = (ROOT / "infra" / "examples" / "spot-interruption.json").read_text(encoding="utf-8")
                body = text.replace("{{instance:0}}", instance).replace("us-east-1", "us-west-2")
                self.sqs.send_message(QueueUrl=self.url("InterruptionQueue"), MessageBody=body)
                return instance
        return None

    def job(self):
        """How many pods of the Job are done. It begins anew if it has lost some: its controller would pause for up to six minutes."""
        path = "apis/batch/v1/namespaces/default/jobs/nightly"
        try:
            status = self.cluster.call("GET", path)["status"]
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            self.apply()
            return 0
        if status.get("failed") and not status.get("active"):
            self.cluster.call("DELETE", path, {"propagationPolicy": "Background"})
        return status.get("succeeded", 0)

    def out_of_order(self, interrupted):
        """What is not as it must be in the end."""
        problems = []
        for pod in self.cluster.list("api/v1/pods"):
            meta, phase = pod["metadata"], pod["status"].get("phase")
            if meta.get("labels", {}).get("app") in ("web", "api") and (phase != "Running" or meta.get("deletionTimestamp")):
                problems.append(f"pod {meta['name']} is {phase}")
        for name, replicas in (("web", 12), ("api", 3)):
            ready = self.cluster.call("GET", f"apis/apps/v1/namespaces/default/deployments/{name}")["status"].get("readyReplicas", 0)
            if ready != replicas:
                problems.append(f"{ready} of {replicas} pods of {name} are ready")
        if self.job() != 8:
            problems.append("the Job is not done")
        instances, owned = self.instances(), {}
        for claim in self.claims():
            name, instance = claim["metadata"]["name"], claim.get("status", {}).get("providerID", "").rsplit("/", 1)[-1]
            if not instance:
                problems.append(f"claim {name} has no instance")
            elif instance in owned:
                problems.append(f"claims {owned[instance]} and {name} share {instance}")
            elif instance not in instances:
                problems.append(f"claim {name} has lost {instance}")
            owned[instance] = name
        problems += [f"instance {it} has no claim" for it in instances if it not in owned]
        if interrupted in instances:
            problems.append(f"{interrupted} was interrupted and is still there")
        return problems

    def dead_letters(self):
        dead = 0
        for name in ("DeadLetters", "SolverDeadLetters", "UndeliveredQueue"):
            attributes = self.sqs.get_queue_attributes(QueueUrl=self.url(name), AttributeNames=["All"])["Attributes"]
            dead += int(attributes["ApproximateNumberOfMessages"])
        return dead

    def until(self, what, seconds, asked, pause=1):
        """Waits until `asked` finds nothing wrong."""
        began, problems = time.time(), ["not asked"]
        while problems and time.time() - began < seconds:
            time.sleep(pause)
            try:
                problems = asked()
            except OSError as error:
                problems = [str(error)]
        print(f"{what}: {'in order' if not problems else 'NOT in order'} after {time.time() - began:.0f} s", flush=True)
        return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--patience", type=int, default=600)
    parser.add_argument("--logs", default=tempfile.gettempdir())
    arguments = parser.parse_args()
    world = World(arguments)
    dead_before = world.dead_letters()
    world.apply()
    world.begin()
    try:
        half = arguments.faults / 2
        # First nodes come with the faults on already.
        world.faults.set()
        time.sleep(half)
        problems = world.recover()
        interrupted = []
        world.until("a spot node to interrupt", arguments.patience, lambda: [] if interrupted else interrupted.append(it) or [] if (it := world.interrupt()) else ["none yet"])
        time.sleep(half)
        world.faults.clear()
        problems += world.until("after the faults", arguments.patience, lambda: world.out_of_order(interrupted[0] if interrupted else None))
        dead = world.dead_letters() - dead_before
        if dead:
            problems.append(f"{dead} dead letters")
        if not interrupted:
            problems.append("nothing was interrupted")
        invoked = sum(it.n_invocations for it in world.functions.values())
        died = sum(it.n_died for it in world.functions.values())
        print(f"{invoked} invocations, {world.killer.n_killed} processes killed, {died} of them at work; {len(world.instances())} instances")
        if problems:
            sys.exit("\n".join(problems))
    finally:
        world.ended.set()
        for function in world.functions.values():
            function.end()


main()
