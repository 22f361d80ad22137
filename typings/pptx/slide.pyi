from collections.abc import Iterator

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

class Slide:
    @property
    def shapes(self) -> _Shapes: ...
    @property
    def has_notes_slide(self) -> bool: ...
    @property
    def notes_slide(self) -> _NotesSlide: ...
