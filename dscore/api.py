"""What a program calls: convolve arrays, and ask how that would be done."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np

from dscore.algorithms.registry import tiling_from
from dscore.calling import arrays, call_cache, choice
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.backend import Backend, GpuBackend, Kernel, choose_backend, require_accepted
from dscore.core.device import Device
from dscore.core.errors import SpecError, UnavailableError, require_one_of
from dscore.core.plan import RULES, Plan, Rules
from dscore.core.problem import ConvProblem
from dscore.core.spec import DTYPES, Activation, ConvSpec
from dscore.core.tiling import Arithmetic, Tiling
from dscore.core.trace import Trace
from dscore.solving import solver, verdict
from dscore.solving.explain import Explanation, explanation_of

ProblemLike = ConvProblem | str
DeviceLike = Device | str | os.PathLike[str]
TilingLike = Tiling | dict[str, Any]
_RANK = 4


def conv(x: Any, w: Any, bias: Any = None, *, stride: Any = 1, padding: Any = 0,
         dilation: Any = 1, groups: int = 1, activation: Activation | None = None,
         backend: str = "auto", plan: Plan | Tiling | None = None, out: Any = None,
         arithmetic: Arithmetic | None = None) -> Any:
    """Convolve: ``activation(conv2d(x, w) + bias)``, as deep learning defines it.

    *x* has shape (N, C, H, W), *w* (out channels, C / groups, kernel height, kernel width),
    *bias* (out channels,); all of one library (NumPy, PyTorch, or any with DLPack) and one dtype.
    *stride*, *dilation*: an int or (vertical, horizontal). *padding*: "same" (TensorFlow's:
    ceil(size / stride) outputs, the odd row at the end), "valid", an int, (vertical, horizontal),
    ((top, bottom), (left, right)) or four ints. *activation*: relu, relu6, silu, hardswish.
    *plan*: a Plan of this very problem, or a tiling; else the one tuned on this machine, else the
    one shipped for this device, else the solver's first.
    *out*: an array of the result's shape, kind and dtype to write to; it may overlap *x*.
    *arithmetic*: "plain" for float32 products alone; by default a plan may take three TF32 ones for
    each ("tf32x3", NVIDIA), which keep the bound on all but adverse data (docs/model.md).

    Returns the result, of shape (N, out channels, H', W'), as an array of *x*'s library; *out* if
    given. Arrays that are not contiguous, or not of native byte order, are copied first.

    Raises SpecError for arguments that make no convolution, InfeasibleError where nothing fits the
    device, UnavailableError where the backend cannot run here or does not run this dtype.

    >>> conv(np.ones((1, 2, 3, 3), np.float32), np.ones((2, 1, 3, 3), np.float32),
    ...      padding="same", groups=2)[0, 0]
    array([[4., 6., 4.],
           [6., 9., 6.],
           [4., 6., 4.]], dtype=float32)
    """
    if plan is None:
        try:
            call = call_cache.quick.get((id(w), bias is None, stride, padding, dilation, groups,
                                    activation, backend, arithmetic))
        except TypeError:  # an option that cannot be hashed
            call = None
        y = None if call is None else call(x, w, bias, out)
        if y is not None:
            return y
    return _conv(x, w, bias, out, (stride, padding, dilation, groups, activation, backend,
                                   arithmetic), plan)


def _conv(x: Any, w: Any, bias: Any, out: Any, options: tuple[Any, ...],
          plan: Plan | Tiling | None) -> Any:
    """The long way: everything is checked, and a call on GPU arrays remembered."""
    y = None if plan is not None else call_cache.called(x, w, bias, out, options)
    if y is not None:
        return y
    stride, padding, dilation, groups, activation, backend, arithmetic = options
    given = [(x, "x"), (w, "w"), *((array, name) for array, name in ((bias, "bias"), (out, "out"))
                                   if array is not None)]
    dtype = _common_dtype(given)
    _require_shapes(x, w, bias, groups)
    batch, channels, height, width = (int(size) for size in x.shape)
    spec = ConvSpec.make(channels, int(w.shape[0]), tuple(int(k) for k in w.shape[2:]),
                         stride=stride, padding=padding, dilation=dilation, groups=groups,
                         dtype=dtype, bias=bias is not None, activation=activation)
    # A batch of none is judged as a batch of one, and computes nothing.
    problem = ConvProblem(spec, max(batch, 1), height, width)
    shape = (batch, *problem.y_shape[1:])
    if any(call_cache.on_gpu(array) for array, _ in given):
        call = _gpu_call(problem, {name: array for array, name in given}, shape, backend, plan,
                         arithmetic)
        if not batch:  # never remembered: a remembered call launches
            return call.nothing(out, x, w, bias)
        if plan is None:
            call_cache.remember(x, w, bias, options, call)
        return call(x, w, bias, out)
    kernel = _kernel_for(problem, backend, plan, arithmetic)
    if out is not None and tuple(out.shape) != shape:
        raise SpecError(f"out has shape {tuple(out.shape)}, the result has {shape}")
    target = None if out is None else arrays.view(out, "out", writable=True)
    if target is None or _needs_own(target, x, w, bias):
        result = np.full(shape, np.nan, dtype)
    else:
        result = target
    if batch:
        kernel(_ready(x, "x"), _ready(w, "w"), None if bias is None else _ready(bias, "bias"),
               result)
    if target is None:
        return arrays.like(result, x)
    if result is not target:
        target[...] = result
    return out


def _gpu_call(problem: ConvProblem, given: dict[str, Any], shape: tuple[int, ...], backend: str,
              plan: Plan | Tiling | None, arithmetic: Arithmetic | None) -> call_cache.Call:
    """The prepared call for arrays that lie on a GPU."""
    adapter = call_cache.adapter_of(arrays.library_of(given["x"], "x"))
    index = call_cache.require_together(adapter, given)
    chosen = choose_backend("hip" if backend == "auto" else backend)
    if not isinstance(chosen, GpuBackend):
        raise UnavailableError(f"x lies on GPU {index}, and backend {chosen.name} runs host "
                               "arrays; copy it to the host, or take backend hip")
    device = chosen.device_at(index)
    name = "hip" if backend == "auto" else backend
    made = (choice.decided(problem, device, chosen, name, arithmetic) if plan is None
            else choice.given(problem, device, plan, arithmetic))
    require_accepted(chosen, made)
    loaded = chosen.kernel_on(made, index)
    inputs = tuple(array for name, array in given.items() if name != "out")
    return call_cache.Call(adapter, inputs, shape, loaded)


def _ready(array: Any, name: str) -> arrays.Array:
    """A C-contiguous array of native byte order."""
    host = arrays.view(array, name)
    return np.ascontiguousarray(host, dtype=host.dtype.newbyteorder("="))


def _needs_own(target: arrays.Array, *inputs: Any) -> bool:
    """Whether the kernel may not write to *target* itself."""
    if not target.flags.c_contiguous or not target.dtype.isnative:
        return True
    return any(np.may_share_memory(target, arrays.view(array, "x"))
               for array in inputs if array is not None)


def _common_dtype(given: list[tuple[Any, str]]) -> Any:
    """The dtype shared by all arrays, which must be of one library."""
    libraries = {name: arrays.library_of(array, name) for array, name in given}
    dtypes = {name: arrays.dtype_name(array) for array, name in given}
    for what, found in (("library", libraries), ("dtype", dtypes)):
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{name} {value}" for name, value in found.items())
            raise SpecError(f"all arrays must be of one {what}, got {listed}")
    if dtypes["x"] not in DTYPES:
        raise SpecError(f"dtype must be one of {', '.join(DTYPES)}; x is {dtypes['x']}")
    return dtypes["x"]


def _require_shapes(x: Any, w: Any, bias: Any, groups: int) -> None:
    for array, name, axes in ((x, "x", "(N, C, H, W)"),
                              (w, "w", "(out channels, C / groups, kernel height, width)")):
        if len(array.shape) != _RANK:
            raise SpecError(f"{name} must have 4 axes {axes}, got shape {tuple(array.shape)}")
    if isinstance(groups, int) and groups >= 1 and x.shape[1] != w.shape[1] * groups:
        raise SpecError(f"x has {x.shape[1]} channels, but w of shape {tuple(w.shape)} with "
                        f"groups={groups} takes {w.shape[1]} * {groups} = {w.shape[1] * groups}")
    if bias is not None and tuple(bias.shape) != (w.shape[0],):
        raise SpecError(f"bias must have shape ({w.shape[0]},), one per output channel, "
                        f"got {tuple(bias.shape)}")


def _kernel_for(problem: ConvProblem, backend: str, plan: Plan | Tiling | None,
                arithmetic: Arithmetic | None) -> Kernel:
    """The compiled kernel; those of the solver's own plans are kept."""
    if plan is None:
        return _solved_kernel(problem, backend, arithmetic)
    chosen = choose_backend(backend)
    given = choice.given(problem, chosen.device(), plan, arithmetic)
    require_accepted(chosen, given)
    return chosen.compile(given)


