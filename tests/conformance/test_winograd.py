"""Winograd's tasks on the emulated device: equal to the reference, and its faults caught."""

import numpy as np
import pytest
from emulated_runs import (
    ORDERS,
    altered,
    checked_under_sanitizers,
    reports_of,
    require_bit_equal,
    require_right,
    require_silence,
    result,
)
from profiles import deep, mostly_deep, share

from dscore.algorithms.winograd.tiling import WinogradTiling
from dscore.backends.emulated import EmulatedBackend
from dscore.core import catalog
from dscore.core.token import parse_problem
from dscore.solving.solver import make_plan

MISSING = EmulatedBackend().missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

# Tiles past the image on one side, on both and on neither; rows of outputs that are stored by
# fours, by twos and one by one; several task groups.
TOKENS = ("n2c5h9w7_o11k3p1_bias_relu_winograd", "n1c18h11w14_o21k3p2_hardswish_winograd",
          "n3c20h10w10_o9k3p1_winograd")


def tiling(outputs, tile, wave, lanes, step, tasks, mapping=(1, 1, 1, 1, 4), **rest):
    return WinogradTiling(outputs, *tile, *wave, *lanes, *step, *tasks, *mapping, **rest)


TF32 = {"arithmetic": "tf32x3"}
TILINGS = {
    "z100sm": (tiling(4, (16, 16), (8, 8), (8, 8), (8, 2), (6, 4, 3), (2, 1, 1, 1, 5)),
               tiling(2, (8, 16), (8, 16), (4, 16), (4, 2), (4, 8, 20), (1, 2, 3, 2, 7)),
               tiling(4, (16, 8), (16, 8), (8, 8), (12, 2), (1, 12, 5), fused=False)),
    "h200": (tiling(4, (16, 16), (16, 16), (8, 4), (16, 3), (3, 8, 6), (1, 2, 1, 1, 6), **TF32),
             tiling(2, (32, 16), (16, 16), (8, 4), (16, 2), (16, 4, 7), (3, 1, 2, 1, 3), **TF32),
             tiling(4, (8, 16), (8, 8), (4, 8), (8, 4), (2, 4, 9), (2, 1, 1, 1, 1)),
             tiling(2, (16, 32), (16, 16), (8, 4), (16, 4), (4, 16, 4), fused=False, **TF32))}


def planned(t, device, token):
    return make_plan(parse_problem(token), catalog.device(device), t)


# Each tiling on two of the problems.
PLANS = [planned(t, device, TOKENS[(number + part) % 3])
         for device, tilings in TILINGS.items() for number, t in enumerate(tilings)
         for part in (0, 1)]
# Of filters that come transformed, channels and outputs that are no whole steps and tiles.
PACKED = [planned(t, "h200", f"n2c18h10w9_o{outs}k3p1_winograd{t.outputs}")
          for t, outs in zip(TILINGS["h200"], (21, 70, 11, 5), strict=True)]
PLANS += PACKED


@pytest.mark.parametrize("sizes", ["any", deep("fixed")])
def test_equal_to_the_reference_bit_for_bit_in_every_order(sizes, monkeypatch):
    require_bit_equal(share(PLANS, sizes), sizes, monkeypatch)


RING = planned(tiling(2, (16, 16), (16, 16), (8, 4), (4, 2), (8, 4, 5)), "h200",
               "n1c9h20w21_o11k3p1_winograd")
UNFUSED = planned(TILINGS["h200"][3], "h200", TOKENS[1])
SPLIT = planned(TILINGS["h200"][0], "h200", TOKENS[1])


@pytest.mark.parametrize("resident", [1, 2, 7])
@pytest.mark.deep
def test_any_number_of_resident_blocks_gives_the_same_bits(resident, monkeypatch):
    backend = EmulatedBackend()
    for plan in (RING, SPLIT):
        wanted = result(backend, plan)
        monkeypatch.setenv("DSCORE_RESIDENT_BLOCKS", str(resident))
        for order in ORDERS:
            monkeypatch.setenv("DSCORE_LANE_ORDER", order)
            assert result(backend, plan).tobytes() == wanted.tobytes()
        monkeypatch.delenv("DSCORE_RESIDENT_BLOCKS")


