"""Models in 16 bits, with the channels last, and under autocast: accelerated, trained, compared."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tiny_networks  # noqa: E402
from torch import nn  # noqa: E402

import dscore.torch as dt  # noqa: E402
from dscore.bench import network_methods  # noqa: E402
from dscore.torch.survey import Survey  # noqa: E402

FORMS = [torch.contiguous_format, torch.channels_last]
NAMES = {torch.float32: "", torch.float16: "_float16", torch.bfloat16: "_bfloat16"}


def model_and_example(dtype, form):
    torch.manual_seed(0)
    model = tiny_networks.with_statistics(network_methods.undropped(tiny_networks.mobile())).eval()
    return (model.to(dtype=dtype, memory_format=form),
            torch.randn(2, 3, 16, 16).to(dtype=dtype, memory_format=form))


@torch.no_grad()
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("form", FORMS, ids=["nchw", "nhwc"])
def test_shuffles_of_all_forms(form, images):
    model = tiny_networks.with_statistics(nn.Sequential(
        tiny_networks.ShuffleUnit(), tiny_networks.ShuffleUnit())).eval()
    x = torch.randn(images, 8, 6, 5).to(memory_format=form)
    expected = model(x)
    dt.accelerate(model.to(memory_format=form), x)
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS, ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_accelerated_model_computes_as_it_did(dtype, form):
    model, x = model_and_example(dtype, form)
    exact, x64 = copy.deepcopy(model).double(), x.double()
    report = dt.accelerate(model, x, backend="reference")
    assert report.replaced
    end = f"{NAMES[dtype]}{'_nhwc' if form is torch.channels_last else ''}"
    assert all(end in layer.problem for layer in report.replaced)
    assert report.folded == ("",)
    with torch.no_grad():
        y, wanted = model(x), exact(x64)
    assert y.dtype is dtype
    assert network_methods.relative_error(y, wanted) < 8 * torch.finfo(dtype).eps
    # Where gradients are recorded, its modules run one by one.
    assert network_methods.relative_error(model(x).detach(), wanted) < 16 * torch.finfo(dtype).eps
    dt.restore(model)


def test_a_survey_under_autocast_is_of_its_type():
    model, x = model_and_example(torch.float32, torch.channels_last)
    setting = dt.setting.Setting("reference")
    with torch.autocast("cpu", torch.bfloat16):
        survey = Survey(model, (x,), setting.plan_of, fold=False, backend="reference")
    kinds = {(problem.spec.dtype, problem.spec.layout, problem.operation)
             for problem in survey.training_problems()}
    results = {(problem.operation, problem.spec.out_element.name)
               for problem in survey.training_problems()}
    assert results == {("conv", "bfloat16"), ("input_gradient", "bfloat16"),
                       ("weight_gradient", "float32"), ("gradients", "float32")}
    assert kinds == {("bfloat16", "nhwc", operation) for operation, _ in results}


def rounded(gradient):
    """Whether a gradient of float32 has been of bfloat16."""
    return torch.equal(gradient.bfloat16().float(), gradient)


def test_gradients_of_gradients_by_filters_that_autocast_casts():
    """The filter's gradient is of its own type, and its graph goes by the filter that was cast."""
    x, w = torch.randn(2, 4, 5, 5), torch.randn(4, 1, 3, 3, requires_grad=True)

    def twice(call):
        with torch.autocast("cpu", torch.bfloat16):
            y = call(x, w, None, 1, 1, 1, 4)
        first, = torch.autograd.grad(y.float().square().sum(), w, create_graph=True)
        return first, *torch.autograd.grad(first.square().sum(), w)

    ours = twice(lambda *given: dt.conv2d(*given, backend="reference"))
    for one, other in zip(ours, twice(nn.functional.conv2d), strict=True):
        assert one.dtype is torch.float32
        assert (one - other).norm() <= 0.02 * other.norm()


