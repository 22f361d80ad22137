"""Tools made from functions: `@tool(read_only=True, open_world=False)` above a function with annotations."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar
from pydantic import BaseModel

from loom_core.errors import LoomError
from loom_core.llm.messages import ImagePart
from loom_core.tools.function_arguments import FunctionArguments, plain_function
from loom_core.tools.interface import CallContext, JsonValue, Tool, ToolAnnotations, ToolOutput
from loom_core.tools.names import own_wire_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Docstring", "FunctionTool", "output_of", "tool", "tool_threads"]

_NO_NAMES = frozenset({"<lambda>", "__call__"})

_P = ParamSpec("_P")
_R = TypeVar("_R")


class FunctionTool(Tool, Generic[_P, _R]):
    """A function as a tool. Made by `tool`; it can still be called as the function that it is.

    Attributes:
        function: what runs.
    """

    def __init__(
        self,
        function: Callable[_P, _R],
        *,
        name: str,
        description: str,
        arguments: FunctionArguments,
        annotations: ToolAnnotations,
        concurrency_safe: bool,
        approval_reason: str,
        needs_seconds: float,
    ) -> None:
        self.function = function
        self._name = name
        self._wire_name = own_wire_name(name)
        self._description = description
        self._arguments = arguments
        self._annotations = annotations
        self._concurrency_safe = concurrency_safe
        self._approval_reason = approval_reason
        self._needs_seconds = needs_seconds
        self._is_async = inspect.iscoroutinefunction(function)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the function itself, from a program."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<FunctionTool {self._name}>"

    @property
    def name(self) -> str:
        """What people call it, in any script."""
        return self._name

    @property
    def wire_name(self) -> str:
        """What models call it: the same where that is possible; see `names.own_wire_name`."""
        return self._wire_name

    @property
    def description(self) -> str:
        """What was given, or else what the docstring says."""
        return self._description

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """What the signature says, without titles."""
        return self._arguments.schema

    @property
    def args_model(self) -> type[BaseModel]:
        """A Pydantic model of the arguments, for programs."""
        return self._arguments.model

    @property
    def annotations(self) -> ToolAnnotations:
        """What calling it may do."""
        return self._annotations

    @property
    def is_concurrency_safe(self) -> bool:
        """Whether its calls may run at the same time as others."""
        return self._concurrency_safe

    @property
    def approval_reason(self) -> str:
        """Why a person has to approve each call; empty if that need not be."""
        return self._approval_reason

    @property
    def needs_seconds(self) -> float:
        """How many seconds a call may take; 0 for the limit of the scheduler."""
        return self._needs_seconds

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """Check the arguments and run the function; one that is not `async` runs in a thread.

        Where the call is cancelled, a function in a thread is left to end by itself: threads cannot be ended.
        """
        try:
            values = self._arguments.parse(arguments)
            if self._arguments.context_name:
                values[self._arguments.context_name] = context or CallContext()
            return output_of(await self._result(values))
        except LoomError as error:
            return ToolOutput(str(error), is_error=True)

    async def _result(self, values: Mapping[str, Any]) -> object:
        function = cast("Callable[..., object]", self.function)
        if self._is_async:
            return await cast("Awaitable[object]", function(**values))
        result = await to_thread.run_sync(
            partial(function, **values), abandon_on_cancel=True, limiter=tool_threads()
        )
        return await cast("Awaitable[object]", result) if inspect.isawaitable(result) else result


@overload
def tool(function: Callable[_P, _R], /) -> FunctionTool[_P, _R]: ...
@overload
def tool(
    function: Callable[_P, _R],
    /,
    *,
    name: str = "",
    description: str = "",
    read_only: bool = False,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool = True,
    concurrency_safe: bool | None = None,
    approval_reason: str = "",
    needs_seconds: float = 0.0,
) -> FunctionTool[_P, _R]: ...
@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    read_only: bool = False,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool = True,
    concurrency_safe: bool | None = None,
    approval_reason: str = "",
    needs_seconds: float = 0.0,
) -> Callable[[Callable[_P, _R]], FunctionTool[_P, _R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    read_only: bool = False,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool = True,
    concurrency_safe: bool | None = None,
    approval_reason: str = "",
    needs_seconds: float = 0.0,
) -> object:
    """Make a tool of a function with annotated parameters, as a decorator or by a call.

    Arguments are what the annotations say: plain types, `Literal`, `Annotated[int, Field(ge=1)]`, models of
    Pydantic; what has a default may be left out. A parameter of type `CallContext` is no argument: it gets
    the context of the call. In a thread, its functions are called by `anyio.from_thread.run`.

    What the function returns is what the model reads: a text as it is, None as nothing, anything else as
    JSON; an object or a list is given as data, too. A `ToolOutput` is passed on unchanged. A `LoomError` is
    told the model with its advice; what else is raised goes on to who calls the tool.

    Args:
        function: what is to run.
        name: what people call it, in any script; the function's name if empty.
        description: when to call it, and what it gives; if empty, what the docstring says. Its `Args:`
            describe the arguments that `Field` does not.
        read_only: it changes nothing.
        destructive: it may remove or overwrite; by default, unless it is read-only.
        idempotent: the same call twice does what it does once; by default, if it is read-only.
        open_world: it reaches beyond a closed set of things.
        concurrency_safe: its calls may run at the same time as others; by default, if it is read-only.
        approval_reason: why a person has to approve every call; empty if that need not be.
        needs_seconds: how many seconds a call may take, be it more or less than the scheduler grants (120, if
            nothing else is set); 0 for what that grants.

    Raises:
        ValueError: a parameter has no annotation, has one that JSON cannot say, or takes several arguments at
            once; the function is a generator; there is no name that can be seen; or `needs_seconds` is no
            time.
        NameError: an annotation names what cannot be found.
    """
    # Models of arguments may be defined beside the function, where its module does not have them.
    names = _caller_names()

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        plain = plain_function(function)
        called = _name_of(function, name)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise ValueError(f"tool {called!r}: it is a generator; let it return a list")
        if not isinstance(cast("object", needs_seconds), int | float) or not needs_seconds >= 0:
            raise ValueError(
                f"tool {called!r}: `needs_seconds` is {needs_seconds!r}, and no number from 0 on"
            )
        said = Docstring.of(plain)
        return FunctionTool(
            function,
            name=called,
            description=description or said.description or called.replace("_", " "),
            arguments=FunctionArguments.of(
                function, called, context=CallContext, descriptions=said.arguments, names=names
            ),
            annotations=ToolAnnotations(
                read_only=read_only,
                destructive=not read_only if destructive is None else destructive,
                idempotent=read_only if idempotent is None else idempotent,
                open_world=open_world,
            ),
            concurrency_safe=read_only if concurrency_safe is None else concurrency_safe,
            approval_reason=approval_reason,
            needs_seconds=needs_seconds,
        )

    return decorate if function is None else decorate(function)


def _name_of(function: Callable[..., Any], name: str) -> str:
    called = name or getattr(function, "__name__", "") or getattr(plain_function(function), "__name__", "")
    if not called.strip() or called != called.strip() or not called.isprintable() or called in _NO_NAMES:
        raise ValueError(f"a tool cannot be called {called!r}: give `name`, without white space around it")
    return called


def _caller_names() -> dict[str, Any]:
    """The names that the caller of our caller has."""
    frame = inspect.currentframe()
    caller = frame and frame.f_back and frame.f_back.f_back
    return dict(caller.f_locals) if caller else {}


def output_of(result: object) -> ToolOutput:
    """What a function returned as what a model reads.

    Raises:
        TypeError: there is something in it that JSON cannot say.
    """
    if isinstance(result, ToolOutput):
        return result
    if isinstance(result, str):
        return ToolOutput(result)
    if result is None:
        return ToolOutput("")
    if isinstance(result, ImagePart):
        return ToolOutput("", parts=(result,))
    text = _json(result)
    data: JsonValue = json.loads(text)
    return ToolOutput(text, data if isinstance(data, (dict, list)) else None)


def _json(result: object) -> str:
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(result, inf_nan_mode="strings").decode()
    except (PydanticSerializationError, UnicodeError) as error:
        raise TypeError(f"A tool returned what JSON cannot say: {error}") from error


_ARGUMENTS = frozenset({"args", "arguments", "parameters", "params"})
# What only programmers read.
_LEFT_OUT = frozenset(
    {"attributes", "example", "examples", "note", "notes", "raises", "see also", "todo", "yields"}
)
_SECTION = re.compile(r"([A-Z][A-Za-z ]{1,20}):")
_ARGUMENT = re.compile(r"\*{0,2}(\w+)(?: ?\([^)]*\))?:(?:\s+(.*))?")


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring in Google's style.

    Attributes:
        description: everything but the sections that are about arguments or for programmers. `Returns:`
            stays, as a model has to know what it gets.
        arguments: what is said of each argument, on one line.
    """

    description: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, function: object) -> Docstring:
        """Read the docstring of a function; one without has an empty description."""
        text: list[str] = []
        arguments: dict[str, str] = {}
        for title, lines in _sections((inspect.getdoc(function) or "").splitlines()):
            if title.casefold() in _ARGUMENTS:
                arguments.update(_arguments(lines))
            elif title.casefold() not in _LEFT_OUT:
                text += [f"{title}:", *lines] if title else lines
        return cls("\n".join(text).strip(), arguments)


