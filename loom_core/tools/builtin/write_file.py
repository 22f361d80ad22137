"""`write_file` and `edit_file`: write a file, and replace a text in one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_core.errors import InvalidInputError, LoomError
from loom_core.plugin_registry import register
from loom_core.redaction import SECRET
from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.builtin.text_file import TextFile
from loom_core.tools.function_tool import tool

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.tools.interface import Tool

__all__ = ["edit_file_tool", "write_file_tool"]

_MOST_BYTES = 8 << 20
_MOST_LINES = 2000  # lines that are searched for a suggestion
_LONGEST_LINE = 300
_MOST_PLACES = 10


@register("tool", "write_file")
def write_file_tool(root: FileRoot | Path) -> Tool:
    """Create the tool for the files of one folder."""
    root = FileRoot.of(root)

    def write_file(
        path: str,
        text: Annotated[str, Field(max_length=_MOST_BYTES)],
        overwrite: bool = False,
    ) -> str:
        """Write a whole text file, in UTF-8. Folders that are missing are made.

        Args:
            path: The file, such as `notes/today.md`.
            text: All that it is to hold.
            overwrite: Whether a file that is there already is replaced; without, that is refused.
        """
        data = text.encode()
        _check_size(path, len(data))
        if overwrite:
            _check_no_mark(root, path, text)
        if not overwrite and _holds(root, path, data):
            return f"{path} holds exactly this already."
        new = root.write(path, data, exclusive=not overwrite)
        return f"{'Created' if new else 'Replaced'} {path}: {len(data):,} bytes."

    return tool(write_file, idempotent=True, open_world=False)


@register("tool", "edit_file")
def edit_file_tool(root: FileRoot | Path) -> Tool:
    """Create the tool for the files of one folder."""
    root = FileRoot.of(root)

    def edit_file(
        path: str,
        old: Annotated[str, Field(min_length=1)],
        new: str,
        every: bool = False,
    ) -> str:
        """Replace a text in a file by another. Encoding, line ends and mode of the file stay.

        Args:
            path: The file.
            old: The text that stands there, exactly, with enough around it to be there only once.
            new: What is to stand there instead; empty to remove it.
            every: Replace it wherever it stands.
        """
        data, state = root.read(path, most=_MOST_BYTES)
        read = TextFile.of(data)
        if read is None or read.encode(read.text) != data:
            raise InvalidInputError(
                f"{path} is not text that could be written back unchanged.", advice="Change another file."
            )
        old, new = _with_line_ends(read.text, old, new)
        places = read.text.count(old)
        if places == 0:
            raise _not_there(path, read.text, old)
        if places > 1 and not every:
            raise InvalidInputError(
                f"The text occurs {places:,} times in {path}, on the lines {_places(read.text, old)}.",
                advice="Include more of the surrounding text, or set `every`.",
            )
        if old == new:
            raise InvalidInputError("The new text equals the old one.", advice="Give the replacement.")
        _check_size(path, len(data) + places * (len(new) - len(old)))  # before the text is built
        data = read.encode(read.text.replace(old, new))
        _check_size(path, len(data))
        root.write(path, data, replacing=state)
        return (
            f"Replaced {places} place{'s' if places > 1 else ''} in {path} (line {_places(read.text, old)})."
        )

    return tool(edit_file, open_world=False)


def _check_size(path: str, size: int) -> None:
    if size > _MOST_BYTES:
        raise InvalidInputError(
            f"{path} would have {size:,} bytes or more, of at most {_MOST_BYTES:,}.",
            advice="Write several smaller files.",
        )


def _check_no_mark(root: FileRoot, path: str, text: str) -> None:
    """Refuse to overwrite a secret in the file with `[secret]`, as the model has read it."""
    if SECRET not in text:
        return
    try:
        there = SECRET.encode() in root.read(path, most=_MOST_BYTES)[0]
    except LoomError:
        return  # nothing can be lost, or it is refused anyway
    if not there:
        raise InvalidInputError(
            f"{SECRET} stands for something in {path} that was not shown to you, and would be lost.",
            advice="Change the places you mean with edit_file, which leaves the others as they are.",
        )


def _holds(root: FileRoot, path: str, data: bytes) -> bool:
    """Return whether a file already has this content: this makes a repeated call idempotent."""
    try:
        return root.read(path, most=len(data))[0] == data
    except LoomError:
        return False


def _with_line_ends(text: str, old: str, new: str) -> tuple[str, str]:
    """Return the texts with the file's line ends: models see and write plain ones."""
    if (old in text and "\r\n" not in text) or "\r\n" in old:
        return old, new
    ended = old.replace("\n", "\r\n")
    if ended in text and "\r\n" in text:
        return ended, new.replace("\r\n", "\n").replace("\n", "\r\n")
    return old, new


def _places(text: str, part: str) -> str:
    """Return the numbers of the lines where a part begins."""
    numbers: list[str] = []
    at = text.find(part)
    while at >= 0 and len(numbers) < _MOST_PLACES:
        numbers.append(str(text.count("\n", 0, at) + 1))
        at = text.find(part, at + len(part))
    return ", ".join(numbers) + (", …" if at >= 0 else "")


def _not_there(path: str, text: str, old: str) -> InvalidInputError:
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = {
        line.strip(): number
        for number, line in enumerate(text.split("\n")[:_MOST_LINES], start=1)
        if len(line) <= _LONGEST_LINE
    }
    close = get_close_matches(wanted[:_LONGEST_LINE], list(lines), n=1, cutoff=0.6)
    near = f" Line {lines[close[0]]} is: {close[0][:200]}" if close else ""
    return InvalidInputError(
        f"The text does not occur in {path}.{near}",
        advice="Read the file, and give the text exactly as it is there, spaces and line breaks too.",
    )
