"""Entries of quantised models: images of floats are quantised by the first layer's own launch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from quantized_models import agrees, by_modules, images, link, linked_of, quantized_gpu  # noqa: E402
from torch import nn  # noqa: E402
from torch_gpu import NAME  # noqa: E402

import dscore.torch  # noqa: E402
from dscore import Quantization  # noqa: E402
from dscore.torch import Quantize, QuantizedConv2d  # noqa: E402
from dscore.torch.quantize_entry import Entry  # noqa: E402
from dscore.torch.quantize_operator import by_pytorch, convolved  # noqa: E402


@pytest.fixture
def launches(monkeypatch):
    with quantized_gpu(monkeypatch, "h200") as launches:
        yield launches


def model_of(first, batch, **options):
    torch.manual_seed(0)
    model = nn.Sequential(first, nn.BatchNorm2d(16), nn.ReLU6(), nn.Conv2d(16, 8, 1)).eval()
    return dscore.torch.quantize(tiny_networks.with_statistics(model).eval(), [batch], backend=NAME,
                                 error_limit=10, **options)


FIRST = nn.Conv2d(3, 16, 3, 2, 1)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("lies", [torch.contiguous_format, torch.channels_last])
def test_images_are_quantised_by_the_first_layer(lies, dtype, launches):
    model = model_of(FIRST, images(), layout="nhwc").to(dtype)
    given = images().to(dtype).contiguous(memory_format=lies)
    link(model, given)
    launches.clear()
    y = model(given)
    assert launches == ["conv", "conv"]
    launches.clear()
    assert torch.equal(by_modules(model, given), y)
    assert launches == ["quantise", "conv", "conv"]
    agrees(model, images(seed=1).to(dtype).contiguous(memory_format=lies))


@torch.no_grad()
@pytest.mark.parametrize("first", [
    nn.Conv2d(8, 16, 3, 2, 1), nn.Conv2d(3, 16, 3), nn.Conv2d(3, 12, 3, 2, 1)],
    ids=["eight channels", "a zero point in the bias", "no multiple of eight filters"])
def test_other_first_layers_have_both_steps(first, launches):
    batch = torch.rand(2, first.in_channels, 12, 12)
    model = nn.Sequential(first, nn.ReLU6(), nn.Conv2d(first.out_channels, 8, 1)).eval()
    model = dscore.torch.quantize(model, [batch + 1], backend=NAME, error_limit=10, layout="nhwc")
    assert model.get_submodule("0").zero_point_in_bias == (first.padding == (0, 0))
    link(model, batch)
    launches.clear()
    model(batch)
    assert launches == ["quantise", "conv", "conv"]


@torch.no_grad()
def test_integers_that_others_take_have_a_step_of_their_own(launches):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(3, 16, 3, 2, 1)

        def forward(self, x):
            return self.one(x) + self.other(x)

    model = dscore.torch.quantize(Twice().eval(), [images()], backend=NAME, error_limit=10,
                                  layout="nhwc")
    link(model)
    launches.clear()
    model(images())
    assert launches.count("quantise") == 1


@torch.no_grad()
def test_scales_that_change_are_seen(launches):
    model = model_of(FIRST, images(), layout="nhwc")
    link(model)
    before = model(images())
    step = next(one for one in model.modules() if isinstance(one, Quantize))
    step.scale *= 2
    y = model(images())
    assert not torch.equal(y, before)
    agrees(model, images())


@torch.no_grad()
def test_kernels_of_the_entry_are_prepared(launches, monkeypatch):
    asked = []
    setting = dscore.torch.setting.Setting
    prepare = setting.prepare
    monkeypatch.setattr(setting, "prepare", lambda self, problems: asked.extend(
        problems := list(problems)) or prepare(self, problems))
    model_of(FIRST, images(), layout="nhwc")
    assert [one.spec.in_dtype for one in asked if one.spec.in_dtype] == ["float32"]


def test_what_is_no_batch_of_floats_has_both_steps(launches):
    q = Quantization(0.05, 0.01, 0.1, x_zero_point=3)
    w = torch.randint(-99, 99, (16, 3, 3, 3), dtype=torch.int8)
    entry = Entry(Quantize(0.05, 3, "nhwc"), QuantizedConv2d(w, None, q, 2, 1, backend=NAME))
    with torch.no_grad():
        single, empty = images()[0], images()[:0]
        assert torch.equal(entry(single), entry.layer(entry.quantize(single)))
        assert entry(empty).shape == (0, 16, 6, 6)
        assert entry.launch_of(single) is entry.launch_of(empty) is None


def test_pytorch_quantises_floats_alike():
    q = Quantization(0.05, 0.01, 0.1, x_zero_point=3)
    w = torch.randint(-99, 99, (4, 3, 3, 3), dtype=torch.int8)
    layer = dscore.torch.layer.Layer((2, 2), (1, 1, 1, 1), (1, 1), 1, "auto")
    wanted = convolved(Quantize(0.05, 3)(images()), w, None, layer, q, None)
    assert torch.equal(by_pytorch(images(), w, None, layer, q, None), wanted)
    by_reference = convolved(images(), w, None, layer._replace(backend="reference"), q, None)
    assert torch.equal(by_reference, wanted)


@torch.no_grad()
def test_gpus_without_such_kernels_have_both_steps(monkeypatch):
    with quantized_gpu(monkeypatch) as launches:
        model = model_of(FIRST, images(), layout="nhwc")
        link(model)
        assert linked_of(model)
        launches.clear()
        model(images())
        assert launches == ["quantise", "conv", "conv"]
