"""Acceleration of a whole model: its convolutions by dscore, folded in eval mode; and its undoing.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dscore import api
from dscore.core.errors import SpecError, UnavailableError, require_one_of, shown
from dscore.core.numerics import Permission
from dscore.core.spec import Kind
from dscore.torch.accelerated import Accelerated, become_accelerated, plain_class
from dscore.torch.activations import write_elsewhere, write_in_place
from dscore.torch.example import copied
from dscore.torch.gains import measured
from dscore.torch.modules import Conv2d
from dscore.torch.report import Report, report_on
from dscore.torch.setting import Setting
from dscore.torch.survey import GAINING, Survey
from dscore.torch.tracing import device_of, evaluating, gpu_of

_ON_THE_CPU = ("the model lies on the CPU, where PyTorch's own convolutions compute; once it is "
               "moved to a GPU, dscore's kernels do")
# Marks a module whose class was nn.Conv2d.
_REPLACED = "_dscore_replaced"
# Of the largest output: a graph whose result differs by more was traced wrongly. PyTorch's own may
# be rounded to TF32, which differs by some thousandths. Of 16 bits both results are off: in float16
# those of MobileNetV2 with random weights by 0.025 each; bfloat16 rounds eight times as coarsely.
_MOST_DIFFERENCE = {torch.float16: 0.06, torch.bfloat16: 0.4}
_MOST_DIFFERENCE_ELSE = 0.02


def accelerate(model: nn.Module, example: Any, *, fold: bool = True, inplace: bool = True,
               backend: str = "auto", measure: bool | None = None,
               kinds: Sequence[Kind] | None = None,
               arithmetic: Permission = "sum") -> Report:
    """Convolutions of a model by dscore, for inference and for training.

    - *example*: the input that the model is called with, or a tuple of its inputs, which stay as
      they are. Other inputs may have other shapes; kernels are prepared for these.
    - *fold*: in eval mode, under ``torch.no_grad()``, the model runs as a graph. Batch norms,
      activations, additions (``x + block(x)``) and products with a scale by image and channel
      (squeeze-and-excitation) become part of the convolutions beside them.
    - *inplace*: change *model* itself; False changes a copy, which the report has as `model`.
    - *backend*: "auto", or one by its name, as for `dscore.torch.conv2d`.
    - *measure*: time each convolution by dscore and by PyTorch, and leave to PyTorch what it
      computes faster; None: on a GPU.
    - *kinds*: of convolutions that are replaced, "depthwise", "pointwise", "dense", "grouped";
      None for all that were measured, else for the first two.
    - *arithmetic*: "winograd" permits Winograd's algorithm in the forward pass (`dscore.conv`).

    Returns a `Report`; print it. `restore` undoes all.

    The model stays what it is: of its class, with its modules, parameters, hooks and state_dict. In
    train mode, and where gradients are recorded, its modules run one by one, and batch norms as
    PyTorch's. Each eager call in eval mode looks whether a parameter, a buffer or a module was
    changed since, and then folds anew. What it cannot see (docs/networks.md lists it) needs
    ``model.eval()``, `refresh`, or ``model.load_state_dict``; so do programs of torch.compile and
    captured CUDA graphs, which look at nothing. A model that PyTorch cannot trace is folded in
    parts, or not at all: the report says so, and its convolutions are replaced one by one.

    Activations in place of which PyTorch copies the input in training, as ReLU6 and SiLU, write
    elsewhere from then on where they follow a convolution or a batch norm in an `nn.Sequential`.

    Kernels are prepared in parallel; of a model in train mode, those of the gradients as well.

    Raises SpecError for what is no module, UnavailableError for a backend that cannot run here.

    >>> model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.ReLU()).eval()
    >>> report = accelerate(model, torch.zeros(1, 8, 5, 5))
    >>> report.layers[0].name, report.layers[0].folded
    ('0', ('batch norm', 'relu'))
    """
    require_module(model)
    if not inplace:
        model = copy.deepcopy(model)
    restore(model)
    gpu = gpu_of(model)
    setting = Setting(backend, gpu, arithmetic=arithmetic)
    measuring = gpu is not None if measure is None else measure
    survey = _surveyed(model, example, setting, fold, measuring, kinds, model.training)
    setting.prepare(survey.needed(model.training))
    plain = _results(survey) if survey.parts else []  # of PyTorch, before anything is replaced
    if moved := write_elsewhere(model):
        setting.say(f"{moved} activations no longer write in place, for which a training step "
                    "would copy what they overwrite")
    _replace(survey, setting)
    _hold_to_example(survey, plain)
    if not setting.computes:
        setting.say(_ON_THE_CPU)
    return report_on(survey, setting)


def scan(model: nn.Module, example: Any, *, fold: bool = True, backend: str = "auto",
         measure: bool | None = None, kinds: Sequence[Kind] | None = None,
         device: api.DeviceLike | None = None,
         arithmetic: Permission = "sum") -> Report:
    """The report of `accelerate`, without a change of the model.

    *device*: that the plans are for, by name, and nothing is measured; None for the GPU that the
    model lies on, else for the one that is here, else for an assumed one.

    >>> model = nn.Sequential(nn.Conv2d(16, 32, 1), nn.ReLU6())
    >>> report = scan(model, torch.zeros(1, 16, 14, 14), device="h200")
    >>> report.layers[0].problem
    'n1c16h14w14_o32k1_bias_relu6'
    """
    require_module(model)
    gpu = gpu_of(model) if device is None else None
    setting = Setting(backend, gpu, None if device is None else api.device_of(device), arithmetic)
    measuring = gpu is not None if measure is None else measure
    return report_on(_surveyed(model, example, setting, fold, measuring, kinds), setting)


def _surveyed(model: nn.Module, example: Any, setting: Setting, fold: bool, measure: bool,
              kinds: Sequence[Kind] | None, training: bool = False) -> Survey:
    """The survey of a model, after kernels were prepared, and measured if that is asked for.

    *training*: those of the gradients are prepared together with those that are measured.
    """
    arguments, device = example if isinstance(example, tuple) else (example,), device_of(model)
    if measure and device.type != "cuda":
        raise UnavailableError(f"measure=True times kernels on a GPU, and the model lies on "
                               f"{device}; move it and the example there, or leave measure out")
    for kind in kinds or ():
        require_one_of(kind, "a kind", get_args(Kind))
    survey = Survey(model, arguments, setting.plan_of, fold, setting.name, setting.arithmetic,
                    tuple(kinds or (get_args(Kind) if measure else GAINING)))
    while measure and (new := [one for one in survey.problems if one not in survey.measured]):
        setting.prepare(survey.needed(training))
        survey.judge(measured(new, device, backend=setting.name))
    return survey


def restore(model: nn.Module) -> None:
    """Undo `accelerate`; parameters keep the values that they have. Others are left as they are.

    >>> model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8))
    >>> _ = accelerate(model, torch.zeros(1, 8, 5, 5))
    >>> restore(model)
    >>> type(model[0]) is nn.Conv2d
    True
    """
    for module in model.modules():
        if isinstance(module, Accelerated):
            module.__class__ = plain_class(module)
            del module._dscore_folded
        write_in_place(module)
        if vars(module).pop(_REPLACED, False):
            module.__class__ = _pytorch_s(type(module))
            for option in ("backend", "arithmetic"):
                vars(module).pop(option, None)


def _pytorch_s(kind: Any) -> Any:
    """PyTorch's class of convolutions, for dscore's and for what parametrizations make of that."""
    return (nn.Conv2d if kind is Conv2d else
            type(kind.__name__, tuple(map(_pytorch_s, kind.__bases__)), dict(vars(kind))))


def refresh(model: nn.Module) -> None:
    """Fold the parameters of an accelerated model as they are now, whatever has changed them.

    Compiled programs and captured graphs read the new values, too.
    """
    for module in model.modules():
        if isinstance(module, Accelerated):
            module._dscore_folded.fold()


def require_module(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise SpecError(f"a model is a torch.nn.Module, got {shown(model)}")
    if isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_orig_mod"):
        raise SpecError(f"a {type(model).__name__} is compiled already; accelerate the model that "
                        "it was made of, and compile that")


def _replace(survey: Survey, setting: Setting) -> None:
    """Give the survey's convolutions and its folded parts their accelerated classes."""
    for call in survey.calls:
        if not call.reason and type(call.conv) is nn.Conv2d:
            call.conv.__class__ = Conv2d
            vars(call.conv)[_REPLACED] = True
            vars(call.conv).update({} if setting.name == "auto" else {"backend": setting.name})
            if setting.arithmetic != "sum":
                vars(call.conv)["arithmetic"] = setting.arithmetic
    for name, folded in survey.parts.items():
        part = survey.model.get_submodule(name)
        become_accelerated(part)
        vars(part)["_dscore_folded"] = folded


