"""Smoke test of an installed server, as a host does it: raw JSON-RPC over stdio.

    python -m tools.smoke_wheel loom-kb ENVIRONMENT

ENVIRONMENT is a virtual environment with the wheels of the server in it and nothing of this repository.
loom-kb is asked about the documents that its wheel ships, loom-query-server about texts in its configuration;
loom-agent-server has its demonstration keep a note, loom-flow-server takes messages with the file of `init`.
All can ask language models with what is installed: one that stands in for two vendors answers them.
Run it from the repository's root.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from tests.e2e.jsonrpc import Era, StdioServer
from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.script import Recorded, Turn

_KB_TOOLS = {"query", "fetch", "add", "remove", "sources", "graph", "job", "job_cancel"}
_QUERY_TOOLS = {"query", "fetch", "sources", "ask"}
_AGENT_TOOLS = {
    "agent_run", "agent_wait", "agent_reply", "agent_decide", "agent_control", "agent_runs", "agent_events",
    "tool_search",
}  # fmt: skip
_FLOW_TOOLS = {"flow_chat", "flow_run", "flow_list", "flow_explain", "flow_status", "flow_resume"}
_MINUTE = 60.0
_CONFIG = {
    "sources": {
        "faq": {
            "kind": "documents",
            "documents": [{"text": "# Opening\nThe office opens at nine.", "uri": "https://x.example/faq"}],
        },
        "港口": {"kind": "documents", "documents": [{"text": "# 青岛港\n青岛港的港长是李明。"}]},
    }
}
_KEY = "sk-of-no-value-to-any-user"
_SAID = "The office opens at nine [1]."
_NOTE = "in zell there is a lake that people call the blau, and it never freezes over.\n"
_READ = {
    "passage": 1,
    "entities": [{"name": "zell", "type": "town"}, {"name": "blau", "type": "lake"}],
    "relations": [{"subject": "zell", "predicate": "has the lake", "object": "blau"}],
}
_PROGRAM = """
import asyncio, json, sys
import keyring
from loom_core.agent import Agent
from loom_core.llm.factory import create_provider
async def main():
    for config in map(json.loads, sys.argv[1:]):
        print(await Agent(create_provider(config)).run("When does the office open?"))
asyncio.run(main())
"""


def main() -> None:
    """Read the command line and try both eras of the protocol."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("server", choices=[*_SMOKE])
    parser.add_argument("environment", type=Path)
    args = parser.parse_args()
    programs = args.environment.absolute() / "bin"
    for era in ("legacy", "modern"):
        _SMOKE[args.server](programs, era)
    with _vendors() as models:
        _try_models(programs, args.server, models)


def _smoke_kb(programs: Path, era: Era) -> None:
    documents = _find_installed(programs / "python", "loom_kb") / "demo_documents"
    with tempfile.TemporaryDirectory() as folder:
        command = [str(programs / "loom-kb"), "serve", "--root", str(documents)]
        with closing(_start(command, era, folder)) as server:
            _try_kb(server, era, documents)
            assert server.close_input() == 0, server.stderr


def _smoke_query(programs: Path, era: Era) -> None:
    _find_installed(programs / "python", "loom_query")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "query.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
        with closing(_start([str(programs / "loom-query-server")], era, folder)) as server:
            _check_tools(server, _QUERY_TOOLS)
            for question, fact, source in (
                ("When does the office open?", "opens at nine", "faq"),
                ("青岛港的港长是谁？", "李明", "港口"),
            ):
                answer = _call(server, "query", query=question)
                best = answer["structuredContent"]["passages"][0]
                assert (best["id"].partition(":")[0], fact in best["text"]) == (source, True), answer
                assert fact in _call(server, "fetch", id=best["id"])["content"][0]["text"]
                print(f"{era}: {question} → {source}: {fact}")
            assert server.close_input() == 0, server.stderr


def _smoke_agent(programs: Path, era: Era) -> None:
    _find_installed(programs / "python", "loom_agent")
    with tempfile.TemporaryDirectory() as folder:
        command = [str(programs / "loom-agent-server"), "serve", "--provider", "mock"]
        with closing(_start(command, era, folder)) as server:
            _check_tools(server, _AGENT_TOOLS)
            for goal in ("Note: buy oranges.", "请记一条笔记：买橙子。"):
                run = _call(server, "agent_run", goal=goal)["structuredContent"]
                assert run["status"] == "input_required", run
                decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
                done = _call(server, "agent_decide", run_id=run["run_id"], decisions=decisions)
                assert done["structuredContent"]["status"] == "completed", done
                assert goal in done["content"][0]["text"], done
                print(f"{era}: {goal} → {done['structuredContent']['output'].splitlines()[0]}")
            assert server.close_input() == 0, server.stderr


