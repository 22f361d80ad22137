from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeAlias

from jsonschema.exceptions import ValidationError
from referencing import Registry

Keyword: TypeAlias = Callable[[Validator, Any, Any, Mapping[str, Any]], Iterable[ValidationError] | None]

class Validator:
    VALIDATORS: Mapping[str, Keyword]
    def __init__(self, schema: Mapping[str, Any], *, registry: Registry[Any]) -> None: ...
    @classmethod
    def check_schema(cls, schema: Mapping[str, Any]) -> None: ...
    def iter_errors(self, instance: object) -> Iterator[ValidationError]: ...
    def is_valid(self, instance: object) -> bool: ...
    def descend(
        self,
        instance: object,
        schema: object,
        path: str | int | None = None,
        schema_path: str | int | None = None,
    ) -> Iterator[ValidationError]: ...
    def evolve(self, *, schema: object) -> Self: ...
