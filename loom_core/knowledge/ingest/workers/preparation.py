"""Preparation of one document: load its job item (a file, a text or a fetched page), chunk and extract.

Both parent and child processes use `prepare`, which returns errors of the document as outcomes.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import load_bytes, load_file
from loom_core.knowledge.ingest.loaders.gzipped import inner_path
from loom_core.knowledge.ingest.loaders.registry import extension_for, format_for
from loom_core.knowledge.ingest.loaders.signature import find_signature
from loom_core.knowledge.ingest.stored_documents import unpack_draft
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store.prepared_documents import ItemOutcome
from loom_core.knowledge.uris import path_of

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.loaders import LoadLimits
    from loom_core.knowledge.ingest.pipeline import Pipeline
    from loom_core.knowledge.store.prepared_documents import JobItem, Prepared

__all__ = [
    "NO_MEMORY",
    "FetchedPage",
    "draft_payload",
    "is_foreign",
    "load_item",
    "prepare",
]


def draft_payload(draft: DocumentDraft) -> bytes:
    """Return a draft as the payload of a job item, until the document is stored.

    Lone surrogates become question marks, and U+0000 is left out of the title as the loader leaves it out of
    the text; metadata values unknown to JSON become strings.
    """
    return json.dumps(
        {
            "text": draft.text,
            "title": draft.title.replace("\0", ""),
            "title_source": draft.title_source,
            "mime": draft.mime,
            "metadata": draft.metadata,
        },
        ensure_ascii=False,
        default=str,
    ).encode("utf-8", "replace")


def load_item(item: JobItem, *, limits: LoadLimits) -> DocumentDraft:
    """Load a document. Blocks.

    Raises:
        DocumentError: it cannot be read.
    """
    if item.payload is None:
        draft = load_file(path_of(item.uri), limits=limits, roots=item.roots)
    elif is_fetched_page(item.payload):
        draft = load_fetched_page(item.uri, item.payload, limits=limits)
    else:
        draft = _unpack_draft(item.uri, item.payload)
    if not item.metadata:
        return draft
    return replace(draft, metadata={**draft.metadata, **item.metadata})


def is_foreign(item: JobItem) -> bool:
    """Whether it may crash, hang or exhaust memory: third-party code parses it, or it unpacks to any size."""
    if item.payload is not None:
        return is_fetched_page(item.payload)
    path = path_of(item.uri)
    kind = format_for(path)
    # Without a known extension it may be anything.
    return kind is None or kind.is_foreign or inner_path(path) != path


def _unpack_draft(uri: str, payload: bytes) -> DocumentDraft:
    fields: dict[str, Any] = json.loads(payload)
    if "blocks" in fields:
        return unpack_draft({**fields, "uri": uri})
    text: str = fields["text"]
    draft = load_bytes(text.encode(), uri=uri, name="", mime=fields["mime"])
    title = fields["title"]
    return DocumentDraft(
        uri,
        draft.text,
        title or draft.title,
        fields["title_source"] if title else draft.title_source,
        draft.blocks,
        fields["mime"],
        {**draft.metadata, **fields["metadata"]},
    )


_VAGUE = frozenset({"", "text/plain", "application/octet-stream", "binary/octet-stream", "application/zip"})
"""Media types that servers also send if they do not know the type."""

_MARKUP = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,500}?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.I | re.S,
)
_PARTS = (
    (b"application/epub+zip", ".epub"),
    (b"opendocument.text", ".odt"),
    (b"opendocument.presentation", ".odp"),
    (b"opendocument.spreadsheet", ".ods"),
    (b"word/", ".docx"),
    (b"ppt/", ".pptx"),
    (b"xl/", ".xlsx"),
)
_SAMPLE = 4096
_MAX_STEM = 150


def web_name(url: str, *, mime: str, data: bytes) -> str:
    """Return a file name for a page, whose extension selects the loader.

    The server's media type has priority, unless it is vague (`text/plain` and the like); then the content's
    signature; then the extension in the address, which often names the program (`page.php`).

    Args:
        url: where the page is.
        mime: media type that the server named.
        data: the page.
    """
    path = PurePosixPath(unquote(urlsplit(url).path))
    stem = (
        re.sub(r"[\x00-\x1f\x7f/\\]", " ", path.stem).strip(". ")[:_MAX_STEM] or urlsplit(url).hostname or ""
    )
    stem = stem.replace(".", " ")  # a dot would make the rest of it an extension
    if mime not in _VAGUE:
        return stem + (extension_for(mime) or path.suffix)
    if found := _sniff_extension(data):
        return stem + found
    if mime == "text/plain" and not (path.suffix and format_for(path)):
        return f"{stem}.txt"
    return stem + path.suffix if path.suffix else f"{stem}.txt"


def _sniff_extension(data: bytes) -> str:
    """Return the extension by the first bytes of the content; empty for text of any kind."""
    kind = find_signature(data)
    if kind == "a PDF":
        return ".pdf"
    if "ZIP" in kind:
        return next((extension for part, extension in _PARTS if part in data), "")
    return ".html" if _MARKUP.match(data[:_SAMPLE]) else ""


_MARK = b"\0"  # marks a page: other payloads are JSON, which never begins like this


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """Result of fetching a page.

    Attributes:
        data: the body of the response, decompressed.
        mime: media type that the server named, or empty.
        charset: encoding that the server named, or empty.
        refusal: why there is no page, or empty.
    """

    data: bytes = b""
    mime: str = ""
    charset: str = ""
    refusal: str = ""

    def payload(self) -> bytes:
        """Return the page as the payload of an item."""
        return _MARK + json.dumps([self.mime, self.charset, self.refusal]).encode() + b"\n" + self.data


def is_fetched_page(payload: bytes) -> bool:
    """Whether a payload is a fetched page."""
    return payload.startswith(_MARK)


def load_fetched_page(uri: str, payload: bytes, *, limits: LoadLimits) -> DocumentDraft:
    """Load a page. Blocks.

    Raises:
        DocumentError: it was not fetched, or cannot be read.
    """
    head, _, data = payload[len(_MARK) :].partition(b"\n")
    mime, charset, refusal = json.loads(head)
    if refusal:
        raise DocumentError(refusal)
    return load_bytes(
        data, uri=uri, name=web_name(uri, mime=mime, data=data), mime=mime, charset=charset, limits=limits
    )


_log = logging.getLogger(__name__)


NO_MEMORY = ItemOutcome("failed", "preparing it takes more memory than allowed")
"""Outcome of a document that exceeds the memory limit; the process may still hold that memory."""


def prepare(item: JobItem, *, pipeline: Pipeline, limits: LoadLimits) -> Prepared:
    """Load, chunk and extract from a document. Blocks; an error of the document is a result."""
    try:
        draft = load_item(item, limits=limits)
        hash_ = pipeline.hash(draft)
        if hash_ == item.known:
            return ItemOutcome("unchanged", hash=hash_)
        document = pipeline.prepare_one(draft, hash_=hash_)
    except DocumentError as error:
        return ItemOutcome("failed", str(error), by_content=True)
    except MemoryError:
        return NO_MEMORY
    except Exception as error:  # noqa: BLE001 - any text may come, and parsers, chunkers and rules may raise anything
        _log.exception("preparing %s failed", item.uri)
        return ItemOutcome("failed", f"it could not be prepared: {type(error).__name__}: {error}")
    return ItemOutcome("failed", "there is no text in it", by_content=True) if document is None else document
