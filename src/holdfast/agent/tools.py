"""Tools: functions that a model may call, with the rules for calling them.

@tool(needs_approval=True)
async def refund(order: str, amount: float) -> str:
    "Pay money back to a customer."
    ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from holdfast.agent.messages import ToolSpec
from holdfast.agent.schema import check_arguments, check_schema, schema_of, unbound
from holdfast.errors import InvalidArguments, InvalidConfiguration
from holdfast.waiting import in_thread

if TYPE_CHECKING:
    from concurrent.futures import Future

NeedsApproval: TypeAlias = bool | Callable[[Mapping[str, Any]], bool]


class Tool:
    """A function with a name, a schema, and the answers to two questions.

    ``needs_approval`` is True, or a function of the arguments that tells: such a call suspends the
    run. ``idempotent`` says that running it twice does no harm, so that a call of which a crash
    left no result is simply run again. A function that is not async runs in a thread. Without
    ``parameters``, a JSON Schema, the function's annotations describe the arguments.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        needs_approval: NeedsApproval = False,
        idempotent: bool = False,
    ) -> None:
        if not callable(function):
            raise InvalidConfiguration(f"a tool is a function, not {function!r}")
        self.function = function
        self.name = name or str(getattr(function, "__name__", ""))
        if not self.name or not isinstance(self.name, str):
            raise InvalidConfiguration(f"{function!r} has no name that is text: give the tool one")
        self.idempotent = idempotent
        self._needs_approval = needs_approval
        schema = schema_of(function, self.name) if parameters is None else deepcopy(parameters)
        check_schema(schema, self.name)
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise InvalidConfiguration(
                f"the tool {self.name!r} does not tell what it takes ({error}): wrap it in a function"
            ) from None
        about = inspect.getdoc(unbound(function)) if description is None else description
        self.spec = ToolSpec(self.name, (about or "").strip(), schema)

    def check(self, arguments: object) -> None:
        """Raise `InvalidArguments` unless the tool can be called with these."""
        check_arguments(arguments, self.spec.parameters, self.name)
        try:
            self._signature.bind(**arguments)  # type: ignore[arg-type]
        except TypeError as error:
            raise InvalidArguments(f"arguments of the tool {self.name!r}: {error}") from None

    def fits(self, arguments: object) -> bool:
        """Tell whether the tool can be called with these."""
        try:
            self.check(arguments)
        except InvalidArguments:
            return False
        return True

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether a person has to agree to this call."""
        if callable(self._needs_approval):
            return bool(self._needs_approval(deepcopy(arguments)))
        return self._needs_approval

    async def __call__(
        self, arguments: Mapping[str, Any], outcome: Future[Any] | None = None
    ) -> Any:
        """Run the function.

        In a thread it runs to its end even if the caller is cancelled meanwhile; ``outcome`` tells
        then what it came to.
        """
        own = deepcopy(dict(arguments))
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**own)
        work = partial(self.function, **own)
        result = await in_thread(work if outcome is None else partial(_told, work, outcome))
        return await result if inspect.isawaitable(result) else result


def _told(work: Callable[[], Any], outcome: Future[Any]) -> Any:
    try:
        result = work()
    except Exception as error:
        outcome.set_exception(error)
        raise
    if not inspect.isawaitable(result):
        outcome.set_result(result)
    return result


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    needs_approval: NeedsApproval = False,
    idempotent: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a `Tool` of the function below; with or without options."""
    if function is not None:
        return Tool(function, **options)
    return lambda decorated: Tool(decorated, **options)


def tools_by_name(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Return tools by name; a plain function becomes one. Raises `InvalidConfiguration`."""
    if not isinstance(tools, Iterable):
        raise InvalidConfiguration(f"tools are a list of functions, not {tools!r:.80}")
    found: dict[str, Tool] = {}
    for one in tools:
        made = one if isinstance(one, Tool) else Tool(one)
        if made.name in found:
            raise InvalidConfiguration(f"two tools have the name {made.name!r}")
        found[made.name] = made
    return found
