"""A W&B server on loopback: the few calls that ``wandb sweep``, ``wandb agent`` and an online run make.

It hands out the points of a grid and keeps what runs send. It knows no more than that: an operation it was not
written for is noted in ``unknown`` and answered with an error, as a server does with a query it cannot read.
"""

import gzip
import itertools
import json
import re
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import yaml

ENTITY = "local"
OPTIONAL = {"OrganizationCoreWeaveOrganizationID"}
"""Operations of which W&B accepts that a server does not know them."""


@dataclass
class StubRun:
    """One run as the server sees it."""

    sweep: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exitcode: int | None = None


@dataclass
class StubSweep:
    """One sweep: its file, and which points of the grid went to which run."""

    config: dict[str, Any]
    project: str
    state: str = "RUNNING"
    left: list[dict[str, Any]] = field(default_factory=list)
    assigned: dict[str, dict[str, Any]] = field(default_factory=dict)


def grid(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """All points of a grid, the last parameter moving fastest."""
    choices = [spec["values"] if "values" in spec else [spec["value"]] for spec in parameters.values()]
    return [dict(zip(parameters, point, strict=True)) for point in itertools.product(*choices)]


class WandbStub:
    """Serves on a free port of 127.0.0.1 while its ``with`` block lasts.

    Attributes:
        sweeps: Id → sweep, in order of creation.
        runs: Id → run, of all runs that sent anything.
        operations: Names of the GraphQL operations, in order of arrival.
        heartbeats: The run states of every heartbeat of an agent.
        unknown: What was asked for and is not served.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sweeps: dict[str, StubSweep] = {}
        self.agents: dict[str, str] = {}
        self.runs: dict[str, StubRun] = {}
        self.operations: list[str] = []
        self.heartbeats: list[dict[str, bool]] = []
        self.unknown: list[str] = []

    def __enter__(self) -> "WandbStub":
        stub = self

        class Handler(_Handler):
            server_stub = stub

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(timeout=10)

    def graphql(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Answer a query or mutation by the name of its operation."""
        match = re.search(r"(?:query|mutation)\s+(\w+)", query)
        name = match.group(1) if match else query.strip()[:60]
        with self.lock:
            self.operations.append(name)
            answer = getattr(self, "_on_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(), None)
            if answer is None:
                if name not in OPTIONAL:
                    self.unknown.append(name)
                return {"errors": [{"message": f"Cannot query {name}"}]}
            return {"data": answer(variables)}

    def stream(self, run_id: str, content: dict[str, Any]) -> None:
        """Take lines of a run's history and summary, and its exit code."""
        with self.lock:
            run = self.runs.setdefault(run_id, StubRun())
            files = content.get("files") or {}
            run.history += [json.loads(line) for line in files.get("wandb-history.jsonl", {}).get("content", [])]
            if summary := files.get("wandb-summary.json", {}).get("content"):
                run.summary = json.loads(summary[-1])
            if content.get("complete"):
                run.exitcode = content.get("exitcode")

    def _on_viewer(self, variables: dict[str, Any]) -> dict[str, Any]:
        user = {"id": "VXNlcg==", "name": ENTITY, "entity": ENTITY, "username": ENTITY, "email": None, "admin": False}
        empty: dict[str, Any] = {"edges": []}
        return {"viewer": {**user, "deletedAt": None, "flags": "{}", "apiKeys": empty, "teams": empty}}

    def _on_server_features_query(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def _on_upsert_sweep(self, variables: dict[str, Any]) -> dict[str, Any]:
        config = yaml.safe_load(variables["config"])
        name = f"sweep{len(self.sweeps)}"
        sweep = StubSweep(config, variables["projectName"], left=grid(config["parameters"]))
        self.sweeps[name] = sweep
        return {
            "upsertSweep": {"sweep": {"name": name, "project": self._project(sweep)}, "configValidationWarnings": []}
        }

    def _on_sweep_with_runs(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables["sweep"]
        if name not in self.sweeps:
            return {"project": {"sweep": None}}
        sweep = self.sweeps[name]
        fields = dict.fromkeys(("description", "heartbeatAt", "updatedAt", "bestLoss", "controller", "scheduler"))
        facts = {"id": name, "name": name, "method": sweep.config["method"], "state": sweep.state}
        more = {"createdAt": "2026-01-01T00:00:00Z", "earlyStopJobRunning": False, "runs": {"edges": []}}
        return {"project": {"sweep": {**fields, **facts, **more, "config": yaml.safe_dump(sweep.config)}}}

    def _on_create_agent(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = f"agent{len(self.agents)}"
        self.agents[name] = variables["sweep"]
        return {"createAgent": {"agent": {"id": name}}}

    def _on_heartbeat(self, variables: dict[str, Any]) -> dict[str, Any]:
        sweep = self.sweeps[self.agents[variables["id"]]]
        states = json.loads(variables["runState"])
        self.heartbeats.append(states)
        commands: list[dict[str, Any]] = []
        if not any(states.values()):
            commands = [self._next(sweep)]
        return {"agentHeartbeat": {"agent": {"id": variables["id"]}, "commands": json.dumps(commands)}}

    def _next(self, sweep: StubSweep) -> dict[str, Any]:
        if not sweep.left:
            sweep.state = "FINISHED"
            return {"type": "exit"}
        point, name = sweep.left.pop(0), f"run{len(sweep.assigned):05d}"
        sweep.assigned[name] = point
        args = {key: {"value": value} for key, value in point.items()}
        return {"type": "run", "run_id": name, "program": sweep.config.get("program"), "args": args, "logs": []}

    def _on_run_resume_status(self, variables: dict[str, Any]) -> dict[str, Any]:
        owner = {"id": "entity", "name": ENTITY}  # no bucket: the run is new to the server
        return {"model": {"id": "model", "name": variables.get("project"), "entity": owner, "bucket": None}}

    def _on_upsert_bucket(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables.get("name") or variables["id"]
        new = name not in self.runs
        run = self.runs.setdefault(name, StubRun())
        run.sweep = variables.get("sweep") or run.sweep
        if config := variables.get("config"):
            run.config = {key: entry.get("value") for key, entry in json.loads(config).items()}
        project = {"id": "project", "name": variables.get("project"), "entity": {"id": "entity", "name": ENTITY}}
        bucket = {"id": name, "name": name, "displayName": name, "description": None, "config": variables.get("config")}
        lines = {"sweepName": run.sweep, "project": project, "historyLineCount": len(run.history)}
        return {"upsertBucket": {"bucket": {**bucket, **lines}, "inserted": new}}

    def _on_create_run_files(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables["run"]
        files = [{"name": file, "uploadUrl": f"{self.url}/storage/{name}/{file}"} for file in variables["files"]]
        return {"createRunFiles": {"runID": name, "uploadHeaders": [], "files": files}}

    def _project(self, sweep: StubSweep) -> dict[str, Any]:
        return {"id": "project", "name": sweep.project, "entity": {"id": "entity", "name": ENTITY}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no error of the server's; W&B's own process ends without a goodbye."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_stub: WandbStub
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the requests off stderr."""

    def do_POST(self) -> None:
        body = self._body()
        if self.path == "/graphql":
            content = json.loads(body)
            self._answer(self.server_stub.graphql(content["query"], content.get("variables") or {}))
        elif match := re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", self.path):
            self.server_stub.stream(unquote(match.group(1)), json.loads(body))
            self._answer({"limits": {}})
        else:
            self._answer({}, 404)  # telemetry

    def do_PUT(self) -> None:
        self._body()
        self._answer({})

    def do_GET(self) -> None:
        self._answer({}, 404)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
