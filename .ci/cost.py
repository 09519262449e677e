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

# Lambda's documentation ("Configuring scaling behavior for SQS event source mappings") says that an event source long-polls an
# idle queue and starts with five batches at a time; long polls of SQS last 20 seconds at most. That is five requests every
# 20 seconds, which is also what others count on their bills. Less may be charged: nothing here depends on MaximumConcurrency.
POLLS_PER_QUEUE = 5 * SECONDS / 20
# A run that finds nothing to do, in seconds: an upper bound. The solver's pass over an empty cluster takes below 1 ms; what
# counts is one call each of the state table and the API server.
IDLE_RUN = 0.1
# A look into an empty queue, in seconds: one call of SQS (two for the solvers) and nothing else.
IDLE_LOOK = 0.05
# A pass of the bridge in poll mode, in seconds: a list, and `QUIET` of functions/cluster-bridge/src/run.rs.
BRIDGE_PASS = 2.5
# A start of the bridge that finds another one at work: the state table and the Lease, in seconds.
BRIDGE_LOOK = 0.1
# Bytes that a run writes into its log: the lines of Lambda itself.
IDLE_LOG = 500


def minutes(expression, poll=False):
    if isinstance(expression, dict):
        condition, drains, otherwise = expression["Fn::If"]
        assert condition == "Drains", expression
        expression = drains if poll else otherwise
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

    price = {"standard": SQS_STANDARD, "fifo": SQS_FIFO}
    # Kinds of the queues that Lambda polls in every mode, by function those of the others: looked into in every mode, or polled
    # unless in poll mode.
    always, itself, else_ = [], {}, {}
    for name, function in functions.items():
        for event in function["Properties"].get("Events", {}).values():
            properties = event["Properties"]
            # Between a queue of our own and one that exists.
            queue = properties["Queue"].get("Fn::If", [None, properties["Queue"]])[1]["Fn::GetAtt"][0]
            kind = "fifo" if resources[queue]["Properties"].get("FifoQueue") else "standard"
            enabled = properties.get("Enabled", True)
            if enabled == {"Fn::If": ["ShiftsZones", True, False]}:
                # Only with zonal shifts, which are off unless asked for, is anybody in a hurry.
                assert template["Parameters"]["EnableZonalShift"]["Default"] == "false"
                enabled = False
            if enabled is True:
                always.append(kind)
            elif enabled is False:
                itself.setdefault(name, []).append(kind)
            else:
                assert enabled == {"Fn::If": ["Drains", False, True]}, name
                else_.setdefault(name, []).append(kind)

    def polling(kinds):
        return POLLS_PER_QUEUE * sum(price[it] for it in kinds)

    watched = always + [it for kinds in else_.values() for it in kinds]
    schedules = {name: it["Properties"] for name, it in of_kind("AWS::Scheduler::Schedule").items()}

    def looking(functions, poll):
        """How often these functions are started to look into their queues, and what it costs."""
        looks, cost = 0, 0.0
        for name in ["DrainSchedule", "DrainSlowlySchedule"]:
            schedule = schedules[name]
            if not poll and resources[name].get("Condition") == "Drains":
                continue
            kind = schedule["Target"]["EventBridgeParameters"]["DetailType"]
            times = SECONDS / 60 / minutes(schedule["ScheduleExpression"])
            cost += times * (SCHEDULER + EVENTS)
            for function, kinds in functions.items():
                if kind in resources[f"{function}StartRule"]["Properties"]["EventPattern"]["detail-type"]:
                    looks += times
                    each = IDLE_LOOK * memory(function) * LAMBDA_GB_SECOND + LAMBDA_REQUEST
                    cost += times * (each + sum(price[it] for it in kinds) + IDLE_LOG / 1e9 * LOG_GB)
        return looks, cost

    def running(poll):
        """How many runs schedules make, what they cost, and what it costs to ask for them."""
        runs, cost, asking = 0, 0.0, 0.0
        for name, schedule in schedules.items():
            if name.startswith("Drain"):
                continue
            times = SECONDS / 60 / minutes(schedule["ScheduleExpression"], poll)
            asking += times * SCHEDULER
            function = name.removesuffix("Schedule")
            woken = [function]
            if function == "Sweep":
                rules = of_kind("AWS::Events::Rule").items()
                woken = [
                    rule.removesuffix("Rule")
                    for rule, it in rules
                    if "Sweep" in it["Properties"]["EventPattern"].get("detail-type", []) and not rule.endswith("StartRule")
                ]
                asking += times * EVENTS
            for each in woken:
                if each == "ClusterBridge":
                    if poll:
                        continue
                    # Most starts find the bridge at work, and end at once.
                    each_cost = BRIDGE_LOOK * bridge_memory * LAMBDA_GB_SECOND + LAMBDA_REQUEST
                else:
                    each_cost = IDLE_RUN * memory(each) * LAMBDA_GB_SECOND + LAMBDA_REQUEST
                    # The message is sent and deleted; receiving it is one of the polls or looks.
                    fifo = resources[f"{each}Queue"]["Properties"].get("FifoQueue")
                    asking += times * 2 * (SQS_FIFO if fifo else SQS_STANDARD)
                runs += times
                cost += times * each_cost
        # A run reads the table up to three times.
        asking += runs * (3 * DYNAMODB_READ + IDLE_LOG / 1e9 * LOG_GB)
        return runs, cost, asking

    metrics = 0
    for alarm in of_kind("AWS::CloudWatch::Alarm").values():
        properties = alarm["Properties"]
        metrics += sum("MetricStat" in it for it in properties.get("Metrics", [])) or 1
    alarms = len(of_kind("AWS::CloudWatch::Alarm"))

    watching = bridge_memory * SECONDS * LAMBDA_GB_SECOND
    # The bridge hands over to itself every quarter of an hour.
    watching += SECONDS / 900 * EVENTS
    passing = SECONDS / 60 * (BRIDGE_PASS * bridge_memory * LAMBDA_GB_SECOND + LAMBDA_REQUEST)
    looks, looks_cost = looking(itself, poll=False)
    poll_looks, poll_looks_cost = looking({**itself, **else_}, poll=True)
    (runs, runs_cost, asking), (poll_runs, poll_runs_cost, poll_asking) = running(False), running(True)
    rows = [
        (
            "the bridge",
            f"{bridge_memory * 1024:.0f} MB, always at work; in `poll` mode {BRIDGE_PASS} s a minute",
            watching,
            passing,
        ),
        (
            "polling of queues by Lambda",
            f"{len(watched)} queues, in `poll` mode {len(always)}; 5 long polls of 20 s each",
            polling(watched),
            polling(always),
        ),
        (
            "looks of functions into their queues",
            f"{looks:,.0f}, in `poll` mode {poll_looks:,.0f}, of at most {IDLE_LOOK * 1000:.0f} ms",
            looks_cost,
            poll_looks_cost,
        ),
        ("alarms", f"{alarms} alarms over {metrics} metrics", metrics * ALARM_METRIC, metrics * ALARM_METRIC),
        (
            "scheduled runs",
            f"{runs:,.0f}, in `poll` mode {poll_runs:,.0f}, of at most {IDLE_RUN * 1000:.0f} ms",
            runs_cost,
            poll_runs_cost,
        ),
        ("schedules, messages, table, logs", "", asking, poll_asking),
    ]
    lines = ["| What | How much | `watch` | `poll` |", "| --- | --- | ---: | ---: |"]
    lines += [f"| {what} | {how} | ${watch:.2f} | ${poll:.2f} |" for what, how, watch, poll in rows]
    watch, poll = sum(it[2] for it in rows), sum(it[3] for it in rows)
    lines.append(f"| **a month** | | **${watch:.2f}** | **${poll:.2f}** |")
    bare = metrics * ALARM_METRIC
    lines.append(f"| with `MakeAlarms=false` | | ${watch - bare:.2f} | ${poll - bare:.2f} |")
    # What ARCHITECTURE.md promises.
    if watch >= 10 or poll >= 3 or alarms > 15:
        sys.exit("\n".join([*lines, "an idle cluster must cost under $10 a month, in poll mode under $3, with at most 15 alarms"]))
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
