"""A Lambda service for built binaries: the Runtime API, event sources of SQS, and processes that may die.

An environment is one process with a Runtime API of its own. It handles one event at a time; a function has a few.
"""

import json
import os
import queue
import random
import signal
import subprocess
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Died(Exception):
    """The process ended before it answered."""


class Environment:
    def __init__(self, binary, variables, log):
        self.waiting, self.answers = queue.Queue(), {}
        self.gone = False
        environment = self

        class Api(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                while not environment.gone:
                    try:
                        number, event, deadline = environment.waiting.get(timeout=0.5)
                    except queue.Empty:
                        continue
                    body = json.dumps(event).encode()
                    self.send_response(200)
                    headers = {
                        "Content-Type": "application/json",
                        "Content-Length": str(len(body)),
                        "Lambda-Runtime-Aws-Request-Id": number,
                        "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
                        "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-west-2:123456789012:function:f",
                        "Lambda-Runtime-Trace-Id": "Root=1-5e1b4151-0000000000000000;Sampled=0",
                    }
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                    return

            def do_POST(self):
                if "chunked" in self.headers.get("Transfer-Encoding", ""):
                    body = b""
                    while size := int(self.rfile.readline().strip() or b"0", 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                number = self.path.split("/")[-2]
                good = self.path.endswith("/response")
                if number in environment.answers:
                    environment.answers[number].put((good, json.loads(body or b"null")))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        api = {
            "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:%d" % self.server.server_address[1],
            "AWS_LAMBDA_FUNCTION_NAME": os.path.basename(binary),
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
            "AWS_LAMBDA_FUNCTION_VERSION": "1",
            "AWS_LAMBDA_LOG_GROUP_NAME": "logs",
            "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
        }
        self.process = subprocess.Popen([binary], env={**variables, **api}, stdout=log, stderr=log)

    def alive(self):
        return self.process.poll() is None

    def invoke(self, event, seconds):
        """The answer. Raises `Died` when the process dies or says nothing in time; `RuntimeError` for an error."""
        number, answer = str(uuid.uuid4()), queue.Queue()
        self.answers[number] = answer
        deadline = time.time() + seconds
        self.waiting.put((number, event, deadline))
        try:
            # Lambda lets nobody run on; a moment more, for a machine that is busy.
            while time.time() < deadline + 5:
                try:
                    good, body = answer.get(timeout=0.1)
                except queue.Empty:
                    if not self.alive():
                        raise Died from None
                    continue
                if good:
                    return body
                raise RuntimeError(body)
            self.kill()
            raise Died
        finally:
            del self.answers[number]

    def kill(self):
        self.gone = True
        if self.alive():
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        # The server's socket with it; requests that wait end by themselves.
        threading.Thread(target=self.server.shutdown, daemon=True).start()


class Function:
    """A function with at most `most` environments."""

    def __init__(self, name, binary, variables, log, seconds, most=2):
        self.name, self.binary, self.variables, self.log = name, binary, variables, log
        self.seconds, self.most = seconds, most
        self.lock = threading.Lock()
        self.idle, self.busy = [], []
        self.n_invocations = self.n_died = self.n_errors = 0

    def invoke(self, event):
        """The answer, or `None` when there is none."""
        environment = self.take()
        if environment is None:
            return None
        try:
            return environment.invoke(event, self.seconds)
        except Died:
            self.n_died += 1
        except RuntimeError:
            self.n_errors += 1
        finally:
            with self.lock:
                self.busy.remove(environment)
                if environment.alive() and not environment.gone:
                    self.idle.append(environment)
        return None

    def take(self):
        with self.lock:
            self.idle = [it for it in self.idle if it.alive() and not it.gone]
            if self.idle:
                environment = self.idle.pop()
            elif len(self.busy) < self.most:
                environment = Environment(self.binary, self.variables, self.log)
            else:
                return None
            self.busy.append(environment)
            self.n_invocations += 1
            return environment

    def kill_one(self, chance):
        """Kills one of its processes, busy ones first: what is idle loses nothing."""
        with self.lock:
            found = self.busy or self.idle
            if not found:
                return False
            chance.choice(found).kill()
            return True

    def end(self):
        with self.lock:
            for environment in self.idle + self.busy:
                environment.kill()


def record(message, arn):
    """A message as Lambda hands it over."""
    attributes = {
        name: {"stringValue": it.get("StringValue"), "dataType": it["DataType"]}
        for name, it in message.get("MessageAttributes", {}).items()
    }
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": attributes,
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": arn.split(":")[3],
    }


def failures(answer, sent):
    """Which of the messages `sent` failed. An answer that Lambda does not understand fails all of them.

    B-092:

    >>> sent = {"a", "b"}
    >>> [failures(it, sent) for it in ({"batchItemFailures": []}, {"batchItemFailures": None}, {}, None)]
    [set(), set(), set(), set()]
    >>> failures({"batchItemFailures": [{"itemIdentifier": "b"}]}, sent)
    {'b'}
    >>> whole = [[{"itemIdentifier": ""}], [{"itemIdentifier": "c"}], [{"messageId": "a"}], ["a"], "a", 7]
    >>> all(failures({"batchItemFailures": it}, sent) == sent for it in whole)
    True
    >>> failures([], sent) == failures("a", sent) == sent
    True
    """
    if answer is None:
        return set()
    if not isinstance(answer, dict):
        return sent
    told = answer.get("batchItemFailures") or []
    if not isinstance(told, list):
        return sent
    found = {it.get("itemIdentifier") if isinstance(it, dict) else None for it in told}
    return found if found <= sent else sent


class EventSource(threading.Thread):
    """Polls a queue for a function: batches, partial failures, and a visibility time-out after which all comes again."""

    def __init__(self, function, client, url, arn, visibility, ended):
        super().__init__(daemon=True)
        self.function, self.client, self.url, self.arn = function, client, url, arn
        self.visibility, self.ended = visibility, ended

    def run(self):
        while not self.ended.is_set():
            try:
                self.once()
            except Exception as error:  # An emulator that is busy; the next poll is a second away.
                print("event source of", self.function.name, error, flush=True)
                time.sleep(1)

    def once(self):
        got = self.client.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=1,
            VisibilityTimeout=self.visibility,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages", [])
        if not got:
            return
        answer = self.function.invoke({"Records": [record(it, self.arn) for it in got]})
        if answer is None:
            return
        failed = failures(answer, {it["MessageId"] for it in got})
        done = [it for it in got if it["MessageId"] not in failed]
        if done:
            entries = [{"Id": str(n), "ReceiptHandle": it["ReceiptHandle"]} for n, it in enumerate(done)]
            self.client.delete_message_batch(QueueUrl=self.url, Entries=entries)


class Killer(threading.Thread):
    """Kills processes at random for as long as `faults` is set."""

    def __init__(self, functions, seed, faults, ended):
        super().__init__(daemon=True)
        self.functions, self.chance = functions, random.Random(seed)
        self.faults, self.ended, self.n_killed = faults, ended, 0

    def run(self):
        while not self.ended.wait(self.chance.uniform(0.2, 1.5)):
            if self.faults.is_set():
                self.n_killed += self.chance.choice(self.functions).kill_one(self.chance)
