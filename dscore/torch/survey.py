"""Survey of a model's convolutions: their problems on an example, and who is to compute each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from dscore.algorithms.direct import Direct
from dscore.calling.both import takes_both
from dscore.core.errors import InfeasibleError, SpecError, UnavailableError
from dscore.core.numerics import Permission
from dscore.core.plan import Plan
from dscore.core.problem import ConvProblem
from dscore.core.spec import Layout
from dscore.ops import parts_of
from dscore.torch.accelerated import Folded
from dscore.torch.example import arguments_seen, is_much, shapes_alone
from dscore.torch.folding import spec_of
from dscore.torch.tracing import NotTraced, evaluating, form_of, is_conv

Seconds = tuple[float, float]  # of dscore and of PyTorch
Planner = Callable[[ConvProblem], Plan]
# Those of which dscore's kernels gain in general; others are replaced where that was measured.
GAINING = ("depthwise", "pointwise")


@dataclass
class ConvCall:
    """One call of a convolution: by `reason` PyTorch computes it, by an empty one dscore does."""

    name: str
    conv: nn.Conv2d
    shape: tuple[int, ...]
    problem: ConvProblem | None = None
    folded: tuple[str, ...] = ()
    plan: Plan | None = None
    measured: Seconds | None = None
    reason: str = ""


@dataclass
class Survey:
    """Survey of *model* called with *arguments*.

    `parts` are the modules that are folded, by name, "" for the model itself. *fold* False folds
    none. *kinds* are computed by dscore, of those that *plan_of* finds a plan for.
    """

    model: nn.Module
    arguments: tuple[Any, ...]
    plan_of: Planner
    fold: bool = True
    backend: str = "auto"
    arithmetic: Permission = "sum"
    kinds: tuple[str, ...] = GAINING
    parts: dict[str, Folded] = field(default_factory=dict)
    unfolded: dict[str, str] = field(default_factory=dict)
    calls: list[ConvCall] = field(default_factory=list)
    measured: dict[ConvProblem, Seconds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._left: dict[str, str] = {}
        self._plans: dict[ConvProblem, Plan | str] = {}
        with evaluating(self.model):
            self._look()
            self._plan()

    def _look(self) -> None:
        """See what each module is called with, and find the parts.

        Of much data on the CPU, by shapes alone, unless the model asks for values.
        """
        if is_much(self.arguments):
            with suppress(Exception), shapes_alone(self.model, self.arguments) as arguments:
                self._see(arguments)
                for folded in self.parts.values():
                    folded.program = None  # which holds no values
                return
        self._see(self.arguments)

    def _see(self, arguments: tuple[Any, ...]) -> None:
        self._seen, _ = arguments_seen(self.model, arguments)
        self.parts, self.unfolded = {}, {}
        if self.fold:
            self._find_parts("", self.model)

    @property
    def problems(self) -> list[ConvProblem]:
        """The problems of the calls that dscore computes, each once."""
        return list(dict.fromkeys(call.problem for call in self.calls
                                  if call.problem is not None and not call.reason))

    def needed(self, training: bool) -> list[ConvProblem]:
        """The problems whose kernels a model needs, in train mode those of training as well."""
        return [*self.problems, *self.further, *(self.training_problems() if training else ())]

    @property
    def further(self) -> list[ConvProblem]:
        """Problems of the parts that are no convolutions: means over pixels, linear layers, gates.
        """
        return [problem for folded in self.parts.values() if folded.program is not None
                for problem in folded.program.further]

    def training_problems(self) -> list[ConvProblem]:
        """The problems of training on the same input: nothing is folded, and both gradients."""
        problems = []
        for call in self.calls:
            if call.problem is not None and not call.reason:
                form = call.problem.spec
                bare = spec_of(call.conv, getattr(torch, form.dtype), layout=form.layout)
                forward = replace(bare, bias=call.conv.bias is not None,
                                  activation=getattr(call.conv, "activation", None),
                                  arithmetic=self.arithmetic)
                by_weight = replace(bare, out_dtype=_of_master(call.conv, form.dtype))
                problems += [replace(call.problem, spec=forward), *self._gradients(
                    replace(call.problem, spec=by_weight, operation="gradients"))]
        return problems

    def _gradients(self, both: ConvProblem) -> list[ConvProblem]:
        """The problem of both gradients where one kernel makes them, else that of each."""
        if takes_both(both, self.plan_of):
            return [both]
        return [part.problem for part in parts_of(both)]

    def judge(self, measured: dict[ConvProblem, Seconds]) -> None:
        """Leave to PyTorch what it computes faster, by what was *measured*."""
        self.measured.update(measured)
        slower = {call.name: f"PyTorch's is faster: {theirs * 1e6:.2f} µs, dscore's "
                             f"{ours * 1e6:.2f}" for call in self.calls
                  if call.problem in self.measured and not call.reason
                  for ours, theirs in [self.measured[call.problem]] if theirs < ours}
        self._left.update(slower)
        with evaluating(self.model):
            self._plan()

    def _find_parts(self, name: str, module: nn.Module) -> None:
        """The module as a part, or where it has no graph its modules as parts."""
        arguments = self._seen.get(name)
        if is_conv(module) or not any(map(is_conv, module.modules())):
            return
        if arguments is None:  # of a list of modules, or a module whose modules alone are called
            self._find_parts_in(name, module)
            return
        folded = Folded(len(arguments), self.backend, {}, arithmetic=self.arithmetic)
        try:
            folded.build(module, arguments)
            self.parts[name] = folded
        except NotTraced as failed:
            self.unfolded[name] = str(failed)
            self._find_parts_in(name, module)

    def _find_parts_in(self, name: str, module: nn.Module) -> None:
        for child_name, child in module.named_children():
            self._find_parts(f"{name}.{child_name}".lstrip("."), child)

    def _plan(self) -> None:
        """The calls, and their plans; what has none is left, and the graphs are made without."""
        for module_name, module in self.model.named_modules():
            if is_conv(module) and module_name not in self._left:
                reason = self._static_reason(module)
                if reason:
                    self._left[module_name] = reason
        while True:
            self._rebuild()
            self.calls = [*self._folded_calls(), *self._module_calls()]
            refused = {call.name: reason for call in self.calls if not call.reason
                       and (reason := self._refusal(call))}
            if not refused:
                return
            self._left.update(refused)

    def _static_reason(self, conv: nn.Conv2d) -> str:
        """Reason why PyTorch computes a convolution on any input."""
        if conv.padding_mode != "zeros":
            return f"pads by {conv.padding_mode} values"
        try:
            kind = spec_of(conv, conv.weight.dtype).kind
        except SpecError as error:
            return str(error)
        if kind in self.kinds:
            return ""
        return f"{kind}: " + ("was not asked for" if kind in GAINING else
                              "no gain is known unless it is measured on a GPU")

    def _rebuild(self) -> None:
        """Make the graphs anew, with what is left now."""
        for name, folded in self.parts.items():
            prefix = f"{name}." if name else ""
            left = {conv[len(prefix):]: reason for conv, reason in self._left.items()
                    if conv.startswith(prefix)}
            if left != folded.left or folded.program is None:
                folded.left = left
                folded.build(self.model.get_submodule(name))

    def _folded_calls(self) -> Iterator[ConvCall]:
        for name, folded in self.parts.items():
            prefix = f"{name}." if name else ""
            assert folded.program is not None
            for layer, node in folded.program.calls:
                shape = node.all_input_nodes[0].meta["shape"]
                call = ConvCall(prefix + layer.name, layer.conv, shape, folded=layer.folded,
                                reason=layer.reason)
                with suppress(SpecError):  # of what is left in any case
                    call.problem = layer.problem(shape, _dtype(layer.conv),
                                                 node.all_input_nodes[0].meta["layout"])
                yield call

    def _module_calls(self) -> Iterator[ConvCall]:
        """Convolutions of no graph, once each, as the example came to them."""
        graphs = [folded.program for folded in self.parts.values() if folded.program is not None]
        within = {layer.conv for program in graphs for layer in program.layers}
        for name, module in self.model.named_modules():
            if not is_conv(module) or module in within:
                continue
            seen, conv = self._seen.get(name), module
            shape = tuple(seen[0].shape) if seen and isinstance(seen[0], Tensor) else ()
            call = ConvCall(name, conv, shape,
                            reason=self._left.get(name, self._plain_reason(conv) if shape else
                                                  "the example does not come to it"))
            if seen and shape:
                with suppress(SpecError):
                    layout = form_of(self._seen[name][0]).layout
                    call.problem = _problem_of(conv, shape, layout).permitting(self.arithmetic)
            yield call

    def _plain_reason(self, conv: nn.Conv2d) -> str:
        """Reason why PyTorch computes a convolution of no graph, which has the module's filter."""
        own = self.backend == "auto" and _dtype(conv) is conv.weight.dtype
        return ("its filter is not contiguous, as in a channels_last model: kernels take the copy "
                "of a folded model, or autocast's" if own and not conv.weight.is_contiguous()
                else "")

    def _refusal(self, call: ConvCall) -> str:
        """Reason why there is no plan of a call; else it gets its plan."""
        assert call.problem is not None
        if call.problem not in self._plans:
            try:
                self._plans[call.problem] = self._plan_or_reason(call.problem)
            except (SpecError, InfeasibleError, UnavailableError) as error:
                self._plans[call.problem] = str(error).splitlines()[0]
        plan = self._plans[call.problem]
        call.plan = None if isinstance(plan, str) else plan
        call.measured = self.measured.get(call.problem)
        return plan if isinstance(plan, str) else ""

    def _plan_or_reason(self, problem: ConvProblem) -> Plan | str:
        """The plan of a problem; the reason why it has but the definition's."""
        plan, spec = self.plan_of(problem), problem.spec
        if plan.tiling.algorithm != Direct.name or self.backend != "auto":
            return plan
        return (f"{spec.kind} in {spec.dtype} and {spec.layout.upper()}: dscore has only the "
                "definition itself")


def _dtype(conv: nn.Conv2d) -> torch.dtype:
    """The type that a module computes in: of its filter, or autocast's."""
    device = conv.weight.device.type
    return (torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device)
            else conv.weight.dtype)


def _of_master(conv: nn.Conv2d, dtype: str) -> str | None:
    """The type of the filter's gradient under autocast to *dtype*; None for that."""
    wider = conv.weight.dtype is torch.float32 and dtype != "float32"
    return "float32" if wider else None


def _problem_of(conv: nn.Conv2d, shape: tuple[int, ...], layout: Layout) -> ConvProblem:
    """The problem of a module by itself, on an input of a shape."""
    spec = spec_of(conv, _dtype(conv), bias=conv.bias is not None, layout=layout,
                   activation=getattr(conv, "activation", None))
    return ConvProblem(spec, shape[0] if len(shape) == 4 else 1, shape[-2], shape[-1])
