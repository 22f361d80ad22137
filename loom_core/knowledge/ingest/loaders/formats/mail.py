"""E-mail messages (RFC 5322, MIME) and mailboxes of them (mbox, RFC 4155)."""

from __future__ import annotations

import binascii
import codecs
import email
import re
from email.utils import getaddresses, parsedate_to_datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.cleaning import clean_line
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.formats.html import write_page
from loom_core.knowledge.ingest.loaders.formats.plain import read_plain
from loom_core.knowledge.ingest.loaders.titles import usable_title

if TYPE_CHECKING:
    from datetime import datetime
    from email.message import Message

    from loom_core.errors import DocumentError
    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_mail", "load_mailbox"]

_MAX_MESSAGES = 20_000
_MAX_DEPTH = 50
_MAX_FIELD = 300
_MAX_HEADER = 20_000
_FIELDS = ("From", "To", "Cc", "Date")
_FIELD = re.compile(rb"(?:From [^\n]*\n)?[!-9;-~]{1,100}[ \t]*:")
_ENVELOPE = re.compile(
    rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\n]{0,300}:\d\d[^\n]{0,100}\n(?=[!-9;-~]{1,100}:)"
)
"""The line before each message: `From ada@example.com Mon Nov 23 10:00:00 2026`, and a header after it."""

_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
_ENCODED_WORD = re.compile(r"=\?([^?\s]{1,60})\?([BbQq])\?([^?]*)\?=")
_BETWEEN_WORDS = re.compile(r"(?<=\?=)\s+(?==\?)")
_PARAMETER = re.compile(r";\s*(charset|format|delsp)\s*=\s*\"?([^\s\";]+)")
_MAX_PARAMETERS = 1_000
_TEXTS = frozenset({"text/plain", "text/html", "text/markdown", "text/x-patch", "text/x-diff"})
_SIGNATURES = frozenset(
    {"application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"}
)
_SEVEN_BIT = re.compile("hz|utf-7|iso2022_.*")
"""Codecs whose text is of ASCII bytes, and therefore looks like UTF-8."""


def load_mail(source: Source) -> LoadedContent:
    """Read a message: subject, sender, recipients, date, text, and names of the attachments.

    The plain text is read, or else the HTML; a message within it is a section.

    Raises:
        DocumentError: it has no header.
    """
    data = source.data.removeprefix(codecs.BOM_UTF8).lstrip()
    if not _FIELD.match(data):
        raise source.damage_error("an e-mail message", "it does not begin with a header")
    reader = _Reader(source)
    message = _parse(source, data)
    reader.write_message(message)
    title = usable_title(_subject(message))
    return reader.writer.finish(
        title=title, title_source="metadata" if title else "none", metadata=_metadata(message)
    )


def load_mailbox(source: Source) -> LoadedContent:
    """Read the messages of a mailbox in their order, each a section.

    Raises:
        DocumentError: it has no message, or too many.
    """
    data = source.data.lstrip()
    starts = [match.start() for match in _ENVELOPE.finditer(data)]
    if not starts or starts[0] > 0:
        raise source.damage_error("a mailbox", "it does not begin with a message")
    if len(starts) > _MAX_MESSAGES:
        raise source.error(
            f"has {len(starts):,} messages, more than are read ({_MAX_MESSAGES:,}).",
            advice="Split it into smaller mailboxes.",
        )
    reader = _Reader(source)
    title = ""
    for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
        message = _parse(source, _QUOTED_FROM.sub(rb"\1", data[start:end]))
        title = title or usable_title(_subject(message))
        reader.write_message(message)
    return reader.writer.finish(title=title, title_source="metadata" if title else "none")


def _parse(source: Source, data: bytes) -> Message:
    try:
        return email.message_from_bytes(data)
    except RecursionError as error:
        raise _depth_error(source) from error


def _depth_error(source: Source) -> DocumentError:
    return source.damage_error("an e-mail message", "it is nested too deep")


class _Reader:
    """Writes messages part by part."""

    def __init__(self, source: Source) -> None:
        self.writer = ContentWriter(source)
        self._source = source
        self._attachments: list[str] = []

    def write_message(self, message: Message, *, depth: int = 0) -> None:
        """Write a message as a section; one within another is a section of that."""
        if depth > _MAX_DEPTH:
            raise _depth_error(self._source)
        above, self._attachments = self._attachments, []
        level = self.writer.depth
        self.writer.leave(level=level + 1)
        self.writer.heading(_subject(message), level=1)
        self.writer.depth += 1
        fields = [f"{name}: {text}" for name in _FIELDS if (text := _field(message, name))]
        self.writer.write("paragraph", "\n".join(fields))
        self._part(message, depth=depth)
        if self._attachments:
            self.writer.write("paragraph", f"Attachments: {', '.join(self._attachments)}")
        self._attachments, self.writer.depth = above, level

    def _part(self, part: Message, *, depth: int, shown: bool = True) -> None:
        """Write a part and those in it.

        Args:
            part: the part.
            depth: number of parts and messages around it.
            shown: whether its text is to be read; if not, only its attachments are named.
        """
        kind = part.get_content_type()
        parts = _parts(part)
        if depth > _MAX_DEPTH:
            raise _depth_error(self._source)
        if kind == "message/rfc822" and parts:
            for message in parts if shown else ():
                self.write_message(message, depth=depth + 1)
        elif part.is_multipart():
            chosen = _choose(parts) if kind == "multipart/alternative" else None
            for inner in parts if kind.startswith("multipart/") else ():
                self._part(inner, depth=depth + 1, shown=shown and chosen in {None, id(inner)})
        elif not _is_text(part):
            self._name(part)
        elif shown and kind == "text/html":
            self._page(part)
        elif shown:
            self._plain(_text(part))

    def _name(self, part: Message) -> None:
        kind = part.get_content_type()
        embedded = kind.startswith("image/") and part.get("Content-ID") is not None
        if not embedded and kind not in _SIGNATURES and (name := _filename(part)):
            self._attachments.append(name)

    def _page(self, part: Message) -> None:
        write_page(self._source, self.writer, _text(part).encode("utf-8", "replace"))

    def _plain(self, text: str) -> None:
        content = read_plain(text)
        for block in content.blocks:
            covered = content.text[block.start : block.end]
            if block.kind == "heading":
                self.writer.heading(covered, level=block.level)
            else:
                self.writer.write(block.kind, covered)