def test_a_gradient_left_to_pytorch_is_of_the_filters_type():
    x, w = torch.randn(2, 4, 5, 5), torch.randn(4, 2, 3, 3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = dt.conv2d(x, w, groups=2)
    y.float().sum().backward()
    assert w.grad.dtype is torch.float32


@pytest.mark.parametrize("form", FORMS, ids=["nchw", "nhwc"])
def test_a_step_of_training_under_autocast(form):
    layer = nn.Sequential(dt.DepthwiseConv2d(8, 3, padding=1, backend="reference"), nn.ReLU(),
                          dt.PointwiseConv2d(8, 6, backend="reference"))
    theirs = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 6, 1))
    theirs.load_state_dict(layer.state_dict())
    x, losses = torch.randn(2, 8, 5, 6).to(memory_format=form), []
    for model in (layer, theirs):
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        losses.append([])
        for _ in range(4):  # filters change in place, and the next result is of the new ones
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                y = model(x)
            assert y.dtype is torch.bfloat16
            loss = y.float().square().mean()
            loss.backward()
            optimizer.step()
            losses[-1].append(float(loss))
        assert all(one.grad.dtype is torch.float32 for one in model.parameters())
    assert all(map(rounded, (one.weight.grad for one in (theirs[0], theirs[2]))))
    assert not any(map(rounded, (one.weight.grad for one in (layer[0], layer[2]))))
    ours, others = losses
    assert ours[-1] < ours[0]
    assert ours == pytest.approx(others, rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.deep
def test_networks_are_compared_in_16_bits_and_with_channels_last(dtype):
    model, x = model_and_example(torch.float32, torch.contiguous_format)
    setup = network_methods.Setup(model, (x,), "reference", False, dtype=dtype, last=True)
    reference = network_methods.exact(setup)
    for way in ("dscore", "default", "channels_last"):
        subject, report = network_methods.inference(setup, way)
        with subject.settings():
            subject.launch(0, 0)
        assert subject.result.dtype is dtype
        assert network_methods.relative_error(subject.result, reference) < 0.2
        assert report is None or all("_nhwc" in one.problem for one in report.replaced)
    loss = network_methods.exact_loss(setup)
    for way in ("dscore", "default"):
        subject, _ = network_methods.training(setup, way)
        with subject.settings():
            subject.launch(0, 0)
        assert network_methods.relative_error(subject.result, loss) < 0.05


def test_calls_under_autocast_are_remembered_by_the_filter_that_is_cast(monkeypatch):
    from dscore.torch import functional

    keys = []
    monkeypatch.setattr(functional, "_autocast_on",
                        lambda device="cpu": torch.is_autocast_enabled(device))
    monkeypatch.setattr(functional, "remember", lambda key, x, w, *others: keys.append(
        (key[0], x.dtype, w.dtype)))
    x, w = torch.randn(2, 4, 5, 5), torch.randn(6, 4, 1, 1, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            y = dt.conv2d(x, w, backend="reference")
        with pytest.raises(dt.functional.SpecError, match="x must be a tensor"):
            dt.conv2d(x.numpy(), w)
    assert y.dtype is torch.bfloat16
    assert keys == [(id(w), torch.bfloat16, torch.bfloat16)] * 2


def dense(dtype):
    """A model of dense layers with and without a batch norm, in channels_last, and an example."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.ReLU(),
                          nn.Conv2d(12, 9, 3, padding=1, bias=False), nn.BatchNorm2d(9), nn.ReLU6())
    return (model.eval().to(dtype=dtype, memory_format=torch.channels_last),
            torch.randn(2, 3, 9, 8).to(dtype=dtype, memory_format=torch.channels_last))


@pytest.mark.parametrize("dtype", NAMES)
def test_filters_of_a_folded_channels_last_model_lie_as_kernels_take_them(dtype):
    model, x = dense(dtype)
    before, exact = model[0].weight, copy.deepcopy(model).double()
    assert not before.is_contiguous()
    with torch.no_grad():
        report = dt.accelerate(model, x, backend="reference", kinds=("dense",))
        wanted = exact(x.double())
        assert ["implicit_gemm_universal" in layer.plan for layer in report.replaced] == 2 * [True]
        program = model._dscore_folded.program
        assert all(layer.weight.is_contiguous() for layer in program.layers)
        assert model[0].weight is before
        y = model(x)
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert network_methods.relative_error(y, wanted) < 8 * torch.finfo(dtype).eps
        # Another filter, in place, is folded anew, and the copy is the same tensor.
        kept = program.layers[0].weight
        model[0].weight.mul_(-2)
        model(x)
        assert model._dscore_folded.program.layers[0].weight is kept
        assert torch.equal(kept, model[0].weight.contiguous())


def test_autocast_gives_filters_of_a_channels_last_model_as_kernels_take_them(monkeypatch):
    from dscore.torch import functional

    model, x = dense(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        cast = functional._under_autocast((x, model[0].weight, model[0].bias, None, None))
        assert cast[1].is_contiguous()
        assert cast[0].is_contiguous(memory_format=torch.channels_last)
        y = dt.conv2d(x, model[0].weight, model[0].bias, 2, 1, backend="reference")
        y.sum().backward()
    assert y.dtype is torch.bfloat16
    wanted = nn.functional.conv2d(x, model[0].weight, model[0].bias, 2, 1)
    assert network_methods.relative_error(y.detach(), wanted.detach()) < 0.03
    assert model[0].weight.grad.dtype is torch.float32


def test_a_plain_call_leaves_filters_of_a_channels_last_model_to_pytorch():
    model, x = dense(torch.float16)
    folded, plain = (dt.scan(model, x, fold=fold, kinds=("dense",), device="h200")
                     for fold in (True, False))
    assert len(folded.replaced) == 2
    assert not plain.replaced
    assert all("its filter is not contiguous" in layer.reason for layer in plain.layers)
    model.float()
    with torch.autocast("cpu", torch.bfloat16):
        cast = dt.scan(model, x.float(), fold=False, kinds=("dense",), device="h200")
    assert len(cast.replaced) == 2
