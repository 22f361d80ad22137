from collections.abc import Iterable

class _Cell:
    @property
    def text(self) -> str: ...

class _Row:
    @property
    def cells(self) -> Iterable[_Cell]: ...

class Table:
    @property
    def rows(self) -> Iterable[_Row]: ...