def _hold_to_example(survey: Survey, plain: list[Tensor]) -> None:
    """Undo the folding of parts if the model's results on the example are not what they were.

    What PyTorch traces may differ from what a model does, where that depends on values.
    """
    if not survey.parts:
        return
    results = _results(survey)
    if len(results) == len(plain) and all(map(_alike, results, plain)):
        return
    for name in survey.parts:
        part = survey.model.get_submodule(name)
        part.__class__ = plain_class(part)
        del part._dscore_folded
    survey.unfolded.update(dict.fromkeys(
        survey.parts, "as PyTorch traces it, its result on the example is another one"))
    survey.parts.clear()


def _results(survey: Survey) -> list[Tensor]:
    """Tensors that the survey's model returns for its example, in eval mode."""
    with evaluating(survey.model):
        output = survey.model(*copied(survey.arguments))
    return [one for one in tree_leaves(output) if isinstance(one, Tensor)]


def _alike(result: Tensor, plain: Tensor) -> bool:
    if result.shape != plain.shape or result.dtype != plain.dtype:
        return False
    if not plain.is_floating_point() or not plain.numel():
        return bool(torch.equal(result, plain))
    most = _MOST_DIFFERENCE.get(plain.dtype, _MOST_DIFFERENCE_ELSE) * plain.abs().max()
    return bool(((result - plain).abs().max() <= most) | ~most.isfinite())
