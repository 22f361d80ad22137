"""Main program of a child process that prepares documents."""

from __future__ import annotations

import gc
import json
import os
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict

from loom_core.knowledge.child_process import limit_memory, lower_priority
from loom_core.knowledge.ingest.extraction import RuleSettings
from loom_core.knowledge.ingest.loaders import LoadLimits
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.ingest.workers.preparation import NO_MEMORY, prepare
from loom_core.knowledge.ingest.workers.wire import decode_item, encode_prepared, read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.knowledge.ingest.chunking.registry import ChunkerName
    from loom_core.knowledge.store.prepared_documents import JobItem

__all__ = ["WorkerSettings", "main"]

_ALLOCATIONS = 50_000  # between two garbage collections; a prepared document has no reference cycles
_SPARE_SECONDS = 5.0  # the parent kills an overdue child; the child's alarm is for a parent that is gone


class WorkerSettings(TypedDict):
    """Settings that a child receives first.

    Keys:
        id: id of the pipeline.
        chunker: name of the chunker.
        options: its settings.
        rules: the fields of `RuleSettings`, or None.
        limits: limits of a file.
        memory: bytes of address space the child may take, where the system can limit it; or None.
        deadline: time limit of a document in seconds.
    """

    id: str
    chunker: ChunkerName
    options: dict[str, int]
    rules: dict[str, Any] | None
    limits: Mapping[str, int]
    memory: int | None
    deadline: float


def main() -> None:
    """Prepare the items from stdin until it ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a parser must not get into the replies
    requests = sys.stdin.buffer
    lower_priority()
    # Set before numpy is loaded: the tagger's products are small, and threads would only wait for each other.
    os.environ.update(OPENBLAS_NUM_THREADS="1")
    settings: WorkerSettings = json.loads(read_frame(requests))
    limit_memory(settings["memory"])
    items: queue.SimpleQueue[JobItem] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests, items), daemon=True).start()
    pipeline, limits = _pipeline(settings), LoadLimits(**settings["limits"])
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)
    while True:
        item = items.get()
        _set_alarm(settings["deadline"] + _SPARE_SECONDS)
        result = prepare(item, pipeline=pipeline, limits=limits)
        try:
            reply = encode_prepared(result)
        except MemoryError:
            result, reply = NO_MEMORY, encode_prepared(NO_MEMORY)
        _set_alarm(0)
        write_frame(replies, reply)
        if result == NO_MEMORY:
            os._exit(0)  # a new child begins with clean memory


def _receive(requests: BinaryIO, items: queue.SimpleQueue[JobItem]) -> None:
    """Read items, so that the parent never waits to hand them over."""
    try:
        while True:
            items.put(decode_item(read_frame(requests), read_frame(requests)))
    except EOFError:
        os._exit(0)  # the parent has closed the pipe or is gone: no one waits for the current item


def _pipeline(settings: WorkerSettings) -> Pipeline:
    told = settings["rules"]
    rules: RuleSettings | None = None
    if told is not None:
        types, predicates = tuple(told["entity_types"]), tuple(told["relation_types"])
        rules = RuleSettings(
            types, predicates, told["max_entities_per_chunk"], told["max_relations_per_chunk"]
        )
    return Pipeline.of(PipelineSpec(settings["chunker"], settings["options"], rules), id_=settings["id"])


def _set_alarm(seconds: float) -> None:
    """Kill the process after some seconds; 0 cancels that."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
