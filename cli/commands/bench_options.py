"""Options of `dscore bench` alone: of layers, of networks, of what comes out."""

from __future__ import annotations

from typing import Annotated

import typer

Batches = Annotated[str | None, typer.Option(
    "--batch", metavar="N,N,...", show_default=False,
    help="Images in a batch.  [default: 1,8,16,32,64 on a GPU where a layer is named; of problems "
         "alone, as n8c64h14w14_o384k1, and elsewhere the layers' own]")]
Measurements = Annotated[str | None, typer.Option(
    "--out", metavar="FILE.csv", show_default=False,
    help="Keep every measurement in this file, and measure only what it lacks.")]
Caches = Annotated[str | None, typer.Option(
    "--cache", metavar="cold,hot,eager", show_default=False,
    help="Device time with data outside the cache (cold) or in it (hot), or the time of a "
         "call from Python (eager).  [default: all]")]
Plot = Annotated[str | None, typer.Option(
    "--plot", metavar="DIR", show_default=False,
    help="Write pictures (SVG) here: mean times over batches, and a roofline.")]
Peer = Annotated[str, typer.Option(
    "--peer", metavar="torch|none",
    help="Compare with PyTorch (its default, channels_last, without cuDNN, and matmul for "
         "1x1), or time dscore alone.")]
Tf32 = Annotated[bool, typer.Option(
    "--tf32", help="Also time PyTorch with TF32 allowed; this stays out of the comparison.")]
Networks = Annotated[list[str] | None, typer.Option(
    "--network", metavar="MODULE:FACTORY", show_default=False,
    help="Compare whole networks of PyTorch (repeatable), named as for dscore scan.")]
Task = Annotated[str | None, typer.Option(
    "--task", metavar="inference|training,...", show_default=False,
    help="With --network: time inference, steps of training, or both.  [default: inference]")]
Ablation = Annotated[bool, typer.Option(
    "--ablation", help="With --network: depthwise layers by dscore, pointwise ones, or both.")]
Ways = Annotated[str | None, typer.Option(
    "--ways", metavar="NAME,...", show_default=False,
    help="PyTorch's ways that are timed: of layers default, channels_last, native (without cuDNN), "
         "matmul; with --network default, channels_last, compile, compile_channels_last, and "
         "beside the last two dscore_compile.  [default: all]")]
Replay = Annotated[list[str] | None, typer.Option(
    "--replay", metavar="FILE.csv", show_default=False,
    help="Show what a file of --out holds (repeatable); nothing is run.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")]
