"""The Kubernetes side: a small client, and a player for what kubelets would do."""

import base64
import json
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request
from datetime import datetime, timezone

import yaml

KINDS = {
    "Deployment": ("apis/apps/v1", "deployments"),
    "DaemonSet": ("apis/apps/v1", "daemonsets"),
    "Job": ("apis/batch/v1", "jobs"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "NodePool": ("apis/karpenter.sh/v1", "nodepools"),
    "EC2NodeClass": ("apis/karpenter.k8s.aws/v1", "ec2nodeclasses"),
    "CustomResourceDefinition": ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
}
# How long a Job's pod works.
WORK = 15


class Kubernetes:
    def __init__(self, kubeconfig):
        with open(kubeconfig, encoding="utf-8") as file:
            config = yaml.safe_load(file)
        cluster = config["clusters"][0]["cluster"]
        self.server, self.token = cluster["server"], config["users"][0]["user"]["token"]
        with tempfile.NamedTemporaryFile(suffix=".pem") as authority:
            authority.write(base64.b64decode(cluster["certificate-authority-data"]))
            authority.flush()
            self.tls = ssl.create_default_context(cafile=authority.name)

    def call(self, method, path, body=None, patch="merge"):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.server}/{path}", data=data, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        kind = f"application/{patch}-patch+json" if method == "PATCH" else "application/json"
        request.add_header("Content-Type", kind)
        with urllib.request.urlopen(request, context=self.tls, timeout=20) as answer:
            return json.loads(answer.read())

    def ready(self):
        request = urllib.request.Request(f"{self.server}/readyz", headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=5):
                return True
        except OSError:
            return False

    def list(self, path):
        return self.call("GET", path)["items"]

    def create(self, manifest, namespace="default"):
        """Creates an object; one that is there is fine. Waits for what it needs."""
        base, plural = KINDS[manifest["kind"]]
        namespace = manifest["metadata"].get("namespace", namespace)
        scoped = "karpenter" in base or "apiextensions" in base
        path = f"{base}/{plural}" if scoped else f"{base}/namespaces/{namespace}/{plural}"
        until = time.time() + 60
        while True:
            try:
                return self.call("POST", path, manifest)
            except urllib.error.HTTPError as error:
                if error.code == 409:
                    return None
                if error.code == 422 or time.time() > until:
                    raise RuntimeError(f"{path}: {error.read().decode()}") from error
            except OSError:
                if time.time() > until:
                    raise
            time.sleep(0.5)


def now():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Player(threading.Thread):
    """Nodes become Ready; bound pods run, work and go."""

    def __init__(self, cluster, ended):
        super().__init__(daemon=True)
        self.cluster, self.ended, self.began = cluster, ended, {}

    def run(self):
        while not self.ended.wait(0.5):
            try:
                self.nodes()
                self.pods()
            except OSError:  # The API server is away; HTTP errors are among these: somebody else was faster.
                pass

    def nodes(self):
        for node in self.cluster.list("api/v1/nodes"):
            path = f"api/v1/nodes/{node['metadata']['name']}"
            conditions = node["status"].get("conditions", [])
            if not any(it["type"] == "Ready" and it["status"] == "True" for it in conditions):
                ready = {
                    "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
                    "lastHeartbeatTime": now(), "lastTransitionTime": now(),
                }
                self.cluster.call("PATCH", f"{path}/status", {"status": {"conditions": [ready]}}, "strategic-merge")
            taints = node["spec"].get("taints", [])
            left = [it for it in taints if it["key"] != "node.kubernetes.io/not-ready"]
            if left != taints:
                version = node["metadata"]["resourceVersion"]
                body = {"metadata": {"resourceVersion": version}, "spec": {"taints": left}}
                self.cluster.call("PATCH", path, body)

    def pods(self):
        nodes = {it["metadata"]["name"] for it in self.cluster.list("api/v1/nodes")}
        for pod in self.cluster.list("api/v1/pods"):
            meta, on = pod["metadata"], pod["spec"].get("nodeName")
            path = f"api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            try:
                if meta.get("deletionTimestamp") or (on and on not in nodes):
                    # Its kubelet has stopped it; of a node that is gone the garbage collector takes it away.
                    self.cluster.call("DELETE", path, {"gracePeriodSeconds": 0})
                elif on and pod["status"].get("phase") == "Pending":
                    self.began[meta["uid"]] = time.time()
                    ready = [{"type": it, "status": "True"} for it in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
                    status = {"phase": "Running", "startTime": now(), "conditions": ready}
                    self.cluster.call("PATCH", f"{path}/status", {"status": status})
                elif on and pod["status"].get("phase") == "Running" and meta.get("labels", {}).get("app") == "nightly":
                    if time.time() - self.began.setdefault(meta["uid"], time.time()) > WORK:
                        self.cluster.call("PATCH", f"{path}/status", {"status": {"phase": "Succeeded"}})
            except urllib.error.HTTPError:
                pass
