"""A step as its caller wrote it, and what makes it the same step in another run."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any, Final, TypeAlias

import orjson

from holdfast.effects.effect import Effect, Verdict
from holdfast.errors import ArgumentsNotFingerprintable, InvalidStep, StateNotSerializable
from holdfast.ids import NAME_BYTES, check_text
from holdfast.state.plain import is_plain
from holdfast.state.refs import DIGEST_BYTES, SHA256
from holdfast.state.screen import Screen
from holdfast.state.tags import tagged

POLICIES: Final = ("fail", "retry", "ask")
KEY_PARAMETER: Final = "idempotency_key"
_GENERATORS: Final = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

Reconcile: TypeAlias = Callable[[Effect], Verdict | None]


@dataclass(frozen=True, slots=True)
class Call:
    """A step as its caller wrote it."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    policy: str = "fail"
    reconcile: Reconcile | None = None
    idempotent: bool = False

    def check(self) -> None:
        """Raise `InvalidStep` unless it can be run; nothing is recorded then."""
        check_text(self.name, "name of a step", NAME_BYTES)
        if self.key is not None:
            check_text(self.key, "key of a step", NAME_BYTES)
        if not callable(self.function):
            raise InvalidStep(
                f"step {self.name!r} needs a function to call, not {type(self.function).__name__}"
            )
        if _is_generator(self.bare()[0]):
            raise InvalidStep(
                f"step {self.name!r} is a generator, whose body does not run when it is called; "
                f"nothing was run. Use a function that returns a list"
            )
        if self.policy not in POLICIES:
            raise InvalidStep(f"policy must be one of {', '.join(POLICIES)}: {self.policy!r}")
        if (self.policy == "ask") != (self.reconcile is not None):
            raise InvalidStep("policy='ask' and reconcile= go together: give both or neither")

    def bare(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function and its arguments, those of a ``functools.partial`` among them."""
        function, args, kwargs = self.function, self.args, dict(self.kwargs)
        while isinstance(function, functools.partial):
            args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
            function = function.func
        return function, args, kwargs

    def wants_key(self) -> bool:
        """Tell whether the body asks for its idempotency key by a parameter that nobody has filled."""
        code = getattr(self.function, "__code__", None)
        if (
            code is not None
            and not hasattr(self.function, "__wrapped__")
            and KEY_PARAMETER not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        ):
            return False  # as most say, and quicker than by their signature
        function, args, kwargs = self.bare()
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return False  # written in C, and does not say
        parameter = signature.parameters.get(KEY_PARAMETER)
        if parameter is None or parameter.kind is Parameter.POSITIONAL_ONLY:
            return False
        try:
            return KEY_PARAMETER not in signature.bind_partial(*args, **kwargs).arguments
        except TypeError:
            return KEY_PARAMETER not in kwargs  # the call will say what does not fit


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a decorator says of the steps that a function makes."""

    name: str | None
    key: Callable[..., str] | str | None
    policy: str
    reconcile: Reconcile | None
    idempotent: bool

    def call(
        self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Call:
        """Return the step that one call of the function is."""
        key = self.key(*args, **kwargs) if callable(self.key) else self.key
        name = self.name or _name(body)
        return Call(name, body, args, kwargs, key, self.policy, self.reconcile, self.idempotent)


def fingerprint(call: Call, screen: Screen | None = None) -> bytes:
    """Return the digest of a step's name and arguments; empty if they have none but there is a key.

    Of what a screen takes out it is no digest, which others could try guesses against. What stands in
    its place depends on the screen's key, whose mark then follows the digest.
    """
    _, args, kwargs = call.bare()
    document = {"name": call.name, "args": list(args), "kwargs": kwargs}
    try:
        text, mark = _canonical(document, screen)
    except StateNotSerializable as error:
        if call.key is not None:
            return b""
        raise ArgumentsNotFingerprintable(call.name, error.path, error.reason) from None
    return SHA256 + hashlib.sha256(text).digest() + mark


def key_mark(fingerprint: bytes) -> bytes:
    """Return the mark of the key that a fingerprint depends on; empty if it depends on none."""
    return fingerprint[DIGEST_BYTES:]


def without_mark(fingerprint: bytes) -> bytes:
    """Return the digest alone."""
    return fingerprint[:DIGEST_BYTES]


def _name(function: Callable[..., Any]) -> str:
    """Return what a function is called; an object that can be called goes by its class."""
    while isinstance(function, functools.partial):
        function = function.func
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name


def is_async(function: object) -> bool:
    """Tell whether calling ``function`` gives something to be awaited."""
    if inspect.iscoroutinefunction(function):
        return True
    # An object with an async __call__; functions have one too, which tells nothing.
    return not hasattr(function, "__code__") and inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _is_generator(function: object) -> bool:
    """Tell whether a function, or an object's ``__call__``, gives what is to be gone through."""
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(getattr(function, "__call__", None), "__code__", None)  # noqa: B004
    return code is not None and bool(code.co_flags & _GENERATORS)


def _canonical(document: dict[str, Any], screen: Screen | None) -> tuple[bytes, bytes]:
    """Return one text for equal arguments, whatever the order of their keys, and its key's mark."""
    if is_plain(document):
        try:
            return _screened(document, screen)
        except TypeError:
            pass  # the walk below says what and where
    return _screened(tagged(document, "$"), screen)


def _screened(document: Any, screen: Screen | None) -> tuple[bytes, bytes]:
    shown = document if screen is None else screen.value(document)
    mark = b"" if screen is None or shown is document else screen.key_mark
    return orjson.dumps(shown, option=orjson.OPT_SORT_KEYS), mark
