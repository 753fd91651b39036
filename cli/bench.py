"""`dscore bench`: its arguments and help."""

from __future__ import annotations

from typing import Annotated

import typer

from dscore.cli import options


def bench(
    layers: options.LayersOrNone = None,
    peer: Annotated[str, typer.Option(
        "--peer", metavar="torch|none",
        help="PyTorch's default, channels_last, without cuDNN, matmul for 1x1; or dscore alone.",
    )] = "torch",
    batch: Annotated[str | None, typer.Option(
        "--batch", metavar="N,N,...", show_default=False,
        help="Images in a batch.  [default: 1,8,16,32,64 on a GPU, else the layers' own]")] = None,
    cache: Annotated[str | None, typer.Option(
        "--cache", metavar="cold,hot,eager", show_default=False,
        help="Device time of data not in the cache, of data in it; calls from Python.  "
             "[default: all]")] = None,
    backend: options.BackendName = "auto",
    device: options.OwnDeviceName = None,
    tiling: options.TilingFields = None,
    tf32: Annotated[bool, typer.Option(
        "--tf32", help="Also time PyTorch's ways with TF32 allowed, outside the comparison.",
    )] = False,
    seed: options.Seed = 0,
    out: Annotated[str | None, typer.Option(
        "--out", metavar="FILE.csv", show_default=False,
        help="Keep every measurement here; what it holds is not measured again.")] = None,
    plot: Annotated[str | None, typer.Option(
        "--plot", metavar="DIR", show_default=False,
        help="Write pictures (SVG): mean times over batches, and a roofline.")] = None,
    replay: Annotated[list[str] | None, typer.Option(
        "--replay", metavar="FILE.csv", show_default=False,
        help="Show what such a file holds (repeatable); nothing is run.")] = None,
    markdown: Annotated[bool, typer.Option(
        "--markdown", help="Print the tables as Markdown.")] = False,
    json: options.Json = False,
) -> None:
    """Time layers beside PyTorch.

    Both sides run on the same random data, in turns; each result is checked first, and what is
    wrong is never timed. Shown are microseconds, dscore's speed-ups over PyTorch's default and
    over the best of its ways, and how far from the least time possible (÷ floor) it is.

    \b
    dscore bench D1-D30 P1-P45 --out layers.csv --plot pictures
    dscore bench mobilenet_v2 --batch 1,8 --cache eager
    dscore bench n1c8h9w7_o16k1 --backend reference --peer none
    dscore bench --replay layers.csv --plot pictures --markdown > tables.md

    Ends with 1 if a kernel is wrong, 4 or 5 if a compiler or a device failed; a lost layer is
    marked LOST and is no failure.
    """
    from dscore.cli import comparison as work

    work.run(layers or [], work.Request(backend, device, tiling, peer, tf32, batch, cache, seed,
                                        out, plot, tuple(replay or ()), markdown), json)
