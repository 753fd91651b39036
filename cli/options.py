"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_DEVICE = "z100sm"
_DEVICE = "NAME|FILE.toml"

Version = Annotated[bool, typer.Option("--version", help="Print the version.")]
Json = Annotated[bool, typer.Option("--json", help="Print the data as JSON.")]
Layer = Annotated[str, typer.Argument(
    metavar="LAYER", show_default=False,
    help="A layer (P13, mobilenet_v2/7) or a problem (n1c64h14w14_o384k1).")]
_LAYERS = typer.Argument(
    metavar="LAYER", show_default=False,
    help="Networks (mobilenet_v2), layers (P13), ranges (P1-P45), or problems "
         "(n1c64h14w14_o384k1).")
Layers = Annotated[list[str], _LAYERS]
LayersOrNone = Annotated[list[str] | None, _LAYERS]
DeviceName = Annotated[str, typer.Option(
    "--device", metavar=_DEVICE, help="Plan for this device; it need not be here.")]
OwnDeviceName = Annotated[str | None, typer.Option(
    "--device", metavar=_DEVICE, show_default=False,
    help="Run plans made for this device.  [default: the backend's own]")]
DeviceNames = Annotated[list[str] | None, typer.Option(
    "--device", metavar=_DEVICE, show_default=False,
    help="Draw plans for this device (repeatable).  [default: the backend's own]")]
RulesName = Annotated[str, typer.Option(
    "--rules", metavar="paper|hardware",
    help="Limits to keep: Eq. 1-7 of the paper, or those of the hardware as well.")]
TilingFields = Annotated[str | None, typer.Option(
    "--tiling", metavar="FIELD=VALUE,...", show_default=False,
    help="Use this tiling in place of the first-ranked one.")]
Batch = Annotated[int | None, typer.Option(
    "--batch", metavar="N", show_default=False,
    help="Images in a batch.  [default: the problem's, or 1]")]
Sizes = Annotated[str, typer.Option(
    "--sizes", metavar="fixed|any",
    help="Image sizes: constants of the kernel (fixed) or its arguments (any).")]
BackendName = Annotated[str, typer.Option(
    "--backend", metavar="NAME|module:Class",
    help="Backend that runs the plans: one of those that dscore env lists, or hip_any, which is "
         "hip with image sizes as arguments of the kernels.")]
Algorithm = Annotated[str | None, typer.Option(
    "--algorithm", metavar="NAME", show_default=False,
    help="Take tilings of this algorithm, such as gemm or channel_distribution (the paper's).  "
         "[default: the solver's choice]")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random data.")]
