"""Steps that move elements, between layers of int8: integers pass them, of one scale."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from torch import fx, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from dscore.torch import Dequantize, Quantize, QuantizedConv2d, quantize  # noqa: E402
from dscore.torch.quantize_pooling import MeanOfPixels  # noqa: E402

GENERATOR = torch.Generator().manual_seed(5)
BATCHES = [torch.randn(4, 8, 12, 10, generator=GENERATOR) for _ in range(2)]


def conv(inputs, outputs, kernel=1, groups=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups),
                         nn.ReLU(inplace=True))


class Block(nn.Module):
    """Layers *a* to *d* of 8 channels, which a model joins in its own way."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = conv(8, 8), conv(8, 8, 3, 8)
        self.c, self.d = conv(16, 8), conv(8, 8)


class Fire(Block):
    """Two layers joined, another behind: as SqueezeNet has them."""

    def forward(self, x):
        x = self.a(x)
        return self.d(self.c(torch.cat([self.b(x), self.d(x)], 1)))


class Pooled(Block):
    """What layers joined comes to a maximum over pixels as well, so that it stays floats."""

    def forward(self, x):
        joined = torch.cat((self.a(x), self.b(x)), 1)
        return self.d(self.c(joined) + functional.max_pool2d(joined, 3, 1, 1)[:, ::2])


class Split(Block):
    """One part goes on to a layer, the other past it; sizes are read on the way."""

    def forward(self, x):
        x = self.a(x)
        n, c, h, w = x.size()
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        left, right = torch.split(torch.cat((x, self.b(x)), 1), [8, 8], 1)
        return self.d(self.c(torch.cat((left, self.d(right)), 1)))


class Mixed(Split):
    """One part of a split is taken as floats."""

    def forward(self, x):
        left, right = self.a(x).chunk(2, 1)
        return self.d(self.c(torch.cat((torch.tanh(left), right, left, right), 1)))


class Foreign(Block):
    """One of what is joined is no layer's."""

    def forward(self, x):
        return self.d(self.c(torch.cat((self.a(x), torch.tanh(x)), 1)))


class Means(Block):
    """A mean over the pixels of what is joined, and nothing else."""

    def forward(self, x):
        return torch.cat((self.a(x), self.b(x)), 1).mean((2, 3))


class InPlace(Block):
    """A part of a tensor is changed in place, which the rest of the model sees."""

    def forward(self, x):
        x = self.a(x)
        left, _ = x.chunk(2, 1)
        left.mul_(2)
        return self.d(x)


class Unused(Block):
    """No layer takes what is joined."""

    def forward(self, x):
        return torch.cat((self.a(x), self.b(x)), 1)


class Shuffled(Block):
    """ShuffleNetV2's units, one behind the other."""

    def __init__(self):
        super().__init__()
        self.units = nn.Sequential(tiny_networks.ShuffleUnit(8), tiny_networks.ShuffleUnit(8))

    def forward(self, x):
        return self.d(self.units(self.a(x)))


# Of each model: how often floats become integers, and integers floats.
STEPS = {Fire: (1, 0), Pooled: (3, 0), Split: (1, 0), Mixed: (2, 0), Foreign: (2, 0),
         Means: (1, 0), Unused: (1, 0), Shuffled: (1, 0)}
KINDS = ("dense", "depthwise", "pointwise")


