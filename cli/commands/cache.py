"""`dscore cache ...`: entries on disk, whether they are whole, and their removal.

What show and verify print is in `cache_show`; the work of the commands that exchange records with
files is in `cache_exchange`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dscore._version import __version__
from dscore.cli import options
from dscore.cli.commands import cache_show
from dscore.cli.commands.cache_show import size_text
from dscore.cli.complete import layers
from dscore.cli.help_page import Group
from dscore.cli.show.json import print_json
from dscore.cli.show.text import counted, print_note
from dscore.core.errors import SpecError

if TYPE_CHECKING:
    from dscore.cache.store import Removed

_SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9,
          "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

app = typer.Typer(name="cache", cls=Group, help="""\
Show, check, empty and move what dscore keeps on disk.

It keeps the libraries that it built, and tuning records: each measurement of a tiling, with the
verdict on its result.

\b
dscore cache show
dscore cache export h200.jsonl""")

_From = Annotated[list[str], typer.Argument(
    metavar="FILE...", show_default=False, help="Files that export or merge wrote.")]


@app.command()
def show(
    layer: Annotated[str | None, typer.Option(
        "--layer", metavar="LAYER", show_default=False, autocompletion=layers,
        help="Show what is kept for this layer, network or problem, at any batch.")] = None,
    json: options.Json = False,
) -> None:
    """Show the libraries and tuning records on disk, by layer and by kind.

    dscore cache show --layer P13
    """
    cache_show.show(layer, json)


@app.command()
def verify(json: options.Json = False) -> None:
    """Look for damaged entries.

    Damaged entries are never loaded, and prune removes them. Ends with 1 if there are any.
    """
    if cache_show.verify(json):
        raise typer.Exit(1)


@app.command()
def prune(
    max_size: Annotated[str | None, typer.Option(
        "--max-size", metavar="SIZE", show_default=False,
        help="Keep at most this much (500MB, 2GiB); the least recently used entries go "
             "first.")] = None,
    older_than: Annotated[str | None, typer.Option(
        "--older-than", metavar="AGE", show_default=False,
        help="Remove entries that were not used for this long (30d, 12h).")] = None,
    stale: Annotated[bool, typer.Option(
        "--stale", help="Remove libraries that another dscore or compiler built.")] = False,
    json: options.Json = False,
) -> None:
    """Remove damaged entries, and entries beyond the given limits.

    dscore cache prune --max-size 500MB --older-than 30d

    Ends with 1 where a file could not be removed.
    """
    _print_removed(_prune(max_size, older_than, stale), json)


@app.command()
def clear(json: options.Json = False) -> None:
    """Remove everything, without asking. What lies behind a link is left.

    Ends with 1 where a file could not be removed.
    """
    from dscore.cache.store import stores

    _print_removed([(store.kind, store.clear()) for store in stores()], json)


@app.command()
def export(
    file: Annotated[str, typer.Argument(
        metavar="FILE", show_default=False,
        help="The file to write. It is replaced; merge adds to a file.")],
    json: options.Json = False,
) -> None:
    """Write all tuning records to a file.

    dscore cache export h200.jsonl

    The file has a line of JSON for each measurement.
    """
    from dscore.cli.commands import cache_exchange

    cache_exchange.export(file, json)


@app.command("import")
def import_(files: _From, json: options.Json = False) -> None:
    """Take tuning records from files.

    dscore cache import h200.jsonl more.jsonl

    Records of other kernel sources, another compiler or another device are ignored and named. A
    line that is no measurement is skipped and named; the command then ends with 1.
    """
    from dscore.cli.commands import cache_exchange

    cache_exchange.import_(files, json)


@app.command()
def merge(
    files: _From,
    into: Annotated[str, typer.Option(
        "--into", metavar="FILE", show_default=False,
        help="The file to write. What it holds already stays.")],
    json: options.Json = False,
) -> None:
    """Write the tuning records of several files to one.

    dscore cache merge monday.jsonl tuesday.jsonl --into h200.jsonl

    The cache of this machine is neither read nor changed. A line that is no measurement is
    skipped and named; the command then ends with 1.
    """
    from dscore.cli.commands import cache_exchange

    cache_exchange.merge(files, into, json)


@app.command()
def hints(
    device: Annotated[str, typer.Option(
        "--device", metavar="NAME|FILE.toml", show_default=False,
        help="The device whose records are taken; it need not be here.")],
    files: Annotated[list[str] | None, typer.Argument(
        metavar="[FILE...]", show_default=False,
        help="Files with the records.  [default: the cache]")] = None,
    onto: Annotated[str | None, typer.Option(
        "--onto", metavar="FILE.toml", show_default=False,
        help="Print this hint file with these hints in it; those of other problems stay.")] = None,
    json: options.Json = False,
) -> None:
    """Print the best tilings on record as a hint file.

    \b
    dscore cache hints --device h200 > specs/tunings/h200.toml
    dscore cache hints int8.jsonl --device h200 --onto specs/tunings/h200.toml > new.toml

    The hint file holds the fastest right tiling of each problem, and is shipped with dscore. A
    machine without records of its own takes these hints before the cost model's first tiling.
    """
    from dscore.cli.commands import cache_exchange

    cache_exchange.hints(files or [], device, onto, json)


def _prune(max_size: str | None, older_than: str | None,
           stale: bool) -> list[tuple[str, Removed]]:
    """Remove entries beyond the limits; what was removed of each kind.

    Tuning records and figures of GPUs are small: libraries make room for them.
    """
    from dscore.cache.store import stores

    most = _quantity(max_size, "--max-size", _SIZES, "500MB")
    age = _quantity(older_than, "--older-than", _AGES, "30d")
    libraries, kernels, *small = stores()
    removed = {store.kind: store.prune(older_than_seconds=age) for store in small}
    left = max(0.0, most - sum(entry.size for store in small for entry in store.entries()))
    removed[libraries.kind] = libraries.prune(left, age, _is_stale if stale else lambda meta: False)
    # A kernel goes with its library.
    there = {entry.key for entry in libraries.entries()}
    removed[kernels.kind] = kernels.prune(stale=lambda meta: str(meta.get("library")) not in there)
    return [(store.kind, removed[store.kind]) for store in stores()]


def _quantity(text: str | None, option: str, units: Mapping[str, int], example: str) -> float:
    """A number with a unit; infinity for none."""
    if text is None:
        return float("inf")
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]+)", text.strip())
    scale = {name.lower(): value for name, value in units.items()}.get(match[2].lower()
                                                                       if match else "")
    if match is None or scale is None:
        raise SpecError(f"{option} must be a number and one of {', '.join(units)}, such as "
                        f"{example}; got {text!r}")
    return float(match[1]) * scale


def _is_stale(meta: Mapping[str, Any]) -> bool:
    """Whether an entry is of another dscore, or of a compiler that is gone or has changed."""
    from dscore.building.compilers import compiler_kind, find_compiler
    from dscore.core.errors import UnavailableError

    path, version = meta.get("compiler"), meta.get("compiler_version")
    if meta.get("dscore") != __version__ or not isinstance(path, str):
        return True
    try:
        return find_compiler(compiler_kind(str(meta.get("target"))), path).version != version
    except UnavailableError:
        return True


def _print_removed(removed: list[tuple[str, Removed]], json: bool) -> None:
    from dscore.cache.folders import root
    from dscore.cache.store import stores

    for link in dict.fromkeys(link for store in stores() for link in store.links()):
        print_note(f"{link} is a link, behind which nothing is removed; name the folder itself: "
                   f"DSCORE_CACHE_DIR={link.resolve()}", sys.stderr)
    if json:
        print_json({"root": str(root()), "removed": {kind: asdict(one) for kind, one in removed}})
    else:
        for kind, one in removed:
            entries = f"{one.entries:,} {'entry' if one.entries == 1 else 'entries'}"
            print(f"{kind}: removed {entries} ({counted(one.files, 'file')}, "
                  f"{size_text(one.size)})")
        print(f"from {root()}")
    kept = [(kind, one) for kind, one in removed if one.kept]
    for kind, one in kept:
        print_note(f"{kind}: {counted(one.kept, 'file')} could not be removed: {one.reason}",
                   sys.stderr)
    if kept:
        raise typer.Exit(1)
