"""What space, explain and run print, in words and as JSON."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from cli_calls import DSCORE, SMALL, TILING, Call, unwrapped, words

from dscore import api
from dscore.backends.machine_code.disassembly import missing_objdump
from dscore.building.compilers import missing_compiler

MISSING = missing_compiler("hip") or missing_objdump()

# space

def test_space_counts_and_ranks(call: Call) -> None:
    space = api.solve("P13", rules="paper")
    assumed, _, *lines = call("space", "P13", "--top", 3, "--rules", "paper").out.splitlines()
    assert assumed.startswith("assumed device: z100sm, as there is no GPU here")
    assert lines[0] == "P13: pointwise 64x14x14->384"
    assert lines[2] == (f"{space.legal:,} legal tilings, {len(space):,} valid "
                        "(exact channel_distribution)")
    best = space[int(space.ranked()[0])]
    first = next(line for line in lines if line.strip()[:1].isdigit() and "legal" not in line)
    assert words(first)[:5] == [str(value) for value in best.as_dict().values()]
    assert len([line for line in lines if line.strip()[:1].isdigit()]) == 3 + 1


def test_tilings_of_many_fields_are_shown_by_name(call: Call) -> None:
    space, out = api.solve("P13", "h200"), call("space", "P13", "--device", "h200").out
    best = [space[int(index)] for index in space.ranked()[:10]]
    assert all(len(line) <= 100 for line in out.splitlines())
    assert [tiling.name for tiling in best] == [
        line.split()[0] for line in out.splitlines() if line.startswith("gemm_")]


def test_space_as_json_holds_every_tiling_with_its_use(json_of: Callable[..., Any]) -> None:
    data, space = json_of("space", "P13", "--rules", "paper"), api.solve("P13", rules="paper")
    assert (data["valid"], data["legal"], data["masked"]) == (len(space), space.legal, False)
    assert len(data["tilings"]) == len(space)
    seconds = [tiling["seconds"] for tiling in data["tilings"]]
    assert seconds == sorted(seconds)
    index = int(space.ranked()[7])
    plan, tiling = space.plan(index), data["tilings"][7]
    assert tiling == {**plan.tiling.as_dict(), "threads": plan.use.threads,
                      "waves": plan.use.waves, "lds_bytes": plan.use.lds_bytes,
                      "registers": plan.use.registers, "block_n": plan.block_n,
                      "seconds": pytest.approx(plan.cost.seconds)}


@pytest.mark.parametrize("layer", ["D1", "mobilenet_v2/1", "n1c3h13w13_o7k1"])
def test_top_shortens_the_json_of_every_kind(json_of: Callable[..., Any], layer: str) -> None:
    top = json_of("space", layer, "--top", 2)
    assert len(top["tilings"]) == 2
    assert top["tilings"] == json_of("space", layer)["tilings"][:2]
    assert top["tilings"][0].items() >= api.plan_for(layer).tiling.as_dict().items()


def test_the_papers_table_has_its_counts_in_both_forms(call: Call,
                                                       json_of: Callable[..., Any]) -> None:
    began = time.perf_counter()
    data = json_of("space", "P1-P45", "--rules", "paper")
    assert time.perf_counter() - began < 60
    assert len(data) == 45
    assert sum(layer["legal"] for layer in data) == 44_288
    assert sum(layer["valid"] for layer in data) == 35_580
    assert sum(len(layer["tilings"]) for layer in data) == 35_580
    assert call("space", "P1-P45", "--rules", "paper").out.endswith(
        "45 layers: 44,288 legal tilings, 35,580 valid\n")


def test_masked_and_exact_are_told_apart(json_of: Callable[..., Any]) -> None:
    assert json_of("space", "P13", "--masked", "--top", 1)["masked"] is True
    assert json_of("space", "n1c3h13w13_o7k1", "--rules", "paper", "--top", 1)["note"] != ""
    assert json_of("space", "P13", "--batch", 8, "--top", 1)["problem"] == "n8c64h14w14_o384k1"


def test_an_algorithm_is_asked_for_by_name(call: Call, json_of: Callable[..., Any]) -> None:
    asked = json_of("space", "P28", "--algorithm", "channel_distribution", "--top", 1)
    assert asked["algorithm"] == "channel_distribution" != json_of("space", "P28")["algorithm"]
    result = call("space", "D1", "--algorithm", "gemm")
    assert result.code == 2
    assert "'gemm' does not run depthwise 32x112x112->32" in unwrapped(result.err)
    assert "its algorithms are row_reuse, direct" in unwrapped(result.err)


def test_a_layer_without_tilings_is_told_beside_the_others(
        call: Call, json_of: Callable[..., Any]) -> None:
    data = json_of("space", "P1", "n1c3h13w13_o7k1", "--exact", code=1)
    assert data[0]["valid"] > 0
    assert (data[1]["valid"], data[1]["tilings"]) == (0, [])
    assert "no exact" in data[1]["note"]
    result = call("space", "n1c3h13w13_o7k1", "--exact")
    assert result.code == 1
    assert "no exact" in result.out


# explain

def test_explain_prints_what_the_library_explains(call: Call) -> None:
    assert call("explain", "P13").out == f"{api.explain('P13')}\n"
    stated = call("explain", "P13", "--device", "z100sm").out
    assert stated == f"{api.explain('P13', 'z100sm')}\n"
    assert "assumed device" not in stated


def test_explain_as_json(json_of: Callable[..., Any]) -> None:
    data, told = json_of("explain", "mobilenet_v2/7", "--device", "h200"), api.explain(
        "mobilenet_v2/7", "h200")
    assert data["plan"]["name"] == told.plan.name
    assert data["plan"]["tiling"] == told.plan.tiling.as_json()
    assert data["plan"]["use"] == asdict(told.plan.use)
    assert data["plan"]["asked_lds_bytes"] == {"alone": 0, "behind": 0}
    assert data["floor_seconds"] == told.floor_seconds
    assert [line["code"] for line in data["ledger"]] == [line.code for line in told.ledger]
    assert data["picture"]
    assert all(line in str(told) for line in (*data["picture"], *data["caption"]))


def test_explain_as_json_has_what_launches_ask_for(json_of: Callable[..., Any]) -> None:
    tiling = ("algorithm=warpgroup_gemm,tile_m=64,tile_n=64,step=64,stages=3,repeat=1,kept=false,"
              "parts=1")
    asked = json_of("explain", "n32c80h14w14_o184k1_float16_nhwc", "--device", "h200", "--tiling",
                    tiling)["plan"]["asked_lds_bytes"]
    assert asked["alone"] == 0 < asked["behind"]


def test_explain_takes_a_tiling_and_a_batch(json_of: Callable[..., Any]) -> None:
    fields = "wave_w=1, wave_c=64, repeat_w=1, repeat_c=4, group_c=8"
    named = f"algorithm=channel_distribution,{fields}"
    plan, same = (json_of("explain", "P28", "--tiling", text, "--batch", 3, "--rules", "paper")[
        "plan"] for text in (fields, named))
    assert plan == same
    assert plan["tiling"] == {"algorithm": "channel_distribution", **TILING, "group_c": 8}
    assert (plan["problem"], plan["rules"]) == ("n3c320h7w7_o1280k1", "paper")



@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.deep
def test_explain_counts_machine_code(call: Call, json_of: Callable[..., Any]) -> None:
    command = ("explain", "n1c8h6w6_o8k3p1g8", "--device", "z100sm", "--counts")
    counts = json_of(*command)["counts"]
    # Each lane multiplies nine taps of each of its outputs, and the model knows it.
    assert counts["per_wave"]["multiply-adds"] == counts["cost_model"]["multiply-adds"] > 0
    assert counts["per_wave"]["multiply-adds"] % 9 == 0
    assert 0 < counts["blocks"] <= counts["grid_blocks"]
    printed = call(*command).out
    assert "machine code of gfx906, per wavefront" in printed
    assert re.search(r"multiply-adds +[0-9.]+ +[0-9.]+", printed)


def test_explain_counts_need_wavefronts_of_64(call: Call) -> None:
    result = call("explain", "P13", "--device", "h200", "--counts")
    assert result.code == 3
    assert "E-WAVEFRONT" in result.err or "cannot run here" in result.err


# run

def test_run_checks_every_layer_and_sums_up(call: Call) -> None:
    result = call("run", "P42", SMALL, "D30", "--seed", 3)
    assert result.code == 0
    *_, last = result.out.splitlines()
    assert last.startswith("3 layers, 3 right, worst error ")
    assert "% of the bound, " in last
    assert last.endswith(" s")
    assert len([line for line in result.out.splitlines() if line.endswith("right")]) == 3


def test_run_as_json_keeps_prose_off_stdout(call: Call) -> None:
    result = call("run", SMALL, "--repeats", 5, "--device", "h200", "--json")
    assert result.code == 0
    data = json.loads(result.out)
    assert (data["backend"], data["device"], data["repeats"]) == ("reference", "h200", 5)
    assert (data["asked"], data["ran"], data["right"]) == (1, 1, 1)
    layer, = data["layers"]
    assert layer["ok"] is True
    assert layer["problem"] == SMALL
    assert 0 < layer["share"] < 1
    assert layer["share"] == data["worst_share"]
    assert 0 < layer["seconds"] < math.inf
    assert result.err.startswith("1 layer, 1 right, ")


def test_run_takes_a_tiling_with_names_and_switches(json_of: Callable[..., Any]) -> None:
    fields = ("thread_h=2,thread_w=1,lanes_h=1,lanes_w=8,planes=2,staging=registers,"
              "column_reuse=True")
    layer, = json_of("run", SMALL, "--tiling", fields, "--batch", 2)["layers"]
    assert layer["tiling"] == {"algorithm": "row_reuse", "thread_h": 2, "thread_w": 1, "lanes_h": 1,
                               "lanes_w": 8, "planes": 2, "staging": "registers",
                               "column_reuse": True, "ahead": False, "arithmetic": "plain",
                               "repeat": 1}
    assert layer["problem"].startswith("n2")


@pytest.mark.deep
def test_run_shows_a_bar_only_on_a_terminal() -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    done = subprocess.run([*DSCORE, "run", "P42-P45"], stdout=subprocess.PIPE, stderr=theirs,
                          text=True, timeout=180, check=False, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = os.read(ours, 1 << 20).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "4/4" in shown or "3/4" in shown or "0/4" in shown
    assert "\x1b" not in done.stdout
