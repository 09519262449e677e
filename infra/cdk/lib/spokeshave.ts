import { createHash } from "crypto";
import * as fs from "fs";
import * as path from "path";

import { Token, Validations } from "aws-cdk-lib";
import * as events from "aws-cdk-lib/aws-events";
import * as sam from "aws-cdk-lib/aws-sam";
import * as assets from "aws-cdk-lib/aws-s3-assets";
import * as sqs from "aws-cdk-lib/aws-sqs";
import { CfnInclude } from "aws-cdk-lib/cloudformation-include";
import { Construct } from "constructs";

/** How changes in the cluster are noticed. */
export type BridgeMode = "watch" | "poll" | "in-cluster";

/** What can be said about a stack. What is left out has the default of template.yaml. */
export interface SpokeshaveProps {
  /** Name of the EKS cluster. */
  readonly clusterName: string;
  /**
   * Folder with one zip per function, named after it (`provision.zip`), as `cargo lambda build --output-format zip` and
   * a copy make them.
   */
  readonly functions: string;
  /** URL of the API server; asked of EKS if not given. */
  readonly clusterEndpoint?: string;
  /** Certificate authority of the API server, base64; asked of EKS if not given. */
  readonly clusterCaBundle?: string;
  /** Whether to make EKS access entries. Default true. */
  readonly manageAccessEntries?: boolean;
  /** Name of an existing role for nodes; one is made if not given. */
  readonly nodeRoleName?: string;
  /** Subnets for the functions, for a cluster whose API server is private. */
  readonly subnetIds?: string[];
  /** Security groups for the functions; required with subnets. */
  readonly securityGroupIds?: string[];
  /** Name of the interruption queue; the cluster's name if not given, cut to what SQS takes. */
  readonly interruptionQueueName?: string;
  /** ARN of an existing interruption queue with its rules, instead of one of the stack's own. */
  readonly interruptionQueueArn?: string;
  /** ARN of a KMS key for queues, table and variables. */
  readonly kmsKeyArn?: string;
  /** Default `watch`. */
  readonly bridgeMode?: BridgeMode;
  /** Default 128. */
  readonly bridgeMemory?: number;
  /** Feature gates that differ from the defaults. */
  readonly featureGates?: Record<string, boolean>;
  /** Whether to make alarms. Default true. */
  readonly alarms?: boolean;
  /** SNS topic that is told of alarms. */
  readonly alarmTopicArn?: string;
  /** Whether to make a dashboard. Default false. */
  readonly dashboard?: boolean;
  /** Any other parameter of template.yaml by its name. */
  readonly parameters?: Record<string, string | number>;
}

/** Longest name that SQS takes. */
const LONGEST_QUEUE_NAME = 80;

const NODE_POLICIES = "what every EKS node needs, as AWS keeps it";

/** Rules of validators that do not fit, and why. */
const ACKNOWLEDGED: Record<string, string> = {
  "AwsSolutions::AwsSolutions-DDB3": "losing the table costs time, never an instance: nothing in it is the only copy",
  "AwsSolutions::AwsSolutions-SQS3": "these are the dead-letter queues; the others have one each",
  "AwsSolutions::AwsSolutions-IAM4": "only for functions in a VPC, whose network interfaces Lambda makes by this policy",
  "AwsSolutions::AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AmazonEC2ContainerRegistryPullOnly]": NODE_POLICIES,
  "AwsSolutions::AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AmazonEKSWorkerNodePolicy]": NODE_POLICIES,
  "AwsSolutions::AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AmazonEKS_CNI_Policy]": NODE_POLICIES,
  "AwsSolutions::AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AmazonSSMManagedInstanceCore]": NODE_POLICIES,
  "AwsSolutions::AwsSolutions-SQS4": "QueuePolicy refuses senders without TLS; the rule cannot read its choice of queues",
  "CloudFormation-Validate::W1035": "the empty default of InterruptionQueueArn is used by no alarm: a condition asks first",
  "CloudFormation-Validate::W1030": "the empty default of AlarmTopicArn is used by no alarm: a condition asks first",
};

/** `name` if it is short enough, otherwise its beginning and a hash of 8 digits. */
export function shortened(name: string, longest: number): string {
  if (Token.isUnresolved(name) || name.length <= longest) {
    return name;
  }
  const hash = createHash("sha256").update(name).digest("hex").slice(0, 8);
  return `${name.slice(0, longest - 9)}-${hash}`;
}

