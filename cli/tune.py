"""The command `dscore tune`: its arguments and help. What does the work is imported by it."""

from __future__ import annotations

from typing import Annotated

import typer

from dscore.cli import options


def tune(
    layers: options.LayersOrNone = None,
    backend: options.BackendName = "auto",
    device: options.OwnDeviceName = None,
    batch: options.Batch = None,
    budget: Annotated[str | None, typer.Option(
        "--budget", metavar="TIME", show_default=False,
        help="End after this time in all (90s, 10m, 2h).  [default: when all is tried]")] = None,
    top: Annotated[int, typer.Option(
        "--top", metavar="N", help="Try the first N in the model's order.")] = 32,
    exhaustive: Annotated[bool, typer.Option(
        "--exhaustive", help="Try every tiling that fits.")] = False,
    algorithm: options.Algorithm = None,
    seed: options.Seed = 0,
    workers: Annotated[int | None, typer.Option(
        "--workers", metavar="N", show_default=False,
        help="Share the layers among N processes.  [default: one for each GPU]")] = None,
    executor: Annotated[str | None, typer.Option(
        "--executor", metavar="module:factory", show_default=False,
        help="Share them by this concurrent.futures.Executor.")] = None,
    replay: Annotated[str | None, typer.Option(
        "--replay", metavar="FILE", show_default=False,
        help="Judge the cost model by the records in this file; nothing is run.")] = None,
    json: options.Json = False,
) -> None:
    """Find the fastest right tiling of layers.

    Tilings are built, each is held to the error bound, and only then timed. All that is measured
    is kept at once: the same command goes on after an interruption, and conv uses the best.

    \b
    dscore tune P13
    dscore tune mobilenet_v2 --batch 8 --budget 10m
    dscore tune P1-P45 --exhaustive && dscore cache export h200.jsonl
    dscore tune P28 --algorithm channel_distribution
    dscore tune --replay h200.jsonl

    Ends with 1 if a layer has no tiling that is right.
    """
    from dscore.cli import tuning as work

    work.run(layers or [], work.Request(backend, device, batch, budget, top, exhaustive,
                                        algorithm, seed, workers, executor, replay), json)
