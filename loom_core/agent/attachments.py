"""Attachments: files, web addresses and bytes that the model reads with the goal of a run.

Files in the outputs of tools are read in the same way.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from http import HTTPStatus
from mimetypes import guess_type
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import unquote

from anyio import to_thread

from loom_core.errors import ConfigError, DocumentError, InvalidInputError, LoomError, NetError
from loom_core.installation import how_to_install
from loom_core.llm.messages import ImagePart, TextPart
from loom_core.llm.text import as_data
from loom_core.net import GuardedClient, NetPolicy, redact_url
from loom_core.runs.run import Attachment
from loom_core.tokens import estimate_tokens
from loom_core.tools.builtin.text_file import MAX_IMAGE_BYTES, TextFile, image_type
from loom_core.tools.plain_text import strip_control

if TYPE_CHECKING:
    from loom_core.llm.messages import UserPart
    from loom_core.tools.interface import ToolOutput

__all__ = [
    "MAX_FILE_BYTES",
    "AttachmentSource",
    "attachment_parts",
    "check_sources",
    "fetch_attachment",
    "is_data_url",
    "is_loaded",
    "is_web_url",
    "load_attachments",
    "read_files",
]

AttachmentSource: TypeAlias = str | Path | Attachment
"""An attachment as a program gives it: a path; an http(s) or `data:` URL; or bytes."""

MAX_FILE_BYTES = 32 << 20
_MAX_TOTAL_BYTES = 20 << 20  # with the overhead of base64, within the vendors' limits of a request
_MAX_TEXT_TOKENS = 100_000
_MAX_OUTPUT_CHARACTERS = 200_000  # of the files of one output; how much of it a model sees, its run decides
_MAX_COUNT = 20
_MAX_PAGES = 1000
_TEXT = "text/plain"
_WEB_PAGES = frozenset({"text/html", "application/xhtml+xml"})
_ACCEPT = "image/*, application/pdf, text/*;q=0.9, */*;q=0.5"


async def load_attachments(given: Iterable[AttachmentSource]) -> tuple[Attachment, ...]:
    """Load attachments: images stay as they are, all other files become their text.

    Args:
        given: paths, URLs of the open internet, and bytes.

    Returns:
        What a request takes as `attachments`; each is an image, or a text in UTF-8.

    Raises:
        InvalidInputError: one of them is no image and no text, there are too many, or they are too large.
        DocumentError: a file is missing, unreadable, of an unsupported type, or has no text.
        NetError: a URL is not allowed, or cannot be fetched.
        ConfigError: the packages that read documents are not installed.
    """
    loaded = [await to_thread.run_sync(_convert, await _read(each)) for each in check_sources(given)]
    await to_thread.run_sync(_check_total, loaded)
    return tuple(loaded)


async def fetch_attachment(url: str, *, policy: NetPolicy | None = None) -> Attachment:
    """Fetch an attachment, for `load_attachments`.

    Args:
        url: its http(s) URL.
        policy: the hosts that may be asked; by default the open internet.

    Raises:
        NetError: the URL is not allowed, or cannot be fetched.
    """
    policy = policy or NetPolicy(setting="the `policy` of `fetch_attachment`, in a program")
    client = GuardedClient(
        replace(policy, max_bytes=MAX_FILE_BYTES, smaller="Attach a part of it as a file.")
    )
    response = await client.request("GET", url, headers={"accept": _ACCEPT})
    if response.status != HTTPStatus.OK:
        raise NetError(
            f"{redact_url(url)} cannot be attached: the answer has the status {response.status}.",
            advice="Open the address in a browser, and give the one of the file itself.",
            failure="unusable",
        )
    name = redact_url(url).removesuffix("?…")
    return Attachment(response.body, name, response.headers.get("content-type", ""))


def is_web_url(text: str) -> bool:
    """Whether a text is the URL of a file on the web."""
    return text[:8].lower().startswith(("https://", "http://"))


def is_data_url(text: str) -> bool:
    """Whether a text is a `data:` URL, which has the bytes of a file."""
    return text[:5].lower() == "data:"


def is_loaded(attachment: object) -> bool:
    """Whether something is an attachment in the form for requests: see `load_attachments`."""
    return isinstance(attachment, Attachment) and (attachment.is_image or attachment.media_type == _TEXT)


def check_sources(given: object) -> list[AttachmentSource]:
    """Return sources as a list, before any of them is read.

    Raises:
        InvalidInputError: it is no list of sources, or there are too many.
    """
    if isinstance(given, str | bytes | Path | Attachment) or not isinstance(given, Iterable):
        raise InvalidInputError("`attachments` is not a list.", advice="Give a list, also of one file.")
    sources = list(cast("Iterable[object]", given))
    for each in sources:
        if not isinstance(each, str | Path | Attachment):
            raise InvalidInputError(
                f"An attachment cannot be of the type {type(each).__name__}.",
                advice="Give a path, a URL, or `Attachment(data, name=…)` for bytes.",
            )
    if len(sources) > _MAX_COUNT:
        raise InvalidInputError(
            f"There are {len(sources)} attachments; the limit is {_MAX_COUNT}.", advice="Attach fewer files."
        )
    return cast("list[AttachmentSource]", sources)


def attachment_parts(attachments: Sequence[Attachment]) -> tuple[UserPart, ...]:
    """Return the parts of the user's message with loaded attachments, each between tags with its name."""
    parts: list[UserPart] = []
    for each in attachments:
        begin = f'<attachment name="{escape(strip_control(each.name))}">'
        if each.is_image:
            image = ImagePart(each.data, each.media_type)
            parts += [TextPart(f"{begin}\n"), image, TextPart("\n</attachment>\n\n")]
        else:
            text = as_data("attachment", each.data.decode()).replace("<attachment>", begin, 1)
            parts.append(TextPart(f"{text}\n\n"))
    return tuple(parts)


