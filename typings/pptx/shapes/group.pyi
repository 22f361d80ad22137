from collections.abc import Iterable

from pptx.shapes.base import BaseShape

class GroupShape(BaseShape):
    @property
    def shapes(self) -> Iterable[BaseShape]: ...
