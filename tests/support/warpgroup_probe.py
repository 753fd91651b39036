"""Kernels that try products of warpgroups (warpgroup_probe.hpp), and what NumPy makes of them."""

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