@lru_cache(maxsize=1024)
def _solved_kernel(problem: ConvProblem, backend: str,
                   arithmetic: Arithmetic | None = None) -> Kernel:
    chosen = choose_backend(backend)
    plan = choice.decided(problem, chosen.device(), chosen,
                            chosen.name if backend == "auto" else backend, arithmetic)
    require_accepted(chosen, plan)
    return chosen.compile(plan)


def problem_of(problem: ProblemLike) -> ConvProblem:
    """A problem, from itself, its token, or the name of a shipped layer ("P13").

    Raises SpecError for an unknown name, or one of several layers.
    """
    if isinstance(problem, ConvProblem):
        return problem
    found = catalog.find(problem)
    if len(found) != 1:
        raise SpecError(f"{problem!r} names {len(found)} layers; name one of them, "
                        f"for example {found[0].name!r}")
    return found[0].problem


def device_of(device: DeviceLike) -> Device:
    """A device, from itself, its shipped name, or the path of a TOML file."""
    return device if isinstance(device, Device) else catalog.device(device)


def tiling_of(tiling: TilingLike) -> Tiling:
    """A tiling, from itself or from a dict of its fields."""
    return tiling_from(tiling) if isinstance(tiling, dict) else tiling


def solve(problem: ProblemLike, device: DeviceLike = "z100sm", rules: Rules = "hardware",
          masked: bool | None = None, algorithm: str | None = None) -> solver.Space:
    """Every tiling that fits; see `dscore.solving.solver.solve` and `dscore.solving.solver.Space`.

    >>> len(solve("P1", "z100sm", "paper"))
    835
    """
    return solver.solve(problem_of(problem), device_of(device), _rules(rules), masked, algorithm)


