"""Means over all pixels of a traced graph, as calls of dscore's kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from dscore.calling.call_cache import PreparedCall
from dscore.calling.means import mean_call, mean_problem
from dscore.core.numerics import FLOATS
from dscore.core.problem import ConvProblem
from dscore.torch.launches import Launch
from dscore.torch.operators import by_operators
from dscore.torch.tracing import has_hooks

_POOLS = (functional.adaptive_avg_pool2d,)
_PIXEL_AXES = ((2, 3), (-2, -1), (3, 2), (-1, -2))
_TYPES = tuple(getattr(torch, name) for name in FLOATS)


@dataclass(eq=False)
class PixelMean:
    """Mean over the pixels of images (N, C, H, W) or of one, whose axes stay with *keep*.

    Of what dscore's kernel does not take, and of programs that are traced, it is PyTorch's.
    """

    keep: bool
    backend: str = "auto"
    __name__ = "pixel_mean"  # by which torch.fx names the nodes that call it

    def __call__(self, x: Tensor) -> Tensor:
        call = self.call(x)
        if call is None:
            return x.mean((-2, -1), keepdim=self.keep)
        mean: Tensor = call(x, None)
        return mean

    def call(self, x: Tensor) -> PreparedCall | None:
        """The call of the kernel for a tensor; None where PyTorch computes."""
        return mean_call(x, self.keep, self.backend) if self.takes(x) else None

    def takes(self, x: Tensor) -> bool:
        """Whether a kernel may compute for a tensor, as far as that says."""
        return not (by_operators((x,)) or x.dtype not in _TYPES or not x.numel()
                    or x.dim() != len("nchw") or (self.backend == "auto" and not x.is_cuda)
                    or (torch.is_grad_enabled() and x.requires_grad))

    def further(self, x: Tensor) -> tuple[Tensor, ...]:
        """The operands of a kernel beside images: none."""
        return ()

    def result_type(self, x: Tensor) -> torch.dtype:
        """The type of the means."""
        return x.dtype

    def launch_of(self, x: Tensor) -> Launch | None:
        """The launch that it has just made."""
        call = self.call(x)
        return Launch(call, (0,), call.new) if call and call.takes_directly((x,)) else None


def replace_means(model: nn.Module, graph: fx.Graph, backend: str) -> list[ConvProblem]:
    """Replace the means over pixels in a graph whose nodes have shapes; the problems of these."""
    modules, problems = dict(model.named_modules()), []
    for node, keep in list(_means(modules, graph)):
        images = node.all_input_nodes[0]
        of_images = images.meta
        if len(of_images.get("shape", ())) != len("nchw") or of_images["dtype"] not in _TYPES:
            continue
        with graph.inserting_before(node):
            call = graph.call_function(PixelMean(keep, backend), (images,))
        call.meta.update(node.meta)
        node.replace_all_uses_with(call)
        graph.erase_node(node)
        problems.append(mean_problem(
            tuple(of_images["shape"]), str(of_images["dtype"]).removeprefix("torch."),
            of_images["layout"]))
    return problems


def _means(modules: dict[str, nn.Module], graph: fx.Graph) -> Iterator[tuple[fx.Node, bool]]:
    for node in graph.nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        keep = None if module is not None and has_hooks(module) else keeps_axes(node, module)
        if keep is not None and len(node.all_input_nodes) == 1:
            yield node, keep


def keeps_axes(node: fx.Node, module: nn.Module | None) -> bool | None:
    """Whether a mean over pixels keeps their axes; None for any other node.

    *module* is the one that the node calls.
    """
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return True if module.output_size in (1, (1, 1)) else None
    if node.op == "call_function" and node.target in _POOLS:
        size = node.args[1] if len(node.args) > 1 else node.kwargs.get("output_size")
        return True if size in (1, (1, 1), [1, 1]) else None
    name = str(getattr(node.target, "__name__", node.target))
    if node.op in ("call_function", "call_method") and name == "mean":
        return _kept_by_mean(node)
    return None


def _kept_by_mean(node: fx.Node) -> bool | None:
    options = dict(zip(("dim", "keepdim"), node.args[1:], strict=False)) | dict(node.kwargs)
    axes = options.pop("dim", ())
    kept = options.pop("keepdim", False)
    fits = not options and isinstance(axes, list | tuple) and tuple(axes) in _PIXEL_AXES
    return bool(kept) if fits else None
