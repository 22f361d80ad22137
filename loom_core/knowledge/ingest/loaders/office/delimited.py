"""CSV, TSV and similar formats: every record a row."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.cleaning import clean_text
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.tables import write_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_delimited"]

_DELIMITERS = ",\t;|"
_DECLARATION = re.compile(f"sep=([{_DELIMITERS}])[^\\S\n]*\n")
"""The line by which Excel is told the delimiter; it is no row."""

_PROBE_CHARS = 64 * 1024
_PROBE_ROWS = 50


def load_delimited(source: Source) -> LoadedContent:
    """Read a table from text: find its delimiter, recognise a header row, survive stray quotes."""
    text = clean_text(decode(source.data, hint=source.charset)[0])
    if declared := _DECLARATION.match(text):
        delimiter, text = declared[1], text[declared.end() :]
    else:
        delimiter = "\t" if source.extension in {".tsv", ".tab"} else _delimiter(text)
    writer = ContentWriter(source)
    write_table(writer, _records(text, delimiter))
    return writer.finish()


def _delimiter(text: str) -> str:
    """Return the candidate that splits the first lines into the most columns of the steadiest number."""
    probe = text[:_PROBE_CHARS]
    if len(text) > _PROBE_CHARS:
        probe = probe[: probe.rfind("\n") + 1] or probe
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        widths = [len(row) for row in _records(probe, delimiter) if row][:_PROBE_ROWS]
        usual = max(set(widths), key=lambda width: (widths.count(width), width), default=1)
        score = widths.count(usual) / len(widths) * (1 + usual / 1000) if usual > 1 else 0.0
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _records(text: str, delimiter: str) -> Iterator[list[str]]:
    """Parse the records; quotes are plain characters if they do not pair up."""
    # The module refuses fields over a limit that is one for the whole process; ours is on the text.
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    quoted = _quotes_pair_up(text, delimiter)
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    return csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, skipinitialspace=quoted
    )


def _quotes_pair_up(text: str, delimiter: str) -> bool:
    """Whether quotes pair up: an odd one swallows the rest of the text into one field."""
    if '"' not in text:
        return True
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    try:
        for _ in reader:
            pass
    except csv.Error as error:
        return "unexpected end" not in str(error)
    return True
