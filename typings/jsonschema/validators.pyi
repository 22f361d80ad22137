from collections.abc import Mapping
from typing import Any

from jsonschema.protocols import Validator

def validator_for(schema: Mapping[str, Any], *, default: type[Validator]) -> type[Validator]: ...