def plan_for(problem: ProblemLike, device: DeviceLike = "z100sm", rules: Rules = "hardware",
             tiling: TilingLike | None = None, chosen: Backend | None = None) -> Plan:
    """The plan of an untuned machine (shipped, or the cost model's first), or that of *tiling*.

    A shipped one that the backend *chosen* refuses is passed over.

    Raises InfeasibleError where nothing fits, InvalidTiling where *tiling* does not.

    >>> plan_for("D1").tiling.algorithm
    'row_reuse'
    """
    stated, target = problem_of(problem), device_of(device)
    if tiling is None:
        return choice.untuned(stated, target, _rules(rules), chosen)
    given = tiling_of(tiling)
    verdict.validate(stated, given, target, _rules(rules), masked=True).require()
    return solver.make_plan(stated, target, given, rules)


def validate(problem: ProblemLike, tiling: TilingLike, device: DeviceLike = "z100sm",
             rules: Rules = "hardware", block_n: int = 1,
             masked: bool = False) -> verdict.Verdict:
    """Judge one configuration; see `dscore.solving.verdict.validate`.

    >>> validate("P28", dict(wave_w=1, wave_c=64, repeat_w=1, repeat_c=4, group_c=16),
    ...          block_n=2).ok
    False
    """
    return verdict.validate(problem_of(problem), tiling_of(tiling), device_of(device),
                            _rules(rules), block_n, masked)


def explain(problem: ProblemLike | Plan, device: DeviceLike = "z100sm",
            rules: Rules = "hardware") -> Explanation:
    """The plan of a problem (or a given plan) with its ledger, picture and floor.

    >>> print(explain("P13").floor)
    floor 0.68 µs = max(449,536 B at 1,000 GB/s (data sheet), 9,633,792 flops at 14.1 TFLOP/s)
    """
    plan = problem if isinstance(problem, Plan) else plan_for(problem, device, rules)
    space = solver.solve(plan.problem, plan.device, plan.rules)
    return explanation_of(plan, len(space), space.note, choice.origin_said(plan))


def trace(problem: ProblemLike, plan: Plan | TilingLike | None = None,
          device: DeviceLike = "z100sm", seed: int = 0) -> Trace:
    """Run a problem on the reference backend with random data and count what its lanes do.

    >>> trace("n1c1h5w5_o1k3", dict(thread_h=3, thread_w=1, lanes_h=1, lanes_w=3, planes=1)
    ...       ).rows_loaded
    5
    """
    chosen = plan if isinstance(plan, Plan) else plan_for(problem, device, tiling=plan)
    x, w, bias = bound.sample(chosen.problem, seed)
    out, counted = np.empty(chosen.problem.y_shape, np.float32), Trace()
    kernel: Any = choose_backend("reference").compile(chosen)
    kernel(x, w, bias, out, trace=counted)
    return counted


def _rules(rules: Rules) -> Rules:
    return require_one_of(rules, "rules", RULES)  # type: ignore[no-any-return]
