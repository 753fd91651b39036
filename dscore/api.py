"""The functions that a program calls: to convolve arrays, and to ask how that would be done.

Where a function takes a device, None stands for the GPU that is here; where there is none, the
device of the first paper is assumed (`assumed_device`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from dscore.algorithms.registry import as_tiling, names, tiling_from
from dscore.calling import choice, convolve
from dscore.calling.arguments import PaddingLike, PairLike, side_of
from dscore.calling.arrays import Array, ArrayT
from dscore.calling.call_cache import CALLS
from dscore.calling.pack import PackedFilter
from dscore.calling.quantization import Quantization, quantised
from dscore.checking import bound
from dscore.core import catalog
from dscore.core.backend import Backend, choose_backend, gpu_here
from dscore.core.device import Device
from dscore.core.errors import SpecError, require_int, require_one_of, shown
from dscore.core.numerics import ArithmeticOption
from dscore.core.plan import RULES, Plan, Rules
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation, Layout
from dscore.core.tiling import Tiling
from dscore.core.trace import Trace
from dscore.solving import solver, verdict
from dscore.solving.explain import Explanation, explanation_of
from dscore.tuning.shipped_hints import untuned_plan

if TYPE_CHECKING:
    from dscore.building.reports import Report

ProblemLike = ConvProblem | str
DeviceLike = Device | str | os.PathLike[str]
TilingLike = Tiling | Mapping[str, Any]
# Of which lanes and limits are assumed where there is no GPU.
_ASSUMED = "z100sm"
# The cache is looked up at every call: this saves two look-ups of attributes.
_fast_call = CALLS.fast.get


def conv(x: ArrayT, w: Array | PackedFilter, bias: Array | None = None, stride: PairLike = 1,
         padding: PaddingLike = 0, dilation: PairLike = 1, groups: int = 1, *,
         activation: Activation | None = None, backend: str = "auto",
         plan: Plan | TilingLike | None = None, out: Array | None = None,
         arithmetic: ArithmeticOption | None = None, residual: Array | None = None,
         residual_after: bool = False, scale: Array | None = None,
         layout: Layout | None = None, quantization: Quantization | None = None) -> ArrayT:
    """Convolution ``activation(conv2d(x, w) + bias)``, as deep learning defines it.

    The positional arguments are those of ``torch.nn.functional.conv2d``. All arrays are of one
    type (float32, float16, bfloat16; summed in float32), device and library: NumPy (with
    ml_dtypes' bfloat16), PyTorch, CuPy, or any with DLPack.

    - *x*: the input, of shape (N, C, H, W), or (C, H, W) for one image. PyTorch's channels_last
      tensors are taken as they lie and give such a result; of one channel or pixel, which lie in
      both ways, they count as contiguous, unless the residual decides.
    - *w*: filters, (M, C / groups, height, width), or packed by `dscore.pack`; *bias*: (M,).
    - *stride*, *dilation*: an int, or (vertical, horizontal); *groups*: C makes it depthwise.
    - *padding*: an int, (vertical, horizontal), ((top, bottom), (left, right)), or four ints;
      "valid"; "same" for ceil(size / stride) outputs, an odd row or column at the end.
    - *activation*: "relu", "relu6", "silu", "hardswish", "sigmoid", "hardsigmoid" or None.
    - *backend*: "hip" (GPUs), "reference" (NumPy), "emulated" (kernels of GPUs on the host), or
      "module:Class"; "auto" is hip where a GPU can be used, else reference.
    - *plan*: a Plan of this very problem, a tiling, or a dict of a tiling's fields, which runs with
      a RuntimeWarning where it spills; None for the plan tuned on this machine, else the one
      shipped for this device, else the solver's first that does not spill (docs/registers.md).
    - *out*: an array of the result's shape to write to, or None. On the host it may overlap the
      inputs; on a GPU it may not, and must lie as the result would.
    - *arithmetic*: "plain" for float32 products; "tf32x3" for those made of three TF32 ones, with
      a bound of their own and NaN for infinities (docs/bounds.md); "matrix16" for 16-bit elements
      on matrix units; None for any. "winograd" permits Winograd's algorithm, which errs by more.
    - *residual*: of the result's shape, added before the activation, or after (*residual_after*).
    - *scale*: of shape (N, C) or (N, C, 1, 1), which multiplies x beforehand; of 1x1 layers alone.
    - *layout*: "nhwc" where the axes of images, results too, are (N, H, W, C); None is "nchw".
    - *quantization*: the scales of int8 arrays, with a bias of int32; x may be of floats then, too.

    Returns *out*, or an array of *x*'s library: (N, M, H', W'), or (M, H', W') for one image.
    Inputs that lie otherwise, or are not of native byte order, are copied first. Raises SpecError
    (no convolution, or tensors that require a gradient outside ``torch.no_grad()``), CompileError,
    LaunchError, UnavailableError (cannot run here), InfeasibleError (nothing fits, or no kernel).

    >>> import numpy as np
    >>> conv(np.ones((1, 2, 3, 3), "f4"), np.ones((2, 1, 3, 3), "f4"), padding=1, groups=2)[0, 0, 1]
    array([6., 9., 6.], dtype=float32)
    """
    if residual is not None or scale is not None or layout is not None or quantization is not None:
        return _conv_of_all(  # type: ignore[no-any-return]
            x, w, bias, out, plan, {"residual": residual, "scale": scale}, residual_after, layout,
            (stride, padding, dilation, groups, activation, backend, arithmetic), quantization)
    if plan is None:
        try:
            call = _fast_call((id(w), bias is None, stride, padding, dilation, groups, activation,
                               backend, arithmetic))
        except (TypeError, ValueError):  # an option that cannot be hashed
            call = None
        y = None if call is None else call(x, w, bias, out)
        if y is not None:
            return y  # type: ignore[no-any-return]
    return convolve.convolve(  # type: ignore[no-any-return]
        x, w, bias, out, (stride, padding, dilation, groups, activation, backend, arithmetic), plan)


def _conv_of_all(x: Any, w: Any, bias: Any, out: Any, plan: Any, further: dict[str, Any],
                 after: bool, layout: Layout | None, options: tuple[Any, ...],
                 quantization: Quantization | None) -> Any:
    """The convolution with what else there is beside these options; the fast call takes it, too."""
    side = None if further["residual"] is None else side_of(after)
    options = *options, side, further["scale"] is not None, *[layout] * (layout is not None)
    further = {name: array for name, array in further.items() if array is not None}
    if quantization is not None:
        options, further = quantised(x, w, options, further, quantization)
    if plan is None:
        try:
            call = _fast_call((id(w), bias is None, *options))
        except (TypeError, ValueError):  # an option that cannot be hashed
            call = None
        y = None if call is None else call(x, w, bias, *further.values(), out)
        if y is not None:
            return y
    return convolve.convolve(x, w, bias, out, options, plan, further)


def problem_of(problem: ProblemLike) -> ConvProblem:
    """A problem, from itself, its token, or the name of a shipped layer ("P13").

    Raises SpecError for an unknown name, or one of several layers.
    """
    if isinstance(problem, ConvProblem):
        return problem
    layers = catalog.find(problem)
    if len(layers) != 1:
        raise SpecError(f"{shown(problem)} names {len(layers)} layers; name one of them, "
                        f"for example {layers[0].name!r}")
    return layers[0].problem


def assumed_device() -> tuple[Device, str]:
    """The GPU that is here, and ""; where there is none, an assumed device, and words to say so."""
    here = gpu_here()
    if here is not None:
        return here, ""
    why = f"{_ASSUMED}, as there is no GPU here; device= or --device names another"
    return catalog.device(_ASSUMED), why


def device_of(device: DeviceLike | None) -> Device:
    """A device, from itself, its shipped name, or the path of a TOML file; None: see above."""
    if device is None:
        return assumed_device()[0]
    return device if isinstance(device, Device) else catalog.device(device)


def tiling(values: Mapping[str, Any] | None = None, /, **fields: Any) -> Tiling:
    """A tiling from its fields, as a dict or by name; `algorithm` ("gemm", ...) may be left out.

    Raises SpecError for an unknown algorithm, and for fields that no tiling has together.

    >>> tiling(threads=64, thread_c=2) == tiling({"threads": 64, "thread_c": 2})
    True
    >>> tiling(algorithm="direct", threads=64, thread_c=2).name
    'direct_t64_c2'
    """
    if values is not None and not isinstance(values, Mapping):
        raise SpecError(f"a tiling's fields are a dict, got {shown(values)}")
    return tiling_from({**(values or {}), **fields})


def solve(problem: ProblemLike, device: DeviceLike | None = None, rules: Rules = "hardware",
          masked: bool | None = None, algorithm: str | None = None) -> solver.Space:
    """The tilings that fit; see `dscore.solving.solver.solve` and `dscore.solving.solver.Space`.

    >>> len(solve("P1", "z100sm", "paper"))
    835
    """
    require_one_of(masked, "masked", (None, True, False))
    require_one_of(algorithm, "algorithm", (None, *names()))
    return solver.solve(problem_of(problem), device_of(device), _rules(rules), masked, algorithm)


def plan_for(problem: ProblemLike, device: DeviceLike | None = None, rules: Rules = "hardware",
             tiling: TilingLike | None = None, backend: Backend | str | None = None) -> Plan:
    """The plan of an untuned machine (shipped, or the cost model's first), or that of *tiling*.

    A shipped plan that *backend* (one, or its name) refuses is passed over. Raises
    InfeasibleError where nothing fits, InvalidTiling where *tiling* does not.

    >>> plan_for("D1", "z100sm").tiling.algorithm
    'row_reuse'
    """
    layer, target = problem_of(problem), device_of(device)
    if tiling is None:
        return untuned_plan(layer, target, _rules(rules), _backend_of(backend))
    fitting = as_tiling(tiling)
    verdict.validate(layer, fitting, target, _rules(rules), masked=True).require()
    return solver.make_plan(layer, target, fitting, rules)


def validate(problem: ProblemLike, tiling: TilingLike, device: DeviceLike | None = None,
             rules: Rules = "hardware", block_n: int = 1,
             masked: bool = False) -> verdict.Verdict:
    """The verdict on one configuration; see `dscore.solving.verdict.validate`.

    >>> validate("P28", dict(wave_w=1, wave_c=64, repeat_w=1, repeat_c=4, group_c=16),
    ...          "z100sm", block_n=2).ok
    False
    """
    require_one_of(masked, "masked", (True, False))
    return verdict.validate(problem_of(problem), as_tiling(tiling), device_of(device),
                            _rules(rules), require_int(block_n, "block_n"), masked)


def explain(problem: ProblemLike | Plan, device: DeviceLike | None = None,
            rules: Rules = "hardware") -> Explanation:
    """The plan of a problem (or a given plan) with its ledger, picture and floor.

    Where the cache or a loaded file has the plan's kernel, registers, residency and ledger are
    those that its compiler reported. Of a problem whose first kernel spills, the plan is the one
    that `conv` takes instead; `passed_over` names the others.

    >>> print(explain("P13", "z100sm").floor)
    floor 0.68 µs = max(449,536 B at 1,000 GB/s (data sheet), 9,633,792 flops at 14.1 TFLOP/s)
    """
    from dscore.building.kernels import report_on  # imports what plans do not need

    if isinstance(problem, Plan):
        choice.require_made(problem)
        return _explanation(problem, report_on(problem))
    target, assumed = assumed_device() if device is None else (device_of(device), "")
    plan, report, passed = choice.unspilled(plan_for(problem, target, rules), report_on, _spills)
    return replace(_explanation(plan, report, named=False), assumed=assumed,
                   passed_over="; ".join(map(str, passed)))


def _explanation(plan: Plan, report: Report | None, named: bool = True) -> Explanation:
    """The explanation of a plan, by what its compiler reported where that is known."""
    spaces = solver.compared_spaces(plan.problem, plan.device, plan.rules)
    predicted = plan
    if plan.reported_registers is not None:
        predicted = solver.make_plan(plan.problem, plan.device, plan.tiling, plan.rules)
    if report is not None:
        plan = _reported(predicted, report)
    return replace(explanation_of(plan, sum(map(len, spaces)), spaces[-1].note,
                                  choice.origin_text(predicted, named)), spills=_spills(report))


def _reported(plan: Plan, report: Report) -> Plan:
    """*plan* with the registers and the residency of a report; a caller's own residency stays."""
    made = partial(solver.make_plan, plan.problem, plan.device, plan.tiling, plan.rules,
                   reported_registers=report.held)
    usual = solver.make_plan(plan.problem, plan.device, plan.tiling, plan.rules).block_n
    if plan.block_n != usual:
        return made(block_n=plan.block_n)
    # hipcc's wavefronts on a SIMD count scalar registers, too.
    waves = (report.occupancy_waves or plan.device.waves_per_simd) * plan.device.simds_per_cu
    return made(block_n=min(made().block_n, max(waves // plan.use.waves, 1)))


def _spills(report: Report | None) -> int:
    return 0 if report is None else report.words_in_memory


def trace(problem: ProblemLike, plan: Plan | TilingLike | None = None,
          device: DeviceLike | None = None, seed: int = 0) -> Trace:
    """The counts of what the lanes do, from a run on the reference backend with random data.

    Raises SpecError where a *plan* is for another problem.

    >>> trace("n1c1h5w5_o1k3", dict(thread_h=3, thread_w=1, lanes_h=1, lanes_w=3, planes=1)
    ...       ).rows_loaded
    5
    """
    seed = require_int(seed, "seed", 0)
    plan = (choice.callers_plan(problem_of(problem), plan.device, plan) if isinstance(plan, Plan)
            else plan_for(problem, device, tiling=plan))
    counts = Trace()
    kernel: Any = choose_backend("reference").compile(plan)
    kernel(*bound.sample(plan.problem, seed), *bound.blank(plan.problem), trace=counts)
    return counts


def _backend_of(backend: Backend | str | None) -> Backend | None:
    if isinstance(backend, Backend) and not isinstance(backend, type):
        return backend
    return None if backend is None else choose_backend(cast(str, backend))


def _rules(rules: Rules) -> Rules:
    return require_one_of(rules, "rules", RULES)  # type: ignore[no-any-return]
