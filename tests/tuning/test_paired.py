"""Records of cold times and of those behind a pointwise layer: the least sum of both wins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import COLD, DEVICE, IDENTITY, PROBLEM, REFERENCE, TILINGS, TOKEN, keep, measured

from dscore.core import backend
from dscore.core.tiling import Tiling
from dscore.core.toml import parse_toml
from dscore.tuning import records
from dscore.tuning.hint_file import Hint, best_hints
from dscore.tuning.measurement import Measurement, TuningRecord
from dscore.tuning.measurement_policy import MeasurementPolicy
from dscore.tuning.paired import BEHIND, PairedRecord, with_pairs

# The first is the fastest cold, the second behind, the third by the sum.
TIMES = {TILINGS[0]: (3e-6, 9e-6), TILINGS[1]: (9e-6, 4e-6), TILINGS[2]: (4e-6, 5e-6)}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "_decisions", {})


def timed(tiling: Tiling, seconds: float, policy: MeasurementPolicy, count: int = 15,
          identity: records.Identity = IDENTITY) -> Measurement:
    return measured(tiling, *[seconds] * count, identity=replace(identity, policy=policy))


def both(identity: records.Identity = IDENTITY) -> list[Measurement]:
    return [timed(tiling, seconds, policy, identity=identity) for tiling, pair in TIMES.items()
            for policy, seconds in zip((COLD, BEHIND), pair, strict=True)]


def record_of(policy: MeasurementPolicy, *measurements: Measurement) -> TuningRecord:
    identity = replace(IDENTITY, policy=policy)
    return TuningRecord(identity, frozenset(m for m in measurements if m.identity == identity))


def pair_of(*measurements: Measurement) -> PairedRecord:
    return PairedRecord.of(record_of(COLD, *measurements), record_of(BEHIND, *measurements))


def test_the_least_sum_wins() -> None:
    ranking = pair_of(*both()).ranking
    assert [one.tiling for one in ranking] == [TILINGS[2], TILINGS[0], TILINGS[1]]
    assert ranking[0].seconds == pytest.approx(9e-6)
    keep(*both())
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[2]


def test_a_tiling_that_was_measured_in_one_way_alone_is_not_compared() -> None:
    keep(*both(), timed(TILINGS[3], 1e-9, COLD), timed(TILINGS[4], 1e-9, BEHIND))
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[2]


def test_few_samples_of_either_do_not_beat_many() -> None:
    lucky = [timed(TILINGS[3], 1e-6, COLD), timed(TILINGS[3], 1e-6, BEHIND, count=2)]
    assert pair_of(*lucky).ranking[0].count == 2
    assert pair_of(*both(), *lucky).best.tiling == TILINGS[2]  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", [COLD, BEHIND])
def test_what_either_refuses_never_wins(policy: MeasurementPolicy) -> None:
    refusal = measured(TILINGS[2], identity=replace(IDENTITY, policy=policy), refused="WRONG")
    pair = pair_of(*both(), refusal)
    assert [one.tiling for one in pair.refused] == [TILINGS[2]]
    keep(*both(), refusal)
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[0]


def test_what_is_refused_behind_does_not_win_by_cold_times_alone() -> None:
    keep(*(timed(tiling, cold, COLD) for tiling, (cold, _) in TIMES.items()),
         measured(TILINGS[0], identity=replace(IDENTITY, policy=BEHIND), refused="WRONG"))
    assert records.best(PROBLEM, DEVICE, REFERENCE) == TILINGS[2]


TIME_LISTS = st.lists(st.floats(1e-7, 1e-3), min_size=1, max_size=4)


@given(st.dictionaries(st.sampled_from(TILINGS), TIME_LISTS, min_size=1),
       st.sampled_from([COLD, BEHIND, MeasurementPolicy("hot", "events")]))
def test_records_of_one_kind_rank_as_they_are(samples: dict[Tiling, list[float]],
                                              policy: MeasurementPolicy) -> None:
    identity = replace(IDENTITY, policy=policy)
    record = TuningRecord(identity, frozenset(
        measured(tiling, *times, identity=identity) for tiling, times in samples.items()))
    assert with_pairs([record]) == [record]
    assert type(with_pairs([record])[0]) is TuningRecord


@pytest.mark.parametrize("changes", [
    {"kernels": "0" * 64}, {"compiler": "another"}, {"device": "mine"},
    {"problem": f"{TOKEN}_bias"}, {"backend": "mine"}])
def test_records_of_other_circumstances_make_no_pair(changes: dict[str, str]) -> None:
    behind = replace(IDENTITY, policy=BEHIND, **changes)  # type: ignore[arg-type]
    listed = [record_of(COLD, *both()), TuningRecord(behind, frozenset())]
    assert with_pairs(listed) == listed


@pytest.mark.parametrize(("policy", "best"), [(COLD, TILINGS[0]), (BEHIND, TILINGS[1])])
def test_without_the_other_kind_the_fastest_of_one_wins(policy: MeasurementPolicy, best: Tiling
                                                        ) -> None:
    keep(*(one for one in both() if one.identity.policy == policy))
    assert records.best(PROBLEM, DEVICE, REFERENCE) == best


OWN = replace(IDENTITY, backend="hip", compiler="hipcc 5.2", policy=COLD,
              kernels=backend.backend("hip").identity("sm_90").kernels)


def only(*measurements: Measurement) -> Hint:
    hint, = best_hints(measurements, DEVICE).hints
    return hint


def test_a_hint_is_of_the_least_sum_and_states_the_cold_time() -> None:
    hint = only(*both(OWN))
    assert (hint.tiling, hint.seconds) == (TILINGS[2], 4e-6)
    text = best_hints(both(OWN), DEVICE).text("by hand")
    assert "us = 4.0," in text
    assert parse_toml(text.encode(), "made")["measured"] == "hip behind graph, hip cold graph"
    cold = [one for one in both(OWN) if one.identity.policy == COLD]
    assert (only(*cold).tiling, only(*cold).seconds) == (TILINGS[0], 3e-6)


def test_both_times_of_old_kernels_come_behind_cold_ones_of_today() -> None:
    today = timed(TILINGS[4], 8e-6, COLD, identity=OWN)
    assert only(*both(replace(OWN, kernels="0" * 64)), today).tiling == TILINGS[4]


def test_both_times_come_before_cold_ones_of_the_same_layer_without_a_bias() -> None:
    biased = both(replace(OWN, problem=f"{TOKEN}_bias"))
    assert only(*biased, timed(TILINGS[4], 1e-6, COLD, identity=OWN)).tiling == TILINGS[2]


def test_times_behind_another_layer_alone_make_no_hint() -> None:
    hint_file = best_hints([one for one in both(OWN) if one.identity.policy == BEHIND], DEVICE)
    assert not hint_file.hints
    assert [one.reason for one in hint_file.left_out] == [
        "timed behind another layer alone; a hint states its own time"]
