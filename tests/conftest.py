"""Fixtures for every test."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from loom_core import keys
from tests.e2e.jsonrpc import StdioServer
from tests.fixtures import fork_server, processes
from tests.fixtures import node as nodejs
from tests.fixtures.conformance import Suite
from tests.fixtures.local_server import LocalServer

if TYPE_CHECKING:
    from types import FrameType

    from opentelemetry.sdk.trace import ReadableSpan

    from loom_core.observability.registry import Registry

_HERE = Path(__file__).parent
# How long an example takes says little on two processors with four workers; where it matters a test asks.
# The same examples in every run: no change fails by the chance of another one. `--hypothesis-profile=default`
# looks for new ones.
settings.register_profile(
    "loom", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("loom")
# Examples are those of a test, not of what its worker has imported: constants of all modules would be among
# them. To find these takes seconds, to find which of ten thousand fit a strategy some more.
providers._get_local_constants = lambda: providers._local_constants

_REASONS = 2  # for skipped tests that have a line each; a third line has the others
_GRACE_SECONDS = 10.0  # for what has lost its client, or was ended, until it is gone
_IN_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30  # bytes that have to be free there; the folders of a run take a fraction of it
_AS_IN_A_TERMINAL = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGCHLD", "SIGALRM")


def _inherit_nothing() -> None:
    """Heed all signals and have a standard input, whatever runs the tests: `nohup`, a script, a daemon.

    What tests start inherits both. `nohup` keeps its promise: a handler, unlike "ignored", is not inherited.
    """
    if sys.platform == "win32":
        return
    for name in _AS_IN_A_TERMINAL:
        if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
            heeded = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
            signal.signal(getattr(signal, name), heeded)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if sys.__stdin__ is None:
        os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)  # the lowest number that is free


_inherit_nothing()


def _keep_little_memory() -> None:
    """Let all threads share one heap: of those that glibc gives to each, none returns what was freed."""
    if platform.libc_ver()[0] == "glibc":
        arena_max = -8  # M_ARENA_MAX of malloc.h
        ctypes.CDLL(None).mallopt(arena_max, 1)


_keep_little_memory()


def _keep_folders_in_memory() -> None:
    """Put the folders of tests into memory, where there is much: on a disk, databases wait at each commit."""
    if sys.platform != "linux" or "PYTEST_DEBUG_TEMPROOT" in os.environ or not os.access(_IN_MEMORY, os.W_OK):
        return
    there = os.statvfs(_IN_MEMORY)
    free = min(there.f_bavail * there.f_frsize, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if free >= _ROOM and not there.f_flag & os.ST_NOEXEC:  # tests run programs that they write
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_IN_MEMORY)


def pytest_configure(config: pytest.Config) -> None:
    """Let the servers that tests start keep what they compile of Loom: each would compile it again."""
    if not hasattr(config, "workerinput"):
        _keep_folders_in_memory()
        os.environ[processes.RUN_VARIABLE] = str(os.getpid())
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if runs_tests and (server := fork_server.install()) is not None:
        config.add_cleanup(server.close)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin with other files: those that one has compiled, the others need not compile."""
    report = yield
    if isinstance(collector, pytest.Directory) and (worker := _worker(collector.config)):
        first = len(report.result) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark all tests as slow but those of units, which mark themselves: `-m "not slow"` is the fast lane."""
    units = f"{_HERE / 'unit'}{os.sep}"
    for item in items:
        if not str(item.path).startswith(units):
            item.add_marker(pytest.mark.slow)
    if _worker(config):
        _order(items)


def _order(items: list[pytest.Item]) -> None:
    """Let workers, which have to agree on the order, compute while others wait, and end together.

    Files with slow tests come first, spread by a hash of their names: many that lie side by side wait alike.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    turn = {path: crc32(os.path.relpath(path, _HERE).encode()) for path in slow}
    items.sort(key=lambda item: (item.path not in slow, turn.get(item.path, 0), item.path))


def _worker(config: pytest.Config) -> dict[str, Any]:
    """Facts about this worker of pytest-xdist; none in the process that has them, or is alone."""
    return getattr(config, "workerinput", {})