def _parts(part: Message) -> list[Message]:
    payload = part.get_payload()
    return cast("list[Message]", payload) if isinstance(payload, list) else []


def _choose(parts: list[Message]) -> int | None:
    """Return the id of the alternative to read: plain text that is not blank, else the last one with text."""
    readable = [part for part in parts if part.is_multipart() or (_is_text(part) and _text(part).strip())]
    plain = [part for part in readable if part.get_content_type() == "text/plain"]
    return id((plain[:1] or readable[-1:] or parts[:1])[0]) if parts else None


def _is_text(part: Message) -> bool:
    """Whether a part is text to be read with the message."""
    if part.get_content_maintype() != "text" or part.get_content_disposition() == "attachment":
        return False
    return part.get_content_type() in _TEXTS


def _filename(part: Message) -> str:
    try:
        name = part.get_filename() or ""
    except (TypeError, ValueError):  # malformed parameters
        return ""
    return clean_line(_decode_words(_decode_raw(name)))  # many programs encode it like a subject


def _text(part: Message) -> str:
    """Return the decoded text of a part; a charset that is unknown or wrong is detected."""
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    parameters = dict(_PARAMETER.findall(_header(part, "Content-Type").lower()[:_MAX_PARAMETERS]))
    text = _decode_bytes(data, parameters.get("charset", ""))
    if parameters.get("format") == "flowed":
        text = _unflow(text, joint="" if parameters.get("delsp") == "yes" else " ")
    return text


def _unflow(text: str, *, joint: str) -> str:
    """Join the lines of paragraphs that were broken for transport (RFC 3676); not those of quotes."""
    return re.sub(r"(?m)^(?!>)(?!-- $)(.*\S) \n(?!>)", rf"\1{joint}", text.replace("\r\n", "\n"))


def _decode_bytes(data: bytes, charset: str) -> str:
    if data.isascii() and charset:
        try:
            name = codecs.lookup(charset).name
            return data.decode(name if _SEVEN_BIT.fullmatch(name) else "ascii")
        except (LookupError, ValueError):
            pass
    return decode(data, hint=charset)[0]


def _field(message: Message, name: str) -> str:
    """Return a header's text; the usual notation of the date, cut where there are many recipients."""
    text = _header(message, name)
    if name == "Date" and (moment := _parse_date(text)):
        return moment.strftime("%Y-%m-%d %H:%M %z").strip()
    return (
        text if len(text) <= _MAX_FIELD else f"{text[:_MAX_FIELD].rpartition(',')[0] or text[:_MAX_FIELD]}, …"
    )


def _subject(message: Message) -> str:
    return _header(message, "Subject")[:_MAX_FIELD]


def _header(message: Message, name: str) -> str:
    """Return the decoded text of a header."""
    return clean_line(_decode_words(_raw(message, name)))


def _raw(message: Message, name: str) -> str:
    """Return a header with its encoded words.

    They are decoded here, as the library decodes each by itself and takes its charset literally; but mail
    programs split characters between two words, call GBK GB2312, and encode nothing at all.
    """
    value = next((value for key, value in message.raw_items() if key.lower() == name.lower()), "")
    return _decode_raw(str(value)[:_MAX_HEADER])


def _decode_raw(text: str) -> str:
    return decode(text.encode("utf-8", "surrogateescape"))[0]


def _decode_words(text: str) -> str:
    """Decode the encoded words in a text (RFC 2047)."""
    pieces: list[str] = []
    position = 0
    text = _BETWEEN_WORDS.sub("", text)
    matches = list(_ENCODED_WORD.finditer(text))
    starts = [match.start() for match in matches]
    ends = [0, *(match.end() for match in matches)]
    runs = [0]
    for index in range(1, len(matches)):
        same = matches[index][1].lower() == matches[index - 1][1].lower()
        runs.append(runs[-1] + (starts[index] != ends[index] or not same))
    for _, run in groupby(zip(runs, matches, strict=False), key=lambda pair: pair[0]):
        words = [match for _, match in run]
        pieces.append(text[position : words[0].start()])
        charset = words[0][1].partition("*")[0]  # RFC 2231 appends a language
        pieces.append(_decode_bytes(b"".join(map(_word_bytes, words)), charset))
        position = words[-1].end()
    return "".join([*pieces, text[position:]])


def _word_bytes(word: re.Match[str]) -> bytes:
    data = word[3].encode("utf-8", "replace")
    if word[2] in "Qq":
        return binascii.a2b_qp(data, header=True)
    try:
        return binascii.a2b_base64(data.rstrip(b"=") + b"==")
    except binascii.Error:
        return b""


def _parse_date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _metadata(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    addresses = getaddresses([_raw(message, "From")[:_MAX_FIELD]])  # comments nest
    names = [clean_line(_decode_words(name) or address) for name, address in addresses]
    if author := ", ".join(filter(None, names)):
        fields["author"] = author
    if date := _parse_date(_header(message, "Date")):
        fields["date"] = date.date().isoformat()
    return fields
