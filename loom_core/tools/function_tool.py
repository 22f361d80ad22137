"""Function tools: `@tool(read_only=True, open_world=False)` above a function with annotations."""

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
from loom_core.tools.failures import failure_of
from loom_core.tools.function_arguments import FunctionArguments, plain_function
from loom_core.tools.interface import CallContext, JsonValue, OutputFile, Tool, ToolAnnotations, ToolOutput
from loom_core.tools.names import own_wire_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Docstring", "FunctionTool", "output_of", "tool", "tool_threads"]

_NO_NAMES = frozenset({"<lambda>", "__call__"})

_P = ParamSpec("_P")
_R = TypeVar("_R")


class FunctionTool(Tool, Generic[_P, _R]):
    """A function as a tool. Created by `tool`; it can still be called as a function.

    Attributes:
        function: the function.
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
        retries: int | None,
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
        self._retries = retries
        self._is_async = inspect.iscoroutinefunction(function)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the function itself, from a program."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<FunctionTool {self._name}>"

    @property
    def name(self) -> str:
        """Display name, in any script."""
        return self._name

    @property
    def wire_name(self) -> str:
        """Name for models: the same if possible; see `names.own_wire_name`."""
        return self._wire_name

    @property
    def description(self) -> str:
        """The given description, else that of the docstring."""
        return self._description

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the signature, without titles."""
        return self._arguments.schema

    @property
    def args_model(self) -> type[BaseModel]:
        """A Pydantic model of the arguments, for programs."""
        return self._arguments.model

    @property
    def annotations(self) -> ToolAnnotations:
        """Hints about the effects of a call."""
        return self._annotations

    @property
    def is_concurrency_safe(self) -> bool:
        """Whether its calls may run at the same time as others."""
        return self._concurrency_safe

    @property
    def approval_reason(self) -> str:
        """Why a person has to approve each call; empty if no approval is needed."""
        return self._approval_reason

    @property
    def needs_seconds(self) -> float:
        """Timeout of a call in seconds; 0 for the scheduler's default."""
        return self._needs_seconds

    @property
    def retries(self) -> int | None:
        """Maximum number of retries of a call; None for the agent's number."""
        return self._retries

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """Validate the arguments and run the function; a function that is not `async` runs in a thread.

        If the call is cancelled, a function in a thread runs on to its end: threads cannot be killed.
        """
        try:
            values = self._arguments.parse(arguments)
            if self._arguments.context_name:
                values[self._arguments.context_name] = self._check_context(context or CallContext())
            return output_of(await self._result(values))
        except LoomError as error:
            return ToolOutput(str(error), is_error=True, failure=failure_of(error))

    def _check_context(self, context: CallContext) -> CallContext:
        """Return the context, if it is of the type that the function wants."""
        wanted = self._arguments.context_type
        if not isinstance(context, wanted):
            raise TypeError(
                f"The tool {self._name} needs a {wanted.__name__}, which only the runs of an agent have."
            )
        return context

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
    retries: int | None = None,
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
    retries: int | None = None,
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
    retries: int | None = None,
) -> object:
    """Create a tool from a function with annotated parameters, as a decorator or by a call.

    Annotations define the arguments: plain types, `Literal`, `Annotated[int, Field(ge=1)]`, Pydantic models;
    parameters with a default are optional. A parameter of type `CallContext` is no argument: it gets the call
    context; one of type `RunContext[…]` that of the agent's run, with its `deps`. In a thread, call its
    functions by `anyio.from_thread.run`.

    The model reads the return value: a text as it is, None as nothing, anything else as JSON; an object or a
    list is structured data, too. A `ToolOutput` is passed on unchanged. The model reads a `LoomError` with
    its advice, such as `ToolRetry`, which asks it for other arguments; other errors propagate to the caller
    of the tool.

    Args:
        function: the function.
        name: display name, in any script; by default the function's name.
        description: when to call it, and what it returns; by default the docstring. Its `Args:` describe the
            arguments that `Field` does not.
        read_only: it changes nothing.
        destructive: it may delete or overwrite; by default, unless it is read-only.
        idempotent: a repeated call has no further effect; by default, if it is read-only.
        open_world: it reaches beyond a closed set of things.
        concurrency_safe: its calls may run concurrently with others; by default, if it is read-only.
        approval_reason: why a person has to approve every call; empty if no approval is needed.
        needs_seconds: timeout of a call in seconds, longer or shorter than the scheduler's default (120,
            unless configured otherwise); 0 for that default.
        retries: maximum number of retries of a call, see `ToolRetries`; by default the agent's number.

    Raises:
        ValueError: a parameter has no annotation, has one that JSON Schema cannot express, or is variadic;
            the function is a generator; the name is empty; or `needs_seconds` or `retries` is invalid.
        NameError: an annotation has an unresolvable name.
    """
    # Argument models may be local, next to the function, and not in its module.
    names = _caller_names()

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        plain = plain_function(function)
        called = _name_of(function, name)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise ValueError(f"tool {called!r}: it is a generator; let it return a list")
        if not isinstance(cast("object", needs_seconds), int | float) or not needs_seconds >= 0:
            raise ValueError(f"tool {called!r}: `needs_seconds` is {needs_seconds!r}, not a number from 0")
        if retries is not None and (type(retries) is not int or retries < 0):
            raise ValueError(f"tool {called!r}: `retries` is {retries!r}, not a whole number from 0")
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
            retries=retries,
        )

    return decorate if function is None else decorate(function)


