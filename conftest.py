"""Branch coverage of loom_core in the workers of pytest-xdist.

SlipCover (https://github.com/plasma-umass/slipcover) removes a probe once its line or branch has run, so
measuring costs a tenth of what tracing each line does. `.ci/run` names a folder in `LOOM_TEST_COVERAGE`,
merges what the workers write there, and fails below its goal. This file is at the root: pytest loads it
before anything imports loom_core. Programs that tests start are not measured: it doubles the time each needs.
"""

from __future__ import annotations

import ast
import json
import marshal
import os
import sys
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")
_FOLDER = os.environ.get("LOOM_TEST_COVERAGE")
_WORKER = os.environ.get("PYTEST_XDIST_WORKER")

if _FOLDER is not None and _WORKER is not None:
    import slipcover
    from slipcover import branch, bytecode, probe

    _folder, _root = Path(_FOLDER), Path(__file__).parent
    _no_behaviour = ["if TYPE_CHECKING:", r"\.\.\.$", "@overload", "raise AssertionError"]

    def _shared(what: str, source: str, make: Callable[[], _T]) -> _T:
        """Return what another worker has made of a source already, or make it."""
        kept = _folder / f"{sha256(f'{what} {source}'.encode()).hexdigest()}.marshal"
        try:
            return marshal.loads(kept.read_bytes())
        except FileNotFoundError:
            made = make()
            own = kept.with_suffix(f".{_WORKER}")
            own.write_bytes(marshal.dumps(made))
            own.replace(kept)
            return made

    # Code with None in place of its probes, of the function that notes them, and of inner code; the number
    # of that function among the constants; lines and branches of probes, and inner code, by such numbers;
    # where in the code probes are called.
    _Instrumented: TypeAlias = tuple[CodeType, int, dict[int, Any], dict[int, Any], list[tuple[int, Any]]]

    def _prepare(path: str) -> CodeType | tuple[_Instrumented, set[int], set[tuple[int, int]]]:
        """Do once what is the same for each worker: from Python 3.12 on, there are no probes to place."""
        source = Path(path).read_text(encoding="utf-8")
        make = _compile if sys.version_info >= (3, 12) else _instrument
        return _shared(path, source, lambda: make(source, path))

    def _compile(source: str, path: str) -> CodeType:
        """Compile a module with its branches marked."""
        return compile(branch.preinstrument(ast.parse(source)), path, "exec")

    def _instrument(source: str, path: str) -> tuple[_Instrumented, set[int], set[tuple[int, int]]]:
        """Instrument a module for any process; returns its lines and branches, too."""
        once = slipcover.Slipcover(branch=True)
        code = once.instrument(_compile(source, path))
        return _without_probes(code, once.code2index), once.code_lines[path], once.code_branches[path]

    def _without_probes(code: CodeType, inserts: dict[CodeType, list[tuple[int, Any]]]) -> _Instrumented:
        """Take probes, which belong to a process, out of instrumented code."""
        editor = bytecode.Editor(code)
        labels = {editor.get_inserted_function(offset)[1]: label for offset, label in inserts[code]}
        consts = list(code.co_consts)
        signal = next(number for number, const in enumerate(consts) if const is probe.signal)
        inner = {
            number: _without_probes(const, inserts)
            for number, const in enumerate(consts)
            if isinstance(const, CodeType)
        }
        for number in (signal, *labels, *inner):
            consts[number] = None
        return code.replace(co_consts=tuple(consts)), signal, labels, inner, inserts[code]

    class _Coverage(slipcover.Slipcover):
        def _compute_excluded_lines(self, source: str) -> set[int]:
            excluded = super()._compute_excluded_lines
            return _shared("excluded lines", source, lambda: excluded(source))

        def load(self, path: str) -> CodeType:
            """Return the code of a module that notes what of it runs."""
            prepared = _prepare(path)
            if isinstance(prepared, CodeType):
                return self.instrument(prepared)
            instrumented, lines, branches = prepared
            self.code_lines[path] |= lines
            self.code_branches[path] |= branches
            code = self._with_probes(instrumented)
            self.instrumented[path].add(code)
            return code

        def _with_probes(self, instrumented: _Instrumented) -> CodeType:
            """Put probes of this process into instrumented code."""
            code, signal, labels, inner, inserts = instrumented
            consts = list(code.co_consts)
            consts[signal] = probe.signal
            for number, label in labels.items():
                consts[number] = probe.new(self, code.co_filename, label, self.d_miss_threshold)
            for number, function in inner.items():
                consts[number] = self._with_probes(function)
            code = code.replace(co_consts=tuple(consts))
            self.code2index[code] = inserts
            return code

    _coverage = _Coverage(
        branch=True,
        source=[str(_root / "loom_core")],
        exclude_also=_no_behaviour,
        d_miss_threshold=1_000,  # how often a probe runs in vain until all such are removed, which is slow
    )

    class _MeasuringLoader(SourceFileLoader):
        def exec_module(self, module: ModuleType) -> None:
            _coverage.register_module(module)
            exec(_coverage.load(self.path), module.__dict__)

    class _MeasuringFinder:
        @staticmethod
        def find_spec(
            name: str, path: Sequence[str] | None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            spec = PathFinder.find_spec(name, path, target) if name.split(".")[0] == "loom_core" else None
            if spec is not None and isinstance(spec.loader, SourceFileLoader):
                spec.loader = _MeasuringLoader(spec.name, spec.loader.path)
            return spec

    def _prepare_share() -> None:
        """Prepare each module once for all workers, of which each does a share: it takes 8 s in all."""
        first, step = int(str(_WORKER).removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        for file in sorted((_root / "loom_core").rglob("*.py"))[first::step]:
            _prepare(str(file))
            _coverage._compute_excluded_lines(file.read_text(encoding="utf-8"))

    sys.meta_path.insert(0, _MeasuringFinder)
    _prepare_share()

    def pytest_sessionfinish() -> None:
        """Write what this worker has measured."""
        measured = json.dumps(_coverage.get_coverage())
        (_folder / f"{_WORKER}.json").write_text(measured, encoding="utf-8")
