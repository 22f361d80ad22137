from collections.abc import Mapping
from typing import Any

from jsonschema.protocols import Keyword, Validator

def extend(validator: type[Validator], validators: Mapping[str, Keyword]) -> type[Validator]: ...
def validator_for(schema: Mapping[str, Any], *, default: type[Validator]) -> type[Validator]: ...
