import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { test } from "node:test";

import * as cdk from "aws-cdk-lib";
import { AwsSolutionsChecks } from "cdk-nag";
import { parse, ScalarTag, CollectionTag } from "yaml";

import { shortened, Spokeshave, SpokeshaveProps, templateFile } from "../lib/spokeshave";

type Json = any;

/** Intrinsic functions in their long form, as synthesized templates have them. */
const tags: (ScalarTag | CollectionTag)[] = ["Ref", "Condition", "Sub", "GetAtt", "If", "Equals", "Not", "And", "Or", "Join", "Select", "Split"].flatMap((name) => {
  const long = name === "Ref" || name === "Condition" ? name : `Fn::${name}`;
  const value = (it: Json): Json => ({ [long]: it });
  return [
    { tag: `!${name}`, resolve: (text: string) => value(text) },
    { tag: `!${name}`, collection: "seq" as const, resolve: (seq: Json) => value(seq.toJSON()) },
  ];
});

const names = [
  "cluster-bridge", "provision", "launch", "lifecycle", "tagging", "interruption", "disruption",
  "termination", "nodeclass", "nodepool", "instance-gc", "instance-profile-gc", "catalog-refresh",
];

function folder(): string {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), "spokeshave-cdk-"));
  for (const name of names) {
    fs.writeFileSync(path.join(made, `${name}.zip`), name);
  }
  return made;
}

function stackOf(app: cdk.App): cdk.Stack {
  const synthesizer = new cdk.DefaultStackSynthesizer({ generateBootstrapVersionRule: false });
  const stack = new cdk.Stack(app, "spokeshave-prod", { synthesizer });
  const reason = "the output's own condition is that of the role";
  cdk.Validations.of(stack).acknowledge({ id: "CloudFormation-Validate::W1001", reason });
  return stack;
}

function synthesized(props: Partial<SpokeshaveProps> = {}): Json {
  const functions = folder();
  const app = new cdk.App({ outdir: path.join(functions, "out"), analyticsReporting: false });
  const stack = stackOf(app);
  new Spokeshave(stack, "Spokeshave", { clusterName: "prod", functions, ...props });
  const made = app.synth().getStackByName("spokeshave-prod").template;
  fs.rmSync(functions, { recursive: true });
  return made;
}

/** What differs on purpose: where the code is, and how it is built. */
function comparable(resource: Json): Json {
  const copy = structuredClone(resource);
  delete copy.Metadata;
  if (copy.Type === "AWS::Serverless::Function") {
    delete copy.Properties.CodeUri;
  }
  return copy;
}

test("the construct gives the resources of template.yaml", () => {
  const text = fs.readFileSync(templateFile(), "utf8");
  const template: Json = parse(text, { customTags: tags, logLevel: "error" });
  const made = synthesized();
  assert.deepEqual(Object.keys(made.Resources).sort(), Object.keys(template.Resources).sort());
  for (const [name, resource] of Object.entries<Json>(template.Resources)) {
    assert.deepEqual(comparable(made.Resources[name]), comparable(resource), name);
  }
  for (const section of ["Conditions", "Outputs", "Rules", "Globals", "Transform"]) {
    assert.deepEqual(made[section], template[section], section);
  }
  for (const [name, resource] of Object.entries<Json>(made.Resources)) {
    if (resource.Type === "AWS::Serverless::Function") {
      assert.ok(resource.Properties.CodeUri.Key, name);
    }
  }
});

test("properties become parameters", () => {
  const made = synthesized({
    subnetIds: ["subnet-1", "subnet-2"],
    securityGroupIds: ["sg-1"],
    featureGates: { NodeRepair: true, ReservedCapacity: false },
    bridgeMode: "poll",
    alarms: false,
    parameters: { BatchIdleDuration: "2s" },
  });
  const expected = {
    ClusterName: "prod", LongClusterName: "", InterruptionQueueName: "", SubnetIds: "subnet-1,subnet-2", SecurityGroupIds: "sg-1",
    FeatureGates: "NodeRepair=true,ReservedCapacity=false", BridgeMode: "poll", MakeAlarms: "false",
    BatchIdleDuration: "2s",
  };
  for (const [name, value] of Object.entries(expected)) {
    assert.equal(made.Parameters[name].Default, value, name);
  }
});

