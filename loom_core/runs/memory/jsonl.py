"""JSON Lines files of conversations: one message per line, each with its session."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from anyio import to_thread

from loom_core.errors import InvalidInputError, StoreError
from loom_core.llm.message_json import message_from_json, message_to_json
from loom_core.runs.journal.rows.json_column import to_column
from loom_core.storage.private_file import replace_private_file

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.llm.messages import Message

__all__ = ["read_jsonl", "write_jsonl"]


async def write_jsonl(path: Path, conversations: Mapping[str, Sequence[Message]]) -> None:
    """Write conversations by session, atomically; no other user may read the file.

    Raises:
        StoreError: it cannot be written.
    """

    def write() -> None:
        lines = [
            to_column({"session": session_id, "message": message_to_json(message)})
            for session_id, messages in conversations.items()
            for message in messages
        ]
        try:
            replace_private_file(path, "".join(f"{line}\n" for line in lines).encode())
        except OSError as error:
            raise StoreError(
                f"{path} cannot be written: {error.strerror or error}.",
                advice="Choose another file, or free some space; the previous file is unchanged.",
            ) from error

    await to_thread.run_sync(write)


async def read_jsonl(path: Path) -> dict[str, list[Message]]:
    """Read the conversations of a file, by session, in the order of the file.

    Raises:
        InvalidInputError: a line is not in the format of `write_jsonl`.
        StoreError: it cannot be read.
    """

    def read() -> dict[str, list[Message]]:
        conversations: dict[str, list[Message]] = {}
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        session_id, message = _parse_line(line, f"{path}:{number}")
                        conversations.setdefault(session_id, []).append(message)
        except OSError as error:
            raise StoreError(
                f"{path} cannot be read: {error.strerror or error}.",
                advice="Give a file that a memory has saved.",
            ) from error
        return conversations

    return await to_thread.run_sync(read)


def _parse_line(line: bytes, place: str) -> tuple[str, Message]:
    try:
        entry: object = json.loads(line)
        if not isinstance(entry, dict):
            raise TypeError("the line is not an object")
        fields = cast("dict[str, Any]", entry)
        session_id: object = fields["session"]
        if not isinstance(session_id, str):
            raise TypeError("its session is not a string")
        return session_id, message_from_json(fields["message"])
    except KeyError as error:
        reason = f"{error} is missing"
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
    except InvalidInputError as error:
        reason = error.message.removesuffix(".")
    raise InvalidInputError(
        f"{place}: this is not a message of a memory: {reason}.", advice="Nothing was loaded from the file."
    )
