"""The errors dscore raises, each with its exit code and its word in the tables of commands."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, ClassVar

# Of any number that is stated: of more digits than Python writes, sums and errors would fail.
MOST_INT = 2**63 - 1
_MOST_SHOWN = 100


class DscoreError(Exception):
    """Base of every error that dscore raises on purpose.

    >>> import dscore
    >>> try:
    ...     dscore.plan_for("P13", tiling={"threads": 64, "thread_c": 0})
    ... except dscore.DscoreError as error:
    ...     print(f"{type(error).__name__}: {error}")
    SpecError: thread_c must be positive, got 0
    """

    exit_code: ClassVar[int] = 1
    fault: ClassVar[str] = ""  # the word for a layer that ended so, where there is one


class SpecError(DscoreError, ValueError):
    """The request is no convolution, device or tiling: the caller must change it.

    >>> import dscore
    >>> try:
    ...     dscore.plan_for("P13", rules="house")
    ... except SpecError as error:
    ...     print(error)
    rules must be one of paper, hardware; got 'house'
    """

    exit_code = 2


class InfeasibleError(DscoreError):
    """A well-formed request that the device's limits do not admit.

    >>> import dscore
    >>> too_wide = dict(wave_w=8, wave_c=64, repeat_w=1, repeat_c=64, group_c=16)
    >>> try:
    ...     dscore.plan_for("P28", tiling=too_wide)
    ... except InfeasibleError as error:
    ...     print(str(error).splitlines()[0])
    InvalidTiling: pointwise 320x7x7->1280 on z100sm (wavefront 64, 64 KiB LDS per CU)
    """

    fault = "infeasible"


class UnavailableError(DscoreError):
    """This machine lacks a compiler, a GPU or a package; the message names it and the fix.

    >>> UnavailableError.exit_code  # of the commands that end by it
    3
    """

    exit_code = 3


class CompileError(DscoreError):
    """A compiler refused a generated unit; the message holds its command and its log.

    >>> CompileError.exit_code  # of the commands that end by it
    4
    """

    exit_code = 4
    fault = "not compiled"


class LaunchError(DscoreError):
    """A kernel was started and failed, or would have left the memory its plan gave it.

    >>> LaunchError.exit_code  # of the commands that end by it
    5
    """

    exit_code = 5
    fault = "not run"


def shown(value: Any) -> str:
    """Representation of any value on one line of at most 100 characters, for an error.

    >>> shown("n1c8"), shown(10**5000)
    ("'n1c8'", 'an integer of 16,610 bits')
    """
    try:
        text = " ".join(repr(value).splitlines())
    except Exception:  # an object's own, or an int of more digits than Python writes
        return (f"an integer of {value.bit_length():,} bits" if isinstance(value, int)
                else f"an object of class {type(value).__name__}")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN - 2]} …"


def require_int(value: Any, name: str, at_least: int = 1, at_most: int = MOST_INT) -> int:
    """Return *value* as an int within the limits, or raise SpecError naming it.

    >>> require_int(3, "stride")
    3
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except Exception:  # an array's of several elements, or of no memory, as well as TypeError
        number = None
    if number is None:
        raise SpecError(f"{name} must be an integer, got {shown(value)}")
    if number < at_least:
        wanted = "positive" if at_least == 1 else f"at least {at_least}"
        raise SpecError(f"{name} must be {wanted}, got {shown(number)}")
    if number > at_most:
        raise SpecError(f"{name} must be at most {at_most:,}, got {shown(number)}")
    return number


def require_one_of(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    """Return *value* if it is one of *choices*, or raise SpecError listing them.

    >>> require_one_of("paper", "rules", ("paper", "hardware"))
    'paper'
    """
    if not any(value is choice or (type(value) is type(choice) and value == choice)
               for choice in choices):
        listed = ", ".join("none" if choice is None else str(choice) for choice in choices)
        raise SpecError(f"{name} must be one of {listed}; got {shown(value)}"
                        f"{did_you_mean(value, choices)}")
    return value


def did_you_mean(value: Any, names: Iterable[Any]) -> str:
    """The names that come close to *value*, in parentheses; empty where none does.

    Letter case does not matter, nor do values that are no text.

    >>> did_you_mean("blok_n", ["wave_w", "block_n"])
    ' (did you mean block_n?)'
    """
    from difflib import get_close_matches

    # Matched in lower case, shown as they are written.
    written = {name.lower(): name for name in names if isinstance(name, str)}
    # Longer values are no slip of a finger, and a comparison of them takes long.
    typed = value.lower() if isinstance(value, str) and len(value) < 100 else ""
    close = get_close_matches(typed, written, n=3)
    return f" (did you mean {' or '.join(written[name] for name in close)}?)" if close else ""
