"""Terminal output: lines, JSON, a progress bar.

Only command lines use it: nothing else in Loom writes to standard output.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import sys
import time
import unicodedata
from typing import TYPE_CHECKING, cast

from loom_core.knowledge.text.control_characters import CONTROL_CHARACTERS, escape_controls

if TYPE_CHECKING:
    import io

    from pydantic import BaseModel

__all__ = [
    "ProgressBar",
    "accept_any_text",
    "close_output",
    "confirm",
    "emphasize",
    "out",
    "out_json",
    "say",
    "strong",
]

_REFRESH = 0.1  # seconds between two drawings on a terminal,
_REFRESH_LOG = 5.0  # and between two lines elsewhere
_BAR = 24
_BOLD, _PLAIN = "\033[1m", "\033[0m"
_LEFT = re.compile(f"([\n\t]|{re.escape(_BOLD)}|{re.escape(_PLAIN)})|{CONTROL_CHARACTERS.pattern}")


def accept_any_text() -> None:
    """Make standard output accept any text: characters outside its encoding are escaped.

    Windows gives a pipe the local code page, and file names of Linux need not be valid in any encoding.
    """
    cast("io.TextIOWrapper", sys.stdout).reconfigure(errors="backslashreplace")


def close_output() -> None:
    """Drop unwritten output after a broken pipe, so that the interpreter ends quietly."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def out(text: str = "") -> None:
    """Print lines to standard output."""
    sys.stdout.write(f"{_harmless(text)}\n")


def out_json(value: BaseModel | dict[str, object]) -> None:
    """Print a value as JSON to standard output."""
    plain = value if isinstance(value, dict) else value.model_dump(mode="json")
    # The escapes of JSON, not ours, where the encoding lacks a character.
    escaped = codecs.lookup(sys.stdout.encoding or "ascii").name != "utf-8"
    text = json.dumps(plain, ensure_ascii=escaped, indent=2)
    harmless = CONTROL_CHARACTERS.sub(
        lambda match: match[0] if match[0] == "\n" else _json_escape(match[0]), text
    )
    sys.stdout.write(f"{harmless}\n")


def say(text: str) -> None:
    """Print a line to standard error, apart from the answer."""
    sys.stderr.write(f"{_harmless(text)}\n")


def confirm(question: str = "Begin?") -> bool:
    """Ask the user to confirm; return whether they say yes. Blocks."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def strong(text: str) -> str:
    """Format a text in bold, if standard output is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"{_BOLD}{text}{_PLAIN}"


def emphasize(text: str, part: str) -> str:
    """Return a text with the first occurrence of a part of it `strong`, each line by itself."""
    return text.replace(part, "\n".join(map(strong, part.splitlines())), 1)


def _harmless(text: str) -> str:
    """Escape control characters, with which a name or document could control the terminal."""
    return _LEFT.sub(lambda match: match[1] or escape_controls(match[0]), text)


def _json_escape(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) > 0x9F else f"\\u{ord(char):04x}"


class ProgressBar:
    """Progress bar with rate and remaining time, on standard error.

    On a terminal it is one line that is drawn over; elsewhere a line every few seconds.

    Args:
        label: the current work.
        unit: the unit that is counted.
    """

    def __init__(self, label: str, unit: str) -> None:
        self._label = label
        self._unit = unit
        self._terminal = sys.stderr.isatty()
        self._started = self._drawn = time.monotonic()
        self._first: int | None = None
        self._length = 0
        self._logged = (-1, -1)

    def show(self, done: int, total: int, *, final: bool = False) -> None:
        """Draw the state, unless it was drawn just now."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._started = done, now
        if not final and now - self._drawn < (_REFRESH if self._terminal else _REFRESH_LOG):
            return
        self._drawn = now
        line = self._line(done, total, now)
        if not self._terminal:
            if self._logged != (done, total):
                say(line)
            self._logged = (done, total)
            return
        line = _fit_width(line, shutil.get_terminal_size().columns - 1)
        sys.stderr.write("\r" + line + " " * max(0, self._length - len(line)) + ("\n" if final else ""))
        sys.stderr.flush()
        self._length = 0 if final else len(line)

    def _line(self, done: int, total: int, now: float) -> str:
        seconds = now - self._started
        rate = (done - (self._first or 0)) / seconds if seconds > 0.2 else 0.0
        filled = _BAR * done // total if total else 0
        parts = [f"{self._label} [{'█' * filled}{'·' * (_BAR - filled)}] {done:,}/{total:,} {self._unit}"]
        if rate > 0:
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
            if done < total:
                parts.append(f"{_clock((total - done) / rate)} left")
        return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _fit_width(line: str, columns: int) -> str:
    width = 0
    for i, char in enumerate(line):
        width += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if width > columns:
            return line[:i]
    return line