def _name_of(function: Callable[..., Any], name: str) -> str:
    called = name or getattr(function, "__name__", "") or getattr(plain_function(function), "__name__", "")
    if not called.strip() or called != called.strip() or not called.isprintable() or called in _NO_NAMES:
        raise ValueError(f"a tool cannot be called {called!r}: give `name`, without white space around it")
    return called


def _caller_names() -> dict[str, Any]:
    """Return the names in the scope of the caller's caller."""
    frame = inspect.currentframe()
    caller = frame and frame.f_back and frame.f_back.f_back
    return dict(caller.f_locals) if caller else {}


def output_of(result: object) -> ToolOutput:
    """Convert a return value to an output.

    Raises:
        TypeError: it has a value outside of JSON.
    """
    if isinstance(result, ToolOutput):
        return result
    if isinstance(result, str):
        return ToolOutput(result)
    if result is None:
        return ToolOutput("")
    if isinstance(result, ImagePart):
        return ToolOutput("", parts=(result,))
    if isinstance(result, OutputFile):
        return ToolOutput("", files=(result,))
    text = _json(result)
    data: JsonValue = json.loads(text)
    return ToolOutput(text, data if isinstance(data, (dict, list)) else None)


def _json(result: object) -> str:
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(result, inf_nan_mode="strings").decode()
    except (PydanticSerializationError, UnicodeError) as error:
        raise TypeError(f"A tool returned a value that JSON cannot express: {error}") from error


_ARGUMENTS = frozenset({"args", "arguments", "parameters", "params"})
# Sections for programmers only.
_LEFT_OUT = frozenset(
    {"attributes", "example", "examples", "note", "notes", "raises", "see also", "todo", "yields"}
)
_SECTION = re.compile(r"([A-Z][A-Za-z ]{1,20}):")
_ARGUMENT = re.compile(r"\*{0,2}(\w+)(?: ?\([^)]*\))?:(?:\s+(.*))?")


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring in Google's style.

    Attributes:
        description: everything but the sections about arguments or for programmers. `Returns:` stays, as a
            model has to know the result.
        arguments: description of each argument, on one line.
    """

    description: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, function: object) -> Docstring:
        """Parse the docstring of a function; without one the description is empty."""
        text: list[str] = []
        arguments: dict[str, str] = {}
        for title, lines in _sections((inspect.getdoc(function) or "").splitlines()):
            if title.casefold() in _ARGUMENTS:
                arguments.update(_arguments(lines))
            elif title.casefold() not in _LEFT_OUT:
                text += [f"{title}:", *lines] if title else lines
        return cls("\n".join(text).strip(), arguments)


def _sections(lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the text before the first section, with an empty title, and each section with its lines.

    A section is a title alone on its line, without indentation, above indented lines.
    """
    title, begun = "", 0
    for number, line in enumerate(lines):
        below = next((later for later in lines[number + 1 :] if later.strip()), "")
        match = _SECTION.fullmatch(line.rstrip())
        ends = title and line[:1].strip()  # unindented text again
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
    """Return the thread limiter of this event loop for blocking tools: a hanging tool blocks nothing else."""
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_MOST_THREADS)
        _limiter.set(limiter)
        return limiter