async def read_files(output: ToolOutput) -> ToolOutput:
    """Read the files of a tool's output as attachments are read.

    Args:
        output: the output.

    Returns:
        It without the files: their texts are after its text, each with the name of the file, and images are
        among its parts. Of a file that cannot be read, the text says why; texts that are very long together
        are truncated.
    """
    texts, images, left = [output.text], list(output.parts), _MAX_OUTPUT_CHARACTERS
    for file in output.files:
        name = " ".join(strip_control(file.name).split()) or "file"
        raw = Attachment(file.data, name, file.media_type)
        try:
            read = await to_thread.run_sync(_convert, raw, abandon_on_cancel=True)
        except LoomError as error:
            reason = error if isinstance(error, ConfigError) else error.message  # not advice to its author
            texts.append(f"[{name} is not shown: {reason}]")
            continue
        if read.is_image:
            texts.append(f"[{name}: the image that follows]")
            images.append(ImagePart(read.data, read.media_type))
        else:
            text = read.data.decode()
            shown = text[:left]
            left -= len(shown)
            note = f" …\n\n[{len(shown):,} of {len(text):,} characters shown]" if shown != text else ""
            texts.append(f"[text of {name}]\n{shown}{note}")
    return replace(output, text="\n\n".join(filter(None, texts)), parts=tuple(images), files=())


async def _read(source: AttachmentSource) -> Attachment:
    """Return a source with its bytes, not converted yet."""
    if isinstance(source, Attachment):
        return source
    if isinstance(source, str) and is_web_url(source):
        return await fetch_attachment(source)
    if isinstance(source, str) and is_data_url(source):
        return _read_data_url(source)
    return await to_thread.run_sync(_read_file, Path(source))


def _read_data_url(url: str) -> Attachment:
    """Read a `data:` URL in Base64; its parameter `name`, if it has one, is the file name."""
    head, _, body = url[len("data:") :].partition(",")
    media_type, *parameters = head.split(";")
    name = next((unquote(each[5:]) for each in parameters if each.startswith("name=")), "")
    try:
        if "base64" not in parameters:
            raise ValueError("it is not in Base64")
        return Attachment(b64decode(body, validate=True), name, media_type)
    except ValueError as error:
        raise InvalidInputError(
            f"The attachment {url[:60]!r}… cannot be read: {error}.",
            advice="Write `data:image/png;base64,…`, with the bytes of the file in Base64.",
        ) from None


