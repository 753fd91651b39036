"""`dscore prepare`: the kernels that calls on some layers take, compiled at once."""

from __future__ import annotations

from dataclasses import asdict

from dscore.cli import options
from dscore.cli.inputs import layers_of
from dscore.cli.show.json import print_json
from dscore.cli.show.text import compiling, counted, print_note


def prepare(
    layers: options.Layers,
    arithmetic: options.Arithmetic = "sum",
    batch: options.Batch = None,
    backend: options.BackendName = "auto",
    json: options.Json = False,
) -> None:
    """Compile the kernels of layers before they are called.

    Each layer is planned as dscore.conv plans it. All cores compile the kernels that are missing;
    calls of any program find them in the cache from then on.

    \b
    dscore prepare mobilenet_v2 --batch 8
    dscore prepare P13 D4 --backend emulated
    """
    from dscore.calling.prepare import prepare as prepared

    problems = [layer.problem for layer in layers_of(layers, batch, arithmetic)]
    with compiling(len(set(problems))) as step:
        report = prepared(problems, backend=backend, progress=step)
    if json:
        print_json({**asdict(report), "found": report.found})
        return
    print(f"{counted(report.layers, 'layer')}, {counted(report.kernels, 'kernel')} for "
          f"{report.backend} on {report.device}: {report.compiled:,} compiled, "
          f"{report.found:,} found, {report.seconds:.1f} s")
    if not report.kernels:
        print_note(f"the backend {report.backend} compiles nothing; --backend emulated compiles "
                   "for this computer, and dscore build --target for a GPU that is not here")
