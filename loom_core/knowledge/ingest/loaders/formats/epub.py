"""EPUB books: the chapters in reading order."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from loom_core.knowledge.ingest.loaders.archive import open_archive, read_part
from loom_core.knowledge.ingest.loaders.cleaning import clean_line
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.formats.html import write_page
from loom_core.knowledge.ingest.loaders.titles import usable_title
from loom_core.knowledge.ingest.loaders.xml_tree import local_name, parse_xml

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_epub"]

_KIND = "an EPUB book"
_PAGES = frozenset({"application/xhtml+xml", "text/html", "text/x-oeb1-document"})
_FIELDS = {
    "title": "title",
    "creator": "author",
    "subject": "tags",
    "date": "date",
    "language": "lang",
    "description": "description",
}


def load_epub(source: Source) -> LoadedContent:
    """Read a book: what its package lists as its spine, page by page, without the table of contents.

    Raises:
        DocumentError: it is protected against copying, broken, or a part of it is too large.
    """
    with open_archive(source, _KIND) as archive:
        names = frozenset(archive.namelist())
        package = _package_path(source, archive)
        root = parse_xml(read_part(source, archive, package, _KIND))
        chapters = [name for name in _spine(root, posixpath.dirname(package)) if name in names]
        if not _find_encrypted(source, archive, names).isdisjoint(chapters):
            raise source.error(
                "is protected against copying (DRM): its chapters are encrypted.",
                advice="Loom reads books without such protection.",
            )
        writer = ContentWriter(source)
        for name in dict.fromkeys(chapters):
            write_page(source, writer, read_part(source, archive, name, _KIND))
    metadata = _metadata(root)
    title = usable_title(str(metadata.pop("title", "")))
    return writer.finish(title=title, title_source="metadata" if title else "none", metadata=metadata)


def _package_path(source: Source, archive: zipfile.ZipFile) -> str:
    container = parse_xml(read_part(source, archive, "META-INF/container.xml", _KIND))
    paths = (element.get("full-path") for element in container.iter() if local_name(element) == "rootfile")
    path = next(filter(None, paths), None)
    if path is None:
        raise source.damage_error(_KIND, "its container names no package")
    return path


def _spine(package: Element, folder: str) -> Iterator[str]:
    """Yield names of the pages in reading order."""
    items = {item.get("id"): item for item in package.iter() if local_name(item) == "item"}
    contents = {
        _resolve(reference.get("href", ""), folder)
        for reference in package.iter()
        if local_name(reference) == "reference" and reference.get("type") == "toc"
    }
    for reference in (element for element in package.iter() if local_name(element) == "itemref"):
        item = items.get(reference.get("idref"))
        if item is not None and item.get("media-type") in _PAGES and "nav" not in item.get("properties", ""):
            name = _resolve(item.get("href", ""), folder)
            if name not in contents:
                yield name


def _resolve(href: str, folder: str) -> str:
    """Resolve a reference from a folder of the archive to a name in it."""
    return posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))


def _find_encrypted(source: Source, archive: zipfile.ZipFile, names: frozenset[str]) -> frozenset[str]:
    """Return names of the parts that are encrypted; fonts often are, to obscure them."""
    name = "META-INF/encryption.xml"
    if name not in names:
        return frozenset()
    root = parse_xml(read_part(source, archive, name, _KIND))
    references = (element for element in root.iter() if local_name(element) == "CipherReference")
    return frozenset(_resolve(reference.get("URI", ""), "") for reference in references)


def _metadata(package: Element) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    for element in package.iter():
        name = _FIELDS.get(local_name(element))
        if name and (text := clean_line(element.text or "")):
            found.setdefault(name, []).append(text)
    fields: dict[str, Any] = {name: values[0] for name, values in found.items()}
    if "author" in found:
        fields["author"] = ", ".join(found["author"])
    if "tags" in found:
        fields["tags"] = found["tags"]
    if "date" in found:
        fields["date"] = found["date"][0][:10]
    return fields