def _read_file(path: Path) -> Attachment:
    from loom_core.knowledge.ingest.loaders import LoadLimits, read_file

    data = read_file(path.expanduser(), limits=LoadLimits(max_bytes=MAX_FILE_BYTES))
    return Attachment(data, path.name)


def _convert(raw: Attachment) -> Attachment:
    """Return an attachment as the model reads it: an image, or a text. Blocks."""
    name, size = raw.name or "attachment", len(raw.data)
    if not size:
        raise InvalidInputError(f"{name} is empty.", advice="Leave it out.")
    if size > MAX_FILE_BYTES:
        raise _too_large(name, size, MAX_FILE_BYTES, advice="Attach a part of it.")
    if kind := image_type(raw.data):
        if size > MAX_IMAGE_BYTES:
            raise _too_large(name, size, MAX_IMAGE_BYTES, advice="Attach a smaller version of the image.")
        return Attachment(raw.data, name, kind)
    return Attachment(strip_control(_text_of(raw, name)).encode(), name, _TEXT)


def _check_total(loaded: Sequence[Attachment]) -> None:
    """Check the size of all attachments together. Blocks, as counting the tokens of long texts takes time.

    Raises:
        InvalidInputError: they are too large.
    """
    total = sum(len(each.data) for each in loaded)
    if total > _MAX_TOTAL_BYTES:
        raise InvalidInputError(
            f"The attachments have {total:,} bytes together; the limit is {_MAX_TOTAL_BYTES:,}.",
            advice="Attach fewer files, or smaller versions of the images.",
        )
    texts = [(estimate_tokens(each.data.decode()), each.name) for each in loaded if not each.is_image]
    if (tokens := sum(size for size, _ in texts)) > _MAX_TEXT_TOKENS:
        most, longest = max(texts)
        raise InvalidInputError(
            f"The texts of the attachments have about {tokens:,} tokens, of which {longest} has {most:,}; "
            f"the limit is {_MAX_TEXT_TOKENS:,}.",
            advice="Attach the part that matters, or add the documents to a knowledge base.",
        )


def _text_of(raw: Attachment, name: str) -> str:
    """Return the text of a file: a text as it is, decoded; a web page or a document by its loader."""
    from loom_core.knowledge.ingest.loaders import LoadLimits, is_private_key, load_bytes

    if is_private_key(raw.data):
        raise InvalidInputError(f"{name} is a private key, which is never read.", advice="Leave it out.")
    mime, _, parameters = raw.media_type.partition(";")
    mime, charset = mime.strip().lower(), parameters.partition("charset=")[2].strip('"; ')
    if mime not in _WEB_PAGES and (file := TextFile.of(raw.data, hint=charset)) is not None:
        return file.text
    if (kind := mime or guess_type(name)[0] or "").startswith("image/"):
        raise InvalidInputError(
            f"{name} is an image that models do not read ({kind}).",
            advice="Save it as PNG, JPEG, GIF or WebP.",
        )
    if raw.data.startswith(b"%PDF-"):
        mime = "application/pdf"
    limits = LoadLimits(max_bytes=MAX_FILE_BYTES, max_pages=_MAX_PAGES, max_unpacked_bytes=4 * MAX_FILE_BYTES)
    try:
        return load_bytes(
            raw.data, uri="", name=PurePath(name).name, mime=mime, charset=charset, limits=limits
        ).text
    except DocumentError as error:
        if not isinstance(error.__cause__, ImportError):
            raise
        raise ConfigError(
            f"{name} cannot be read: the packages that read documents are not installed.",
            advice=how_to_install("loom-mcp-core[kb]"),
        ) from error


def _too_large(name: str, size: int, limit: int, *, advice: str) -> InvalidInputError:
    return InvalidInputError(f"{name} has {size:,} bytes; the limit is {limit:,}.", advice=advice)
