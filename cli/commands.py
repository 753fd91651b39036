"""The commands: their arguments and help. What does the work is imported when it is done."""

# Those imports stand inside the commands, so that --help and usage errors do not wait for numpy.

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from dscore.cli import options
from dscore.cli.bench import bench
from dscore.cli.tune import tune

_Sizes = Annotated[str, typer.Option(
    "--sizes", metavar="fixed|any",
    help="Image sizes as constants of the kernel, or as its arguments.")]


def devices(
    name: Annotated[str | None, typer.Argument(
        metavar="[NAME|FILE.toml]", show_default=False, help="Show all of one device.")] = None,
    json: options.Json = False,
) -> None:
    """Show the known devices and the backends present.

    \b
    dscore devices
    dscore devices h200
    dscore devices mine.toml --json
    """
    from dscore.cli import devices as work

    work.show_one(name, json) if name else work.show_all(json)


def validate(
    file: Annotated[str, typer.Argument(
        metavar="FILE.toml", show_default=False, help="One configuration, or many.")],
    device: options.DeviceName = options.DEFAULT_DEVICE,
    rules: options.RulesName = "hardware",
    json: options.Json = False,
) -> None:
    """Judge tilings of your own.

    Every limit is shown with its numbers and, where one is broken, what nearby would fit.
    The file holds these keys, at the top for one or in [[configuration]] tables for many:

    \b
    layer = "P28"            # or problem = "n1c320h7w7_o1280k1"
    wave_w = 1               # the fields of a tiling
    wave_c = 64
    repeat_w = 1
    repeat_c = 4
    group_c = 16
    block_n = 2              # optional: blocks on a compute unit
    device = "z100sm"        # optional: else --device; a file is sought beside this one
    rules = "paper"          # optional: else --rules
    masked = true            # optional: tiles may reach past the output

    Ends with 1 if any is invalid.
    """
    from dscore.cli import validate as work

    work.run(file, device, rules, json)


def space(
    layers: options.Layers,
    device: options.DeviceName = options.DEFAULT_DEVICE,
    rules: options.RulesName = "hardware",
    masked: Annotated[bool | None, typer.Option(
        "--masked/--exact", show_default=False,
        help="Tiles that may reach past the output, or that divide it.  [default: exact where "
             "any fits]")] = None,
    algorithm: options.Algorithm = None,
    top: Annotated[int | None, typer.Option(
        "--top", metavar="N", show_default=False,
        help="Show the best N.  [default: 10; with --json all]")] = None,
    batch: options.Batch = None,
    json: options.Json = False,
) -> None:
    """List the tilings that fit, best first.

    \b
    dscore space P13
    dscore space P1-P45 --rules paper
    dscore space n1c3h13w13_o7k1 --masked --top 3 --json
    dscore space P28 --algorithm channel_distribution
    """
    from dscore.cli import space as work

    work.run(layers, device, work.Asked(rules, masked, algorithm), top, batch, json)


def explain(
    layer: options.Layer,
    device: options.DeviceName = options.DEFAULT_DEVICE,
    rules: options.RulesName = "hardware",
    tiling: options.TilingFields = None,
    batch: options.Batch = None,
    json: options.Json = False,
) -> None:
    """Show the plan of a layer and its reasons.

    The plan's figures, each limit with what is spare, how wavefronts cover the output, and the
    least time the problem can take.

    \b
    dscore explain P13
    dscore explain mobilenet_v2/2 --device h200
    dscore explain P28 --tiling wave_w=1,wave_c=64,repeat_w=1,repeat_c=4,group_c=8
    """
    from dscore.cli import explain as work

    work.run(layer, device, rules, tiling, batch, json)


def emit(
    layer: options.Layer,
    device: options.DeviceName = options.DEFAULT_DEVICE,
    rules: options.RulesName = "hardware",
    tiling: options.TilingFields = None,
    batch: options.Batch = None,
    sizes: _Sizes = "fixed",
    json: options.Json = False,
) -> None:
    """Print the C++ unit of a layer's kernel.

    It asserts the plan's threads and LDS bytes: where plan and kernel differ it does not compile.

    \b
    dscore emit P13
    dscore emit mobilenet_v2/2 --device h200 --sizes any
    """
    from dscore.cli import emit as work

    work.run(layer, device, rules, tiling, batch, sizes, json)


