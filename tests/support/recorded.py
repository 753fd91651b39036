"""Measurements of one small problem, for tests of what is done with records."""

from dscore.core import backend, catalog
from dscore.core.tiling import Tiling
from dscore.core.token import parse_problem
from dscore.solving import solver
from dscore.tuning import records
from dscore.tuning.measurement import Identity, Measurement
from dscore.tuning.measurement_policy import MeasurementPolicy

TOKEN = "n1c8h6w6_o16k1"
PROBLEM = parse_problem(TOKEN)
DEVICE = catalog.device("z100sm")
COLD, HOT = MeasurementPolicy("cold", "graph"), MeasurementPolicy("hot", "host")
SPACE = solver.solve(PROBLEM, DEVICE)
TILINGS = [SPACE[int(i)] for i in SPACE.ranked()[:6]]
REFERENCE = backend.backend("reference")
IDENTITY = records.identity_of(PROBLEM, DEVICE, REFERENCE, HOT)


def measured(tiling: Tiling, *samples: float, identity: Identity = IDENTITY,
             refused: str = "") -> Measurement:
    return Measurement(identity, tiling, samples, None if refused else 0.2, refused, 0,
                       (("dscore", "0.1.0"), ("platform", "Linux x86_64")))


def keep(*measurements: Measurement) -> None:
    for measurement in measurements:
        records.keep(measurement)
