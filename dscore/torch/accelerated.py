"""Accelerated model: one that runs a folded program in eval mode, and itself otherwise.

Its class is a subclass of its own class with another forward; modules, parameters, buffers, hooks
and the keys of its state_dict stay as they are.
"""

from __future__ import annotations

import copyreg
import functools
import threading
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dscore.core.numerics import Permission
from dscore.torch.program import Program, Shapes
from dscore.torch.tracing import PLAIN_FORWARD, NotTraced, evaluating

_gradients_on, _autocast_on = torch.is_grad_enabled, torch.is_autocast_enabled
_compiling = torch.compiler.is_compiling
_transforming = torch._C._are_functorch_transforms_active  # by which parameters may be batches
_NAME = "_dscore_folded"
_BUILDING = threading.RLock()


@dataclass
class Folded:
    """What a model is folded by; its `program` is made anew for a copy, and when it is loaded.

    *count*: positional arguments of a call. *left*: by name, why PyTorch computes a convolution.
    """

    count: int
    backend: str
    left: Mapping[str, str]
    shapes: Shapes = field(default_factory=dict)
    program: Program | None = None
    arithmetic: Permission = "sum"
    fault: str = ""  # reason why there is no program

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "program": None, "fault": ""}

    def build(self, model: nn.Module, arguments: tuple[Any, ...] | None = None) -> None:
        """Make the program of *model*; raises NotTraced."""
        with evaluating(model):
            self.program = Program(model, self.count, lambda name, _: self.left.get(name, ""),
                                   self.backend, self.shapes, arguments, self.arithmetic)
        self.shapes, self.fault = self.program.shapes, ""

    def program_of(self, model: nn.Module) -> Program | None:
        """The program of *model* as it is now; None where the model must run itself.

        It must where modules are in train mode, where it has changed to what has no graph, and
        where it shares this value with another model, as a replica of `nn.DataParallel` does.
        """
        program = self.program
        if program is not None:
            state = "plain" if program.model is not model else program.state()
            if state != "outdated":
                return program if state == "current" else None
        try:
            with _BUILDING:
                if self.program is program and not self.fault:  # nor has another thread made it
                    self.build(model)
        except NotTraced as failed:
            self.program, self.fault = None, str(failed)
            warnings.warn(f"dscore: {type(model).__name__} is no longer folded, and runs module by "
                          f"module: {failed}", RuntimeWarning, stacklevel=3)
        return self.program

    def fold(self) -> None:
        """Fold the parameters as they are now, if there is a program."""
        if self.program is not None:
            self.program.fold()


class Accelerated:
    """Members of an accelerated model, before those of its own class."""

    _dscore_folded: Folded
    training: bool

    def train(self, mode: bool = True) -> Any:
        """Set the mode, as PyTorch does; towards eval mode, fold the parameters as they are."""
        result = super().train(mode)  # type: ignore[misc]
        if not mode:
            self._dscore_folded.fold()
        return result

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load parameters, as PyTorch does, and fold them."""
        result = super().load_state_dict(*args, **kwargs)  # type: ignore[misc]
        self._dscore_folded.fold()
        return result

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Move or convert parameters, as PyTorch does; the program is made anew for them."""
        result = super()._apply(*args, **kwargs)  # type: ignore[misc]
        self._dscore_folded.program = None
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For pickle and copy, which do not find a class that is made at run time."""
        reduced: Any = super().__reduce_ex__(protocol)
        function, arguments, *rest = reduced
        if function is copyreg.__newobj__ and arguments[0] is type(self):  # type: ignore[attr-defined]
            function, arguments = _new, (plain_class(self), *arguments[1:])
        return function, arguments, *rest


# Accelerated models by their identity, the one constant of a model that every compiler takes.
_MODELS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _make_program(identity: int) -> None:
    """Make a model's program while a compiler traces the model, of whose graph that is no part."""
    model = _MODELS.get(identity)
    if model is not None:  # it is for a replica, which runs as it is
        model._dscore_folded.program_of(model)


# As note_traced in dscore.torch.remainder.
_make_program._dynamo_marked_constant = True  # type: ignore[attr-defined]


def become_accelerated(model: Any) -> None:
    """Give a model the accelerated class of its own."""
    model.__class__ = accelerated_class(plain_class(model))
    _MODELS[id(model)] = model


def plain_class(model: Any) -> Any:
    """The class of a model before it was accelerated."""
    kind = type(model)
    return kind.__mro__[2] if issubclass(kind, Accelerated) else kind


def _new(base: Any, *arguments: Any) -> Any:
    """An object of the accelerated class of *base*, without contents yet."""
    model = base.__new__(accelerated_class(base), *arguments)
    _MODELS[id(model)] = model
    return model


@functools.cache
def accelerated_class(base: Any) -> Any:
    """The subclass of *base* whose objects are accelerated models, of the same name."""
    plain = base.forward

    @functools.wraps(plain)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.training or kwargs or _gradients_on() or _autocast_on():
            return plain(self, *args, **kwargs)
        folded = self._dscore_folded
        if len(args) != folded.count:
            return plain(self, *args)
        if _compiling():
            _make_program(id(self))
            program = folded.program
            return plain(self, *args) if program is None else program.traceable(*args)
        program = None if _transforming() else folded.program_of(self)
        return plain(self, *args) if program is None else program.forward(*args)

    return type(base.__name__, (Accelerated, base), {
        "__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__,
        "forward": forward, PLAIN_FORWARD: plain})
