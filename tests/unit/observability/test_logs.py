from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from anyio import to_thread

from loom_core.callbacks import LoggingCallback
from loom_core.errors import ConfigError
from loom_core.observability.log_fields import LOG_FIELDS, current_fields, logging_with
from loom_core.observability.logs import log_formatter, resolve_log_format, resolve_log_level
from loom_core.observability.spans import FLOW_STEP
from loom_core.observability.tracing import span
from loom_core.runs.events import StreamEvent
from loom_core.runs.run import Run, RunRequest

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("loom_core.for_tests")
    logger.propagate, logger.level = False, logging.DEBUG
    yield logger
    logger.handlers.clear()


@pytest.fixture
def lines(logger: logging.Logger) -> Lines:
    """Return the JSON log so far; each line must be an object."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log_formatter("json", service="loom-kb"))
    logger.addHandler(handler)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def text(logger: logging.Logger) -> Callable[[], str]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log_formatter("text"))
    logger.addHandler(handler)
    return stream.getvalue


def test_a_line_of_json_says_when_in_utc_how_bad_who_and_what(logger: logging.Logger, lines: Lines) -> None:
    before = datetime.now(UTC)
    logger.warning("%s 没有回答", "港口")

    (line,) = lines()
    assert before <= datetime.fromisoformat(line["time"]) <= datetime.now(UTC)
    assert line["time"].endswith("Z")
    assert (line["level"], line["logger"], line["message"]) == (
        "WARNING",
        "loom_core.for_tests",
        "港口 没有回答",
    )
    assert line["service"] == "loom-kb"
    assert set(line) <= set(LOG_FIELDS)


@pytest.mark.hostile("secrets")
@pytest.mark.parametrize("before", [170, 185, 190, 199, 200])
def test_what_is_cut_was_without_secrets_before(
    logger: logging.Logger, lines: Lines, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "Hunter2-Quartz-99x")
    with logging_with({"client": "长" * before + "Hunter2-Quartz-99x" + "长" * 300}):
        for behind in range(19_960, 20_000, 8):
            try:
                raise ValueError("Hunter2-Quartz-99x" + "b" * behind)
            except ValueError:
                logger.exception("it failed")

    for line in lines():
        assert len(line["client"]) == 200
        assert not any(part in json.dumps(line) for part in ("Hunter", "Quartz", "artz", "99x"))


def test_an_exception_is_one_line_with_its_type(logger: logging.Logger, lines: Lines) -> None:
    try:
        raise ConfigError("Wrong:\nsk-proj-0123456789abcdefghij", advice="密码=hunter2-long")
    except ConfigError:
        logger.exception("it failed")

    (line,) = lines()
    assert line["error"] == "ConfigError"
    assert line["traceback"].startswith("Traceback (most recent call last):\n")
    assert line["traceback"].endswith("Wrong:\n[secret] 密码=[secret]")


async def test_fields_reach_tasks_and_threads_and_no_others(logger: logging.Logger, lines: Lines) -> None:
    async def task(name: str) -> None:
        with logging_with({"tool": name}):
            await to_thread.run_sync(logger.info, "in a thread")

    with logging_with({"request_id": "7", "session": "", "caller": "甲"}):
        async with anyio.create_task_group() as group:
            group.start_soon(task, "query")
            group.start_soon(task, "fetch")
        with logging_with({"run_id": "run_1"}, fresh=True):
            logger.info("the run")
        logger.info("after")
    logger.info("outside")

    told = [{name: each.get(name) for name in ("request_id", "caller", "tool", "run_id")} for each in lines()]
    asked = {"request_id": "7", "caller": "甲", "run_id": None}
    assert sorted(told[:2], key=lambda each: str(each["tool"])) == [
        {**asked, "tool": "fetch"},
        {**asked, "tool": "query"},
    ]
    assert told[2] == {"request_id": None, "caller": None, "tool": None, "run_id": "run_1"}
    assert told[3] == {**asked, "tool": None}
    assert set(told[4].values()) == {None}
    assert current_fields() == {}


def test_a_line_belongs_to_the_span_in_which_it_was_written(
    logger: logging.Logger, lines: Lines, spans: list[Any]
) -> None:
    with span(FLOW_STEP) as current:
        logger.info("in a span")
    logger.info("in none")

    within, without = lines()
    context = current.get_span_context()
    assert within["trace_id"] == f"{context.trace_id:032x}"
    assert within["span_id"] == f"{context.span_id:016x}"
    assert "trace_id" not in without
    assert len(spans) == 1


def test_events_of_a_run_have_their_figures_as_fields(logger: logging.Logger, lines: Lines) -> None:
    request = RunRequest(goal="g", profile="p")
    run = Run(id="run_9", request=request, status="working", created=0.0, updated=0.0)
    event = StreamEvent("usage", {"input_tokens": 3, "cost": 0.5}, run_id="run_9", seq=4)
    LoggingCallback(logger).on_event(event, run)

    (line,) = lines()
    assert (line["run_id"], line["event"], line["seq"]) == ("run_9", "usage", 4)
    assert line["facts"] == {"input_tokens": 3, "cost": 0.5}


@pytest.mark.parametrize("separator", ["\n", "\r", "\x85", "\u2028", "\x1b[2J", "\x00"])
def test_no_one_can_put_a_line_of_their_own_into_the_log(
    logger: logging.Logger, lines: Lines, text: Callable[[], str], separator: str
) -> None:
    forged = f"x{separator}2026-01-01 INFO forged: 假的"
    with logging_with({"tool": f"a{separator}b"}):
        try:
            raise ValueError(forged)
        except ValueError:
            logger.exception("name: %s", forged)

    (line,) = lines()
    assert line["message"] == f"name: {forged}"
    first, *rest = text().splitlines()
    assert "ERROR loom_core.for_tests: name: x" in first
    assert rest
    assert all(each.startswith("    ") for each in rest)
    assert separator == "\n" or separator not in text()


@pytest.mark.parametrize("form", ["text", "json"])
def test_arguments_that_do_not_fit_are_no_error(form: Literal["text", "json"]) -> None:
    record = logging.LogRecord("a", logging.INFO, "a.py", 1, "%d documents", ("three",), None)

    assert "%d documents" in log_formatter(form).format(record)


def test_the_text_form_tells_the_request_and_the_run(logger: logging.Logger, text: Callable[[], str]) -> None:
    with logging_with({"request_id": "3", "run_id": "run_1", "client": "c 1"}):
        logger.info("done, token=abcdef123")

    assert (
        text().rstrip().endswith("INFO loom_core.for_tests: done, token=[secret] [request_id=3 run_id=run_1]")
    )


def test_form_and_level_come_from_option_or_environment_and_must_be_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LOOM_LOG_FORMAT", raising=False)
    monkeypatch.delenv("LOOM_LOG_LEVEL", raising=False)
    assert (resolve_log_format(), resolve_log_level()) == ("text", logging.INFO)
    monkeypatch.setenv("LOOM_LOG_FORMAT", "JSON")
    monkeypatch.setenv("LOOM_LOG_LEVEL", "loud")
    assert (resolve_log_format(), resolve_log_format("text")) == ("json", "text")
    assert resolve_log_level("debug") == logging.DEBUG
    with pytest.raises(ConfigError, match="LOOM_LOG_LEVEL cannot be 'loud'"):
        resolve_log_level()
    with pytest.raises(ConfigError, match="--log-format cannot be 'xml'"):
        resolve_log_format("xml")


def test_what_python_would_print_is_logged_as_well(tmp_path: Path) -> None:
    """Warnings, and exceptions that no one catches, in the main thread and in others."""
    program = tmp_path / "program.py"
    program.write_text(
        "import logging, threading, warnings\n"
        "from loom_core.observability.logs import start_logging\n"
        "start_logging('json', service='s')\n"
        "start_logging('text')\n"
        "warnings.warn('old: ghp_abcdefghijklmnopqrstu')\n"
        "def fail(): raise ValueError('Bearer 0123456789abc')\n"
        "thread = threading.Thread(target=fail, name='working'); thread.start(); thread.join()\n"
        "logging.getLogger('a').debug('not told')\n"
        "fail()\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)

    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["logger"], line["level"]) for line in told] == [
        ("py.warnings", "WARNING"),
        ("loom_core", "ERROR"),
        ("loom_core", "CRITICAL"),
    ]
    assert "old: [secret]" in told[0]["message"]
    assert told[1]["message"] == "The thread working ends with an exception"
    assert [line["traceback"].splitlines()[-1] for line in told[1:]] == ["ValueError: Bearer [secret]"] * 2
    assert done.stdout == ""