def _smoke_flow(programs: Path, era: Era) -> None:
    _find_installed(programs / "python", "loom_flow")
    with tempfile.TemporaryDirectory() as folder:
        program = str(programs / "loom-flow-server")
        subprocess.run(
            [program, "init"], env=_environment(folder), cwd=folder, check=True, capture_output=True
        )
        with closing(_start([program], era, folder)) as server:
            _check_tools(server, _FLOW_TOOLS | {"call_back"})
            for said in (
                ("Please call me back at 0532 8888 1234", "the invoice", "yes"),
                ("请给我回电", "0532 8888 1234", "发票", "是"),
            ):
                session = ""
                for message in said:
                    reply = _call(server, "flow_chat", message=message, session_id=session)
                    session = reply["structuredContent"]["session_id"]
                assert reply["structuredContent"]["status"] == "completed", reply
                text = reply["structuredContent"]["text"]
                assert "0532 8888 1234" in text, reply
                print(f"{era}: {said[0]} → {text}")
            assert server.close_input() == 0, server.stderr


_SMOKE: dict[str, Callable[[Path, Era], None]] = {
    "loom-kb": _smoke_kb,
    "loom-query-server": _smoke_query,
    "loom-agent-server": _smoke_agent,
    "loom-flow-server": _smoke_flow,
}


def _start(command: list[str], era: Era, folder: str) -> StdioServer:
    return StdioServer(command, era=era, env=_environment(folder), cwd=folder, timeout=_MINUTE)


def _environment(folder: str) -> dict[str, str]:
    # What the shell has set for this repository must not help the installed server.
    return {"PATH": os.defpath, "LOOM_HOME": folder}


def _try_models(programs: Path, server: str, models: list[dict[str, str]]) -> None:
    """Check that models and the keyring came with the server, and nothing else is wanted."""
    with tempfile.TemporaryDirectory() as folder:

        def ran(*command: str | Path, said: str = "") -> str:
            environment = {**_environment(folder), "DEEPSEEK_API_KEY": _KEY, "ANTHROPIC_API_KEY": _KEY}
            done = subprocess.run(
                command, env=environment, cwd=folder, input=said, check=False, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        told = ran(programs / "python", "-I", "-c", _PROGRAM, *map(json.dumps, models))
        assert told == f"{_SAID}\n" * len(models), told
        if server == "loom-query-server":
            (Path(folder) / "query.json").write_text(json.dumps({**_CONFIG, "llm": models[0]}), "utf-8")
            told = ran(programs / server, "ask", "When does the office open?")
            assert told.startswith(_SAID), told
        if server == "loom-kb":
            add = ("add", "-", "--embedder", "hashing", "--llm", json.dumps(models[0]))
            told = ran(programs / server, *add, said=_NOTE)
            assert "written by a model" in told, told
    print(f"{server}: asks {' and '.join(model['provider'] for model in models)}")


@contextmanager
def _vendors() -> Generator[list[dict[str, str]]]:
    """Two vendors' servers on this machine: how each is configured."""

    def answer(request: Recorded) -> Turn:
        extracting = "zell" in json.dumps(request.body)
        return Turn(text=json.dumps({"passages": [_READ]}) if extracting else _SAID)

    listening = socket.create_server(("127.0.0.1", 0))
    web = uvicorn.Server(uvicorn.Config(FakeVendors(answer, key=_KEY), log_config=None, lifespan="off"))
    thread = threading.Thread(target=web.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield [{"provider": name, "base_url": f"{url}/{name}"} for name in ("deepseek", "anthropic")]
    finally:
        web.should_exit = True
        thread.join(_MINUTE)
        listening.close()


def _find_installed(python: Path, package: str) -> Path:
    """Return the folder of the installed package, which must be from a wheel."""
    program = f"import loom_core, {package}; print({package}.__path__[0]); print(loom_core.__path__[0])"
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True)
    packages = [Path(line) for line in done.stdout.splitlines()]
    assert all("site-packages" in path.parts for path in packages), f"not from a wheel: {packages}"
    return packages[0]


def _check_tools(server: StdioServer, expected: set[str]) -> None:
    tools = {tool["name"] for tool in server.request("tools/list")["tools"]}
    assert tools == expected, f"the tools are {sorted(tools)}"


def _try_kb(server: StdioServer, era: Era, documents: Path) -> None:
    _check_tools(server, _KB_TOOLS)
    added = _call(server, "add", paths=[str(documents)])["structuredContent"]
    job = _call(server, "job", id=added["job"]["id"], action="wait")["structuredContent"]["jobs"][0]
    assert job["state"] == "done", job
    for question, fact, source in (
        ("How many punched cards did the woven portrait of Jacquard need?", "24,000", "jacquard-machine.md"),
        ("复制“五星出东方利中国”锦用了多少根经线？", "10470", "老官山汉墓织机.html"),
    ):
        answer = _answer(server, question)
        best = answer["structuredContent"]["passages"][0]
        assert fact in answer["content"][0]["text"], answer
        assert (documents / source).as_uri() in str(best), best
        print(f"{era}: {question} → {source}: {fact}")


def _answer(server: StdioServer, question: str) -> dict[str, Any]:
    """Return the answer once the background embedding of every passage is done."""
    deadline = time.monotonic() + _MINUTE
    while True:
        answer = _call(server, "query", query=question, limit=3)
        if "total" not in answer["structuredContent"]:  # which is told as long as vectors are missing
            return answer
        assert time.monotonic() < deadline, "vectors are still missing"
        time.sleep(0.5)


def _call(server: StdioServer, tool: str, **arguments: object) -> dict[str, Any]:
    result = server.call(tool, _MINUTE, **arguments)
    assert not result.get("isError"), result
    return result


if __name__ == "__main__":
    main()