class Scales(fx.Interpreter):
    """Interpreter of a quantised graph that holds each step of integers to the same step of the
    floats that they stand for, by scales which the modules state."""

    def __init__(self, model):
        super().__init__(model)
        self.scales, self.moved = {}, 0

    def run_node(self, n):
        value, module = super().run_node(n), None
        if n.op == "call_module":
            module = self.module.get_submodule(n.target)
        given = {self.scales[one] for one in n.all_input_nodes if one in self.scales}
        if isinstance(module, QuantizedConv2d):
            q = module.quantization
            x = (q.x_scale, q.x_zero_point) if q.input_scale is None else (
                q.input_scale, q.input_zero_point)
            assert x in given
            if q.y_scale is not None:
                self.scales[n] = q.y_scale, q.y_zero_point
        elif isinstance(module, (Dequantize, MeanOfPixels)):
            assert given == {(module.scale, module.zero_point)}
        elif isinstance(module, Quantize):
            self.scales[n] = module.scale, module.zero_point
        elif given and n.op != "output":
            self.moved += self._requires_equal(n, value, *given)
        return value

    def _requires_equal(self, n, value, scale):
        """*scale*: there is one."""
        leaves = value if isinstance(value, tuple | list) else [value]
        if not all(isinstance(one, torch.Tensor) for one in leaves):
            return False  # a shape
        assert all(one.dtype is torch.int8 for one in leaves)
        self.scales[n] = scale
        floats = fx.node.map_aggregate(
            self.fetch_args_kwargs_from_env(n),
            lambda one: Dequantize(*scale)(one) if isinstance(one, torch.Tensor) else one)
        expected = getattr(self, n.op)(n.target, *floats)
        expected = expected if isinstance(expected, tuple | list) else [expected]
        for one, wanted in zip(leaves, expected, strict=True):
            assert torch.equal(Dequantize(*scale)(one), wanted)
        return True


def relative(result, expected):
    return float((result - expected).norm() / expected.norm())


@torch.no_grad()
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("kind", STEPS)
def test_integers_pass_steps_that_move_elements(kind, layout):
    model = kind().eval()
    quantized = quantize(model, BATCHES, layout=layout, kinds=KINDS, error_limit=0.2)
    report = quantized.report
    assert (report.quantize_steps, report.dequantize_steps) == STEPS[kind]
    for x in (BATCHES[1], torch.randn(2, 8, 6, 6, generator=GENERATOR)):
        assert relative(quantized(x), model(x)) < 0.03
        scales = Scales(quantized)
        assert torch.equal(scales.run(x), quantized(x))
        assert (scales.moved > 0) == (kind not in (Pooled, Mixed, Unused))


@torch.no_grad()
def test_a_view_that_is_changed_in_place_is_seen():
    """Its layer and the one behind it are quantised each by itself."""
    model = InPlace().eval()
    quantized = quantize(model, BATCHES, kinds=KINDS)
    assert relative(quantized(BATCHES[1]), model(BATCHES[1])) < 0.03
    assert "changed it in place" in str(dict(quantized.report.unfolded)[""])
    assert [layer.name for layer in quantized.report.quantized] == ["a.0", "d.0"]


@torch.no_grad()
def test_a_result_that_would_lose_too_much_comes_to_a_step_as_floats():
    """By the scale of all that it is joined with: its own numbers are small."""
    model = Shuffled().eval()
    quantized = quantize(model, BATCHES)
    report = quantized.report
    assert (report.quantize_steps, report.dequantize_steps) == (2, 0)
    last = [layer for layer in report.layers if layer.name == "units.1.branch.2.0"]
    assert [layer.result for layer in last] == ["float32"]
    assert all(layer.error <= report.error_limit for layer in report.quantized)
    assert Scales(quantized).run(BATCHES[1]).shape == (4, 8, 12, 10)
    assert relative(quantized(BATCHES[1]), model(BATCHES[1])) < 0.03


@torch.no_grad()
def test_a_quantised_model_with_steps_is_copied_saved_and_loaded(tmp_path):
    quantized = quantize(Shuffled().eval(), BATCHES)
    torch.save(quantized, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    for other in (copy.deepcopy(quantized), loaded):
        assert torch.equal(other(BATCHES[0]), quantized(BATCHES[0]))


@torch.no_grad()
def test_layers_that_stay_in_floats_get_floats():
    model = Fire().eval()
    quantized = quantize(model, BATCHES, keep=("c.0",))
    assert not isinstance(quantized.get_submodule("c.0"), QuantizedConv2d)
    assert relative(quantized(BATCHES[1]), model(BATCHES[1])) < 0.03
    Scales(quantized).run(BATCHES[1])


def test_all_that_is_joined_has_the_range_of_all():
    model = Fire().eval()
    with torch.no_grad():
        model.b[0].weight.mul_(30)
        model.b[0].bias.mul_(30)
    rows = {layer.name: layer for layer in quantize(model, BATCHES).report.layers}
    assert rows["b.0"].y == rows["c.0"].x
