"""Filter packed for kernels: transformed once, into a value that the caller holds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from dscore.calling.arguments import common_library
from dscore.calling.arrays import Adapter, Array
from dscore.core.errors import SpecError, UnavailableError, require_one_of
from dscore.core.numerics import ACCUMULATOR, FILTER_FORMS, FilterForm
from dscore.core.winograd import FILTER_FOUR, KERNEL, filter_shape, tile_of
from dscore.ops.tiles import matrices

_FORMS = tuple(form for form in FILTER_FORMS if form != "plain")
# Whose functions pack a filter where it lies; arrays of others are packed by NumPy.
_LIBRARIES = ("numpy", "torch", "cupy")


@dataclass(frozen=True, eq=False)
class PackedFilter:
    """Filter in the *form* that kernels want, for `dscore.conv` in place of w; made by `pack`.

    *array* is of the library and on the device of the filter that it was made of, whose shape and
    element type it states. It keeps the values of that moment: where the filter changes, in
    training at every step, it must be packed again. Nothing remembers it but its holder.

    >>> packed = pack(np.ones((64, 30, 3, 3), np.float32))
    >>> packed.shape, packed.form, packed.array.shape
    ((64, 30, 3, 3), 'winograd4', (36, 8, 64, 4))
    """

    array: Any
    form: FilterForm
    shape: tuple[int, int, int, int]  # (out channels, C / groups, kernel height, kernel width)

    @property
    def dtype(self) -> Any:
        """Element type, as the array's library states it."""
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(self.array.nbytes)

    def __repr__(self) -> str:
        outs, group_in, height, width = self.shape
        return (f"a {height}x{width} filter of {group_in} -> {outs} channels packed as "
                f"{self.form}, {self.nbytes:,} B")


def pack(w: Array, form: FilterForm = "winograd4") -> PackedFilter:
    """A filter packed for kernels, which then need not transform it in each call.

    - *w*: the filters of a 3x3 layer, (M, C, 3, 3), of float32.
    - *form*: "winograd4" or "winograd2": ``G w Gᵀ`` of Winograd's F(4x4, 3x3) or F(2x2, 3x3), made
      in float64 and rounded once. A call with it permits that arithmetic.

    Raises SpecError for another filter, UnavailableError for an array that cannot be read here.

    >>> pack(np.ones((64, 30, 3, 3), np.float32))
    a 3x3 filter of 30 -> 64 channels packed as winograd4, 294,912 B
    """
    require_one_of(form, "form", _FORMS)
    adapter, dtype = common_library({"w": w})
    shape = tuple(int(size) for size in w.shape)
    if len(shape) != 4 or shape[2:] != (KERNEL, KERNEL):
        raise SpecError(f"a filter packed as {form} is of a {KERNEL}x{KERNEL} layer, (M, C, "
                        f"{KERNEL}, {KERNEL}); got shape {shape}")
    if dtype != ACCUMULATOR.name:
        raise SpecError(f"a filter packed as {form} is of {ACCUMULATOR.name}; w is {dtype}")
    return PackedFilter(_transformed(adapter, w, tile_of(form)), form, shape)


def _transformed(adapter: Adapter, w: Any, m: int) -> Any:
    """``G w Gᵀ`` in the shape of `filter_shape`, where *w* lies."""
    if adapter.library not in _LIBRARIES:
        if adapter.index(w) is not None:
            raise UnavailableError(f"{adapter.library} arrays on a GPU cannot be packed; there are "
                                   f"{', '.join(_LIBRARIES[1:])}: pass torch.from_dlpack(w)")
        return adapter.like(_by_fours(np, adapter.view(w, "w"), m), w)
    return _by_fours(sys.modules[adapter.library],
                     w.detach() if adapter.library == "torch" else w, m)


def _by_fours(xp: Any, w: Any, m: int) -> Any:
    """The transformed filter, its channels in fours, by the functions of *w*'s library."""
    _, g, _ = matrices(xp, m, w)
    tiles = g @ xp.asarray(w, dtype=xp.float64) @ g.T
    outs, group_in, *_ = tiles.shape
    shape = filter_shape(m, outs, group_in)
    missing = shape[1] * FILTER_FOUR - group_in
    if missing:
        tiles = xp.concatenate([tiles, *[xp.zeros_like(tiles[:, :1])] * missing], 1)
    by_element = xp.moveaxis(tiles.reshape(outs, shape[1], FILTER_FOUR, shape[0]), -1, 0)
    packed = xp.asarray(xp.swapaxes(by_element, 1, 2), dtype=xp.float32)
    return packed.contiguous() if xp is sys.modules.get("torch") else xp.ascontiguousarray(packed)
