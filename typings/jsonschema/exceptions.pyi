from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

class _Error(Exception):
    message: str
    path: deque[str | int]
    relative_path: deque[str | int]
    context: Sequence[Self] | None
    instance: Any
    schema: Mapping[str, Any]
    validator: str
    validator_value: Any
    def __init__(self, message: str, *, path: Iterable[str | int] = ()) -> None: ...
    @property
    def absolute_path(self) -> deque[str | int]: ...

class ValidationError(_Error): ...
class SchemaError(_Error): ...

def relevance(error: ValidationError) -> tuple[int | str | bool, ...]: ...
def best_match(errors: Iterable[ValidationError]) -> ValidationError | None: ...
