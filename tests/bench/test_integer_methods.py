"""Comparisons of layers of int8: beside PyTorch's product of matrices and dscore's float16."""

import pytest

from dscore.bench import integer_methods
from dscore.bench.integer_methods import ProductSubject, quantization_of
from dscore.bench.run import Bench, Comparison, bench
from dscore.bench.summary import layer_results, summaries
from dscore.bench.torch_methods import WAYS
from dscore.core import catalog
from dscore.core.errors import SpecError
from dscore.core.token import parse_problem

INTEGERS = "n2c8h5w7_o16k1_int8_nhwc", "n1c8h5w6_o8k3s2p1g8_int8_nhwc_bias"


def asked(*layers, **options):
    return Comparison(tuple(found for text in layers for found in catalog.find(text)),
                      **{"backend": "reference", "ways": (), "caches": ("hot",), **options})


def methods_of(rows, layer, cache="hot"):
    return {one.method: one for one in rows if (one.layer, one.cache) == (layer, cache)}


def test_layers_of_int8_stand_beside_a_product_of_matrices_and_float16():
    pytest.importorskip("torch")
    rows = bench(asked(*INTEGERS, backend="emulated", ways=WAYS, caches=("hot", "eager")))
    for cache in ("hot", "eager"):
        product, depthwise = (methods_of(rows, layer, cache) for layer in INTEGERS)
        assert list(product) == ["dscore", "int_mm", "int_mm_padded", "dscore_float16"]
        assert list(depthwise) == ["dscore", "dscore_float16"]
        for one in (*product.values(), *depthwise.values()):
            assert one.correct, one.note
            assert one.microseconds > 0
        # Equal, or within the bound of floats, which no random float keeps to the last bit.
        assert {name: one.share == 0 for name, one in product.items()} == {
            "dscore": True, "int_mm": True, "int_mm_padded": True, "dscore_float16": False}
    assert "float16" in product["dscore_float16"].plan
    assert "int8" in product["dscore"].plan


@pytest.mark.parametrize(("layer", "offered", "reason"), [
    ("n1c8h4w4_o16k1_int8_nhwc", ["int_mm_padded"], "17 pixels or more, not 16"),
    ("n1c12h5w7_o16k1_int8_nhwc", [], "multiples of 8 channels, not 12"),
    ("n1c16h5w7_o20k1_int8_nhwc", [], "multiples of 8 channels, not 20"),
    ("n1c8h5w7_o16k1_int8", [], "a matrix of pixels by channels")])
def test_shapes_that_the_product_does_not_take_are_not_offered(layer, offered, reason):
    pytest.importorskip("torch")
    peers = methods_of(bench(asked(layer, ways=WAYS)), layer)
    refused = [one for name, one in peers.items() if one.fault]
    assert [name for name, one in peers.items() if one.microseconds] == [
        "dscore", *offered, "dscore_float16"]
    assert {one.fault for one in refused} == {"not offered"}
    assert all(reason in one.note for one in refused)
    one, = summaries(layer_results(peers.values()))
    assert (one.over_best is not None) == bool(offered)
    assert one.over_default is None
    assert one.over_float16.layers == 1


class OffByOne(ProductSubject):
    """A product of matrices whose first sum is one too large."""

    def launch(self, index, stream):
        out = super().launch(index, stream)
        out[0, 0] += 1
        return out


def test_a_product_that_is_off_by_one_is_wrong_and_not_timed(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(integer_methods, "ProductSubject", OffByOne)
    peers = methods_of(bench(asked(INTEGERS[0], ways=WAYS)), INTEGERS[0])
    assert (peers["int_mm"].fault, peers["int_mm"].microseconds) == ("wrong", None)
    assert peers["dscore"].correct


def test_wrong_integers_are_never_timed():
    row, = bench(asked(INTEGERS[0], backend="faulty_backends:Wrong"))
    assert (row.fault, row.microseconds) == ("wrong", None)


def test_results_of_int8_have_the_whole_range_and_zero_points():
    runner = Bench(asked(INTEGERS[0])).runner
    arrays, = runner.sets(parse_problem(INTEGERS[0]), 1, 0)
    integer_methods.give_whole_range(arrays)
    x_zero, y_zero, low, high = arrays[4].tolist()
    assert x_zero
    assert y_zero
    assert (low, high) == (-128, 127)
    assert quantization_of(parse_problem(INTEGERS[0]), arrays).points().tolist() == [
        x_zero, y_zero, low, high]


def test_without_peers_int8_is_timed_alone():
    rows = bench(asked(*INTEGERS))
    assert [one.method for one in rows] == ["dscore"] * 2
    one, *_ = summaries(layer_results(rows))
    assert (one.over_best, one.over_float16) == (None, None)


def test_a_layer_of_further_operands_stays_as_it_is_and_is_not_called():
    runner = Bench(asked(INTEGERS[0])).runner
    problem = parse_problem(INTEGERS[0])
    arrays, = runner.sets(problem, 1, 0)
    more = (*arrays[:-1], arrays[0], arrays[-1])
    before = more[4].tolist()
    integer_methods.give_whole_range(more)
    assert more[4].tolist() == before
    with pytest.raises(SpecError, match="leave eager out"):
        quantization_of(problem, more)
