"""Requests to add or rebuild documents, and their JSON form in a job."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from loom_core.errors import InvalidInputError
from loom_core.knowledge.ingest.loaders import LoadLimits, scan
from loom_core.knowledge.ingest.page_fetcher import client_for
from loom_core.knowledge.ingest.stored_documents import iterate_drafts, pack_draft
from loom_core.knowledge.ingest.workers import draft_payload
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store.prepared_documents import JobItem
from loom_core.knowledge.text.control_characters import UNSTORABLE
from loom_core.knowledge.uris import display_uri, uri_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom_core.knowledge.store.jobs import JobKind
    from loom_core.storage.sql import SQLDatabase

__all__ = [
    "AddRequest",
    "DocumentsRequest",
    "FilesRequest",
    "PagesRequest",
    "SourcesRequest",
    "SyncRequest",
    "text_drafts",
]

_WEB = re.compile(r"https?://", re.IGNORECASE)
_SHOWN = 100  # characters of a source in an error


@dataclass(frozen=True, slots=True)
class AddRequest(ABC):
    """Documents to add to a knowledge base.

    Attributes:
        confirm: whether a large extraction by a language model is confirmed; else such a job fails.
    """

    kind: ClassVar[JobKind] = "add"
    is_listed: ClassVar[bool] = False
    """Whether the job stores its items at submission; else it lists them when it runs."""

    confirm: bool = field(default=False, kw_only=True)

    @abstractmethod
    def job(self) -> dict[str, Any]:
        """Return the request as JSON for its job. Blocks.

        Raises:
            InvalidInputError: the request is impossible.
        """

    @abstractmethod
    def items(self) -> Iterator[JobItem]:
        """Return its documents, as far as they are known beforehand. Blocks while it looks for them.

        Raises:
            InvalidInputError: a pattern is malformed.
        """


@dataclass(frozen=True, slots=True)
class DocumentsRequest(AddRequest):
    """Documents that are given with their texts."""

    is_listed: ClassVar[bool] = True

    documents: Sequence[DocumentDraft]

    def job(self) -> dict[str, Any]:
        """See `AddRequest.job`.

        Raises:
            InvalidInputError: one of them is longer than any document may be, or its address has U+0000 or a
                lone surrogate; none is added.
        """
        most = LoadLimits().max_text_chars
        for draft in self.documents:
            if UNSTORABLE.search(draft.uri):
                raise InvalidInputError(
                    f"{_excerpt(draft.uri)} cannot be the address of a document.",
                    advice="Leave out U+0000 and lone surrogates.",
                )
            if len(draft.text) > most:
                raise InvalidInputError(
                    f"{display_uri(draft.uri)} has {len(draft.text):,} characters; the limit is {most:,}.",
                    advice="Split it into several documents.",
                )
        return {"texts": len(self.documents)}

    def items(self) -> Iterator[JobItem]:
        """See `AddRequest.items`."""
        for draft in self.documents:
            payload = draft_payload(draft)
            yield JobItem(draft.uri, payload, size=len(payload))


@dataclass(frozen=True, slots=True)
class FilesRequest(AddRequest):
    """Files and folders; they are read only when the job runs.

    Attributes:
        paths: files and folders.
        include: patterns as in .gitignore; if given, only matching files are added.
        exclude: patterns of files to leave out.
        metadata: fields for all the documents.
        roots: if given, nothing outside these folders is read, wherever links lead.
    """

    paths: Sequence[Path]
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    metadata: dict[str, Any] | None = None
    roots: Sequence[Path] = field(default=(), kw_only=True)

    def job(self) -> dict[str, Any]:
        """See `AddRequest.job`."""
        return {**_listing(self), "roots": [str(root.resolve()) for root in self.roots]}

    def items(self) -> Iterator[JobItem]:
        """See `AddRequest.items`."""
        return _path_items(self.paths, include=self.include, exclude=self.exclude, metadata=self.metadata)


@dataclass(frozen=True, slots=True)
class SyncRequest(AddRequest):
    """Folders to sync a knowledge base with.

    New files are added, changed ones updated, and the documents below the folders whose files are gone or
    excluded now are removed; a file that moved between the folders keeps its document. A folder
    that is missing, or empty where there were many documents, is refused, as its drive may just not be
    connected; documents of unreadable files are kept, those of files that
    hold no document any more, such as empty ones, are removed.

    Attributes:
        paths: the folders.
        include: patterns as in .gitignore; if given, only matching files are added.
        exclude: patterns of files to leave out.
        metadata: fields for all the documents.
        allow_empty: whether a missing or empty folder means that its documents are removed.
        within: if given, only these paths below the folders' real paths are scanned.
    """

    kind: ClassVar[JobKind] = "sync"

    paths: Sequence[Path]
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    metadata: dict[str, Any] | None = None
    allow_empty: bool = field(default=False, kw_only=True)
    within: Sequence[Path] = field(default=(), kw_only=True)

    def job(self) -> dict[str, Any]:
        """See `AddRequest.job`.

        Raises:
            InvalidInputError: there is no folder, or one of them is a file.
        """
        if not self.paths:
            raise InvalidInputError("There is no folder to sync.", advice="Name at least one folder.")
        for folder in self.paths:
            if folder.is_file():
                raise InvalidInputError(f"{folder} is a file, not a folder.", advice="Files are added.")
        return {
            **_listing(self),
            "allow_empty": self.allow_empty,
            "within": [str(path) for path in self.within],
        }

    def items(self) -> Iterator[JobItem]:
        """See `AddRequest.items`."""
        return _path_items(
            self.paths,
            include=self.include,
            exclude=self.exclude,
            metadata=self.metadata,
            within=self.within,
        )


@dataclass(frozen=True, slots=True)
class PagesRequest(AddRequest):
    """Web pages, or documents on the web in any format that files can have.

    None of them is fetched before the job runs: an unconfirmed job fails if a language model would have to
    read too much. A page's document is stored under the canonical form of the given address, whatever that
    redirects to, so that the same address replaces it later. If a page cannot be fetched, the others are
    still added.

    Attributes:
        urls: http and https addresses.
        allow_net: private hosts and networks that may be requested besides the public internet
            (`wiki.example`, `10.1.0.0/16`). The job stores them.
        metadata: fields for all the documents.
    """

    urls: Sequence[str]
    allow_net: Sequence[str] = ()
    metadata: dict[str, Any] | None = None

    def job(self) -> dict[str, Any]:
        """See `AddRequest.job`.

        Raises:
            InvalidInputError: no address is given.
            NetError: one of them is not a web address, or the SSRF guard forbids it.
            ConfigError: a rule of `allow_net` is neither a host nor a network.
        """
        client = client_for(self.allow_net)
        addresses = list(dict.fromkeys(map(client.check, self.urls)))
        if not addresses:
            raise InvalidInputError("There is no address to add.", advice="Give at least one URL.")
        return {"urls": addresses, "allow_net": list(self.allow_net), "metadata": self.metadata or {}}

    def items(self) -> Iterator[JobItem]:
        """See `AddRequest.items`."""
        return iter(())


@dataclass(frozen=True, slots=True)
class SourcesRequest(AddRequest):
    """Files, folders and web pages, in one job.

    Attributes:
        files: the files and folders.
        pages: the web pages, if there are any.
    """

    files: FilesRequest
    pages: PagesRequest | None = None

    @classmethod
    def of(
        cls,
        sources: Sequence[str | Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        allow_net: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        confirm: bool = False,
    ) -> SourcesRequest:
        """Separate paths (`~` is the user's home) from http and https addresses. Blocks.

        Raises:
            InvalidInputError: there is no source, or nothing at a path.
        """
        if not sources:
            raise InvalidInputError("There is nothing to add.", advice="Give at least one path or address.")
        urls = [source for source in sources if isinstance(source, str) and _WEB.match(source)]
        paths = [Path(os.path.expanduser(source)) for source in sources if source not in urls]  # noqa: PTH111
        for path in paths:
            if not os.path.exists(path):  # noqa: PTH110 - a text given by mistake is not a valid path
                raise InvalidInputError(
                    f"There is no file or folder {_excerpt(str(path))}.",
                    advice="Check the path. A text is added with `add_texts`; "
                    "a web address begins with https://.",
                )
        files = FilesRequest(paths, include, exclude, metadata)
        return cls(files, PagesRequest(urls, allow_net, metadata) if urls else None, confirm=confirm)

    def job(self) -> dict[str, Any]:
        """See `AddRequest.job`; errors as for `PagesRequest`."""
        return self.files.job() | (self.pages.job() if self.pages is not None else {})

    def items(self) -> Iterator[JobItem]:
        """See `AddRequest.items`."""
        return self.files.items()


@dataclass(frozen=True, slots=True)
class RebuildRequest(AddRequest):
    """All documents of the store, to be chunked and extracted from again as far as the rules have changed.

    Documents made by the current rules are left as they are, and so are vectors of unchanged texts.

    Attributes:
        database: the store's database.
    """

    database: SQLDatabase

    def job(self) -> dict[str, Any]:
        """See `AddRequest.job`."""
        return {"stored": []}

    def items(self) -> Iterator[JobItem]:
        """See `AddRequest.items`."""
        for uri, draft in iterate_drafts(self.database):
            if isinstance(draft, DocumentDraft):
                payload = json.dumps(pack_draft(draft), ensure_ascii=False).encode("utf-8", "replace")
                yield JobItem(uri, payload, size=len(payload))


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _listing(request: FilesRequest | SyncRequest) -> dict[str, Any]:
    """Return the parameters by which a job lists files."""
    return {
        "paths": [str(path.absolute()) for path in request.paths],
        "include": list(request.include),
        "exclude": list(request.exclude),
        "metadata": request.metadata or {},
    }


def text_drafts(
    texts: Sequence[str],
    *,
    titles: Sequence[str] | None = None,
    metadatas: Sequence[dict[str, Any]] | None = None,
    uris: Sequence[str] | None = None,
    mime: str = "text/markdown",
) -> list[DocumentDraft]:
    """Make documents of texts; arguments as in `add_texts`.

    Raises:
        InvalidInputError: the numbers of texts, titles, URIs and so on differ.
    """
    for name, values in (("titles", titles), ("metadatas", metadatas), ("uris", uris)):
        if values is not None and len(values) != len(texts):
            raise InvalidInputError(
                f"{len(texts)} texts, but {len(values)} {name}.", advice="Give one for each."
            )
    return [
        DocumentDraft(
            # The same text twice is the same document.
            uri=uris[i] if uris else "text:" + _digest(f"{titles[i] if titles else ''}\0{text}"),
            text=text,
            title=titles[i] if titles else "",
            title_source="given" if titles and titles[i] else "none",
            mime=mime,
            metadata=dict(metadatas[i]) if metadatas else {},
        )
        for i, text in enumerate(texts)
    ]


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _path_items(
    paths: Sequence[Path],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    metadata: dict[str, Any] | None = None,
    within: Sequence[Path] = (),
) -> Iterator[JobItem]:
    """Yield the documents of files and folders. Blocks while it looks for them.

    Raises:
        InvalidInputError: a pattern is malformed.
    """
    for path in paths:
        found = scan(path, include=include, exclude=exclude, within=within) if path.exists() else ()
        for entry in found:
            if not entry.skipped:
                yield JobItem(uri_of(entry.path), None, metadata or {}, size=entry.size)
