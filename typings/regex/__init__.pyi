from typing import AnyStr, Generic

IGNORECASE: int
VERSION0: int

class error(Exception):
    msg: str
    pos: int | None

class Match(Generic[AnyStr]):
    def span(self, group: int | str = 0) -> tuple[int, int]: ...
    def start(self, group: int | str = 0) -> int: ...
    def end(self, group: int | str = 0) -> int: ...
    def groupdict(self) -> dict[str, AnyStr | None]: ...

class Pattern(Generic[AnyStr]):
    def search(
        self, string: AnyStr, pos: int = 0, *, concurrent: bool | None = None, timeout: float | None = None
    ) -> Match[AnyStr] | None: ...

def compile(pattern: AnyStr, flags: int = 0) -> Pattern[AnyStr]: ...