/** template.yaml: in `dist` when the package is installed, at the root of the repository in development. */
export function templateFile(): string {
  const places = ["..", "../..", "../../..", "../../../.."].map((it) => path.join(__dirname, it, "template.yaml"));
  const found = places.find((it) => fs.existsSync(it));
  if (!found) {
    throw new Error(`template.yaml is in none of ${places.join(", ")}`);
  }
  return found;
}

/** Node autoscaling for one EKS cluster, from outside of it: the resources of template.yaml. */
export class Spokeshave extends Construct {
  /** The template's resources, by their names in it. */
  public readonly template: CfnInclude;
  /** The custom bus. Rules of your own may be put on it. */
  public readonly bus: events.CfnEventBus;
  /** Where interruption warnings arrive. */
  public readonly interruptionQueue: sqs.CfnQueue;

  public constructor(scope: Construct, id: string, props: SpokeshaveProps) {
    super(scope, id);
    const subnets = props.subnetIds ?? [];
    const groups = props.securityGroupIds ?? [];
    if (subnets.length > 0 && groups.length === 0) {
      throw new Error("subnetIds need securityGroupIds");
    }
    const parameters: Record<string, unknown> = {
      ClusterName: shortened(props.clusterName, LONGEST_QUEUE_NAME),
    };
    const set = (name: string, value: unknown): void => {
      if (value !== undefined) {
        parameters[name] = value;
      }
    };
    if (parameters.ClusterName !== props.clusterName) {
      set("LongClusterName", props.clusterName);
    }
    set("InterruptionQueueName", props.interruptionQueueName);
    set("ClusterEndpoint", props.clusterEndpoint);
    set("ClusterCABundle", props.clusterCaBundle);
    set("ManageAccessEntries", props.manageAccessEntries?.toString());
    set("NodeRoleName", props.nodeRoleName);
    set("InterruptionQueueArn", props.interruptionQueueArn);
    set("KmsKeyArn", props.kmsKeyArn);
    set("BridgeMode", props.bridgeMode);
    set("BridgeMemory", props.bridgeMemory);
    set("MakeAlarms", props.alarms?.toString());
    set("AlarmTopicArn", props.alarmTopicArn);
    set("MakeDashboard", props.dashboard?.toString());
    if (props.featureGates) {
      const gates = Object.entries(props.featureGates).map(([name, on]) => `${name}=${on}`);
      set("FeatureGates", gates.sort().join(","));
    }
    for (const [name, value] of Object.entries(props.parameters ?? {})) {
      set(name, value);
    }

    // Resources keep their names, so that `spokeshave doctor` and `dlq` find them. Subnets and groups stay parameters
    // with defaults: conditions of the template ask whether there are any.
    this.template = new CfnInclude(this, "Template", { templateFile: templateFile(), preserveLogicalIds: true });
    for (const [name, value] of Object.entries(parameters)) {
      this.template.getParameter(name).default = value;
    }
    this.template.getParameter("SubnetIds").default = subnets.join(",");
    this.template.getParameter("SecurityGroupIds").default = groups.join(",");

    for (const element of this.node.findAll()) {
      if (element instanceof sam.CfnFunction) {
        const name = binaryOf(element);
        const archive = path.join(props.functions, `${name}.zip`);
        if (!fs.existsSync(archive)) {
          throw new Error(`${archive} is not there: every function needs its zip`);
        }
        const asset = new assets.Asset(this, `Code-${name}`, { path: archive });
        element.codeUri = { bucket: asset.s3BucketName, key: asset.s3ObjectKey };
        element.cfnOptions.metadata = undefined;
      }
    }
    for (const [id, reason] of Object.entries(ACKNOWLEDGED)) {
      Validations.of(this).acknowledge({ id, reason });
    }
    this.bus = this.template.getResource("Bus") as events.CfnEventBus;
    this.interruptionQueue = this.template.getResource("InterruptionQueue") as sqs.CfnQueue;
  }
}

/** The program of a function, as the template's build metadata names it. */
function binaryOf(element: sam.CfnFunction): string {
  const metadata = element.cfnOptions.metadata as { BuildProperties?: { Binary?: string } } | undefined;
  const binary = metadata?.BuildProperties?.Binary;
  if (!binary) {
    throw new Error(`${element.node.path} names no binary`);
  }
  return binary;
}
