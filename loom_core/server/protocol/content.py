"""Content blocks of tools and prompts: text, images, audio, embedded resources, and resource links."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from mcp_types import AudioContent, ContentBlock, EmbeddedResource, ImageContent, TextContent

from loom_core.json_repair import well_formed
from loom_core.server.protocol.resources import ResourceContent, ResourceEntry

__all__ = ["Audio", "Content", "Embedded", "Image", "block"]


@dataclass(frozen=True, slots=True)
class Image:
    """An image, in a format that models accept: PNG, JPEG, GIF or WebP."""

    data: bytes = field(repr=False)
    mime_type: str = "image/png"


@dataclass(frozen=True, slots=True)
class Audio:
    """An audio clip."""

    data: bytes = field(repr=False)
    mime_type: str = "audio/wav"


@dataclass(frozen=True, slots=True)
class Embedded:
    """A resource with its content, so that the client need not request it.

    Attributes:
        uri: its URI; the client may show it, and read it again if this server serves it.
        content: its content.
    """

    uri: str
    content: ResourceContent


Content = str | Image | Audio | Embedded | ResourceEntry
"""One part of an answer or a message: a `str` is text, a `ResourceEntry` a link to a resource.

Large content should be a link.
"""


def block(content: Content) -> ContentBlock:
    """Convert a part to the protocol's form."""
    match content:
        case str():
            return TextContent(text=well_formed(content))
        case Image(data, mime_type):
            return ImageContent(data=base64.b64encode(data).decode(), mime_type=mime_type)
        case Audio(data, mime_type):
            return AudioContent(data=base64.b64encode(data).decode(), mime_type=mime_type)
        case Embedded(uri, held):
            return EmbeddedResource(resource=held.contents(uri))
        case ResourceEntry():
            return content.link()
