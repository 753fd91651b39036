"""Shipped devices against what is published of them, and device files gone wrong."""

from __future__ import annotations

import dataclasses
import math
from importlib.resources import files
from pathlib import Path

import pytest
from refusals import message

from dscore.core.architectures import architecture
from dscore.core.catalog import device, devices, layers, networks
from dscore.core.device import Device
from dscore.core.toml import load_toml

SPECS = files("dscore._specs")

# float32 TFLOPS of the data sheets, a product of three fields.
DATA_SHEET = {"gfx906": 13.3, "gfx908": 23.1, "gfx90a": 47.9 / 2, "gfx942": 163.4,
              "rtx2080ti": 13.4, "xavier": 1.41, "v100": 15.7, "a100": 19.5, "h100": 67,
              "h200": 67, "t4": 8.1, "rtx3090": 35.6, "a10": 31.2, "orin": 5.3, "rtx4090": 82.6,
              "l4": 30.3, "l40s": 91.6, "b200": 75, "rtx5090": 104.8, "mi210": 22.6,
              # Half of it, without the second instruction of a clock.
              "rx7900xtx": 61.4 / 2, "rx9060xt": 25.6 / 2, "rx9070xt": 48.7 / 2}
# Of these no data sheet is public, or it leaves something open.
WITHOUT_SHEET = {"z100sm", "k100_ai", "bw1000", "radeon8060s"}


def test_every_device_file_is_a_device_of_its_name():
    stems = [entry.name.removesuffix(".toml") for entry in SPECS.joinpath("devices").iterdir()]
    assert list(devices()) == sorted(stems)
    assert {one: device(one).name for one in stems} == {one: one for one in stems}
    assert WITHOUT_SHEET | set(DATA_SHEET) == set(stems)


@pytest.mark.parametrize("name", DATA_SHEET)
def test_peak_is_the_data_sheets(name):
    nominal = dataclasses.replace(device(name), measured_fp32_flops=None)
    assert nominal.fp32_flops == pytest.approx(DATA_SHEET[name] * 1e12, rel=0.01)


@pytest.mark.parametrize("name", [one for one in DATA_SHEET if device(one).matrix_flops])
def test_rates_of_matrix_units_are_a_power_of_two_a_clock(name):
    one, rates = device(name), dict(device(name).matrix_flops)
    # The data sheets of Hopper state them at another clock than that of float32.
    clock = 1.83e9 if one.architecture == "sm_90" else one.clock_hz
    for rate in rates.values():
        exponent = math.log2(rate / (one.compute_units * clock))
        assert 2 ** abs(exponent - round(exponent)) == pytest.approx(1, abs=0.016)
    assert set(rates) == set(one.matrix_types)


def test_z100sm_is_the_papers():
    z = device("z100sm")
    assert (z.compute_units, z.wavefront, z.simds_per_cu, z.waves_per_cu) == (64, 64, 4, 40)
    assert (z.registers_per_cu, z.registers_per_thread) == (65_536, 256)
    assert (z.lds_bytes_per_cu, z.threads_per_block) == (64 * 1024, 1024)
    assert (z.vendor, z.architecture) == ("hygon", "gfx906")


@pytest.mark.parametrize(("name", "threads", "registers"), [
    ("gfx906", 2560, 256), ("gfx908", 2560, 256), ("gfx90a", 2048, 512), ("gfx942", 2048, 512),
    ("rtx2080ti", 1024, 512), ("xavier", 2048, 512), ("v100", 2048, 512), ("a100", 2048, 512),
    ("h100", 2048, 512), ("h200", 2048, 512), ("t4", 1024, 512), ("rtx3090", 1536, 512),
    ("a10", 1536, 512), ("orin", 1536, 512), ("rtx4090", 1536, 512), ("l4", 1536, 512),
    ("l40s", 1536, 512), ("b200", 2048, 512), ("rtx5090", 1536, 512), ("mi210", 2048, 512),
    ("k100_ai", 2560, 256), ("bw1000", 2560, 256), ("rx7900xtx", 2048, 1536),
    ("rx9060xt", 2048, 1536), ("rx9070xt", 2048, 1536), ("radeon8060s", 2048, 1536)])
def test_residency_is_the_manuals(name, threads, registers):
    one = device(name)
    assert one.waves_per_cu * one.wavefront == threads
    assert one.registers_per_simd_lane == registers
    # A limit that binds below one wave per block slot would make the smallest launch impossible.
    assert one.blocks_per_cu <= one.waves_per_cu
    assert one.registers_per_simd_lane % one.register_granularity == 0
    assert one.lds_bytes_per_block % one.lds_granularity_bytes == 0


@pytest.mark.parametrize("name", sorted(devices()))
def test_a_file_has_the_limits_of_its_architecture(name):
    """The files of devices and of architectures were written from the tables twice."""
    one, limits = device(name), architecture(device(name).architecture).limits
    stated = {field: getattr(one, field) for field in limits}
    assert stated == {**limits, "vendor": one.vendor}


@pytest.mark.parametrize("name", sorted({*devices()} - WITHOUT_SHEET))
def test_a_data_sheet_leaves_nothing_to_be_assumed(name):
    assert device(name).assumed == ()


