"""GPUs as drivers report them: which shipped one each is, and the descriptions made of others."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from dscore.core import architectures, catalog
from dscore.core.architectures import architecture
from dscore.core.catalog import device_of_table, devices
from dscore.core.driver import (
    Description,
    DriverProperties,
    described,
    device_file,
    of_file,
    shipped_device,
)
from dscore.core.errors import UnavailableError
from dscore.core.toml import parse_toml

GIB = 1 << 30


def reported(vendor, title, arch, compute_units, memory_bytes):
    return DriverProperties(vendor, title, arch, compute_units, memory_bytes=memory_bytes)


@pytest.mark.parametrize(("properties", "name"), [
    # As deviceQuery, PyTorch and rocminfo print them.
    (("nvidia", "Tesla T4", "sm_75", 40, 15_843_721_216), "t4"),
    (("nvidia", "NVIDIA GeForce RTX 2080 Ti", "sm_75", 68, 11_554_717_696), "rtx2080ti"),
    (("nvidia", "NVIDIA A10", "sm_86", 72, 23_696_375_808), "a10"),
    (("nvidia", "NVIDIA L4", "sm_89", 58, 23_612_293_120), "l4"),
    (("nvidia", "NVIDIA L40S", "sm_89", 142, 47_576_711_168), "l40s"),
    (("nvidia", "NVIDIA GeForce RTX 4090", "sm_89", 128, 25_250_627_584), "rtx4090"),
    (("nvidia", "NVIDIA GeForce RTX 5090", "sm_120", 170, 33_660_534_784), "rtx5090"),
    (("nvidia", "Orin", "sm_87", 16, 65_893_269_504), "orin"),
    (("nvidia", "NVIDIA H200", "sm_90", 132, 150_109_880_320), "h200"),
    (("nvidia", "NVIDIA H100 80GB HBM3", "sm_90", 132, 84_978_434_048), "h100"),
    (("nvidia", "NVIDIA B200", "sm_100", 148, 182_642 << 20), "b200"),
    (("amd", "AMD Instinct MI250X / MI250", "gfx90a", 110, 64 * GIB), "gfx90a"),
    (("amd", "AMD Instinct MI210", "gfx90a", 104, 64 * GIB), "mi210"),
    (("amd", "AMD Radeon Graphics", "gfx942", 304, 205_822_885_888), "gfx942"),
    (("amd", "AMD Radeon RX 7900 XTX", "gfx1100", 48, 25_753_026_560), "rx7900xtx"),
    (("amd", "AMD Radeon RX 9060 XT", "gfx1200", 16, 17_095_983_104), "rx9060xt"),
    (("amd", "K100_AI", "gfx928", 120, 68_702_699_520), "k100_ai"),
    (("amd", "BW200, UBB BW1000", "gfx936", 80, 68_702_699_520), "bw1000"),
    # Parts that share an architecture with a shipped one, and are none.
    (("amd", "AMD Radeon RX 7900 XT", "gfx1100", 42, 20 * GIB), None),
    (("amd", "AMD Radeon RX 9060 XT", "gfx1200", 16, 8 * GIB), None),
    (("nvidia", "NVIDIA A10G", "sm_86", 80, 23_609_475_072), None),
    (("nvidia", "NVIDIA GeForce RTX 4090 D", "sm_89", 114, 25_250_627_584), None),
    (("nvidia", "NVIDIA GeForce RTX 4090 Laptop GPU", "sm_89", 76, 16 * GIB), None),
    (("nvidia", "Tesla V100-SXM2-32GB", "sm_70", 80, 32 * GIB), None),
    (("nvidia", "NVIDIA A100-SXM4-40GB", "sm_80", 108, 42_505_273_344), None),
    (("nvidia", "NVIDIA H100 PCIe", "sm_90", 114, 85 * 10**9), None),
    (("nvidia", "NVIDIA H200 NVL", "sm_90", 132, 150_109_880_320), None),
    (("nvidia", "NVIDIA H200 MIG 1g.18gb", "sm_90", 16, 18 * GIB), None),
    (("nvidia", "NVIDIA GH200 480GB", "sm_90", 132, 150_109_880_320), None),
    (("nvidia", "Orin", "sm_87", 8, 16 * GIB), None),
    (("amd", "AMD Instinct MI300A", "gfx942", 228, 128 * GIB), None),
    (("amd", "AMD Radeon Graphics", "gfx942", 38, 24 * GIB), None),
    (("amd", "", "gfx906", 64, 16 * GIB), None)])
def test_a_part_is_the_shipped_one_of_its_name_units_and_memory(properties, name):
    found = shipped_device(reported(*properties))
    assert (found and found.name) == name


def as_reported(device, **changes):
    """What the driver of a shipped part says, as far as drivers of its vendor say it reliably."""
    figures = dict(compute_units=device.compute_units, wavefront=device.wavefront,
                   threads_per_block=device.threads_per_block, l2_bytes=device.l2_bytes,
                   lds_bytes_per_block=device.lds_bytes_per_block,
                   memory_bytes=device.memory_bytes, clock_hz=device.clock_hz,
                   memory_clock_hz=device.bandwidth_bytes_per_second / 1e3,
                   memory_bus_bits=8 * 1000 // architecture(device.architecture
                                                            ).transfers_per_clock)
    return DriverProperties(device.vendor, device.title, device.architecture,
                            **figures | changes)


@pytest.mark.parametrize("name", sorted(devices()))
def test_what_is_made_of_a_driver_is_what_the_file_says(name):
    """Written from data sheets, each file agrees with what a driver would make of the part."""
    shipped = catalog.device(name)
    made = described(as_reported(shipped)).device
    assert made.name != shipped.name
    assert made.bandwidth_bytes_per_second == pytest.approx(shipped.bandwidth_bytes_per_second)
    # Rates of matrix units are of no driver, nor of an architecture.
    own = ("name", "title", "vendor", "driver_names", "assumed", "bandwidth_bytes_per_second",
           "matrix_flops")
    differing = {field.name for field in fields(made) if field.name not in own
                 and not field.name.startswith("measured")
                 and getattr(made, field.name) != getattr(shipped, field.name)}
    assert differing == set()


@pytest.mark.parametrize(("name", "least"), [
    ("sm_88", "the least of sm_80, sm_86, sm_87, sm_89"),
    ("sm_123", "the least of sm_120, sm_121"), ("gfx90b", "the least of gfx900, gfx902, gfx904, "
     "gfx906, gfx908, gfx909, gfx90a, gfx90c"), ("gfx1037", "the least of gfx1030, ")])
def test_an_unknown_stepping_keeps_what_its_family_keeps(name, least):
    unknown = architecture(name)
    assert unknown.source.startswith(least)
    names = unknown.source.removeprefix("the least of ").split(", ")
    for relative in map(architecture, names):
        for field, limit in relative.limits.items():
            own = unknown.limits[field]
            if field.endswith(("granularity", "granularity_bytes")):
                assert own >= limit
            elif field == "matrix_types":
                assert set(own) <= set(limit)
            elif field != "vendor":
                assert own <= limit, field
    made = described(DriverProperties("nvidia" if name[0] == "s" else "amd", "New", name, 10))
    assert "waves_per_simd" in made.device.assumed
    assert made.origins["waves_per_simd"] == f"{unknown.source}, assumed"


@pytest.mark.parametrize("name", ["sm_61", "sm_130", "gfx803", "gfx1250", "gfx1310", "acme", ""])
def test_an_unknown_family_is_refused_with_the_fix(name):
    with pytest.raises(UnavailableError, match=rf"architecture {name}; write .* DSCORE_DEVICE"):
        architecture(name)


def test_every_architecture_makes_a_device():
    for name, known in architectures._known().items():
        made = described(DriverProperties("amd", "", name, 10)).device
        assert (made.architecture, made.vendor) == (name, known.limits["vendor"])
        assert set(known.assumed) | {
            "clock_hz", "l2_bytes", "memory_bytes", "bandwidth_bytes_per_second"} == set(
            made.assumed)


@pytest.mark.parametrize(("changes", "words"), [
    ({"wavefront": 64}, "reports wavefronts of 64, kernels for sm_89 have 32"),
    ({"compute_units": 0}, "reports no compute units"),
    ({"threads_per_block": 2048}, "no GPU that dscore can plan for: threads_per_block must be"),
    ({"clock_hz": float("inf")}, "clock_hz must be positive and finite")])
def test_a_driver_that_contradicts_is_refused(changes, words):
    with pytest.raises(UnavailableError, match=words):
        described(as_reported(catalog.device("rtx4090"), **changes))


def test_a_driver_without_the_memorys_clock_is_estimated_and_says_so():
    made = described(as_reported(catalog.device("t4"), memory_clock_hz=0.0))
    assert made.origins["bandwidth_bytes_per_second"] == "assumed: a byte for 20 float32 operations"
    assert made.device.bandwidth == pytest.approx(8.14e12 / 20, rel=1e-3)


def test_a_title_that_a_terminal_obeys_is_shown_without_that():
    made = described(DriverProperties("nvidia", "Odd\x1b[2J\0 GPU\n", "sm_89", 4, clock_hz=1e9))
    assert (made.device.title, made.device.name) == ("Odd[2J GPU", "odd_2j_gpu_4cu")


@settings(max_examples=examples(30))
@given(st.text(max_size=80), st.sampled_from(["sm_89", "gfx1100", "sm_88"]), st.integers(1, 4096))
def test_a_file_made_of_a_description_reads_back(title, arch, compute_units):
    made = described(DriverProperties("amd", title, arch, compute_units, clock_hz=1.5e9))
    made = made.with_figures("measured", measured_launch_seconds=1.5e-6)
    text = device_file(made)
    assert device_of_table(parse_toml(text.encode(), "made"),
                           "made") == made.device
    assert "measured_launch_seconds = 1.5e-06  # measured\n" in text


@pytest.mark.parametrize("name", sorted(devices()))
def test_a_shipped_file_is_printed_whole(name):
    device = catalog.device(name)
    text = device_file(of_file(device, "data sheet"))
    assert device_of_table(parse_toml(text.encode(), "made"), "made") == device
    assert text.count(", assumed\n") == len(device.assumed)


def test_figures_of_a_description_are_replaced_with_their_origin():
    made = of_file(catalog.device("t4"), "file").with_figures("measured", clock_hz=1e9)
    assert made == Description(replace(catalog.device("t4"), clock_hz=1e9), {
        **of_file(catalog.device("t4"), "file").origins, "clock_hz": "measured"})
    assert asdict(made.device)["clock_hz"] == 1e9
