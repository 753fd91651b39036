"""The commands `dscore cache ...`: their arguments and help. They import what does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from dscore.cli import options

app = typer.Typer(name="cache", help="""Show, check, empty and move what dscore keeps on disk.

Libraries that were built, and tuning records: each measurement with the verdict on its result.

\b
dscore cache show
dscore cache export h200.jsonl""")

_From = Annotated[list[str], typer.Argument(
    metavar="FILE...", show_default=False, help="Files that export or merge wrote.")]


@app.command()
def show(json: options.Json = False) -> None:
    """Show the libraries and tunings that are kept."""
    from dscore.cli import keeping as work

    work.show(json)


@app.command()
def verify(json: options.Json = False) -> None:
    """Look for damaged entries.

    They are never loaded, and prune removes them. Ends with 1 if there are any.
    """
    from dscore.cli import keeping as work

    work.verify(json)


@app.command()
def prune(
    max_size: Annotated[str | None, typer.Option(
        "--max-size", metavar="SIZE", show_default=False,
        help="Keep within this (500MB, 2GiB); the least recently used go first.")] = None,
    older_than: Annotated[str | None, typer.Option(
        "--older-than", metavar="AGE", show_default=False,
        help="Remove what was not used for this long (30d, 12h).")] = None,
    stale: Annotated[bool, typer.Option(
        "--stale", help="Remove what another dscore or compiler built.")] = False,
    json: options.Json = False,
) -> None:
    """Remove damaged entries, and what is beyond the limits.

    dscore cache prune --max-size 500MB --older-than 30d
    """
    from dscore.cli import keeping as work

    work.prune(work.Limits(max_size, older_than, stale), json)


@app.command()
def clear(json: options.Json = False) -> None:
    """Remove everything; asks nothing."""
    from dscore.cli import keeping as work

    work.clear(json)


@app.command()
def export(
    file: Annotated[str, typer.Argument(
        metavar="FILE", show_default=False, help="Is replaced; merge adds to a file.")],
    json: options.Json = False,
) -> None:
    """Write all tuning records to a file.

    dscore cache export h200.jsonl

    The file has a line of JSON for each measurement.
    """
    from dscore.cli import transfers as work

    work.export(file, json)


@app.command("import")
def import_(files: _From, json: options.Json = False) -> None:
    """Take tuning records from files.

    dscore cache import h200.jsonl more.jsonl

    Records of other kernel sources, another compiler or another device are ignored, and named.
    Ends with 1 if lines had to be skipped; the others are taken.
    """
    from dscore.cli import transfers as work

    work.import_(files, json)


@app.command()
def merge(
    files: _From,
    into: Annotated[str, typer.Option(
        "--into", metavar="FILE", show_default=False,
        help="The file to write; what it holds already stays.")],
    json: options.Json = False,
) -> None:
    """Write the tuning records of several files to one.

    dscore cache merge monday.jsonl tuesday.jsonl --into h200.jsonl

    Neither the cache nor what holds here matters. Ends with 1 if lines had to be skipped; the
    others are merged.
    """
    from dscore.cli import transfers as work

    work.merge(files, into, json)


@app.command()
def hints(
    device: Annotated[str, typer.Option(
        "--device", metavar="NAME|FILE.toml", show_default=False,
        help="The device that was measured; it need not be here.")],
    files: Annotated[list[str] | None, typer.Argument(
        metavar="[FILE...]", show_default=False,
        help="Take records from these files.  [default: from the cache]")] = None,
    json: options.Json = False,
) -> None:
    """Print the best tilings on record, to be shipped.

    dscore cache hints --device h200 > specs/tunings/h200.toml

    The file holds the fastest right tiling of each problem. Where a machine has no record of its
    own, these are taken before the cost model's first.
    """
    from dscore.cli import hinting as work

    work.run(files or [], device, json)
