"""Safe XML parsing: no document type, so no entities, neither expanding nor external."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn
from xml.etree.ElementTree import ParseError, TreeBuilder, XMLParser

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

__all__ = ["XmlError", "local_name", "parse_xml"]


class XmlError(ValueError):
    """A text is not well-formed XML, or has a document type."""


class _Builder(TreeBuilder):
    def doctype(self, name: str, pubid: str | None, system: str | None) -> NoReturn:
        # The parser calls this before it reads any declaration of an entity.
        raise XmlError("it holds a DOCTYPE, which could draw other files in, so it is not read")


def parse_xml(data: bytes) -> Element:
    """Parse a whole XML document to a tree.

    Raises:
        XmlError: it is not well-formed, in an unknown encoding, or declares a document type.
    """
    parser = XMLParser(target=_Builder())
    try:
        parser.feed(data)
        return parser.close()
    except (ParseError, LookupError, ValueError) as error:
        raise XmlError(str(error)) from error


def local_name(element: Element) -> str:
    """Return an element's name without its namespace."""
    return element.tag.rpartition("}")[2]