def build(
    layers: options.Layers,
    target: Annotated[str, typer.Option(
        "--target", metavar="TARGET", show_default=False,
        help="emulated, gfx906, gfx90a, sm_90, ... (the compiler must be here, a GPU need not).")],
    device: Annotated[str | None, typer.Option(
        "--device", metavar="NAME|FILE.toml", show_default=False,
        help="Plan for this device of the target.  [default: gfx906 for gfx906, h200 for sm_90, "
             "z100sm for emulated, ...]")] = None,
    rules: options.RulesName = "hardware",
    batch: options.Batch = None,
    sizes: _Sizes = "fixed",
    jobs: Annotated[int | None, typer.Option(
        "--jobs", metavar="N", show_default=False,
        help="Compile so many units at a time.  [default: one for each core]")] = None,
    out: Annotated[str | None, typer.Option(
        "--out", metavar="FILE.so", show_default=False,
        help="Also put the library here.  [default: it stays in the cache]")] = None,
    json: options.Json = False,
) -> None:
    """Compile the kernels of layers ahead of time.

    All kernels go into one library, those that layers share once. The table has what was planned
    beside what the compiler reports: LDS, registers, spills, wavefronts on a SIMD.

    \b
    dscore build mobilenet_v2 --target gfx906 --device z100sm
    dscore build P1-P45 D1-D30 --target sm_90 --jobs 4 --out layers.so

    Ends with 1 if LDS differs, or a kernel spills whose plan the hardware rules call valid; nvcc
    may spill up to 8 words.
    """
    from dscore.cli import build as work

    work.run(layers, work.Request(target, device, rules, batch, sizes, jobs, out), json)


def run(
    layers: options.Layers,
    backend: options.BackendName = "auto",
    device: options.OwnDeviceName = None,
    rules: options.RulesName = "hardware",
    tiling: options.TilingFields = None,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    repeats: Annotated[int, typer.Option(
        "--repeats", metavar="N", help="Timed runs of a layer; their median is shown.")] = 1,
    json: options.Json = False,
) -> None:
    """Run layers and check each result.

    Every layer is planned and run on random data. It is right when no output is further from
    the exact result than float32 arithmetic allows, and nothing else was written to.

    \b
    dscore run mobilenet_v2
    dscore run P1-P45 --batch 8 --repeats 20
    dscore run n1c8h5w5_o8k3p1g8 --backend reference --device h200

    Ends with 1 if any layer fails, 4 or 5 if a compiler or a device did.
    """
    from dscore.cli import run as work

    work.run(layers, work.Request(backend, device, rules, tiling, batch, seed, repeats), json)


def conformance(
    backend: options.BackendName = "auto",
    examples: Annotated[int, typer.Option(
        "--examples", metavar="N", help="Random cases, shared among the kinds.")] = 200,
    seed: options.Seed = 0,
    device: options.DeviceNames = None,
    kind: Annotated[list[str] | None, typer.Option(
        "--kind", metavar="KIND", show_default=False,
        help="pointwise, depthwise or direct (repeatable).  [default: all]")] = None,
    report: Annotated[str | None, typer.Option(
        "--report", metavar="FILE", show_default=False,
        help="Also write a report: .json, or .xml for JUnit.")] = None,
    json: options.Json = False,
) -> None:
    """Search for a case that a backend gets wrong.

    Random layers, sizes and tilings are run, and each result is held to its error bound.

    \b
    dscore conformance
    dscore conformance --kind depthwise --examples 1000 --seed 7
    dscore conformance --backend mypackage.mine:Backend --report conformance.xml

    A failure is shown as the smallest case found and the line that runs it again; ends with 1.
    """
    from dscore.cli import conformance as work

    work.run(work.Request(backend, examples, seed, tuple(device or ()), tuple(kind or ()), report),
             json)


def env(json: options.Json = False) -> None:
    """Show versions, and what each backend lacks."""
    from dscore.cli import env as work

    work.run(json)


COMMANDS: tuple[Callable[..., Any], ...] = (
    devices, validate, space, explain, emit, build, run, bench, tune, conformance, env)