test("what cannot work is refused", () => {
  assert.throws(() => synthesized({ subnetIds: ["subnet-1"] }), /subnetIds need securityGroupIds/);
  assert.throws(() => synthesized({ functions: "/nowhere" }), /cluster-bridge\.zip is not there/);
  assert.throws(() => synthesized({ parameters: { NoSuch: "x" } }), /NoSuch/);
});

test("long names are cut and stay apart", () => {
  const [one, other] = ["a".repeat(99) + "b", "a".repeat(99) + "c"].map((it) => shortened(it, 80));
  assert.equal(one.length, 80);
  assert.notEqual(one, other);
  assert.equal(shortened("prod", 80), "prod");
  const made = synthesized({ clusterName: "a".repeat(100) });
  assert.match(made.Parameters.ClusterName.Default, /^a{71}-[0-9a-f]{8}$/);
  assert.equal(made.Parameters.LongClusterName.Default, "a".repeat(100));
  assert.match("a".repeat(100), new RegExp(made.Parameters.LongClusterName.AllowedPattern));
  assert.doesNotMatch("a".repeat(80), new RegExp(made.Parameters.LongClusterName.AllowedPattern));
});

test("cdk-nag finds nothing", () => {
  const functions = folder();
  const app = new cdk.App({ outdir: path.join(functions, "out"), analyticsReporting: false });
  const stack = stackOf(app);
  new Spokeshave(stack, "Spokeshave", { clusterName: "prod", functions });
  cdk.Validations.of(app).addPlugins(new AwsSolutionsChecks(app));
  app.synth();
  // Without findings there is no report.
  const report = path.join(functions, "out", "validation-report.json");
  const findings: Json = fs.existsSync(report) ? JSON.parse(fs.readFileSync(report, "utf8")).pluginReports : [];
  assert.deepEqual(findings.flatMap((it: Json) => it.violations), []);
  fs.rmSync(functions, { recursive: true });
});

test("cdk synth makes the stack", () => {
  const functions = folder();
  const given = ["-c", "clusterName=prod", "-c", `functions=${functions}`, "-c", "stackName=spokeshave-prod"];
  const out = path.join(functions, "out");
  execFileSync("npx", ["cdk", "synth", "--quiet", "--no-notices", "--output", out, ...given], {
    cwd: path.join(__dirname, ".."), stdio: ["ignore", "ignore", "inherit"],
  });
  const made: Json = JSON.parse(fs.readFileSync(path.join(out, "Spokeshave.template.json"), "utf8"));
  assert.equal(made.Parameters.ClusterName.Default, "prod");
  assert.ok(made.Resources.Provision.Properties.CodeUri.Key);
  fs.rmSync(functions, { recursive: true });
});

test("the package has what it needs", () => {
  const place = fs.mkdtempSync(path.join(os.tmpdir(), "spokeshave-pack-"));
  const root = path.join(__dirname, "..");
  const told = execFileSync("npm", ["pack", "--silent", "--json", "--pack-destination", place], { cwd: root, encoding: "utf8" });
  const archive = path.join(place, JSON.parse(told.slice(told.indexOf("[")))[0].filename);
  execFileSync("tar", ["--extract", "--file", archive, "--directory", place]);
  const shipped = path.join(place, "package", "dist");
  for (const name of ["lib/spokeshave.js", "lib/spokeshave.d.ts", "template.yaml"]) {
    assert.ok(fs.existsSync(path.join(shipped, name)), name);
  }
  const ours = fs.readFileSync(templateFile(), "utf8");
  assert.equal(fs.readFileSync(path.join(shipped, "template.yaml"), "utf8"), ours);
  // Where nothing else of the repository is, it finds its own.
  fs.symlinkSync(path.join(root, "node_modules"), path.join(place, "node_modules"));
  const script = "process.stdout.write(require(process.argv[1]).templateFile())";
  const found = execFileSync("node", ["-e", script, path.join(shipped, "lib", "spokeshave.js")], { encoding: "utf8" });
  assert.equal(fs.realpathSync(found), fs.realpathSync(path.join(shipped, "template.yaml")));
  fs.rmSync(place, { recursive: true });
});
