#!/usr/bin/env node
import * as cdk from "aws-cdk-lib";

import { BridgeMode, Spokeshave } from "../lib/spokeshave";

// An app of one stack, for whoever has none: `cdk deploy -c clusterName=prod -c functions=target/lambda-zips`.
const app = new cdk.App();

/** What was given with `-c NAME=...`. */
function given(name: string): string {
  const value: unknown = app.node.tryGetContext(name);
  if (typeof value !== "string" || value === "") {
    throw new Error(`give -c ${name}=...`);
  }
  return value;
}

const clusterName = given("clusterName");
const bridgeMode = app.node.tryGetContext("bridgeMode") as BridgeMode | undefined;
const stackName: unknown = app.node.tryGetContext("stackName");
const stack = new cdk.Stack(app, "Spokeshave", {
  stackName: typeof stackName === "string" ? stackName : undefined,
  description: `Spokeshave for the cluster ${clusterName}`,
});
const reason = "the output's own condition is that of the resource";
cdk.Validations.of(stack).acknowledge({ id: "CloudFormation-Validate::W1001", reason });
new Spokeshave(stack, "Template", { clusterName, functions: given("functions"), bridgeMode });