def test_what_no_source_states_of_a_device_is_named():
    assert all(device(name).assumed for name in WITHOUT_SHEET)
    assert "clock_hz" in device("z100sm").assumed


def test_h200_carries_what_was_measured():
    one = device("h200")
    assert one.bandwidth == pytest.approx(4.27e12)
    assert one.fp32_flops == pytest.approx(2 * 8192**3 / 21458.94775e-6, rel=1e-7)
    assert one.floor_seconds(0, 0, None) == 1.0656e-6
    assert one.bandwidth < one.bandwidth_bytes_per_second


def test_names_are_found_in_any_case_and_answers_are_copies():
    assert device("Z100SM") is device("z100sm")
    devices().clear()
    layers().clear()
    networks().clear()
    assert all((devices(), layers(), networks()))


def user_file(folder: Path, **changes: object) -> Path:
    """z100sm as a user's file, with lines replaced, or left out where the change is None."""
    lines = SPECS.joinpath("devices/z100sm.toml").read_text(encoding="utf-8").splitlines()
    unchanged = [line for line in lines if line.partition(" ")[0] not in changes]
    path = folder / "mine.toml"
    path.write_text("\n".join(unchanged + [f"{key} = {value}" for key, value in changes.items()
                                           if value is not None]), encoding="utf-8")
    return path


def test_a_users_file_is_a_device(tmp_path):
    path = user_file(tmp_path, name='"mine"', lds_bytes_per_block=32_768)
    expected = dataclasses.replace(device("z100sm"), name="mine", lds_bytes_per_block=32_768)
    assert device(path) == device(str(path)) == expected


@pytest.mark.parametrize(("changes", "expected"), [
    ({"registers_per_cu": 0}, "registers_per_cu must be positive, got 0"),
    ({"registers_per_cu": 65536.0}, "registers_per_cu must be an integer, got 65536.0"),
    ({"registers_per_cu": "true"}, "registers_per_cu must be an integer, got True"),
    ({"clock_hz": "nan"}, "clock_hz must be positive and finite, got nan"),
    ({"bandwidth_bytes_per_second": "inf"},
     "bandwidth_bytes_per_second must be positive and finite, got inf"),
    ({"matrix_flops": "[1e6]"},
     "matrix_flops must be a table of numbers by type, as { float16 = 1e14 }, got [1000000.0]"),
    ({"matrix_flops": "{ float61 = 1e14 }"}, "a type in matrix_flops must be one of tf32, float16, "
     "bfloat16, int8; got 'float61' (did you mean float16 or bfloat16?)"),
    ({"measured_matrix_flops": "{ int8 = nan }"},
     "measured_matrix_flops of int8 must be positive and finite, got nan"),
    ({"matrix_flops": "{ int8 = 624 }"},
     "matrix_flops of int8 must be from 1e+06 to 1e+18, got 624"),
    ({"matrix_flops": "{ int8 = { dense = 1e6 } }"},
     "matrix_flops of int8 must be a number, got {'dense': 1000000.0}"),
    ({"title": '"\\u001b[2J"'}, r"title must be a text of printable characters, got '\x1b[2J'"),
    ({"architecture": '"sm_90\\n"'},
     r"architecture must be a text of printable characters, got 'sm_90\n'"),
    ({"title": 7}, "title must be a text of printable characters, got 7"),
    ({"clock_hz": '"fast"'}, "clock_hz must be a number, got 'fast'"),
    ({"wavefront": 48}, "wavefront must be one of 32, 64; got 48"),
    ({"wavefront": 1}, "wavefront must be one of 32, 64; got 1"),
    ({"wavefront": 1 << 31}, "wavefront must be one of 32, 64; got 2147483648"),
    ({"name": '"' + "a" * 65 + '"'}, "name must be lower-case letters, digits and _, at most 64 "
     "(it becomes part of a kernel's symbol), got '" + "a" * 65 + "'"),
    ({"clock_hz": 1e5}, "clock_hz must be from 1e+06 to 1e+11, got 100000.0"),
    ({"clock_hz": "0x" + "f" * 5000}, "clock_hz must be from 1e+06 to 1e+11, got an integer "
     "of 20,000 bits"),
    ({"l2_bytes": "0x" + "f" * 5000},
     "l2_bytes must be at most 68,719,476,736, got an integer of 20,000 bits"),
    ({"compute_units": 2**31}, "compute_units must be at most 4,096, got 2147483648"),
    ({"driver_names": '"Z100"'}, "driver_names must be a list of names, got 'Z100'"),
    ({"driver_names": "[1]"}, "driver_names must be a list of names, got [1]"),
    ({"vendor": '"acme"'}, "vendor must be one of hygon, amd, nvidia, host; got 'acme'"),
    ({"lds_bytes_per_block": 65537},
     "lds_bytes_per_block must be at most lds_bytes_per_cu 65536, got 65537"),
    ({"wavefront": None}, "wavefront is missing"),
    ({"title": None, "l2_bytes": None}, "title is missing (and l2_bytes)"),
    ({"l2_byte": 1}, "unknown key 'l2_byte' (did you mean l2_bytes?)"),
    ({"colour": 1}, "unknown key 'colour'"),
])
def test_a_wrong_device_names_file_and_field(tmp_path, changes, expected):
    path = user_file(tmp_path, **changes)
    assert message(device, path) == f"{path}: {expected}"


