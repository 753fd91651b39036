"""`dscore devices --here` on made-up GPUs, and device files printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call
from made_up_driver import MI250, RTX_4080, Z100SM, made_up

from dscore.core import catalog
from dscore.measuring import gpu_description


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """A function that makes this a machine with GPUs of these properties."""
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))

    def with_gpus(*gpus: dict[str, Any]) -> None:
        runtimes = {one.vendor: one for one, _ in map(made_up, gpus)}
        monkeypatch.setattr(gpu_description, "missing_runtime",
                            lambda vendor: None if vendor in runtimes else f"no {vendor} GPU")
        monkeypatch.setattr(gpu_description, "runtime", runtimes.__getitem__)
    return with_gpus


def test_the_gpu_here_is_shown_with_the_origin_of_each_figure(
        call: Call, machine: Callable[..., None]) -> None:
    machine(RTX_4080)
    lines = call("devices", "--here").out.splitlines()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert rows["compute_units"] == "76 the driver"
    assert rows["simds_per_cu"] == "4 the architecture sm_89"
    assert ("bandwidth_bytes_per_second 716.864 GB/s assumed: 256 bits * 11,201 MHz * 2 "
            in " ".join(" ".join(lines).split())), "whole, though it may not fit the line"
    assert rows["measured_bandwidth_bytes_per_second"] == "600 GB/s measured"
    assert rows["measured_fp32_flops"] == "not measured"
    assert all(len(line) <= 100 for line in lines)


def test_of_a_shipped_device_each_figure_says_whether_it_is_assumed(
        call: Call, machine: Callable[..., None]) -> None:
    machine(Z100SM)
    lines = call("devices", "--here").out.splitlines()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert rows["compute_units"] == "64 the shipped file z100sm.toml"
    assert rows["clock_hz"] == "1,725 MHz the shipped file z100sm.toml, assumed"


def test_its_file_can_be_sent_in_and_planned_for(
        call: Call, json_of: Callable[..., Any], machine: Callable[..., None],
        tmp_path: Path) -> None:
    machine(RTX_4080)
    (tmp_path / "mine.toml").write_text(call("devices", "--here", "--toml").out)
    mine = catalog.device(tmp_path / "mine.toml")
    (here,) = json_of("devices", "--here")
    assert here["origins"]["clock_hz"] == "the driver"
    del here["origins"]
    assert here == json_of("devices", str(tmp_path / "mine.toml"))
    plan = json_of("explain", "n1c8h4w4_o8k1", "--device", str(tmp_path / "mine.toml"))
    assert mine.name in json.dumps(plan)


def test_of_two_gpus_one_is_to_be_chosen(call: Call, machine: Callable[..., None]) -> None:
    machine(RTX_4080, MI250)
    assert len([line for line in call("devices", "--here").out.splitlines()
                if line.startswith("compute_units")]) == 2
    result = call("devices", "--here", "--toml")
    assert result.code == 2
    assert "NVIDIA GeForce RTX 4080" in result.err
    assert "CUDA_VISIBLE_DEVICES" in result.err


def test_without_a_gpu_both_vendors_lacks_are_told(call: Call,
                                                   machine: Callable[..., None]) -> None:
    machine()
    result = call("devices", "--here")
    assert (result.code, result.err) == (3,
        "dscore: no GPU is here: no amd GPU; no nvidia GPU\n")


def test_a_shipped_file_is_printed(call: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(call("devices", "z100sm", "--toml").out)
    assert catalog.device(tmp_path / "mine.toml") == catalog.device("z100sm")


def test_what_is_assumed_is_named(call: Call) -> None:
    out = " ".join(call("devices").out.split())
    assert ("z100sm: assumed, as no source states them: blocks_per_cu, register_granularity, "
            "lds_granularity_bytes, l2_bytes, clock_hz") in out


@pytest.mark.parametrize(("arguments", "words"), [
    (["z100sm", "--here"], "leave it or z100sm out"), (["--toml"], "name it, or add --here")])
def test_options_that_do_not_go_together(call: Call, arguments: list[str], words: str) -> None:
    result = call("devices", *arguments)
    assert result.code == 2
    assert words in result.err