def _sections(lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """The text before the first section, with an empty title, and each section with its lines.

    A section is a title alone on its line, at the margin, over lines that are indented.
    """
    title, begun = "", 0
    for number, line in enumerate(lines):
        below = next((later for later in lines[number + 1 :] if later.strip()), "")
        match = _SECTION.fullmatch(line.rstrip())
        ends = title and line[:1].strip()  # text at the margin again
        if not (match and below[:1].isspace()) and not ends:
            continue
        yield title, lines[begun:number]
        title, begun = (match[1], number + 1) if match and below[:1].isspace() else ("", number)
    yield title, lines[begun:]


def _arguments(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    name, words = "", list[str]()
    for line in lines:
        match = _ARGUMENT.fullmatch(line[margin:].rstrip()) if line[margin : margin + 1].strip() else None
        if match is not None:
            if name:
                yield name, " ".join(words)
            name, words = match[1], (match[2] or "").split()
        else:
            words += line.split()
    if name:
        yield name, " ".join(words)


_MOST_THREADS = 40

_limiter = RunVar[anyio.CapacityLimiter]("tool_threads")


def tool_threads() -> anyio.CapacityLimiter:
    """Return the limiter of this event loop for tools that block: a tool that hangs holds up nothing else."""
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_MOST_THREADS)
        _limiter.set(limiter)
        return limiter
