"""Quantisation refused: what a model, its batches and the options cannot be, by name."""

import pytest

from dscore.core.errors import SpecError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from torch import nn  # noqa: E402

from dscore.torch import quantize  # noqa: E402

BATCHES = [torch.randn(4, 3, 12, 10, generator=torch.Generator().manual_seed(3))]


def model_of():
    return tiny_networks.with_statistics(tiny_networks.mobile()).eval()


class Overwriting(nn.Module):
    """A model that reads a tensor after it has changed it in place."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        y = x * 2
        z = self.conv(y)
        y += z
        return self.conv(y) + y.add_(1) + y


LOADER = [[torch.zeros(2, 3, 12, 10), torch.zeros(2)]]
REFUSED = {
    "train mode": (lambda: model_of().train(), BATCHES, {}, r"the model is in train mode"),
    "a part in train mode": (lambda: _with(model_of(), "stem"), BATCHES, {},
                             r"stem is in train mode"),
    "no module": (lambda: len, BATCHES, {}, "a model is a torch.nn.Module"),
    "no batches": (model_of, [], {}, "there are no calibration batches"),
    "one tensor": (model_of, BATCHES[0], {}, r"calibration_batches is one tensor; pass .*\[x\]"),
    "a loader": (model_of, LOADER, {}, r"batch 0 is a list; .*\(x for x, _ in loader\)"),
    "a wrong shape": (model_of, [BATCHES[0], torch.zeros(2, 4, 8, 8)], {},
                      r"calibration batch 1, of shape \(2, 4, 8, 8\), is none that the model"),
    "NaN": (model_of, [BATCHES[0], torch.full((1, 3, 12, 10), float("nan"))], {},
            "calibration batch 1 has values that are NaN or infinite"),
    "NaN inside": (lambda: nn.Sequential(_root(), nn.Conv2d(3, 3, 1)).eval(), BATCHES, {},
                   "calibration batch 0 makes .* NaN or infinite"),
    "no convolution": (lambda: nn.Sequential(nn.Linear(10, 2)).eval(), BATCHES, {},
                       "the model has no torch.nn.Conv2d"),
    "no graph": (lambda: Overwriting().eval(), BATCHES, {},
                 r"no calibration batch comes to a convolution in a graph .*changed it in place"),
    "bfloat16": (lambda: model_of().bfloat16(), BATCHES, {}, "the model is of torch.bfloat16"),
    "a percentile": (model_of, BATCHES, {"percentile": 0.99}, "percentile must be above 50"),
    "a limit": (model_of, BATCHES, {"error_limit": 0}, "error_limit must be positive"),
    "a layout": (model_of, BATCHES, {"layout": "nwhc"}, "layout must be one of nchw, nhwc"),
    "a kind": (model_of, BATCHES, {"kinds": ("depth",)}, "a kind must be one of"),
    "a name": (model_of, BATCHES, {"keep": ["stem.9"]}, "a name in keep must be one of stem.0"),
}


def _with(model, name):
    model.get_submodule(name).train()
    return model


def _root():
    class Root(nn.Module):
        def forward(self, x):
            return torch.sqrt(x)
    return Root()


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_quantised_is_refused_by_name(case):
    make, batches, options, named = REFUSED[case]
    with pytest.raises(SpecError, match=named):
        quantize(make(), batches, **options)
