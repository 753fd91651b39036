"""`dscore scan`: what `dscore.torch.accelerate` would do to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from dscore.cli import options
from dscore.cli.inputs import require_torch_package
from dscore.cli.show.json import print_json
from dscore.core.errors import SpecError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dscore.core.numerics import Permission
    from dscore.core.spec import Layout

# Random inputs, by which the scales of a scan are set.
_BATCHES = 4


def scan(
    network: Annotated[str, typer.Argument(
        metavar="MODULE:FACTORY", show_default=False,
        help="A model of PyTorch: torchvision.models:mobilenet_v2, my_module:make_model, or "
             "mobilenet_v2, mobilenet_v3_large, efficientnet_b0, mnasnet1_0, shufflenet_v2_x1_0 "
             "for torchvision's.")],
    input: Annotated[str, typer.Option(
        "--input", metavar="NxCxHxW,...", help="Shape of its input, or of each of its inputs.",
    )] = "1x3x224x224",
    device: options.DeviceName = None,
    backend: options.BackendName = "auto",
    fold: Annotated[bool, typer.Option(
        "--fold/--no-fold", help="With batch norms, activations, sums and scales folded, as in "
                                 "eval mode, or without, as in training.")] = True,
    arithmetic: options.Arithmetic = "sum",
    dtype: options.Dtype = None,
    layout: options.LayoutName = None,
    json: options.Json = False,
) -> None:
    """Show what dscore would do to a network of PyTorch, without changing anything.

    A line for each convolution: what is folded into it, its plan, its expected time, and how many
    times as fast as PyTorch that is; or why PyTorch computes it. Expected times are those of
    shipped hints, else the cost model's. Gains are known for devices that PyTorch was timed on
    (h200). On a machine with a GPU, and without --device, kernels are built and timed there.

    \b
    dscore scan torchvision.models:mobilenet_v2 --device h200
    dscore scan efficientnet_b0 --input 32x3x224x224 --dtype float16 --layout nhwc --device h200
    dscore scan my_module:make_model --input 1x3x64x64 --json
    dscore scan mobilenet_v2 --dtype int8

    In Python, dscore.torch.accelerate(model, example) does it. With --dtype int8 the report is that
    of dscore.torch.quantize on random inputs: what becomes int8, with which error, by which plan.
    """
    require_torch_package()
    from dscore import torch as package
    from dscore.cli.show import scan as show
    from dscore.torch.models import factory_of, inputs_of, shapes_of

    shapes = shapes_of(input)
    model = factory_of(network)()
    options.formed("", dtype, layout)  # raises for another word
    if dtype == "int8":
        _require_of_floats(device, fold, arithmetic)
    place = "cuda" if device is None and _on_gpu(backend) else "cpu"
    try:
        if dtype == "int8":
            _print_quantised(model.to(place), shapes, layout, backend, json)
            return
        example = _in_form(inputs_of(shapes, place), dtype, layout)
        model = model.to(place, example[0].dtype)
        report = package.scan(model, example, fold=fold, backend=backend, device=device,
                              arithmetic=cast("Permission", arithmetic))
    except RuntimeError as failed:  # of PyTorch, where a shape does not fit a layer
        raise SpecError(f"{network} cannot be called on {input}: {failed}") from failed
    if json:
        print_json(show.record(report))
    else:
        show.print_report(report)


def _on_gpu(backend: str) -> bool:
    """Whether kernels are built and timed on a GPU that is here."""
    import torch

    from dscore import api

    return backend == "auto" and not api.assumed_device()[1] and torch.cuda.is_available()


def _in_form(inputs: tuple[Tensor, ...], dtype: str | None, layout: str | None
             ) -> tuple[Tensor, ...]:
    """Inputs of the type and the layout of the options."""
    import torch

    form = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    short = (one.to(getattr(torch, dtype or "float32")) for one in inputs)
    return tuple(one.contiguous(memory_format=form) if one.dim() == 4 else one for one in short)


def _require_of_floats(device: str | None, fold: bool, arithmetic: str) -> None:
    """Raise SpecError for what a scan in int8 would ignore."""
    given = {"--device": device is not None, "--no-fold": not fold,
             "--arithmetic": arithmetic != "sum"}
    if named := [name for name, value in given.items() if value]:
        raise SpecError(f"a scan in int8 is of a model as dscore.torch.quantize makes it here; "
                        f"leave out {', '.join(named)} (DSCORE_DEVICE names another device)")


def _print_quantised(model: nn.Module, shapes: tuple[tuple[int, ...], ...], layout: str | None,
                     backend: str, json: bool) -> None:
    """The report of a model in int8, calibrated on random inputs."""
    from dataclasses import asdict

    from dscore.torch.models import inputs_of
    from dscore.torch.quantize import quantize

    place = next((one.device for one in model.parameters()), "cpu")
    batches = [inputs_of(shapes, place, seed) for seed in range(_BATCHES)]
    report = quantize(model.eval(), batches, layout=cast("Layout", layout or "nhwc"),
                      backend=backend).report
    if json:
        print_json({**asdict(report), "quantized": len(report.quantized),
                    "kept": len(report.kept)})
    else:
        print(report)
