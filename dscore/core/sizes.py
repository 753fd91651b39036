"""Sizes of a layer in their short forms: pairs of rows and columns, and padding of four sides."""

from __future__ import annotations

from typing import Any, Literal

from dscore.core.errors import SpecError, require_int, require_one_of, shown

Pair = tuple[int, int]
Sides = tuple[int, int, int, int]  # top, bottom, left, right


def pair_of(value: Any, name: str, at_least: int = 1) -> Pair:
    """An int for both axes, or (height, width).

    >>> pair_of(3, "kernel"), pair_of((1, 5), "kernel")
    ((3, 3), (1, 5))
    """
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise SpecError(f"{name} must be an int or (height, width), got {shown(value)}")
        return (require_int(value[0], f"{name} height", at_least),
                require_int(value[1], f"{name} width", at_least))
    both = require_int(value, name, at_least)
    return both, both


def sides_of(padding: Any) -> Sides | Literal["same"]:
    """Any accepted form of padding as (top, bottom, left, right), or "same".

    Accepted: "same", "valid" (in any case), an int, (vertical, horizontal),
    ((top, bottom), (left, right)), (top, bottom, left, right).

    >>> sides_of(1), sides_of((1, 2)), sides_of(((0, 1), (2, 3)))
    ((1, 1, 1, 1), (1, 1, 2, 2), (0, 1, 2, 3))
    """
    if isinstance(padding, str):
        word = require_one_of(padding.lower(), "padding", ("same", "valid"))
        return "same" if word == "same" else (0, 0, 0, 0)
    if isinstance(padding, tuple | list) and len(padding) == 4:
        top, bottom, left, right = padding
    elif isinstance(padding, tuple | list) and len(padding) == 2:
        (top, bottom), (left, right) = (
            side if isinstance(side, tuple | list) and len(side) == 2 else (side, side)
            for side in padding)
    elif isinstance(padding, tuple | list):
        raise SpecError("padding must be 'same', 'valid', an int, (vertical, horizontal), "
                        f"((top, bottom), (left, right)) or four ints, got {shown(padding)}")
    else:
        top = bottom = left = right = padding
    named = zip(("top", "bottom", "left", "right"), (top, bottom, left, right), strict=True)
    t, b, l_, r = (require_int(value, f"padding {side}", 0) for side, value in named)
    return t, b, l_, r
