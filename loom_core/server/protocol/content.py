"""Content of tools and prompts other than plain text: pictures, sounds, embedded resources, and links."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from mcp_types import AudioContent, ContentBlock, EmbeddedResource, ImageContent, TextContent

from loom_core.server.calls.wellformed import well_formed
from loom_core.server.protocol.resources import ResourceContent, ResourceEntry

__all__ = ["Audio", "Content", "Embedded", "Image", "block"]


@dataclass(frozen=True, slots=True)
class Image:
    """A picture, in a format that models take: PNG, JPEG, GIF or WebP."""

    data: bytes = field(repr=False)
    mime_type: str = "image/png"


@dataclass(frozen=True, slots=True)
class Audio:
    """A sound."""

    data: bytes = field(repr=False)
    mime_type: str = "audio/wav"


@dataclass(frozen=True, slots=True)
class Embedded:
    """A resource with its content, so that the client need not request it.

    Attributes:
        uri: its address; the client may show it, and read it again if this server serves it.
        content: what it holds.
    """

    uri: str
    content: ResourceContent


Content = str | Image | Audio | Embedded | ResourceEntry
"""One part of an answer or a message: a `str` is text, a `ResourceEntry` a link to what can be read.

What is too big for an answer belongs behind a link.
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
