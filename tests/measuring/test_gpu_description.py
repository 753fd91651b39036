"""Descriptions of the GPU that is here, from made-up drivers: measured once, and kept."""

import json
import os
import subprocess
import sys

import pytest
from made_up_driver import FILL_SECONDS, MI250, RTX_4080, made_up
from refusals import message

from dscore.cache.folders import root
from dscore.core import catalog
from dscore.core.errors import UnavailableError
from dscore.measuring.gpu_description import description
from dscore.measuring.gpu_lock import gpu_lock

T4 = {**RTX_4080, "name": b"Tesla T4\0", "architecture": "sm_75", "compute_units": 40,
      "memory_bytes": 15_843_721_216, "l2_bytes": 4 << 20}


@pytest.fixture(autouse=True)
def _own_records(monkeypatch, tmp_path):
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DSCORE_DEVICE", raising=False)


def records():
    return sorted((root() / "devices").glob("*.json"))


@pytest.mark.parametrize(("properties", "name", "limits"), [
    (RTX_4080, "nvidia_geforce_rtx_4080_76cu", "rtx4090"),
    (MI250, "amd_instinct_mi250_104cu", "gfx90a")])
def test_an_unknown_part_has_its_drivers_figures_and_its_architectures_limits(
        properties, name, limits):
    runtime, _ = made_up(properties)
    made, relative = description(runtime, 0), catalog.device(limits)
    device = made.device
    assert (device.name, device.compute_units) == (name, properties["compute_units"])
    assert device.clock_hz == properties["clock_hz"] * 1e3
    for field in ("wavefront", "simds_per_cu", "waves_per_simd", "blocks_per_cu", "matrix_types",
                  "registers_per_cu", "registers_per_thread", "register_granularity",
                  "lds_bytes_per_cu", "lds_bytes_per_block", "lds_granularity_bytes",
                  "lds_reserved_bytes", "fp32_lanes_per_cu", "asynchronous_copies", "early_start",
                  "cluster_blocks"):
        assert getattr(device, field) == getattr(relative, field), field
    assert device.assumed == ("bandwidth_bytes_per_second",)
    assert made.origins["compute_units"] == "the driver"
    assert made.origins["simds_per_cu"] == f"the architecture {device.architecture}"
    clock, bits = properties["memory_clock_hz"] // 1000, properties["memory_bus_bits"]
    assert made.origins["bandwidth_bytes_per_second"] == (
        f"assumed: {bits:,} bits * {clock:,} MHz * 2")


def test_figures_are_measured_once_and_kept():
    runtime, driver = made_up(bandwidth=6.0e11)
    made = description(runtime, 0)
    assert made.device.measured_bandwidth_bytes_per_second == 6.0e11
    assert made.device.measured_launch_seconds == FILL_SECONDS
    assert made.origins["measured_launch_seconds"] == "measured"
    assert driver.allocated == {}
    assert driver.now < 0.1  # simulated seconds on the device
    assert len(records()) == 1
    copies = driver.calls.count("MemcpyAsync")
    assert description(runtime, 0) is made
    # Another process, on a device that is busier now.
    again, other = made_up(bandwidth=1.0e11)
    assert description(again, 0) == made
    assert (driver.calls.count("MemcpyAsync"), other.calls.count("MemcpyAsync")) == (copies, 0)
    # Another driver, or another part, is measured anew.
    for changed in (made_up(bandwidth=3.0e11, version=13_010),
                    made_up({**RTX_4080, "compute_units": 60}, bandwidth=3.0e11)):
        assert description(changed[0], 0).device.bandwidth == 3.0e11
    assert len(records()) == 3


def test_nothing_is_measured_within_a_capture():
    runtime, driver = made_up()
    made = description(runtime, 0, measure=False)
    assert not {"Malloc", "StreamBeginCapture", "DeviceSynchronize"} & set(driver.calls)
    assert made.device.measured_bandwidth_bytes_per_second is None
    assert made.device.bandwidth == pytest.approx(2 * 11.201e9 * 256 / 8)
    measured = description(runtime, 0)
    assert measured.device.measured_bandwidth_bytes_per_second == 6.0e11
    fresh, _ = made_up()
    assert description(fresh, 0, measure=False) == measured


