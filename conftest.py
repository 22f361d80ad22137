"""Branch coverage of loom_core in the workers of pytest-xdist.

SlipCover (https://github.com/plasma-umass/slipcover) removes a probe once its line or branch has run, so
measuring costs a tenth of what tracing each line does. `.ci/run` names a folder in `LOOM_TEST_COVERAGE`,
merges what the workers write there, and fails below its goal. This file is at the root: pytest loads it
before anything imports loom_core. Programs that tests start are not measured: it doubles the time each needs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

_FOLDER = os.environ.get("LOOM_TEST_COVERAGE")
_WORKER = os.environ.get("PYTEST_XDIST_WORKER")

if _FOLDER is not None and _WORKER is not None:
    import slipcover

    _path = Path(_FOLDER, f"{_WORKER}.json")
    _source = [str(Path(__file__).parent / "loom_core")]
    _no_behaviour = ["if TYPE_CHECKING:", r"\.\.\.$", "@overload", "raise AssertionError"]
    _coverage = slipcover.Slipcover(
        branch=True,
        source=_source,
        exclude_also=_no_behaviour,
        d_miss_threshold=1_000,  # how often a probe runs in vain until all such are removed, which is slow
    )
    slipcover.ImportManager(_coverage, slipcover.FileMatcher(sources=_source)).__enter__()

    def pytest_sessionfinish() -> None:
        """Write what this worker has measured."""
        _path.write_text(json.dumps(_coverage.get_coverage()), encoding="utf-8")
