import datetime
from collections.abc import Iterable

from pptx.slide import Slide

class _CoreProperties:
    title: str
    author: str
    subject: str
    keywords: str
    created: datetime.datetime | None
    modified: datetime.datetime | None

class Presentation:
    @property
    def slides(self) -> Iterable[Slide]: ...
    @property
    def core_properties(self) -> _CoreProperties: ...
