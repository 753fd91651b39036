"""What a user does on the stand-in for AMD's runtime, in one process.

The argument is a JSON list of command lines, each a list, and of names of functions below; printed
is the JSON list of what each printed with --json, or returned, beside its exit code.
"""

import contextlib
import ctypes
import gc
import io
import json
import os
import sys
from dataclasses import asdict

if "STANDIN_WITHOUT_HIP_PYTHON" in os.environ:
    sys.modules["hip"] = None

import numpy as np

import dscore
from dscore.cli import main
from dscore.cli.commands.devices import gpu_records
from dscore.core.backend import backend
from dscore.core.errors import LaunchError
from dscore.core.token import parse_problem
from dscore.measuring.vendor_runtime import runtime
from dscore.tuning.shipped_hints import untuned_plan


def command(arguments):
    """Exit code and data of a command line, which begins with the command's name."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main([*arguments[1:], "--json"])
    return {"code": code, "data": json.loads(out.getvalue() or "null")}


def conv():
    """Whether a call on arrays of NumPy is exact, on numbers that every order of sums keeps."""
    draw = np.random.default_rng(7)
    x, w = (draw.integers(-9, 9, shape).astype(np.float32)
            for shape in ((1, 2, 5, 4), (2, 1, 3, 3)))
    y = dscore.conv(x, w, padding=1, groups=2, backend="hip")
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    return {"code": 0, "data": bool(np.array_equal(y, (windows * w[:, 0, None, None]).sum((4, 5))))}


def allocated_bytes():
    """Device memory that nobody gave back."""
    gc.collect()
    library = ctypes.CDLL("libamdhip64.so.5")
    library.standin_allocated_bytes.restype = ctypes.c_size_t
    return {"code": 0, "data": library.standin_allocated_bytes()}


def gpus():
    """What the commands devices and env say of GPUs."""
    return {"code": 0, "data": gpu_records()}


def properties():
    """What the driver reports of the device."""
    here = runtime("amd")
    return {"code": 0, "data": {**asdict(here.driver_properties(0)), "slot": here.slot(0)}}


def stray():
    """A kernel launched on memory of the host."""
    hip = backend("hip")
    plan = untuned_plan(parse_problem("n1c2h5w4_o2k3p1g2"), hip.device(), backend=hip)
    array = np.zeros(1024, np.float32)
    address = array.ctypes.data + -array.ctypes.data % 64
    try:
        hip.kernel_on(plan, 0).launch(*[address] * 2, 0, address, 0, 0)
    except LaunchError as failed:
        return {"code": 5, "data": str(failed)}
    return {"code": 0, "data": None}


if __name__ == "__main__":
    print(json.dumps([globals()[one]() if isinstance(one, str) else command(one)
                      for one in json.loads(sys.argv[1])]))
