from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def schemas(load: Callable[[Path], ModuleType]) -> ModuleType:
    """The module `schemas.py` beside this one."""
    return load(Path(__file__).with_name("schemas.py"))
