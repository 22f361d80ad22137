"""A server over stdio that speaks JSON-RPC by hand, and misbehaves as it is told to.

    raw_server.py [HOW]

HOW says how it takes the first messages; its tools do the rest. It is of the handshake era.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DISCOVERED = {  # without `resultType`, which counts as complete
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "private",
}
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "raw", "version": "1"},
    "instructions": "请先用 echo。",
}
MODERN_ONLY = {
    "code": -32022,
    "message": "modern only",
    "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"},
}

# The first does not want to end, the second holds its parent's output open.
DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"
HOLDING = "import signal; signal.pause()"

Message = dict[str, Any]
CANCELLED: list[int | str] = []


def messages() -> Iterator[Message]:
    while line := sys.stdin.readline():
        yield json.loads(line)


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def send(**message: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def text(message: Message, said: str) -> None:
    send(id=message["id"], result={"content": [{"type": "text", "text": said}]})


def progress(message: Message, value: int) -> None:
    token = message["params"]["_meta"]["progressToken"]
    send(method="notifications/progress", params={"progressToken": token, "progress": value})


def echo(message: Message, **arguments: Any) -> None:
    text(message, json.dumps(arguments, ensure_ascii=False))


def meta(message: Message) -> None:
    text(message, json.dumps(message["params"].get("_meta", {})))


def environment(message: Message) -> None:
    text(message, json.dumps(dict(os.environ)))


def die(message: Message, why: str = "nothing") -> None:
    complain(f"dying of {why}")
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(message: Message, file: str) -> None:
    if not Path(file).exists():
        Path(file).touch()
        os._exit(7)
    text(message, "alive")


def wait(message: Message) -> None:
    """No answer, but a sign that it has come."""
    progress(message, 1)


def cancelled(message: Message) -> None:
    text(message, json.dumps(CANCELLED))


def big(message: Message, size: int) -> None:
    text(message, "x" * size)


def flood(message: Message, count: int) -> None:
    for number in range(count):
        send(method="notifications/message", params={"level": "info", "data": "y" * 100})
        send(method="notifications/tools/list_changed")
        progress(message, number + 1)
    text(message, "flooded")


def garbage(message: Message) -> None:
    write("Loading model… 100%")
    write("{not json")
    text(message, "after the garbage")


def spawn(message: Message) -> None:
    deaf = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    deaf.stdout.readline()
    holding = subprocess.Popen([sys.executable, "-c", HOLDING])
    text(message, json.dumps([os.getpid(), deaf.pid, holding.pid]))


def leave(message: Message) -> None:
    """End, while another process holds its output open."""
    subprocess.Popen([sys.executable, "-c", HOLDING])
    os._exit(5)


def stubborn(message: Message) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    text(message, str(os.getpid()))
    while True:
        signal.pause()


def ask(message: Message, questions: list[Message]) -> None:
    """Asks the client some things at once, and says what it answered."""
    for number, question in enumerate(questions):
        send(id=f"q{number}", **question)
    answers = {}
    while len(answers) < len(questions):
        said = json.loads(sys.stdin.readline())
        if "method" not in said:
            answers[said["id"]] = said.get("result") or said["error"]["message"]
    text(message, json.dumps([answers[f"q{number}"] for number in range(len(questions))]))


def wrong(message: Message) -> None:
    send(id=message["id"], result={"content": "no list"})


def broken(message: Message) -> None:
    write(f'{{"jsonrpc": "2.0", "id": {message["id"]}, "result": {{"content": [}}}}')


def half(message: Message) -> None:
    """An emoji that was cut in two, and a byte that is not UTF-8."""
    result = json.dumps({"content": [{"type": "text", "text": "\ud83d|\\ud83d|😀|BYTE"}]})
    line = f'{{"jsonrpc": "2.0", "id": {message["id"]}, "result": {result}}}\n'.encode()
    sys.stdout.buffer.write(line.replace(b"BYTE", b"\xe9"))
    sys.stdout.flush()


TOOLS: dict[str, Callable[..., None]] = {
    tool.__name__: tool
    for tool in (
        ask, echo, meta, environment, die, die_once, wait, cancelled, big, flood, garbage, spawn, leave,
        stubborn, wrong, broken, half,
    )
}  # fmt: skip


def answer(message: Message) -> None:
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            send(id=message["id"], result=INITIALIZED)
        case "tools/list":
            first = not params.get("cursor")
            tools = [
                {"name": name, "inputSchema": {"type": "object"}} for name in (TOOLS if first else ["最后"])
            ]
            send(id=message["id"], result={"tools": tools, **({"nextCursor": "2"} if first else {})})
        case "tools/call" if params["name"] in TOOLS:
            TOOLS[params["name"]](message, **params.get("arguments", {}))
        case "tools/call":
            send(
                id=message["id"], error={"code": -32602, "message": f"Unknown tool: {params['name']}\x1b[31m"}
            )
        case "notifications/cancelled":
            CANCELLED.append(params["requestId"])
        case method if "id" in message:
            send(id=message["id"], error={"code": -32601, "message": f"Method not found: {method}"})
        case _:
            pass


def main(how: str) -> None:
    given = messages()
    match how:
        case "ignores-discover":
            given = (message for message in given if message["method"] != "server/discover")
        case "ends-at-discover":
            first = next(given)
            if first["method"] == "server/discover":
                sys.exit("I want initialize")
            answer(first)
        case "late":  # it has seen both messages before it answers the first: of the modern era, but slow
            discover, initialize = next(given), next(given)
            send(id=discover["id"], result=DISCOVERED)
            send(id=initialize["id"], error=MODERN_ONLY)
            send(id=next(given)["id"], result=DISCOVERED)
        case "exits":
            sys.exit("线路 no such database: token=sk-very-secret")
        case "hangs":
            complain("connecting to 数据库")
            write("Welcome to the server!")
            given = (message for message in given if not message)
        case _:
            pass
    for message in given:
        answer(message)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
