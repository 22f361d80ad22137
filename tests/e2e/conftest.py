"""The server and command `loom-kb` as a client and a person meet them: as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import httpx2
import pytest

from tests.e2e.jsonrpc import Era, StdioServer
from tests.fixtures.commands import run_command
from tests.fixtures.fork_server import starts_quickly
from tests.fixtures.stand_ins import StandIns, start

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


_LOOM_KB = [sys.executable, "-m", "loom_kb"]
_COMPANY = Path(__file__).parents[2] / "examples" / "flow_company" / "stub_api.py"


class StartServer(Protocol):
    """Starts `loom-kb` over stdio with further options; it ends with the test."""

    def __call__(
        self, *options: str | Path, era: Era = ..., embedder: str = ..., timeout: float = ...
    ) -> StdioServer: ...


class RunCommand(Protocol):
    """Runs `loom-kb` to its end, standard input and output being pipes."""

    def __call__(
        self, *arguments: str | Path, stdin: bytes = ..., env: Mapping[str, str] = ..., embedder: str = ...
    ) -> subprocess.CompletedProcess[bytes]: ...


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Loom's home of one test."""
    return tmp_path / "home"


@pytest.fixture
def documents() -> Path:
    """A folder of real files of many formats."""
    return Path(__file__).parents[1] / "fixtures" / "documents"


@pytest.fixture
def company() -> Iterator[str]:
    """The address of the business of examples/flow_company, in a process of its own."""
    command = [sys.executable, starts_quickly(_COMPANY), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stderr is not None
    try:
        line = next((line for line in process.stderr if "answers on" in line), "")
        assert line, "the company ended before it answered"
        yield line.split()[-1]
    finally:
        process.terminate()
        process.stderr.close()
        process.wait(30)


@pytest.fixture
def effects(company: str) -> Callable[[], list[str]]:
    """Return a function that lists the effects of that business."""
    return lambda: [each["what"] for each in httpx2.get(f"{company}/effects").json()]


@pytest.fixture
def start_kb(stdio_server: Callable[..., StdioServer], home: Path) -> StartServer:
    def start(
        *options: str | Path, era: Era = "modern", embedder: str = "hashing", timeout: float = 60.0
    ) -> StdioServer:
        command = [*_LOOM_KB, "--home", home, "--embedder", embedder, *options]
        return stdio_server(list(map(str, command)), era=era, timeout=timeout)

    return start


@pytest.fixture(scope="module")
def shared_kb(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., AbstractContextManager[StdioServer]]:
    """Opens a server that the tests of a module share: `with shared_kb("--root", folder) as server`."""

    @contextmanager
    def start(
        *options: str | Path, home: Path | None = None, era: Era = "modern", embedder: str = "hashing"
    ) -> Generator[StdioServer]:
        home = home or tmp_path_factory.mktemp("home")
        command = [*_LOOM_KB, "--home", home, "--embedder", embedder, *options]
        server = StdioServer(list(map(str, command)), era=era, timeout=60.0)
        with closing(server):
            yield server
            assert server.process.poll() is not None or server.close_input() == 0

    return start


@pytest.fixture
def loom_kb(home: Path) -> RunCommand:
    """Runs `loom-kb` in this process, see `tests.fixtures.commands`."""

    def run(
        *arguments: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        embedder: str = "hashing",
    ) -> subprocess.CompletedProcess[bytes]:
        command, *rest = arguments
        line = [command, "--home", home, "--embedder", embedder, *rest]
        return run_command("loom_kb", *line, stdin=stdin, env=env)

    return run


@pytest.fixture
def loom_kb_process(home: Path) -> RunCommand:
    """Runs `loom-kb` as a program of its own."""

    def run(
        *arguments: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        embedder: str = "hashing",
    ) -> subprocess.CompletedProcess[bytes]:
        command, *rest = map(str, arguments)
        return subprocess.run(
            [*_LOOM_KB, command, "--home", str(home), "--embedder", embedder, *rest],
            input=stdin,
            capture_output=True,
            env={**os.environ, **(env or {})},
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def served() -> Callable[..., AbstractContextManager[str]]:
    """Serves on a free port while a block lasts: `with served([*command, "serve"], program) as url`."""

    @contextmanager
    def serve(command: list[str], program: str) -> Generator[str]:
        process = subprocess.Popen(
            [*command, "--http", "--port", "0"], stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        assert process.stderr is not None
        try:
            line = next((line for line in process.stderr if line.startswith(f"{program} serves ")), "")
            assert line, "the server ended before it served"
            yield line.split()[2]
        finally:
            process.terminate()
            rest = process.stderr.read()
            process.stderr.close()
            assert process.wait(30) == 0, rest

    return serve


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[list[str]], list[str]]]:
    """Gives a command that starts the same server, and quickly where programs of others start it."""
    address = tmp_path_factory.mktemp("stand-ins") / "socket"
    with closing(StandIns(address, start)) as stand_ins:
        yield lambda command: stand_ins.command(*command)


@pytest.fixture
def http_url(home: Path, served: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    """The URL of `loom-kb serve --http` on a free port, which ends with the test."""
    with served([*_LOOM_KB, "serve", "--home", str(home), "--embedder", "hashing"], "loom-kb") as url:
        yield url


@pytest.fixture(scope="module")
def loom_query(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of `loom-query-server` with a source of two texts, English and Chinese."""
    home = tmp_path_factory.mktemp("query-home")
    documents = [
        {"text": "# Port Aster\n\nThe master of Port Aster is Ada Brown.", "uri": "note:aster"},
        {"text": "# 青岛港\n\n青岛港的港长是李明。", "uri": "note:青岛"},
    ]
    sources = {"港口": {"kind": "documents", "documents": documents}}
    (home / "query.json").write_text(json.dumps({"sources": sources}), encoding="utf-8")
    return [sys.executable, "-m", "loom_query", "serve", "--home", str(home)]


@pytest.fixture(scope="module")
def query_url(loom_query: list[str], served: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    """The URL of that server over HTTP, for all tests of a module."""
    with served(loom_query, "loom-query-server") as url:
        yield url


@pytest.fixture
def write_lighthouses(tmp_path: Path) -> Callable[[int], Path]:
    """Makes a folder of so many notes, each about a lighthouse of its own, English and Chinese."""

    def write(count: int) -> Path:
        folder = tmp_path / "lighthouses"
        for i in range(count):
            part = folder / f"part{i // 100}"
            part.mkdir(parents=True, exist_ok=True)
            (part / f"note{i:04}.md").write_text(
                f"# Lighthouse {i}\n\nLighthouse {i} stands on Cape {i}. Its keeper is Keeper{i} Brown. "
                + "It shines over the water every night, and boats steer by it. " * 8
                + f"\n\n## 灯塔 {i}\n\n第{i}号灯塔位于青岛市，看守人是李明。\n",
                encoding="utf-8",
            )
        return folder

    return write


@pytest.fixture
def until() -> Callable[..., object]:
    """Waits for something that another process does and tells no one: `until(condition)` gives its value.

    It fails after `seconds`, and says `what` has not happened.
    """

    def wait(
        condition: Callable[[], object], *, seconds: float = 60.0, what: str = "what is waited for"
    ) -> object:
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, f"{what} has not happened within {seconds:g} s"
            time.sleep(0.05)
        return value

    return wait
