"""What an idle cluster costs in a month, from template.yaml and list prices; written into docs/cost.md.

    cost.py [--check]

Needs the packages of .ci/requirements.txt.
"""

import sys
from pathlib import Path

from samtranslator.yaml_helper import yaml_parse

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "cost.md"
BEGIN, END = "<!-- begin: .ci/cost.py -->", "<!-- end -->"

HOURS = 730
SECONDS = HOURS * 3600
MILLION = 1_000_000
# List prices of us-east-1 in dollars. Free allowances are not counted.
LAMBDA_GB_SECOND = 0.0000133334  # arm64
LAMBDA_REQUEST = 0.20 / MILLION
SQS_STANDARD, SQS_FIFO = 0.40 / MILLION, 0.50 / MILLION
EVENTS = 1.00 / MILLION
SCHEDULER = 1.00 / MILLION
DYNAMODB_READ = 0.125 / MILLION
ALARM_METRIC = 0.10
DASHBOARD = 3.00
LOG_GB = 0.50

# Lambda polls an idle queue with five long polls of 20 seconds.
POLLS_PER_QUEUE = 5 * SECONDS / 20
# A run that finds nothing to do, in seconds: an upper bound. The solver's pass over an empty cluster takes below 1 ms; what
# counts is one call each of the state table and the API server.
IDLE_RUN = 0.1
# Bytes that a run writes into its log: the lines of Lambda itself.
IDLE_LOG = 500


def minutes(expression):
    count, unit = expression.removeprefix("rate(").removesuffix(")").split()
    return int(count) * {"minute": 1, "minutes": 1, "hour": 60, "hours": 60}[unit]


def main():
    template = yaml_parse((ROOT / "template.yaml").read_text(encoding="utf-8"))
    resources = template["Resources"]
    default = template["Globals"]["Function"]["MemorySize"]
    of_kind = lambda kind: {n: it for n, it in resources.items() if it["Type"] == kind}
    functions = of_kind("AWS::Serverless::Function")
    bridge_memory = template["Parameters"]["BridgeMemory"]["Default"] / 1024

    def memory(name):
        value = functions[name]["Properties"].get("MemorySize", default)
        return value / 1024 if isinstance(value, int) else bridge_memory

    polled = {"standard": 0, "fifo": 0}
    for function in functions.values():
        for event in function["Properties"].get("Events", {}).values():
            queue = event["Properties"]["Queue"]
            # Between a queue of our own and one that exists.
            queue = queue.get("Fn::If", [None, queue])[1]["Fn::GetAtt"][0]
            fifo = resources[queue]["Properties"].get("FifoQueue")
            polled["fifo" if fifo else "standard"] += 1
    polling = POLLS_PER_QUEUE * (polled["standard"] * SQS_STANDARD + polled["fifo"] * SQS_FIFO)

    runs, scheduled, run_cost, sweeps = 0, 0, 0.0, 0
    for name, it in of_kind("AWS::Scheduler::Schedule").items():
        times = SECONDS / 60 / minutes(it["Properties"]["ScheduleExpression"])
        scheduled += times
        function = name.removesuffix("Schedule")
        woken = [function]
        if function == "Sweep":
            sweeps = times
            rules = of_kind("AWS::Events::Rule").items()
            woken = [
                rule.removesuffix("Rule")
                for rule, it in rules
                if "Sweep" in it["Properties"]["EventPattern"].get("detail-type", [])
            ]
        for each in woken:
            if each == "ClusterBridge":
                # Most starts find the bridge at work, and end at once.
                each_cost = 0.02 * bridge_memory * LAMBDA_GB_SECOND + LAMBDA_REQUEST
            else:
                each_cost = IDLE_RUN * memory(each) * LAMBDA_GB_SECOND + LAMBDA_REQUEST
            runs += times
            run_cost += times * each_cost

    metrics = 0
    for alarm in of_kind("AWS::CloudWatch::Alarm").values():
        properties = alarm["Properties"]
        metrics += sum("MetricStat" in it for it in properties.get("Metrics", [])) or 1
    alarms = len(of_kind("AWS::CloudWatch::Alarm"))

    watching = bridge_memory * SECONDS * LAMBDA_GB_SECOND
    looking = SECONDS / 60 * 1.0 * bridge_memory * LAMBDA_GB_SECOND
    other = scheduled * SCHEDULER + sweeps * 7 * EVENTS + runs * 3 * DYNAMODB_READ
    other += runs * IDLE_LOG / 1e9 * LOG_GB
    queues = polled["standard"] + polled["fifo"]
    rows = [
        ("the bridge", f"{bridge_memory * 1024:.0f} MB, always at work; in `poll` mode a second a minute", watching, looking),
        ("polling of queues", f"{queues} queues, 5 long polls of 20 s each", polling, polling),
        ("alarms", f"{alarms} alarms over {metrics} metrics", metrics * ALARM_METRIC, metrics * ALARM_METRIC),
        ("scheduled runs", f"{runs:,.0f} runs of at most {IDLE_RUN * 1000:.0f} ms", run_cost, run_cost),
        ("schedules, events, table, logs", "", other, other),
    ]
    lines = ["| What | How much | `watch` | `poll` |", "| --- | --- | ---: | ---: |"]
    lines += [f"| {what} | {how} | ${watch:.2f} | ${poll:.2f} |" for what, how, watch, poll in rows]
    watch, poll = sum(it[2] for it in rows), sum(it[3] for it in rows)
    lines.append(f"| **a month** | | **${watch:.2f}** | **${poll:.2f}** |")
    bare = metrics * ALARM_METRIC
    lines.append(f"| with `MakeAlarms=false` | | ${watch - bare:.2f} | ${poll - bare:.2f} |")
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    new = before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after
    if "--check" in sys.argv:
        if new != text:
            sys.exit("docs/cost.md is out of date: run .ci/cost.py")
        return
    PAGE.write_text(new, encoding="utf-8")


main()
