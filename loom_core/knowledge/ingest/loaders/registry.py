"""Registry of loaders: by extension, by name or content without one, by media type otherwise."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.formats.definitions import code_extensions
from loom_core.knowledge.ingest.loaders.formats.roff import is_roff
from loom_core.knowledge.ingest.loaders.generated import is_minified
from loom_core.knowledge.ingest.loaders.gzipped import inner_path
from loom_core.knowledge.ingest.loaders.signature import find_signature, looks_binary

if TYPE_CHECKING:
    from pathlib import PurePath

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = [
    "PROBE",
    "Format",
    "advise_on_format",
    "extension_for",
    "format_for",
    "format_of_content",
    "is_known_by_content",
    "list_extensions",
]

PROBE = 16 * 1024
"""Number of bytes of a file that are read to detect its format."""


class _Loader(Protocol):
    def __call__(self, source: Source) -> LoadedContent: ...


@dataclass(frozen=True, slots=True)
class Format:
    """A file format and its loader.

    Attributes:
        name: its name in messages, with its article.
        mime: its media type.
        loader: module in this package and function in it, imported at first use.
        is_text: whether its bytes are text, so that binary content under its name is a mistake.
        is_foreign: whether a library that is not Loom's parses it.
    """

    name: str
    mime: str
    loader: str
    is_text: bool = True
    is_foreign: bool = False

    def load(self, source: Source) -> LoadedContent:
        """Read a file of this kind.

        Raises:
            DocumentError: it cannot be read.
            Exception: whatever else its parser raises on a broken file.
        """
        return _loader(self.loader)(source)


@cache
def _loader(place: str) -> _Loader:
    module, _, function = place.partition(":")
    return cast("_Loader", getattr(import_module(f"{__package__}.{module}"), function))


_OOXML = "application/vnd.openxmlformats-officedocument"
_MARKDOWN = Format("Markdown", "text/markdown", "formats.markdown:load_markdown")
_PLAIN = Format("plain text", "text/plain", "formats.plain:load_plain")
_RST = Format("reStructuredText", "text/x-rst", "formats.restructured:load_restructured")
_TEX = Format("LaTeX", "application/x-tex", "formats.tex:load_tex")
_HTML = Format("HTML", "text/html", "formats.html:load_html", is_foreign=True)
_CODE = Format("source code", "text/x-source", "formats.code:load_code")
_CSV = Format("a CSV table", "text/csv", "office.delimited:load_delimited")
_JSON = Format("JSON", "application/json", "formats.json_text:load_json")
_JSON_LINES = Format("JSON Lines", "application/jsonl", "formats.json_text:load_json_lines")
_NOTEBOOK = Format("a Jupyter notebook", "application/x-ipynb+json", "formats.notebook:load_notebook")
_MAIL = Format("an e-mail message", "message/rfc822", "formats.mail:load_mail", is_foreign=True)
_MAILBOX = Format("a mailbox", "application/mbox", "formats.mail:load_mailbox", is_foreign=True)
_PDF = Format("a PDF", "application/pdf", "formats.pdf:load_pdf", is_text=False, is_foreign=True)
_WORD = Format(
    "a Word document",
    f"{_OOXML}.wordprocessingml.document",
    "office.word:load_word",
    is_text=False,
    is_foreign=True,
)
_SLIDES = Format(
    "a PowerPoint presentation",
    f"{_OOXML}.presentationml.presentation",
    "office.slides:load_slides",
    is_text=False,
    is_foreign=True,
)
_XLSX = Format(
    "a spreadsheet",
    f"{_OOXML}.spreadsheetml.sheet",
    "office.sheets:load_sheets",
    is_text=False,
    is_foreign=True,
)
_XLS = Format(
    "a spreadsheet", "application/vnd.ms-excel", "office.sheets:load_sheets", is_text=False, is_foreign=True
)
_ODS = Format(
    "a spreadsheet",
    "application/vnd.oasis.opendocument.spreadsheet",
    "office.sheets:load_sheets",
    is_text=False,
    is_foreign=True,
)
_MAN = Format("a man page", "text/troff", "formats.man:load_man", is_foreign=True)
_OPENDOCUMENT = "application/vnd.oasis.opendocument"
_ODT = Format(
    "an OpenDocument text",
    f"{_OPENDOCUMENT}.text",
    "office.opendocument:load_opendocument",
    is_text=False,
    is_foreign=True,
)
_ODP = Format(
    "an OpenDocument presentation",
    f"{_OPENDOCUMENT}.presentation",
    "office.opendocument:load_opendocument",
    is_text=False,
    is_foreign=True,
)
_EPUB = Format(
    "an EPUB book", "application/epub+zip", "formats.epub:load_epub", is_text=False, is_foreign=True
)

_FORMATS: dict[str, Format] = {
    **dict.fromkeys(sorted(code_extensions()), _CODE),
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".rmd"), _MARKDOWN),
    **dict.fromkeys((".txt", ".text", ".adoc", ".asciidoc", ".org", ".log"), _PLAIN),
    **dict.fromkeys((".rst", ".rest"), _RST),
    **dict.fromkeys((".tex", ".latex"), _TEX),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _HTML),
    **dict.fromkeys((".csv", ".tsv", ".tab"), _CSV),
    ".json": _JSON,
    **dict.fromkeys((".jsonl", ".ndjson"), _JSON_LINES),
    ".ipynb": _NOTEBOOK,
    ".eml": _MAIL,
    ".mbox": _MAILBOX,
    ".pdf": _PDF,
    ".docx": _WORD,
    ".pptx": _SLIDES,
    ".xlsx": _XLSX,
    ".xlsm": _XLSX,
    ".xls": _XLS,
    ".ods": _ODS,
    ".odt": _ODT,
    ".odp": _ODP,
    ".epub": _EPUB,
    **dict.fromkeys((".man", ".mdoc"), _MAN),
}
_NAMES: dict[str, Format] = {
    **dict.fromkeys(("readme", "license", "licence", "copying", "notice", "authors", "contributors"), _PLAIN),
    **dict.fromkeys(("changelog", "changes", "history", "news", "todo", "install", "contributing"), _PLAIN),
    **dict.fromkeys(("makefile", "dockerfile", "containerfile", "jenkinsfile", "gemfile", "rakefile"), _CODE),
}
_MIMES: dict[str, Format] = {
    **{kind.mime: kind for kind in (*_FORMATS.values(), _PLAIN)},
    "application/xhtml+xml": _HTML,
    "text/x-markdown": _MARKDOWN,
    "application/x-ndjson": _JSON_LINES,
    "text/tab-separated-values": _CSV,
}
_NUMBERED = re.compile(r"\.(?:\d+[a-z]{0,8}|n)")
"""Extensions that do not determine a format: sections of man pages (`.1`, `.3pm`), rotated logs, versions."""

_SHEBANG = re.compile(r"#![ \t]*/")
_MARKUP = re.compile(
    r"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html)\b", re.I | re.S
)
_UNPACK = "Unpack it and add its content."
_ADVICE = {
    **dict.fromkeys((".7z", ".bz2", ".gz", ".rar", ".tar", ".tgz", ".xz", ".zip", ".zst"), _UNPACK),
    ".doc": "Save it as .docx.",
    ".ppt": "Save it as .pptx.",
    ".xlsb": "Save it as .xlsx.",
    ".rtf": "Save it as .docx or .txt.",
    ".mobi": "Convert it to EPUB.",
    ".azw3": "Convert it to EPUB.",
}


def format_for(path: PurePath, *, mime: str = "") -> Format | None:
    """Return the format of a file, or None if there is no loader for it.

    Args:
        path: its name decides: the extension, or the whole name (`README`, `Dockerfile`).
        mime: media type named by a server; used if the name does not decide.
    """
    path = inner_path(path)
    extension = path.suffix.lower()
    by_name = _FORMATS.get(extension) if extension else _NAMES.get(path.name.lower())
    return by_name or _MIMES.get(mime.partition(";")[0].strip().lower())


def is_known_by_content(path: PurePath) -> bool:
    """Whether only content can tell the format: of `NOTES`, `ls.1`, `syslog.2`, `README.Debian`."""
    path = inner_path(path)
    if not path.name or format_for(path) is not None:
        return False
    extension = path.suffix.lower()
    return not extension or _NUMBERED.fullmatch(extension) is not None or path.stem.lower() in _NAMES


def format_of_content(head: bytes) -> Format | None:
    """Return the format of a file by its content alone; None if it is not text.

    Args:
        head: its first `PROBE` bytes, decompressed.
    """
    if len(head) >= PROBE:
        head = head[: head.rfind(b"\n") + 1] or head  # no character is cut in two
    if find_signature(head) or is_minified(head):
        return None
    text = decode(head)[0]
    if looks_binary(text):
        return None
    if is_roff(text):
        return _MAN
    if _SHEBANG.match(text):
        return _CODE
    return _HTML if _MARKUP.match(text) else _PLAIN


def extension_for(mime: str) -> str:
    """Return the usual extension of a media type with a loader; empty for any other."""
    kind = _MIMES.get(mime)
    return next((extension for extension, other in _FORMATS.items() if other is kind), "") if kind else ""


def list_extensions() -> frozenset[str]:
    """Return extensions that can be loaded, in lower case, with their dot."""
    return frozenset(_FORMATS)


def advise_on_format(extension: str) -> str:
    """Return the advice for a file without a loader."""
    return _ADVICE.get(extension.lower(), "Convert it to PDF, DOCX, HTML, Markdown or plain text.")
