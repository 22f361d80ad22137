"""Ingest worker: one child process that prepares documents, and the thread that feeds it."""

from __future__ import annotations

import logging
import queue
import subprocess
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from loom_core.knowledge.child_process import child_command, describe_exit
from loom_core.knowledge.ingest.workers.wire import FrameReader, decode_prepared, encode_item, write_frame
from loom_core.knowledge.store.prepared_documents import ItemOutcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader

    from loom_core.knowledge.store.prepared_documents import JobItem, Prepared


__all__ = ["IngestWorker", "WorkItem", "WorkerLimits"]

_log = logging.getLogger(__name__)

_AHEAD = 32  # items sent ahead to a child, so that it never waits for the next one
_AHEAD_BYTES = 1 << 20
# Interval of reading results from a busy child: waking up for every document costs both processes a tenth of
# their time. Meanwhile the results wait in the pipe, which has room for about a dozen.
_GATHER_SECONDS = 0.005
_ENDING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of a child.

    Attributes:
        deadline: seconds for one document.
        memory: bytes of address space, where the system can limit it; None for no limit.
        idle: seconds without work after which the child ends.
    """

    deadline: float = 120.0
    memory: int | None = 3 << 30
    idle: float = 15.0


@dataclass(slots=True, eq=False)
class WorkItem:
    """An item to prepare, with the callback for its result.

    Attributes:
        deliver: called once with the outcome, from a worker's thread.
        tried: whether a child ended while preparing it.
        dropped: whether the caller no longer wants it.
    """

    item: JobItem
    deliver: Callable[[Prepared], None]
    tried: bool = False
    dropped: bool = False


class IngestWorker:
    """A thread with a child process, which it feeds with items and reads results from.

    If a child ends while preparing a document, for any reason, only that one fails: the others go to the next
    child. The document itself is retried once if the child had prepared others before, as these may have been
    the cause.

    Args:
        settings: sent to the child first.
        limits: limits of the child.
        orders: queue of items; None wakes a waiting worker.
        retire: called after a while without work: whether this worker may end.
        substitute: prepares in this process if no child can be started.
    """

    def __init__(
        self,
        settings: bytes,
        limits: WorkerLimits,
        orders: queue.Queue[WorkItem | None],
        *,
        retire: Callable[[IngestWorker], bool],
        substitute: Callable[[JobItem], Prepared],
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._orders = orders
        self._retire = retire
        self._substitute = substitute
        self._returned: deque[WorkItem] = deque()  # taken from the queue, but no longer with a child
        self._sent: deque[WorkItem] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: FrameReader | None = None
        self._done = 0  # documents that the child has done so far
        self._since = 0.0  # when it began the current one
        self._overdue = False
        self._ended = False
        threading.Thread(target=self._run, name="loom-prepare", daemon=True).start()

    def end_overdue(self) -> None:
        """Kill the child if it exceeds the time limit of a document."""
        process = self._process
        if process is not None and self._sent and time.monotonic() - self._since > self._limits.deadline:
            self._overdue = True
            process.kill()

    def end(self) -> None:
        """End the child and the thread; no more results are delivered."""
        self._ended = True
        process = self._process
        if process is not None:
            process.kill()
        self._orders.put(None)

    def _run(self) -> None:
        while not self._ended:
            try:
                self._fill()
                if self._sent:
                    self._take()
                elif self._retire(self):
                    break
            except (OSError, EOFError, ValueError) as error:
                self._settle(error)
        self._close()

    def _fill(self) -> None:
        """Send the child items, up to its limit."""
        ahead = sum(order.item.size for order in self._sent)
        frames: list[bytes] = []
        while not self._sent or (len(self._sent) < _AHEAD and ahead < _AHEAD_BYTES):
            order = self._next()
            if order is None or self._ended:
                break
            if order.dropped:
                continue
            if self._process is None and not self._start():
                order.deliver(self._substitute(order.item))
                continue
            if not self._sent:
                self._since = time.monotonic()
            self._sent.append(order)  # before sending, during which the child may end
            ahead += order.item.size
            frames += encode_item(order.item)
        if frames:
            write_frame(_stdin(self._process), *frames)

    def _next(self) -> WorkItem | None:
        if self._returned:
            return self._returned.popleft()
        try:
            return self._orders.get(block=not self._sent, timeout=self._limits.idle)
        except queue.Empty:
            return None

    def _take(self) -> None:
        """Read and deliver the available results, or the next one."""
        if self._answers is None:
            raise EOFError
        for frame in self._answers.read():
            result = decode_prepared(frame)
            if not self._sent:
                raise ValueError("it answers without a request")
            order = self._sent.popleft()
            self._since = time.monotonic()
            self._done += 1
            if not self._ended:
                order.deliver(result)
        if len(self._sent) > _AHEAD // 2:
            time.sleep(_GATHER_SECONDS)

    def _settle(self, error: Exception) -> None:
        """Handle a child that ended or broke the protocol: settle its current item, and keep the others."""
        was_new, overdue, sent = self._done == 0, self._overdue, self._sent
        self._sent = deque()
        how = self._close()
        if self._ended or not sent:
            return
        first = sent[0]
        if overdue:
            reason = f"it could not be prepared within {self._limits.deadline:g} s"
        elif isinstance(error, ValueError):
            reason = f"the process that prepared it sent an invalid result: {error}"
        elif was_new or first.tried:
            reason = f"the process that prepared it {how}"
        else:
            reason = ""
            first.tried = True
        if reason:
            sent.popleft()
            _log.warning("%s: %s", first.item.uri, reason)
            first.deliver(ItemOutcome("failed", reason))
        self._returned.extendleft(reversed(sent))

    def _start(self) -> bool:
        """Start a child; return False if that is not possible."""
        try:
            process = subprocess.Popen(
                child_command("loom_core.knowledge.ingest.workers.child"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            _log.warning("Documents are prepared without a child process: %s", error)
            return False
        self._done, self._overdue = 0, False
        self._process, self._answers = process, FrameReader(cast("BufferedReader", process.stdout))
        if self._ended:  # `end` may have been called before the process existed
            process.kill()
        write_frame(_stdin(process), self._settings)
        return True

    def _close(self) -> str:
        """End the child.

        Returns:
            A description of how it ended.
        """
        process, self._process, self._answers = self._process, None, None
        if process is None:
            return "could not be started"
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                _close_quietly(stream)
        try:
            # A crashed child exits soon, and its exit code is worth knowing.
            code = process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        return describe_exit(code)


def _close_quietly(stream: IO[bytes]) -> None:
    with suppress(OSError):  # unread data of a child that has ended
        stream.close()


def _stdin(process: subprocess.Popen[bytes] | None) -> BinaryIO:
    return cast("BinaryIO", None if process is None else process.stdin)
