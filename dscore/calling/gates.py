"""Gates of squeeze-and-excitation of images that lie on a GPU, by one kernel."""

from __future__ import annotations

from typing import Any

from dscore.algorithms.gate import Gate
from dscore.calling.arguments import adapter_of, common_gpu, memory_layout
from dscore.calling.arrays import dtype_name, library_of
from dscore.calling.call_cache import MOST_CALLS, FastCall, PreparedCall
from dscore.calling.kernels import prepared
from dscore.core.backend import gpu_device
from dscore.core.device import Device
from dscore.core.numerics import FLOAT_RESULTS
from dscore.core.problem import ConvProblem
from dscore.core.spec import Activation, ConvSpec, Layout
from dscore.ops import operands_of
from dscore.ops.gate import BETWEEN, gate_operation

_PREPARED: dict[Any, PreparedCall] = {}
_FAST: dict[PreparedCall, FastCall] = {}
# Elements of a filter, and of it for all images, each of which reads it: of more, products of
# matrices for all images are faster.
_MOST_WEIGHTS, _MOST_READ = 1 << 16, 1 << 20


def gate_problem(shape: tuple[int, ...], between: int, dtype: str, layout: Layout, bias: bool,
                 activations: tuple[Activation | None, Activation | None],
                 out_dtype: str | None = None) -> ConvProblem | None:
    """The problem of a gate of images (N, C, H, W) of a memory's *layout*, with so many channels
    *between* two layers of these *activations*; None where there is no gate of these activations
    and types.

    *out_dtype*: the type of filters and result, "float32" or "float16", of int8 images.

    >>> gate_problem((2, 8, 5, 5), 4, "float32", "nchw", True, ("relu", "sigmoid")).operation
    'gate'
    """
    first, last = activations
    operation = gate_operation(last)
    if operation is None or first not in BETWEEN or out_dtype not in (None, *FLOAT_RESULTS):
        return None
    images, channels, height, width = shape
    spec = ConvSpec.make(channels, between, 1, dtype=dtype, layout=layout, bias=bias,
                         activation=first, out_dtype=out_dtype)
    return ConvProblem(spec, images, height, width, operation)


def gains(problem: ConvProblem, device: Device) -> bool:
    """Whether one kernel is taken for a gate: on devices whose blocks read one another's LDS, for
    filters that are read soon enough by each image (docs/benchmark_notes.md). Elsewhere an image
    has but one block."""
    filters = problem.spec.in_channels * problem.spec.out_channels
    return (device.cluster_blocks > 1 and filters <= _MOST_WEIGHTS
            and filters * problem.batch <= _MOST_READ and not Gate().refuses(problem))


def gate_device(backend: str, index: int | None) -> Device | None:
    """GPU *index* (None: of what lies on the host) for the backend of a name; None where that has
    none on which a gate may be one launch."""
    device = gpu_device(backend, index)
    return device if device is not None and device.cluster_blocks > 1 else None


def gate_call(x: Any, filters: tuple[Any, ...],
              activations: tuple[Activation | None, Activation | None], backend: str = "auto",
              further: tuple[Any, ...] = ()) -> PreparedCall | None:
    """The call that makes the gates of images like *x*, (N, C, H, W), of shape (N, C, 1, 1). It
    takes x, the *filters*, *further*, and out or None. None for arrays of the host, for filters
    that do not fit, and where the mean and both layers are to be launches of their own.

    *filters*: of the first layer filter and bias, then of the second; a bias may be None. Of int8
    images *further* are their `dscore.calling.means.integer_operands`.
    """
    adapter, inputs = adapter_of(library_of(x, "x")), (x, *filters, *further)
    gpu = common_gpu(adapter, {"x": x})
    if gpu is None:
        return None
    of_filters = dtype_name(filters[0]) if further else None
    form = (tuple(x.shape), len(filters[0]), dtype_name(x), memory_layout(adapter, "nchw", (x,)),
            filters[1] is not None, activations, of_filters)
    key = adapter.library, gpu[1], backend, form
    call = _PREPARED.get(key)
    if call is None:
        problem, device = gate_problem(*form), gate_device(backend, gpu[1])
        if (problem is None or device is None or not gains(problem, device)
                or not _fit(problem, filters)):
            return None
        if len(_PREPARED) >= MOST_CALLS:
            forget()
        call = _PREPARED[key] = prepared(problem, *gpu, inputs, backend,
                                         shape=(*x.shape[:2], 1, 1), axes="nchw")
    return call if call.fits(*inputs) else None


def fast_call(call: PreparedCall, inputs: tuple[Any, ...]) -> FastCall:
    """The *call* for inputs like these, without checks that need not be made each time; it returns
    None for others. All gates of one call share it."""
    fast = _FAST[call] = call.specialized(inputs, _FAST.get(call, no_call))
    return fast


def no_call(*operands: Any) -> None:
    """The call that takes no arrays."""


def forget() -> None:
    """Forget all calls."""
    _PREPARED.clear()
    _FAST.clear()


def _fit(problem: ConvProblem, filters: tuple[Any, ...]) -> bool:
    """Whether filters and biases have the shapes of the problem's operands."""
    operands = operands_of(problem)[1:len(filters) + 1]
    return all(tuple(array.shape) == operand.shape if operand.present else array is None
               for array, operand in zip(filters, operands, strict=True))
