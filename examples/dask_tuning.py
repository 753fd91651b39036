"""Layers tuned by the workers of a Dask cluster, each worker one layer at a time.

dscore takes any concurrent.futures.Executor, from Python as below, or from the shell by the name
of a function that makes one:

    python examples/dask_tuning.py
    PYTHONPATH=examples dscore tune P1-P45 --executor dask_tuning:executor

The first one is a rehearsal on this machine: two processes, the reference backend, small layers.
For a real cluster, put its scheduler's address into Client(...), and start each worker with one
thread and one GPU. What a worker measured is in the worker's cache; where workers share no folder,
set DSCORE_CACHE_DIR to a shared one, or collect the records by `dscore cache export`.
"""

from concurrent.futures import Executor

from dask.distributed import Client, LocalCluster

from dscore.core.token import parse_problem
from dscore.tuning.tune import tune_all

LAYERS = ("n1c8h9w7_o16k1", "n1c16h7w7_o16k3p1g16", "n1c16h9w9_o16k3s2p1g16")


def executor() -> Executor:
    """The executor of a cluster of two processes on this machine."""
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    return Client(cluster).get_executor()


def main() -> None:
    problems = [parse_problem(token) for token in LAYERS]
    with executor() as pool:
        results = tune_all(problems, backend="reference", top=3, executor=pool)
    for problem, result in zip(problems, results, strict=True):
        assert result.best is not None
        print(f"{problem}: {result.best.tiling.name}, best of {result.tried}, "
              f"error {result.best.share:.0%} of the bound")
    print(f"{len(results)} layers tuned, every result within the bound: right")


if __name__ == "__main__":  # the workers import this file
    main()