def pytest_collection() -> None:
    """Search for no garbage among what the tests are made of, of which there is none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave it out of later searches, too: with it, one takes half a second."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Generator[None, object, object]:
    """Let a test that takes too long end what it has started, before it fails: it may be waiting for that."""
    began = processes.clock_ticks()
    is_set = yield
    if sys.platform == "win32":
        return is_set
    fail = signal.getsignal(signal.SIGALRM)

    def end_processes_and_fail(number: int, frame: FrameType | None) -> None:
        processes.end(processes.started_since(began))
        assert callable(fail)
        fail(number, frame)

    signal.signal(signal.SIGALRM, end_processes_and_fail)
    return is_set


@pytest.fixture(autouse=True, scope="module")
def no_process_is_left() -> Iterator[None]:
    """Fails where a process that a module's tests have started outlives them, and ends it."""
    began = processes.clock_ticks()
    yield
    left = processes.left_after(_GRACE_SECONDS, lambda: processes.started_since(began))
    assert not left, "still running: " + "\n".join(left)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """Let the next worker go on behind the test that ended its worker, not with it once more."""
    path = crashitem.partition("::")[0]
    tests = getattr(sched, "workqueue", {}).get(path, {})
    if crashitem in tests:
        tests[crashitem] = True  # as done
        if all(tests.values()):
            del sched.workqueue[path]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in three lines how many tests were skipped and why; `-rs` lists every place."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped or terminalreporter.hasopt("skipped"):
        return
    terminalreporter.section("skipped; -rs says where", sep="-")
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped).most_common()
    for reason, number in reasons[:_REASONS]:
        terminalreporter.write_line(f"{number}: {reason}")
    if others := reasons[_REASONS:]:
        names = "; ".join(reason.partition(":")[0] for reason, _ in others)
        terminalreporter.write_line(f"{sum(number for _, number in others)}: {names}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where tests have left processes that no worker knows of, as one that was killed, and end them."""
    if hasattr(session.config, "workerinput"):
        return
    left = processes.left_after(_GRACE_SECONDS, processes.abandoned)
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        sys.stderr.write("\nstill running: " + "\n".join(left) + "\n")


@pytest.fixture(autouse=True, scope="module")
def no_long_searches() -> Iterator[None]:
    """Leaves out what earlier modules have left, too: a tenth of a second is long where a test waits two.

    Only when the next module begins: until then the last test holds its fixtures, which would be frozen with
    it and never freed.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def own_secrets() -> Iterator[None]:
    """Forgets with a test what it made known as a secret: it would be hidden in the texts of others."""
    before = dict(keys._known)
    yield
    keys._known.clear()
    keys._known.update(before)


@pytest.fixture(scope="session")
def least_processor_time() -> Callable[[Callable[[], object]], float]:
    """Seconds of this thread that a call takes, the least of three: others' garbage may fall into one."""

    def measured(call: Callable[[], object]) -> float:
        times: list[float] = []
        for _ in range(3):
            began = time.thread_time()
            call()
            times.append(time.thread_time() - began)
        return min(times)

    return measured


@pytest.fixture
def spans() -> Iterator[list[ReadableSpan]]:
    """The spans that end in this process during the test, the SDK's of MCP included, in this order."""
    from tests.fixtures.kept_spans import kept_spans  # not before: few tests need the SDK

    kept = kept_spans()
    kept.kept = []
    yield kept.kept
    kept.kept = None


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The numbers of this process, counted from 0 in this test."""
    from loom_core.observability.metrics import new_registry, process_metrics

    registry = new_registry()
    monkeypatch.setattr(process_metrics, "registry", registry)
    monkeypatch.setattr(process_metrics, "enabled", True)
    return registry


@pytest.fixture
def stdio_server() -> Iterator[Callable[..., StdioServer]]:
    """Starts servers: `stdio_server([sys.executable, "-m", "loom_kb"], era="modern", env=...)`.

    Takes what `StdioServer` in tests/e2e/jsonrpc.py takes, and ends every server with the test.
    """
    with ExitStack() as servers:

        def start(*args: Any, **kwargs: Any) -> StdioServer:
            return servers.enter_context(closing(StdioServer(*args, **kwargs)))

        yield start


@pytest.fixture
def local_servers() -> Iterator[Callable[..., LocalServer]]:
    """Starts web servers of this machine, see tests/fixtures/local_server.py, and ends them with the test."""
    with ExitStack() as servers:
        yield lambda *args, **named: servers.enter_context(closing(LocalServer(*args, **named)))


@pytest.fixture(scope="session")
def suite() -> Suite:
    """The official conformance suite, see tests/fixtures/conformance.py; skips where Node.js is missing."""
    return Suite(nodejs.node(least=(22, 0)), nodejs.installed(_HERE / "conformance"))
