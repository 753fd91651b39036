"""Options that several commands share, and those that all have: --quiet and --verbose."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from dscore.cli.complete import backends, devices, layers
from dscore.cli.show.screen import screen
from dscore.core.errors import SpecError, require_one_of
from dscore.core.numerics import layer_types
from dscore.core.spec import LAYOUTS

_DEVICE = "NAME|FILE.toml"

Version = Annotated[bool, typer.Option("--version", help="Print the version.")]
Json = Annotated[bool, typer.Option("--json", help="Print the data as JSON.")]
Layer = Annotated[str, typer.Argument(
    metavar="LAYER", show_default=False, autocompletion=layers,
    help="A layer (P13, mobilenet_v2/7) or a problem (n1c64h14w14_o384k1).")]
_LAYERS = typer.Argument(
    metavar="LAYER", show_default=False, autocompletion=layers,
    help="Networks (mobilenet_v2), layers (P13), ranges (P1-P45), or problems "
         "(n1c64h14w14_o384k1); their gradients as input_gradient:P1-P45, weight_gradient:D7 or, "
         "both at once, gradients:D1-D30.")
Layers = Annotated[list[str], _LAYERS]
LayersOrNone = Annotated[list[str] | None, _LAYERS]
DeviceName = Annotated[str | None, typer.Option(
    "--device", metavar=_DEVICE, show_default=False, autocompletion=devices,
    help="Plan for this device; it need not be here.  [default: the GPU here, else z100sm]")]
OwnDeviceName = Annotated[str | None, typer.Option(
    "--device", metavar=_DEVICE, show_default=False, autocompletion=devices,
    help="Run plans made for this device.  [default: the backend's own]")]
DeviceNames = Annotated[list[str] | None, typer.Option(
    "--device", metavar=_DEVICE, show_default=False, autocompletion=devices,
    help="Draw plans for this device (repeatable).  [default: the backend's own]")]
RulesName = Annotated[str, typer.Option(
    "--rules", metavar="paper|hardware",
    help="Limits to keep: Eq. 1-7 of the paper, or those of the hardware as well.")]
TilingFields = Annotated[str | None, typer.Option(
    "--tiling", metavar="FIELD=VALUE,...", show_default=False,
    help="Use this tiling in place of the first-ranked one. Of bench: or the first-ranked that has "
    "the stated fields, as in algorithm=winograd,fused=true.")]
Counts = Annotated[bool, typer.Option(
    "--counts", help="Count what machine code of gfx906 executes, in the interpreter.")]
Batch = Annotated[int | None, typer.Option(
    "--batch", metavar="N", show_default=False,
    help="Images in a batch.  [default: the problem's, or 1]")]
Sizes = Annotated[str, typer.Option(
    "--sizes", metavar="fixed|any",
    help="Image sizes: constants of the kernel (fixed) or its arguments (any).")]
BackendName = Annotated[str, typer.Option(
    "--backend", metavar="NAME|module:Class", autocompletion=backends,
    help="Backend that runs the plans: one of those that dscore env lists, or hip_any, which is "
         "hip with image sizes as arguments of the kernels.")]
Arithmetic = Annotated[str, typer.Option(
    "--arithmetic", metavar="sum|winograd",
    help="Permit sums of products alone, or Winograd's algorithm for 3x3 layers as well.")]
Algorithm = Annotated[str | None, typer.Option(
    "--algorithm", metavar="NAME", show_default=False,
    help="Take tilings of this algorithm, such as gemm or channel_distribution (the paper's).  "
         "[default: the solver's choice]")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random data.")]
Image = Annotated[str, typer.Option(
    "--input", metavar="1xCxHxW", help="With --network: shape of its input at batch 1.")]
Dtype = Annotated[str | None, typer.Option(
    "--dtype", metavar="float32|float16|bfloat16|int8", show_default=False,
    help="Element type of the layers; as the end of a name: P13_float16.")]
LayoutName = Annotated[str | None, typer.Option(
    "--layout", metavar="nchw|nhwc", show_default=False,
    help="Layout of the layers' images; as the end of a name: P13_nhwc.")]
Quiet = Annotated[bool, typer.Option(
    "--quiet", "-q", help="Print results and errors alone: no bar, notes, summary or warnings.")]
Verbose = Annotated[bool, typer.Option(
    "--verbose", "-v", help="Print everything: all limits, columns and lines.")]


def tell(quiet: bool, verbose: bool) -> None:
    """Set how much is printed. Raises SpecError for both at once."""
    screen.quiet, screen.verbose = screen.quiet or quiet, screen.verbose or verbose
    if screen.quiet and screen.verbose:
        raise SpecError("--quiet and --verbose exclude each other")


def formed(name: str, dtype: str | None, layout: str | None) -> str:
    """The name of a layer with the type and the layout of --dtype and --layout at its end."""
    for option, value, values in (("dtype", dtype, layer_types()), ("layout", layout, LAYOUTS)):
        if value is not None:
            name += f"_{require_one_of(value.lower(), f'--{option}', values)}"
    return name


def told(command: Callable[..., None] | None) -> Callable[..., None]:
    """*command* with options after its own: --dtype and --layout where it takes layers by name and
    has not its own ones, --quiet and --verbose.
    """
    assert command is not None
    own = inspect.signature(command, eval_str=True)
    further: dict[str, Any] = {"quiet": Quiet, "verbose": Verbose}
    takes = [name for name in ("layers", "layer") if name in own.parameters]
    if takes and "dtype" not in own.parameters:
        further = {"dtype": Dtype, "layout": LayoutName, **further}

    @functools.wraps(command)
    def run(*arguments: Any, quiet: bool, verbose: bool, **named: Any) -> None:
        tell(quiet, verbose)
        form = [named.pop(name) for name in ("dtype", "layout") if name in further]
        for name in takes if form else ():
            given = named[name]
            named[name] = (formed(given, *form) if isinstance(given, str) else
                           given and [formed(one, *form) for one in given])
        command(*arguments, **named)

    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind,
                                 default=None if kind in (Dtype, LayoutName) else False)
               for name, kind in further.items()]
    signature = own.replace(parameters=[*own.parameters.values(), *added])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {name: one.annotation for name, one in signature.parameters.items()}
    return run