@pytest.mark.parametrize("failing", ["Malloc", "StreamCreate", "MemcpyAsync", "EventRecord"])
def test_a_device_that_cannot_be_measured_is_estimated(failing):
    runtime, driver = made_up()
    driver.failing = failing
    device = description(runtime, 0).device
    assert device.measured_bandwidth_bytes_per_second is None
    assert device.bandwidth == pytest.approx(716.9e9, rel=1e-3)
    assert records() == []
    assert driver.allocated == {}


def test_a_damaged_record_is_measured_anew():
    description(made_up()[0], 0)
    path, = records()
    body = json.loads(path.read_text())
    body["body"]["meta"]["bytes_per_second"] = 1e20
    path.write_text(json.dumps(body))
    assert description(made_up(bandwidth=5.0e11)[0], 0).device.bandwidth == 5.0e11


def test_a_gpu_that_another_process_measures_is_not_waited_for(monkeypatch):
    runtime, driver = made_up()

    def held(gpu, wait):
        assert (gpu, wait) == (runtime.slot(0), False)
        raise UnavailableError("another process measures")
    monkeypatch.setattr("dscore.measuring.gpu_lock.gpu_lock", held)
    assert description(runtime, 0).device.measured_launch_seconds is None
    assert "MemcpyAsync" not in driver.calls


WITHOUT_WAITING = """
from dscore.measuring.gpu_lock import gpu_lock
try:
    with gpu_lock("0000-01-00", wait=False):
        print("taken")
except Exception as held:
    print(type(held).__name__, held)
"""


def test_a_lock_that_is_held_is_refused_without_waiting(subprocess_path):
    def attempt():
        return subprocess.run([sys.executable, "-c", WITHOUT_WAITING], capture_output=True,
                              text=True, check=True, timeout=180,
                              env={**os.environ, "PYTHONPATH": subprocess_path}).stdout

    with gpu_lock("0000-01-00"):
        assert attempt() == "UnavailableError another process measures on GPU 0000-01-00\n"
    assert attempt() == "taken\n"


def test_a_shipped_part_has_its_file_and_is_not_measured(monkeypatch):
    runtime, driver = made_up(T4)
    shipped = description(runtime, 0)
    assert shipped.device is catalog.device("t4")
    assert shipped.origins["clock_hz"] == "the shipped file t4.toml"
    assert "MemcpyAsync" not in driver.calls
    monkeypatch.setenv("DSCORE_DEVICE", "driver")
    made = description(runtime, 0).device
    assert (made.name, made.compute_units) == ("tesla_t4_40cu", 40)
    assert made.measured_bandwidth_bytes_per_second == 6.0e11


def test_a_users_file_describes_the_gpu(monkeypatch, tmp_path):
    from dscore.core.driver import device_file

    runtime, _ = made_up()
    made = description(runtime, 0)
    path = tmp_path / "mine.toml"
    path.write_text(device_file(made).replace("= 76", "= 75"))
    monkeypatch.setenv("DSCORE_DEVICE", str(path))
    assert description(runtime, 0).device.compute_units == 75
    monkeypatch.setenv("DSCORE_DEVICE", "a100")
    assert message(description, runtime, 0) == (
        "DSCORE_DEVICE names a100 (sm_80), but NVIDIA GeForce RTX 4080 is sm_89")
    monkeypatch.setenv("DSCORE_DEVICE", "nosuch")
    assert "no device is named 'nosuch'" in message(description, runtime, 0)


def test_an_unknown_architecture_is_refused_by_name():
    runtime, _ = made_up({**MI250, "architecture": "gfx1399"})
    with pytest.raises(UnavailableError, match=r"architecture gfx1399; write .* DSCORE_DEVICE"):
        description(runtime, 0)