# The plan, the source as it is, with its fault, what is said of it, and the file.
MAPPING, SCHEDULER = "winograd/mapping.hpp", "winograd/kernel.hpp"
STUCK = "blocks wait for one another"
FAULTS = {
    "products do not wait for inputs": (
        RING, "      all(TaskKind::input, task.group);\n", "", "WRONG", MAPPING),
    "products do not wait for filters": (
        RING, "      all(TaskKind::filter, 0);\n", "", "WRONG", MAPPING),
    "outputs do not wait for products": (
        RING, "if (task.kind == TaskKind::output) all(TaskKind::product, task.group);", "",
        "WRONG", MAPPING),
    "a slot is written while it is read": (
        RING, "all(TaskKind::product, task.group - input_slots(s));",
        "all(TaskKind::product, -1);", "WRONG", MAPPING),
    "a count too many": (
        RING, "const int count = tasks_of(s, kind);", "const int count = tasks_of(s, kind) + 1;",
        STUCK, MAPPING),
    "counters of another group": (
        RING, "return head + each * group + static_cast<int>(kind) - 1;",
        "return head + each * (group / 2) + static_cast<int>(kind) - 1;", STUCK, MAPPING),
    "a distance below 1": (
        RING, "groups_before(s, round + t::lead) +\n", "groups_before(s, round + t::lead - 1) +\n",
        "", MAPPING),
    "counted before it has ended": (
        RING, "      execute(args, task, ring, order, words + (turn ^ 1) * task_words);\n"
        "      end_writes();\n",
        "      if (thread == 0)\n"
        "        count_up(counters + WinogradCounters::of(task.kind, task.group));\n"
        "      execute(args, task, ring, order, words + (turn ^ 1) * task_words);\n"
        "      end_writes();\n      if (thread < 0)\n", "WRONG", SCHEDULER),
    "a next task whose parents are not asked for": (
        RING, "words[3] = ended;", "words[3] = 1;", "WRONG", SCHEDULER),
    "a next product's loads in place of the current one's": (
        SPLIT, "const int later = step + ahead;", "const int later = step + ahead + 1;", "WRONG",
        "winograd/product.hpp"),
    "counters that are not cleared": (
        RING, "std::memset(args.workspace, 0, Kernel::cleared_bytes(shape));", "", "",
        "support/portable.hpp"),
    "a tile's border taken for image": (
        SPLIT, "const bool held = inside(row + i, s.height);",
        "const bool held = inside(row + i, s.height + 1);", "WRONG", "winograd/tasks.hpp"),
    "outputs past the image stored": (
        UNFUSED, "if (tile.row + i < s.out_height &&", "if (tile.row + i <= s.out_height &&", "",
        "winograd/tasks.hpp"),
    "rows of a four not permuted back": (
        SPLIT, "return *reinterpret_cast<const Vector *>(lds + t::place(chunk, chunk, row, rows));",
        "return *reinterpret_cast<const Vector *>(lds + t::place(chunk, 0, row, rows));", "WRONG",
        "winograd/product.hpp"),
}


@pytest.mark.parametrize("fault", mostly_deep(FAULTS, "a count too many"))
def test_a_planted_fault_is_caught(fault, tmp_path, monkeypatch):
    plan, right, wrong, words, name = FAULTS[fault]
    monkeypatch.setenv("DSCORE_RESIDENT_BLOCKS", "4")
    copy = altered(tmp_path, name, right, wrong)
    for _ in range(30):  # in random order blocks pause by chance
        reports = reports_of(plan, copy, monkeypatch)
        if any(words in text and "right" not in text for text in reports.values()):
            return
    pytest.fail(str(reports))


@pytest.mark.deep
def test_without_a_fault_nothing_is_said(monkeypatch):
    monkeypatch.setenv("DSCORE_RESIDENT_BLOCKS", "4")
    require_right([RING, UNFUSED, SPLIT], monkeypatch)


@pytest.mark.deep
def test_the_sanitizers_find_nothing(tmp_path):
    require_silence(checked_under_sanitizers(tmp_path, [RING, UNFUSED, SPLIT]))


@pytest.mark.deep
def test_the_sanitizers_find_channels_past_the_last(tmp_path):
    """Whether they spoil a result rests on what lies there."""
    copy = altered(tmp_path, "winograd/tasks.hpp",
                   "const bool there = tile.image >= 0 && c < s.in_channels;",
                   "const bool there = tile.image >= 0;")
    done = checked_under_sanitizers(tmp_path, [SPLIT], copy)
    assert "AddressSanitizer" in done.stderr


def test_a_nan_of_the_input_reaches_its_tiles_alone():
    x, w = (np.ones(shape, np.float32) for shape in (RING.problem.x_shape,
                                                     RING.problem.spec.w_shape))
    x[0, 3, 9, 8] = np.nan
    out = np.zeros(RING.problem.y_shape, np.float32)
    EmulatedBackend().compile(RING)(x, w, None, out)
    # Rows 8 to 10 and columns 7 to 9 read it, in tiles of two by two.
    assert np.isnan(out[0, :, 8:11, 7:10]).all()
    out[0, :, 8:12, 6:10] = 0
    assert not np.isnan(out).any()
