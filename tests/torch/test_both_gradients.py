"""Both gradients of a depthwise layer by one kernel: eager, remembered and compiled steps."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from compiled_programs import keeping  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_gpu import NAME, torch_gpu  # noqa: E402

from dscore.calling import both  # noqa: E402
from dscore.torch import functional as functional_way  # noqa: E402
from dscore.torch import operators, recorded  # noqa: E402
from dscore.torch.modules import DepthwiseConv2d  # noqa: E402

ONE, TWO = ["conv", "gradients"], ["conv", "input_gradient", "weight_gradient"]


@pytest.fixture
def launches(monkeypatch):
    monkeypatch.setattr(both, "takes_both", lambda problem, plan_of: problem.spec.layout == "nhwc")
    with torch_gpu(monkeypatch) as launches:
        yield launches


def layer_and_image(last=True, channels=6, **options):
    torch.manual_seed(0)
    layer = DepthwiseConv2d(channels, 3, padding=1, backend=NAME, **options)
    form = torch.channels_last if last else torch.contiguous_format
    return layer, torch.randn(2, channels, 6, 5).contiguous(memory_format=form)


def step(layer, x, call=None, **options):
    """The gradients by x and the parameters, of the squares of the result."""
    x = x.detach().requires_grad_()
    y = (layer if call is None else call)(x)
    return torch.autograd.grad(y.float().square().sum(), (x, *layer.parameters()), **options)


def by_pytorch(layer):
    return lambda x: functional.conv2d(x, layer.weight, layer.bias, layer.stride, layer.padding,
                                       layer.dilation, layer.groups)


def agree(ours, theirs, most=1e-4):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=most, atol=most)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_step_is_two_launches_remembered_or_not(stride, bias, launches, monkeypatch):
    layer, x = layer_and_image(stride=stride, bias=bias)
    wanted = step(layer, x, by_pytorch(layer))
    for number in range(4):
        if number == 3:
            monkeypatch.setattr(recorded.backward, "gradients", None)  # the general way
        launches.clear()
        ours = step(layer, x)
        assert launches == ONE
        agree(ours, wanted)
        assert ours[0].is_contiguous(memory_format=torch.channels_last)


def test_images_of_the_other_layout_take_a_kernel_for_each(launches):
    layer, x = layer_and_image(last=False)
    for _ in range(3):
        launches.clear()
        agree(step(layer, x), step(layer, x, by_pytorch(layer)))
        assert launches == TWO


def test_what_is_expected_to_be_slower_is_not_taken(launches, monkeypatch):
    monkeypatch.setattr(both, "takes_both", lambda *given: False)
    layer, x = layer_and_image()
    for _ in range(3):
        launches.clear()
        agree(step(layer, x), step(layer, x, by_pytorch(layer)))
        assert launches == TWO


def test_one_gradient_alone_is_made_alone(launches):
    layer, x = layer_and_image(bias=False)
    step(layer, x)
    for frozen, wanted in ((True, "input_gradient"), (False, "weight_gradient")):
        layer.weight.requires_grad_(not frozen)
        image = x.detach().requires_grad_(frozen)
        for _ in range(3):
            launches.clear()
            layer(image).sum().backward()
            assert launches == ["conv", wanted]


def test_gradients_of_gradients_take_the_differentiable_ones(launches):
    layer, x = layer_and_image(bias=False)

    def twice(call):
        image = x.detach().requires_grad_()
        first = torch.autograd.grad(call(image).square().sum(), (image, layer.weight),
                                    create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first),
                                   (image, layer.weight))

    step(layer, x)
    launches.clear()
    agree(twice(layer), twice(by_pytorch(layer)), 1e-3)
    assert launches[:3] == TWO  # of the last pass both may be made at once


def test_a_batch_of_gradients_is_taken_apart(launches):
    layer, x = layer_and_image(bias=False)
    rows = torch.randn(3, *layer(x).shape)

    def batched(call):
        image = x.detach().requires_grad_()
        return torch.autograd.grad(call(image), (image, layer.weight), rows, is_grads_batched=True)

    step(layer, x)
    agree(batched(layer), batched(by_pytorch(layer)))
    of_functions = torch.func.vmap(torch.func.grad(
        lambda w, image: torch.func.functional_call(
            layer, {"weight": w}, (image,)).square().sum(), (0, 1)), (None, 0))
    images = torch.stack([x, 2 * x])
    theirs = torch.func.vmap(torch.func.grad(
        lambda w, image: functional.conv2d(image, w, None, 1, 1, 1, 6).square().sum(), (0, 1)),
        (None, 0))
    weight = layer.weight.detach()
    agree(of_functions(weight, images), theirs(weight, images), 1e-3)


def test_images_that_change_their_form_are_noticed(launches):
    layer, x = layer_and_image()
    step(layer, x)
    for image in (x[:1], x[..., :4], x.contiguous(), x.flip(-1), x, torch.cat([x, x])):
        for _ in range(2):
            agree(step(layer, image), step(layer, image, by_pytorch(layer)))


def test_under_autocast_the_filters_gradient_is_of_float32(launches, monkeypatch):
    monkeypatch.setattr(functional_way, "_autocast_on",
                        lambda device="cpu": torch.is_autocast_enabled(device))
    layer, x = layer_and_image(bias=False, channels=8)

    def call(x):
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x)

    for _ in range(3):
        launches.clear()
        of_x, of_w = step(layer, x, call)
        assert launches == ONE
    assert (of_x.dtype, of_w.dtype) == (torch.float32, torch.float32)
    assert not torch.equal(of_w, of_w.bfloat16().float())
    agree((of_x, of_w), step(layer, x, by_pytorch(layer)), 0.3)


@pytest.mark.parametrize("last", [True, False])
def test_a_compiled_step_has_one_operator_for_both(last, launches):
    layer, x = layer_and_image(last)
    texts = []

    torch._dynamo.reset()
    compiled = torch.compile(layer, backend=keeping(texts), fullgraph=True)
    wanted = step(layer, x, by_pytorch(layer))
    launches.clear()
    agree(step(layer, x, compiled), wanted)
    assert launches == (ONE if last else TWO)
    assert texts[1].count("dscore.gradients") == last


def test_the_operator_says_what_it_gives(launches):
    """Of images in another memory format than their gradients, too."""
    for last in (True, False):
        layer, x = layer_and_image()
        gradient = torch.randn(2, 6, 6, 5)
        if last:
            gradient = gradient.contiguous(memory_format=torch.channels_last)
        torch.library.opcheck(
            torch.ops.dscore.gradients, (x, gradient, layer.weight.detach(), (1, 1), (1, 1, 1, 1),
                                         (1, 1), 6, NAME, None),
            test_utils=("test_schema", "test_faketensor"))
    assert operators.OPERATORS.both is operators.both
