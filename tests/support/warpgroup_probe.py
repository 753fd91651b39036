"""Kernels that try products of warpgroups and boxes of tensors (warpgroup_probe.hpp), and what
NumPy makes of the same."""

import ctypes
from pathlib import Path

import numpy as np

from dscore.core.numerics import ELEMENTS

# Type, columns, whether each operand lies across, whether the first is in registers.
PRODUCTS = {
    "halves_24": ("float16", 24, 0, 0, 0), "halves_64": ("float16", 64, 0, 0, 0),
    "halves_256": ("float16", 256, 0, 0, 0), "halves_200": ("float16", 200, 0, 0, 0),
    "halves_across_b": ("float16", 144, 0, 1, 0), "halves_across": ("float16", 96, 1, 1, 0),
    "halves_across_256": ("float16", 256, 1, 1, 0), "halves_across_8": ("float16", 8, 1, 1, 0),
    "halves_registers": ("float16", 40, 0, 0, 1),
    "halves_registers_across": ("float16", 72, 0, 1, 1),
    "brains_8": ("bfloat16", 8, 0, 0, 0), "brains_across": ("bfloat16", 128, 1, 1, 0),
    "brains_registers": ("bfloat16", 32, 0, 1, 1),
    "tf32_16": ("float32", 16, 0, 0, 0), "tf32_256": ("float32", 256, 0, 0, 0),
    "tf32_registers": ("float32", 64, 0, 0, 1), "tf32_registers_104": ("float32", 104, 0, 0, 1),
}


def unit():
    """The C++ unit of all probes."""
    lines = [Path(__file__).with_suffix(".hpp").read_text(), 'extern "C" {']
    for name, (dtype, columns, *flags) in PRODUCTS.items():
        lines.append(f"DSCORE_PRODUCT_PROBE({name}, {dtype}, {columns}, "
                     f"{', '.join('true' if flag else 'false' for flag in flags)})")
    lines += [f"DSCORE_BOX_PROBE(box_{rank}, {rank})" for rank in (2, 3, 4, 5)]
    return "\n".join([*lines, "}\n"])


def sizes(name):
    """(rows, depth, columns) that there are: all, and with tails, by the 16 bytes of a map."""
    dtype, columns, across_a, across_b, _ = PRODUCTS[name]
    depth = 64 if dtype == "float32" else 128
    few = 40 if across_a else 37
    yield 64, depth, columns
    yield few, depth - 24, columns if across_b else max(columns - 5, 1)
    yield 8, 8, 8


def address(number):
    """An address as a launch takes it."""
    return ctypes.c_void_p(number)


def on_host(arrays, launch):
    """Launch on the arrays' own memory."""
    aligned = [_aligned(one) for one in arrays]
    code = launch(*(address(one.ctypes.data) for one in aligned))
    return code, aligned[-1]


def _aligned(array):
    room = np.empty(array.nbytes + 16, np.uint8)
    first = -room.ctypes.data % 16
    copy = room[first:first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Probes:
    """The library of the probes; *on* brings arrays to where a launch finds them."""

    def __init__(self, path, on):
        self.library, self.on = ctypes.CDLL(str(path)), on

    def raw_product(self, name, rows, depth, columns):
        """The code of a launch."""
        return self._product(name, rows, depth, columns)[0]

    def product(self, name, rows, depth, columns):
        """The products of a kernel, and NumPy's, of small integers whose sums are exact."""
        code, given, wanted = self._product(name, rows, depth, columns)
        assert code == 0
        return given, wanted

    def _product(self, name, rows, depth, columns):
        dtype, all_columns, across_a, across_b, _ = PRODUCTS[name]
        random = np.random.default_rng(rows + depth)
        a, b = (random.integers(-8, 9, (count, depth)).astype(np.float32)
                for count in (rows, columns))
        wanted = np.zeros((64, all_columns), np.float32)
        wanted[:rows, :columns] = a @ b.T
        numpy = ELEMENTS[dtype].numpy
        operands = [np.ascontiguousarray((one.T if across else one).astype(numpy))
                    for one, across in ((a, across_a), (b, across_b))]
        out = np.full(wanted.shape, np.nan, np.float32)
        function = getattr(self.library, name)
        code, given = self.on([*operands, out], lambda *at: function(*at, rows, depth, columns))
        return code, given, wanted

    def box(self, rank, seed):
        """A box of a random tensor, a corner of which may lie outside, one added, elsewhere in
        another; and NumPy's."""
        random = np.random.default_rng(10 * rank + seed)
        sizes = [4 * int(random.integers(1, 6)), *map(int, random.integers(1, 7, rank - 1))]
        box = [4 * int(random.integers(1, 4)), *map(int, random.integers(1, 5, rank - 1))]
        at, to = ([int(random.integers(-side, size + 1)) for side, size in zip(box, sizes,
                                                                            strict=True)]
                  for _ in range(2))
        tensor = random.integers(0, 100, sizes[::-1]).astype(np.float32)
        out = np.full_like(tensor, -7)
        wanted = out.copy()
        for place in np.ndindex(*box):
            source, target = (tuple(a + b for a, b in zip(first, place, strict=True))
                              for first in (at, to))
            value = tensor[source[::-1]] if _within(source, sizes) else np.float32(0)
            if _within(target, sizes):
                wanted[target[::-1]] = value + 1
        fill = [0] * (5 - rank)
        shape = (ctypes.c_int * 20)(*sizes, *fill, *box, *fill, *at, *fill, *to, *fill)
        function = getattr(self.library, f"box_{rank}")
        code, given = self.on([tensor, out], lambda *addresses: function(*addresses, shape))
        assert code == 0
        return given, wanted


def _within(place, sizes):
    return all(0 <= index < size for index, size in zip(place, sizes, strict=True))