@pytest.mark.parametrize("field", [
    field.name for field in dataclasses.fields(Device) if field.type == "int"
    or field.type.startswith("float")])
def test_every_number_of_a_device_has_a_limit(field):
    good, kind = device("h200"), type(getattr(device("h200"), field))
    none = () if field == "lds_reserved_bytes" else (kind(0),)
    for wrong in (kind(2**62), kind(-1), *none):
        assert message(lambda value: dataclasses.replace(good, **{field: value}), wrong
                       ).startswith(f"{field} must be ")


def test_assumed_names_fields():
    good = device("h200")
    assert dataclasses.replace(good, assumed=["l2_bytes"]).assumed == ("l2_bytes",)
    assert message(lambda: dataclasses.replace(good, assumed=["l3_bytes"])).startswith(
        "a name in assumed must be one of name, title, ")


@pytest.mark.parametrize(("text", "name"), [
    ("MI300X", "gfx942"), ("mi250x", "gfx90a"), ("RTX 4090", "rtx4090"), ("Mi-100", "gfx908"),
    ("k100_ai", "k100_ai"), ("V100-SXM2-16GB", "v100")])
def test_a_device_is_found_by_what_drivers_call_it(text, name):
    assert device(text) is device(name)


def test_an_unknown_device_is_answered_with_names():
    shipped = ", ".join(devices())
    assert message(device, "z100") == (
        "no device is named 'z100' (did you mean z100sm or v100 or h100?); shipped are "
        f"{shipped}; or give the path of a .toml file")
    assert message(device, "##").startswith("no device is named '##'; shipped are a10, ")
    assert message(device, 3) == "a device is a name or the path of a .toml file, got 3"


# Files

@pytest.mark.parametrize(("raw", "reason"), [
    (b"a = 1\nb = \xff", "not UTF-8: byte 0xff (at line 2)"),
    (b"a = 1\nb = ", "not TOML: Invalid value (at end of document)"),
    (b"a = 1\na = 2", "not TOML: Cannot overwrite a value (at end of document)"),
    (b"a = 1\n] = 2\n", "not TOML: Invalid statement (at line 2, column 1)"),
])
def test_an_unreadable_file_names_the_line(tmp_path, raw, reason):
    path = tmp_path / "bad.toml"
    path.write_bytes(raw)
    assert message(load_toml, path) == f"{path}: {reason}"
    assert message(device, path) == f"{path}: {reason}"


def test_a_file_that_is_none(tmp_path):
    missing, folder = tmp_path / "missing.toml", tmp_path / "folder.toml"
    folder.mkdir()
    assert message(load_toml, missing) == f"{missing}: cannot be read: No such file or directory"
    assert message(device, folder).startswith(f"{folder}: cannot be read: ")
    assert "cannot be read" in message(load_toml, "null\0.toml")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 100_000])
def test_a_hostile_file_is_refused(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    assert message(load_toml, path).startswith(f"{path}: not TOML: ")


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path):
    path = tmp_path / "windows.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    assert load_toml(path) == {"a": 1, "b": 2}


CAPABILITIES = {"lds_reserved_bytes", "asynchronous_copies", "bulk_copies", "early_start",
                "warpgroups", "cluster_blocks", "matrix_types"}


def test_every_field_of_a_device_is_needed_a_capability_or_measured():
    optional = {field.name for field in dataclasses.fields(Device)
                if field.default is not dataclasses.MISSING}
    assert {name for name in optional if not name.startswith("measured_")} == CAPABILITIES | {
        "driver_names", "assumed", "matrix_flops"}
    for entry in SPECS.joinpath("devices").iterdir():
        assert set(load_toml(Path(str(entry)))) >= {
            field.name for field in dataclasses.fields(Device)} - optional


def test_capabilities_are_what_the_file_says(tmp_path):
    text = SPECS.joinpath("devices", "h200.toml").read_text()
    assert device("a100").asynchronous_copies
    assert not device("a100").early_start
    assert device("h200").warpgroups
    assert not device("b200").warpgroups
    assert device("h200").matrix_types == ("tf32", "float16", "bfloat16", "int8")
    types = '["tf32", "float16", "bfloat16", "int8"]'
    units = "[132, 117, 120, 110, 102, 105, 120]"
    for field, bad, words in (("early_start = true", "early_start = 1", "early_start must be"),
                              (types, '["fp8"]', "a type of matrix_types must be one of"),
                              (types, '"tf32"', "matrix_types must be a list of names"),
                              ("cluster_blocks = 8", "cluster_blocks = 0", "must be positive"),
                              (units, "132", "must be a list of integers"),
                              (units, "[132, 0]", "must be positive"),
                              ("wavefront = 32", "wavefront = 64", "for wavefronts of 32")):
        path = tmp_path / "bad.toml"
        path.write_text(text.replace(field, bad))
        assert words in message(device, path)
