"""The server and command `loom-kb` as a client and a person meet them: as processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tests.e2e.jsonrpc import Era, StdioServer

_LOOM_KB = [sys.executable, "-m", "loom_kb"]


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
def start_kb(stdio_server: Callable[..., StdioServer], home: Path) -> StartServer:
    def start(
        *options: str | Path, era: Era = "modern", embedder: str = "hashing", timeout: float = 60.0
    ) -> StdioServer:
        command = [*_LOOM_KB, "--home", home, "--embedder", embedder, *options]
        return stdio_server(list(map(str, command)), era=era, timeout=timeout)

    return start


@pytest.fixture(scope="module")
def shared_kb(
    jsonrpc: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., AbstractContextManager[StdioServer]]:
    """Opens a server that the tests of a module share: `with shared_kb("--root", folder) as server`."""

    @contextmanager
    def start(
        *options: str | Path, home: Path | None = None, era: Era = "modern", embedder: str = "hashing"
    ) -> Generator[StdioServer]:
        home = home or tmp_path_factory.mktemp("home")
        command = [*_LOOM_KB, "--home", home, "--embedder", embedder, *options]
        server = jsonrpc.StdioServer(list(map(str, command)), era=era, timeout=60.0)
        with closing(server):
            yield server
            assert server.process.poll() is not None or server.close_input() == 0

    return start


@pytest.fixture
def loom_kb(home: Path) -> RunCommand:
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


@pytest.fixture
def http_url(home: Path) -> Iterator[str]:
    """The URL of `loom-kb serve --http` on a free port, which ends with the test."""
    command = [*_LOOM_KB, "serve", "--http", "--port", "0", "--home", str(home), "--embedder", "hashing"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("loom-kb serves "):
                yield line.split()[2]
                break
        else:
            raise AssertionError("the server ended before it served")
    finally:
        process.terminate()
        rest: Any = process.stderr.read()
        process.stderr.close()
        assert process.wait(30) == 0, rest


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
    """Waits for something that another process does and tells nobody: `until(condition)` gives its value."""

    def wait(condition: Callable[[], object], *, seconds: float = 60.0) -> object:
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.05)
        return value

    return wait
