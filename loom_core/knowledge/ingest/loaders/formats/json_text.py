"""JSON and JSON Lines as readable text: keys become headings, records become rows or titled texts."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.cleaning import clean_line
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.titles import usable_title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_json", "load_json_lines"]

_TITLE_KEYS = ("title", "name", "heading", "标题", "名称")
_TEXT_KEYS = ("text", "content", "body", "passage", "contents", "article", "正文", "内容")
_ID_KEYS = frozenset({"id", "_id", "uuid", "doc_id", "docid", "guid"})
_MAX_ROW = 4_000
_TOP = 2
"""Level of the outermost headings: a key or a record's title is not the document's."""

_DEEPEST_HEADING = 6
_STRING = r'("(?:\\.|[^"\\])*")'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(_STRING + r"|,(?=\s*[\]}])", re.DOTALL)


def load_json(source: Source) -> LoadedContent:
    """Read a JSON document; comments, trailing commas and JSON Lines are accepted, too.

    Members with a plain value become `key: value`; an object or list under a key is a section with the key as
    its heading; a list of objects is a row for each. Numbers stay as they are written.

    Raises:
        DocumentError: it is not JSON.
    """
    text = decode(source.data, hint=source.charset)[0].lstrip("\ufeff")
    try:
        value = _parse(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and len(_records(text)[0]) > 1:
            return load_json_lines(source)
        try:
            value = _parse(_without_comments(text))
        except json.JSONDecodeError:
            raise source.damage_error("JSON", str(error)) from error
    except RecursionError as error:
        raise source.damage_error("JSON", "it is nested too deep") from error
    writer = ContentWriter(source)
    _write(writer, value, level=_TOP)
    members = _object(value)
    title = usable_title(_scalar(members.get("title"))) if members else ""
    return writer.finish(title=title, title_source="metadata" if title else "none")


def load_json_lines(source: Source) -> LoadedContent:
    """Read JSON Lines: one record a line.

    A record with a text (`text`, `content`, `body`…) and a title becomes a heading and a paragraph; one with
    a text alone a paragraph; any other a row. Lines that are not JSON are counted in the metadata
    (`skipped_lines`).

    Raises:
        DocumentError: no line, or less than half of them, is JSON.
    """
    records, bad = _records(decode(source.data, hint=source.charset)[0].lstrip("\ufeff"))
    if bad > len(records):
        raise source.damage_error("JSON Lines", f"{bad} of {bad + len(records)} lines are not JSON")
    writer = ContentWriter(source)
    for record in records:
        _write_record(writer, record, level=_TOP)
    return writer.finish(metadata={"skipped_lines": bad} if bad else {})


def _parse(text: str) -> object:
    return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)


def _without_comments(text: str) -> str:
    """Make hand-written JSON strict: remove comments and trailing commas outside of strings."""
    for pattern in (_COMMENT, _TRAILING_COMMA):
        text = pattern.sub(lambda match: match[1] or "", text)
    return text


def _records(text: str) -> tuple[list[object], int]:
    """Return the values on the lines, and how many lines are not JSON."""
    records: list[object] = []
    bad = 0
    for line in text.split("\n"):
        if line.strip():
            try:
                records.append(_parse(line))
            except (json.JSONDecodeError, RecursionError):
                bad += 1
    return records, bad


def _object(value: object) -> dict[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _array(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def _scalar(value: object) -> str:
    """Return a plain value as text; empty for null and for containers."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else ""


def _write(writer: ContentWriter, value: object, *, level: int) -> None:
    if (members := _object(value)) is not None:
        _write_members(writer, members, level=level)
    elif (items := _array(value)) is not None:
        for item in items:
            if isinstance(item, dict | list):
                _write_record(writer, cast("object", item), level=level)
            else:
                writer.write("list", f"- {scalar}" if (scalar := clean_line(_scalar(item))) else "")
    else:
        writer.write("paragraph", _scalar(value))


def _write_members(writer: ContentWriter, members: dict[str, object], *, level: int) -> None:
    """Write plain members first, as they describe the object; then a section for each of the others."""
    plain = [f"{key}: {text}" for key, value in members.items() if (text := _scalar(value).strip())]
    writer.write("paragraph", "\n".join(plain))
    for key, value in members.items():
        if not isinstance(value, dict | list) or not value:
            continue
        inner = cast("object", value)
        if level > _DEEPEST_HEADING:
            writer.write("paragraph", _flat(inner, key))
            continue
        writer.heading(key, level=level)
        _write(writer, inner, level=level + 1)


def _write_record(writer: ContentWriter, value: object, *, level: int) -> None:
    """Write one of many similar values: a titled text, a row, or a section if it is large."""
    writer.leave(level=level)
    members = _object(value)
    if members is None:
        writer.write("row", _flat(value))
        return
    title_key = next((key for key in _TITLE_KEYS if _scalar(members.get(key)).strip()), "")
    text_key = next((key for key in _TEXT_KEYS if _scalar(members.get(key)).strip()), "")
    if text_key:
        if title_key:
            writer.heading(_scalar(members[title_key]), level=min(level, _DEEPEST_HEADING))
        writer.write("paragraph", _scalar(members[text_key]))
        taken = {title_key, text_key}
        rest: dict[str, object] = {
            key: item for key, item in members.items() if key not in taken and key.lower() not in _ID_KEYS
        }
        writer.write("row", _flat(rest))
        return
    row = _flat(members)
    if len(row) > _MAX_ROW and title_key and level < _DEEPEST_HEADING:
        writer.heading(_scalar(members[title_key]), level=level)
        _write_members(writer, members, level=level + 1)
    else:
        writer.write("row", row)


def _flat(value: object, prefix: str = "") -> str:
    """Return everything in a value on one line: `a: 1; b.c: 2; tags: x, y`."""
    return "; ".join(f"{name}: {text}" if name else text for name, text in _leaves(value, prefix))


def _leaves(value: object, name: str) -> Iterator[tuple[str, str]]:
    """Yield plain values with their dotted names; a list of plain values is one."""
    if (members := _object(value)) is not None:
        for key, inner in members.items():
            yield from _leaves(inner, f"{name}.{key}" if name else key)
    elif (items := _array(value)) is not None:
        if plain := ", ".join(text for item in items if (text := clean_line(_scalar(item)))):
            yield name, plain
        for item in items:
            if isinstance(item, dict | list):
                yield from _leaves(cast("object", item), name)
    elif text := clean_line(_scalar(value)):
        yield name, text
