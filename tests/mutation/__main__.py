"""Command: change the sources line by line, and see whether a test notices.

    python tests/mutation                            every mutant of mutants.toml
    python tests/mutation --only E-GROUP             those whose text has these words
    python tests/mutation dscore/solving/rules.py --tests tests/solving --count 20 --seed 3

Given files, it generates mutants of these. Ends with 1 where one survives.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from mutants import Mutant, Tree, equivalents, generated, listed


def main(
    files: Annotated[list[str] | None, typer.Argument(
        help="Files to generate mutants of, from the root of the repository.")] = None,
    tests: Annotated[list[str] | None, typer.Option(
        help="Tests that generated mutants must not pass; may be given several times.")] = None,
    count: Annotated[int, typer.Option(help="How many mutants are generated.")] = 60,
    seed: Annotated[int, typer.Option(help="Which of all possible ones they are.")] = 0,
    only: Annotated[str, typer.Option(help="Of the list, those that have these words.")] = "",
) -> None:
    """Change the sources line by line, and see whether a test notices."""
    mutants = (generated(files, tuple(tests or ("tests/solving", "tests/algorithms")), count, seed)
               if files else [one for one in listed() if only in f"{one} {one.guards}"])
    with tempfile.TemporaryDirectory() as folder:
        survivors = _survivors(mutants, Tree(Path(folder)))
    print(f"{len(survivors)} of {len(mutants)} mutants survived")
    raise typer.Exit(1 if survivors else 0)


def _survivors(mutants: list[Mutant], tree: Tree) -> list[Mutant]:
    survivors, proofs = [], equivalents()
    for mutant in mutants:
        if (mutant.file, mutant.old, mutant.new) in proofs:
            print(f"equivalent        {mutant}", flush=True)
            continue
        outcome = tree.outcome(mutant)
        print(f"{outcome.word:<9}{outcome.seconds:6.1f} s {mutant}"
              + f"  ({mutant.guards})" * bool(mutant.guards), flush=True)
        if outcome.word == "SURVIVED":
            survivors.append(mutant)
    return survivors


if __name__ == "__main__":
    typer.run(main)
