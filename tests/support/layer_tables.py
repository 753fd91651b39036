"""Tables of docs/layers.md, as the files of `specs` have them.

    python tests/support/layer_tables.py    # prints the tables
"""

from dscore.core import catalog
from dscore.core.token import problem_token
from dscore.ops import compulsory_bytes, flops

_HEAD = ("layer", "input", "kernel", "stride", "output", "Mflop", "MB", "token", "in")


def tables():
    """The lines of each table, by the name of its file."""
    return {name: _table([_cells(layer) for layer in catalog.find(name)])
            for name in ("depthwise", "pointwise", "megakernels")}


def _table(rows):
    """A Markdown table; its last column is left out where no row has anything there."""
    width = len(_HEAD) - (not any(row[-1] for row in rows))
    return [f"| {' | '.join(row[:width])} |" for row in (_HEAD, ("---",) * width, *rows)]


def _cells(layer):
    problem, spec = layer.problem, layer.problem.spec
    kernel, stride = ("×".join(map(str, pair)) for pair in (spec.kernel, spec.stride))
    return (layer.name, f"{spec.in_channels}×{problem.height}×{problem.width}", kernel,
            stride.partition("×")[0],
            f"{spec.out_channels}×{problem.out_height}×{problem.out_width}",
            f"{flops(problem) / 1e6:.2f}", f"{compulsory_bytes(problem) / 1e6:.2f}",
            f"`{problem_token(problem)}`", ", ".join(_networks(problem)))


def _networks(problem):
    """The networks with a layer of these sizes, whatever its padding, bias and activation."""
    return [name for name, network in catalog.networks().items()
            if any(_sizes(layer.problem) == _sizes(problem) for layer in network.layers)]


def _sizes(problem):
    spec = problem.spec
    return (spec.in_channels, spec.out_channels, problem.height, problem.width, spec.kernel,
            spec.stride, spec.dilation, spec.groups)


if __name__ == "__main__":
    for lines in tables().values():
        print(*lines, "", sep="\n")
