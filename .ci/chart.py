"""What the chart makes, for every way of setting it, and what it refuses.

    chart.py HELM [--server]

Needs PyYAML, which the packages of .ci/requirements.txt bring along. With `--server` the chart is also installed into the
cluster of KUBECONFIG, upgraded and taken away again.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
CHART = ROOT / "infra" / "chart"
KUBERNETES = ["1.30.0", "1.34.2"]
BRIDGE = {
    "enabled": True,
    "image": "registry.example/cluster-bridge:0.1.0",
    "eventBus": "spokeshave-prod",
    "stateTable": "spokeshave-prod-StateTable-1",
    "region": "us-west-2",
}
EVERY_OPTION = {
    **BRIDGE,
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "pull"}],
    "stackName": "spokeshave-prod",
    "batchIdleDuration": "500ms",
    "batchMaxDuration": "1m30s",
    "logLevel": "debug",
    "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/bridge"},
    "podAnnotations": {"note": "yes"},
    "podLabels": {"team": "platform"},
    "nodeSelector": {"eks.amazonaws.com/compute-type": "fargate"},
    "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
    "priorityClassName": "",
    "resources": {},
}
PROD = {"clusterName": "prod"}
ACCEPTED = {
    "without the bridge": {"settings": PROD},
    "with the bridge": {"settings": PROD, "bridge": BRIDGE},
    "with nodes that are made up": {"settings": PROD, "kwok": {"enabled": True}},
    "with every option": {"settings": PROD, "bridge": EVERY_OPTION},
}
# Values and what the refusal must say.
REFUSED = {
    "no cluster": ({}, "/settings/clusterName"),
    "an empty name": ({"settings": {"clusterName": ""}}, "/settings/clusterName"),
    "no cluster's name": ({"settings": {"clusterName": "-prod"}}, "/settings/clusterName"),
    "a name too long": ({"settings": {"clusterName": "a" * 101}}, "/settings/clusterName"),
    "no text": ({"settings": {"clusterName": 7}}, "/settings/clusterName"),
    "an unknown setting": ({"settings": {**PROD, "cluster": "prod"}}, "'cluster' not allowed"),
    "an unknown value": ({"settings": PROD, "brigde": {}}, "'brigde' not allowed"),
    "an unknown option": ({"settings": PROD, "bridge": {"on": True}}, "'on' not allowed"),
    "an unknown option of kwok": ({"settings": PROD, "kwok": {"on": True}}, "'on' not allowed"),
    "an unknown level": ({"settings": PROD, "bridge": {"logLevel": "all"}}, "/bridge/logLevel"),
    "no duration": ({"settings": PROD, "bridge": {"batchIdleDuration": "1"}}, "/bridge/batchIdleDuration"),
    **{
        f"a bridge without {name}": ({"settings": PROD, "bridge": {**BRIDGE, name: ""}}, f"/bridge/{name}")
        for name in ("image", "eventBus", "stateTable", "region")
    },
}
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {
    "privileged": False,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Helm:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, Path(folder)
        places = {name: str(self.folder / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
        self.environment = {**os.environ, **places}

    def __call__(self, *arguments, values=None):
        """Whether it succeeded, and what it said."""
        if values is not None:
            path = self.folder / "values.json"
            path.write_text(json.dumps(values), encoding="utf-8")
            arguments += ("--values", str(path))
        run = subprocess.run([self.binary, *arguments], env=self.environment, capture_output=True, text=True)
        # The API server only warns of fields that it does not know.
        good = run.returncode == 0 and "unknown field" not in run.stderr
        return good, run.stdout if good else run.stdout + run.stderr


def check(holds, *what):
    if not holds:
        sys.exit("chart: " + ": ".join(str(it) for it in what))


def rendered(helm, what, values, version):
    ok, text = helm("template", "spokeshave", str(CHART), "--namespace", "kube-system", "--include-crds",
                    "--kube-version", version, values=values)
    check(ok, what, text)
    return [it for it in yaml.safe_load_all(text) if it]


def look_at(what, objects, values):
    bridge = values.get("bridge", {}).get("enabled", False)
    kinds = [it["kind"] for it in objects]
    check(kinds.count("CustomResourceDefinition") == 5, what, "five custom resources", kinds)
    check(kinds.count("Deployment") == bridge, what, "a Deployment only with the bridge", kinds)
    check("Secret" not in kinds and "ConfigMap" not in kinds, what, "nothing secret", kinds)
    names = [(it["kind"], it["metadata"].get("namespace"), it["metadata"]["name"]) for it in objects]
    check(len(set(names)) == len(names), what, "an object twice", names)
    roles = {(it["kind"], it["metadata"]["name"]) for it in objects if it["kind"] in ("ClusterRole", "Role")}
    for it in objects:
        if it["kind"] in ("ClusterRole", "Role"):
            for rule in it["rules"]:
                for field in ("apiGroups", "resources", "verbs"):
                    check("*" not in rule[field], what, it["metadata"]["name"], "a permission for everything")
        if it["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            check((it["roleRef"]["kind"], it["roleRef"]["name"]) in roles, what, "a binding to no role", it["roleRef"])
            for subject in it["subjects"]:
                check(not subject["name"].startswith("system:"), what, "a group that EKS refuses", subject)
    for it in objects:
        if it["kind"] != "Deployment":
            continue
        pod = it["spec"]["template"]["spec"]
        check(pod["securityContext"] == POD_SECURITY, what, "the pod's security context", pod["securityContext"])
        for container in pod["containers"]:
            check(container["securityContext"] == CONTAINER_SECURITY, what, "security context", container)
        for field in ("hostNetwork", "hostPID", "hostIPC", "volumes"):
            check(field not in pod, what, field, "nothing of the host")
        given = {it["name"]: it.get("value") for it in pod["containers"][0]["env"]}
        check(given["BRIDGE_MODE"] == "in-cluster" and given["CLUSTER_NAME"] == "prod", what, given)


def packaged(helm):
    ok, text = helm("package", str(CHART), "--destination", str(helm.folder))
    check(ok, "package", text)
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]
    archive = helm.folder / f"spokeshave-{version}.tgz"
    with tarfile.open(archive) as opened:
        names = set(opened.getnames())
    wanted = {f"spokeshave/crds/{it.name}" for it in (ROOT / "infra" / "crds").glob("*.yaml")}
    wanted |= {"spokeshave/Chart.yaml", "spokeshave/values.schema.json", "spokeshave/templates/rbac.yaml"}
    check(wanted <= names, "package", "lacks", sorted(wanted - names))
    return archive


def installed(helm, archive):
    """The packaged chart in a real cluster, in every way one after another."""
    where = ("--namespace", "kube-system")
    for what, values in ACCEPTED.items():
        ok, text = helm("upgrade", "--install", "spokeshave", str(archive), *where, "--dry-run=server", values=values)
        check(ok, what, "dry run", text)
    for what, values in ACCEPTED.items():
        ok, text = helm("upgrade", "--install", "spokeshave", str(archive), *where, values=values)
        check(ok, what, "installed", text)
    ok, text = helm("uninstall", "spokeshave", *where)
    check(ok, "uninstalled", text)


def main():
    with tempfile.TemporaryDirectory() as folder:
        helm = Helm(sys.argv[1], folder)
        if "--server" in sys.argv:
            installed(helm, packaged(helm))
            return
        for what, values in ACCEPTED.items():
            ok, text = helm("lint", "--strict", str(CHART), values=values)
            check(ok, what, "lint", text)
            for version in KUBERNETES:
                look_at(what, rendered(helm, what, values, version), values)
        for what, (values, said) in REFUSED.items():
            ok, text = helm("template", "x", str(CHART), "--kube-version", KUBERNETES[-1], values=values)
            check(not ok and said in text, what, "refused with", said, text)
        ok, text = helm("template", "x", str(CHART), "--kube-version", "1.29.0", values=ACCEPTED["without the bridge"])
        check(not ok and "kubeVersion" in text, "an old cluster", text)
        packaged(helm)


main()
