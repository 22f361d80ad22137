"""Conversion of tool results to `ToolOutput`: text, images and files, of bounded length."""

from __future__ import annotations

import base64
import json
from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

from loom_core.llm.messages import ImagePart
from loom_core.mcp_client.connections.sanitization import plain_line
from loom_core.tokens import estimate_tokens
from loom_core.tools.builtin.text_file import MAX_IMAGE_BYTES, image_type
from loom_core.tools.interface import JsonValue, OutputFile, ToolOutput

if TYPE_CHECKING:
    import mcp_types

__all__ = ["TOKEN_CAP", "OutputParts", "call_output", "resource_file"]

TOKEN_CAP = 20_000
"""Estimated tokens at which a tool's text is truncated; hosts refuse more than about 25,000."""

_SEEN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # what models take
_MAX_IMAGES = 20
_MAX_FILES = 20
_MAX_TOTAL_BYTES = 20_000_000  # of all images of one answer


class OutputParts:
    """Builder of an output from the parts of one answer, in their order.

    A part that models do not accept, or that is too large, is mentioned in the text: nothing is omitted
    silently.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._images: list[ImagePart] = []
        self._files: list[OutputFile] = []
        self._image_bytes = 0

    def block(self, block: mcp_types.ContentBlock) -> None:
        """Add a part of an answer or of a prompt."""
        match block.type:
            case "text":
                self.text(block.text)
            case "image":
                self._image(block.data, block.mime_type, "image")
            case "audio":
                self._note("audio", block.mime_type, len(block.data) * 3 // 4)
            case "resource":
                self.resource(block.resource)
            case "resource_link":
                facts = [block.mime_type or "", f"{block.size:,} bytes" if block.size is not None else ""]
                inside = ", ".join(plain_line(fact) for fact in facts if fact)
                about = f": {plain_line(block.description, most=500)}" if block.description else ""
                title = plain_line(block.title or block.name)
                self.text(
                    f"[resource {plain_line(block.uri, most=2000)} ({title}{inside and ', '}{inside}){about}]"
                )

    def resource(self, content: mcp_types.TextResourceContents | mcp_types.BlobResourceContents) -> None:
        """Add the content of a resource."""
        uri = plain_line(content.uri, most=2000)
        blob: str | None = getattr(content, "blob", None)
        if blob is None:
            self.text(f"[resource {uri}]\n{getattr(content, 'text', '')}")
        elif content.mime_type in _SEEN:
            self.text(f"[resource {uri}: the image that follows]")
            self._image(blob, content.mime_type, f"resource {uri}")
        else:
            self._file(blob, content.mime_type or "", uri)

    def text(self, text: str) -> None:
        """Add a text."""
        self._texts.append(_encodable(text))

    def output(
        self,
        *,
        structured: JsonValue = None,
        is_error: bool = False,
        **metadata: object,
    ) -> ToolOutput:
        """Build the output; a text that is too long is truncated, with a last line that says so."""
        text = "\n\n".join(filter(None, self._texts))
        if not text and structured is not None:
            text = _encodable(json.dumps(structured, ensure_ascii=False))
        shown = _within_cap(text)
        if shown < len(text):
            metadata["characters"] = len(text)
            text = (
                f"{text[:shown]} …\n\n[truncated: {shown:,} of {len(text):,} characters shown; "
                "ask for less, or for a part]"
            )
        images, files = tuple(self._images), tuple(self._files)
        return ToolOutput(text, structured, is_error, images, metadata, files=files)

    def _image(self, data: str, media_type: str, what: str) -> None:
        size = len(data) * 3 // 4
        fits = size <= MAX_IMAGE_BYTES and self._image_bytes + size <= _MAX_TOTAL_BYTES
        if media_type not in _SEEN or not fits or len(self._images) >= _MAX_IMAGES:
            self._note(what, media_type, size)
            return
        content = self._decode(data, what)
        if content is None:
            return
        self._image_bytes += len(content)
        # Vendors refuse a request if the declared type of an image is wrong, and servers get it wrong.
        self._images.append(ImagePart(content, image_type(content) or media_type))

    def _file(self, data: str, media_type: str, uri: str) -> None:
        what = f"resource {uri}"
        if len(self._files) >= _MAX_FILES:
            self._note(what, media_type, len(data) * 3 // 4)
        elif (content := self._decode(data, what)) is not None:
            self.text(f"[{what}: {_facts(media_type, len(content))}]")
            self._files.append(OutputFile(content, uri, plain_line(media_type)))

    def _decode(self, data: str, what: str) -> bytes | None:
        """Return data in Base64 as bytes; None, with a note, if it is broken."""
        try:
            return _from_base64(data)
        except ValueError:
            self.text(f"[{what}: its data cannot be read]")
            return None

    def _note(self, what: str, media_type: str, size: int) -> None:
        self.text(f"[{what} not shown: {_facts(media_type, size)}]")


def call_output(result: mcp_types.CallToolResult, **metadata: object) -> ToolOutput:
    """Convert a call's result to an output with metadata about the call."""
    parts = OutputParts()
    _add(parts, result.content)
    return parts.output(structured=result.structured_content, is_error=result.is_error, **metadata)


def resource_file(content: mcp_types.TextResourceContents | mcp_types.BlobResourceContents) -> OutputFile:
    """Convert the content of a resource to a file; a text is in UTF-8.

    Raises:
        ValueError: its data are not in Base64.
    """
    blob: str | None = getattr(content, "blob", None)
    data = _encodable(getattr(content, "text", "")).encode() if blob is None else _from_base64(blob)
    return OutputFile(data, plain_line(content.uri, most=2000), plain_line(content.mime_type or ""))


def _from_base64(data: str) -> bytes:
    return base64.b64decode(data, validate=True)


def _facts(media_type: str, size: int) -> str:
    return f"{plain_line(media_type)}, {size:,} bytes" if media_type else f"{size:,} bytes"


def _add(parts: OutputParts, blocks: Iterable[mcp_types.ContentBlock]) -> None:
    for block in blocks:
        parts.block(block)


def _encodable(text: str) -> str:
    """Replace lone surrogates in a text, as they cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _within_cap(text: str) -> int:
    """Return how many characters of a text may be shown."""
    longest = min(len(text), 4 * TOKEN_CAP)  # no character is less than a quarter of a token
    if estimate_tokens(text[:longest]) <= TOKEN_CAP:
        return longest
    return bisect_right(range(1, longest), TOKEN_CAP, key=lambda end: estimate_tokens(text[:end]))
