from collections.abc import Iterator, Mapping

from pptx.shapes.base import BaseShape
from pptx.text.text import TextFrame

class _TitleShape(BaseShape):
    @property
    def text_frame(self) -> TextFrame: ...

class _Shapes:
    def __iter__(self) -> Iterator[BaseShape]: ...
    @property
    def title(self) -> _TitleShape | None: ...

class _NotesSlide:
    @property
    def notes_text_frame(self) -> TextFrame | None: ...

class _Part:
    blob: bytes

class _Relationship:
    @property
    def reltype(self) -> str: ...
    @property
    def is_external(self) -> bool: ...
    @property
    def target_part(self) -> _Part: ...

class _SlidePart:
    @property
    def rels(self) -> Mapping[str, _Relationship]: ...

class Slide:
    @property
    def part(self) -> _SlidePart: ...
    @property
    def shapes(self) -> _Shapes: ...
    @property
    def has_notes_slide(self) -> bool: ...
    @property
    def notes_slide(self) -> _NotesSlide: ...
