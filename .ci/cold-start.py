"""From the start of each function's process until it asks for its first event, the processor's time that takes (the
same on a busy machine), and the memory that it holds then.

    cold-start.py FOLDER [RUNS]

FOLDER holds the binaries by their names, such as target/release. Prints a table in Markdown: medians of RUNS (11).
"""

import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

FUNCTIONS = sorted(it.name for it in (Path(__file__).parent.parent / "functions").iterdir())


def run(binary):
    """Milliseconds, those of them on a processor, and resident memory in MB."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        environment = {
            "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:%d" % server.getsockname()[1],
            "AWS_LAMBDA_FUNCTION_NAME": "function",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
            "AWS_LAMBDA_FUNCTION_VERSION": "1",
            "AWS_LAMBDA_LOG_GROUP_NAME": "logs",
            "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-west-2",
            "AWS_EC2_METADATA_DISABLED": "true",
            "CLUSTER_NAME": "prod",
            "STATE_TABLE": "state",
            "EVENT_BUS": "bus",
            "PATH": os.environ["PATH"],
        }
        began = time.perf_counter()
        process = subprocess.Popen([binary], env=environment, stdout=subprocess.DEVNULL)
        try:
            server.settimeout(20)
            connection, _ = server.accept()
            with connection:
                connection.settimeout(20)
                asked = connection.recv(4096)
                took = time.perf_counter() - began
                assert b"/invocation/next" in asked, asked
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                memory = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
                threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
                busy = sum(int(it.read_text(encoding="utf-8").split()[0]) for it in threads)
                return took * 1000, busy / 1e6, int(memory.split()[1]) / 1024
        finally:
            process.kill()
            process.wait()


def main():
    folder, runs = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 11
    print("| Function | First event asked for | Processor | Memory | Binary |\n| --- | ---: | ---: | ---: | ---: |")
    for name in FUNCTIONS:
        binary = folder / name
        samples = [run(binary) for _ in range(runs)]
        took = statistics.median(it[0] for it in samples)
        busy = statistics.median(it[1] for it in samples)
        memory = statistics.median(it[2] for it in samples)
        size = binary.stat().st_size / 1e6
        print(f"| `{name}` | {took:.1f} ms | {busy:.1f} ms | {memory:.1f} MB | {size:.0f} MB |")


main()
