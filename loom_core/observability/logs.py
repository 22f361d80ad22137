"""Logging of a server: text or JSON lines on standard error, without secrets.

Logs of libraries, warnings of Python and uncaught exceptions are formatted here, too.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from loom_core.errors import ConfigError
from loom_core.observability.log_fields import LOG_FIELDS, fields_now

if TYPE_CHECKING:
    from typing import TextIO

    from loom_core.redaction import Redaction

__all__ = [
    "FORMAT_VARIABLE",
    "LEVEL_VARIABLE",
    "LogFormat",
    "LogLevel",
    "log_formatter",
    "resolve_log_format",
    "resolve_log_level",
    "start_logging",
]

LogFormat: TypeAlias = Literal["text", "json"]
"""`text`: lines for people; `json`: one object a line, for collectors."""

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
"""Minimum level that is logged."""

FORMAT_VARIABLE = "LOOM_LOG_FORMAT"
LEVEL_VARIABLE = "LOOM_LOG_LEVEL"

_log = logging.getLogger("loom_core")

_EXTRA = ("event", "seq", "facts")  # of `LoggingCallback`
_TEXT_FIELDS = ("request_id", "run_id", "tool")
_LONGEST_FIELD = 200  # characters, as clients choose some fields
_MOST_TRACEBACK = 20_000  # characters from the end, which has the exception
# Control characters and line separators are escaped by code point; a valid escape in JSON, too.
_CONTROL_ESCAPES = {
    code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029) if code != 0x09
}
_MULTILINE_ESCAPES = {
    **_CONTROL_ESCAPES,
    0x0A: "\n    ",
}  # a multi-line message must not look like several lines


def resolve_log_format(given: str = "") -> LogFormat:
    """Return the log format: the given one, `LOOM_LOG_FORMAT`, or text.

    Raises:
        ConfigError: there is no such form.
    """
    chosen = _resolve_choice(given, FORMAT_VARIABLE, get_args(LogFormat), "text", "--log-format")
    return "json" if chosen == "json" else "text"


def resolve_log_level(given: str = "") -> int:
    """Return the minimum level: the given one, `LOOM_LOG_LEVEL`, or `info`; a level of `logging`.

    Raises:
        ConfigError: there is no such level.
    """
    name = _resolve_choice(given, LEVEL_VARIABLE, get_args(LogLevel), "info", "--log-level")
    return logging.getLevelNamesMapping()[name.upper()]


def log_formatter(form: LogFormat = "text", *, service: str = "") -> logging.Formatter:
    """Create a formatter, for a custom handler, such as one to a file.

    Args:
        form: text or JSON.
        service: the program's name, for JSON.
    """
    return _JsonFormatter(service) if form == "json" else _TextFormatter()


def start_logging(
    form: LogFormat = "text", *, level: int = logging.INFO, service: str = "", stream: TextIO | None = None
) -> None:
    """Log to standard error, unless the program has set its logging up already.

    Args:
        form: text or JSON.
        level: the minimum level.
        service: the server's name.
        stream: instead of standard error.
    """
    if logging.root.handlers:
        return
    _redaction()  # load it here, not in the first thread that logs
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(log_formatter(form, service=service))
    logging.root.addHandler(handler)
    logging.root.setLevel(level)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # an unformattable record would be printed with its arguments
    sys.excepthook = _on_exception
    threading.excepthook = _on_thread_exception


def _redaction() -> Redaction:
    from loom_core.redaction import Redaction

    return Redaction.now(assigned=True)


class _Formatter(logging.Formatter):
    """Common base of both forms: messages and tracebacks without secrets."""

    converter = time.gmtime

    def _message(self, record: logging.LogRecord, hidden: Redaction) -> str:
        try:
            said = record.getMessage()
        except (TypeError, ValueError, KeyError, IndexError):  # the arguments do not fit the message
            said = str(record.msg)
        return hidden.text(said)

    def _traceback(self, record: logging.LogRecord, hidden: Redaction) -> str:
        if record.exc_info and record.exc_info[0] is not None:
            text = self.formatException(record.exc_info)
        else:
            text = record.exc_text or ""
        if record.stack_info:
            text = f"{text}\n{record.stack_info}".lstrip()
        return hidden.text(text)[-_MOST_TRACEBACK:]

    def _context_fields(self, hidden: Redaction) -> dict[str, str]:
        """Return the context fields; redact before truncation, as half a secret is not recognised."""
        return {name: hidden.text(value)[:_LONGEST_FIELD] for name, value in fields_now().items()}


class _TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        hidden = _redaction()
        fields = self._context_fields(hidden)
        about = " ".join(f"{name}={fields[name]}" for name in _TEXT_FIELDS if name in fields)
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        line = f"{moment},{int(record.msecs):03} {record.levelname} {record.name}: "
        line += self._message(record, hidden).translate(_MULTILINE_ESCAPES)
        if about:
            line += f" [{about.translate(_CONTROL_ESCAPES)}]"
        if traceback := self._traceback(record, hidden):
            # It has messages of exceptions, which come from anywhere.
            line += f"\n{traceback}".translate(_MULTILINE_ESCAPES)
        return line


class _JsonFormatter(_Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        hidden = _redaction()
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        told: dict[str, object] = {
            "time": f"{moment}.{int(record.created % 1 * 1e6):06}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": self._message(record, hidden),
            "service": self._service,
            "pid": record.process,
        }
        given = _extra_fields(record, ("run_id", *_EXTRA))
        known = {
            **self._context_fields(hidden),
            **{name: hidden.value(value) for name, value in given.items()},
        }
        told |= {name: known[name] for name in LOG_FIELDS if name in known}
        if record.exc_info and record.exc_info[0] is not None:
            told["error"] = record.exc_info[0].__qualname__
        if traceback := self._traceback(record, hidden):
            told["traceback"] = traceback
        line = {name: value for name, value in told.items() if value not in (None, "")}
        return json.dumps(line, ensure_ascii=False, default=str).translate(_CONTROL_ESCAPES)


def _extra_fields(record: logging.LogRecord, names: Iterable[str]) -> dict[str, object]:
    """Return the `extra` of a line."""
    return {name: record.__dict__[name] for name in names if name in record.__dict__}


def _on_exception(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    _log.critical("The process ends with an exception", exc_info=(kind, error, traceback))


def _on_thread_exception(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        name = args.thread.name if args.thread else "?"
        info = (args.exc_type, args.exc_value, args.exc_traceback)
        _log.error("The thread %s ends with an exception", name, exc_info=info)


def _resolve_choice(given: str, variable: str, known: tuple[str, ...], usual: str, option: str) -> str:
    chosen = (given or os.environ.get(variable, "")).strip().lower() or usual
    if chosen not in known:
        where = option if given else variable
        raise ConfigError(f"{where} cannot be {chosen[:40]!r}.", advice=f"Write one of {', '.join(known)}.")
    return chosen
