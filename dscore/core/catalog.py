"""The shipped devices, layers and networks, and the names by which a user asks for them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dscore.core import token
from dscore.core.device import Device
from dscore.core.errors import SpecError, did_you_mean, require_int, shown
from dscore.core.problem import ConvProblem
from dscore.core.sizes import pair_of
from dscore.core.spec import ConvSpec
from dscore.core.text import path_text
from dscore.core.toml import Table, load_toml, require_keys, shipped_tables

_SPEC_KEYS = "stride", "padding", "dilation", "groups", "bias", "activation", "arithmetic"
_ROW_KEYS = ("name", "label", "channels", "in", "out", "size", "kernel", *_SPEC_KEYS)


@dataclass(frozen=True)
class NamedProblem:
    """A problem with its name, and what it is in its network."""

    name: str
    problem: ConvProblem
    label: str = ""


@dataclass(frozen=True)
class Network:
    """The convolutions of a network, or the layers of a paper's table, in order; the batch is 1."""

    name: str
    title: str
    layers: tuple[NamedProblem, ...]


def devices() -> dict[str, Device]:
    """The shipped devices by name.

    >>> devices()["z100sm"].compute_units
    64
    """
    return dict(_devices())


def device(name: str | os.PathLike[str]) -> Device:
    """A shipped device by name, or the one that a user's file (``*.toml``) describes.

    A name that its driver calls it by (``MI300X``, ``RTX 4090``) will do, too. Raises SpecError for
    an unknown name, and for a file that is not a device.

    >>> device("gfx906").wavefront, device("mi300x").name
    (64, 'gfx942')
    """
    if not isinstance(name, str | os.PathLike):
        raise SpecError(f"a device is a name or the path of a .toml file, got {shown(name)}")
    text = path_text(name, "a device's file")
    if text.lower().endswith(".toml"):
        return device_of_table(load_toml(text), text)
    shipped = _devices()
    found = shipped.get(text.lower()) or _called().get(_key(text))
    if found is None:
        raise SpecError(f"no device is named {shown(text)}{did_you_mean(text, shipped)}; "
                        f"shipped are {', '.join(shipped)}; or give the path of a .toml file")
    return found


def weights(name: str) -> Mapping[str, Mapping[str, float]]:
    """The cost model's own weights of a device, by algorithm; none for most devices.

    ``specs/weights/NAME.toml`` has them, with what they were fitted to.

    >>> weights("z100sm")["row_reuse"].keys(), weights("h200")
    (dict_keys(['memory']), {})
    """
    own: Mapping[str, Mapping[str, float]] = _weights().get(name, {}).get("weights", {})
    return own


def event_launch_seconds(name: str) -> float | None:
    """Time of a launch between two events, by which the weights of a device were fitted."""
    return _weights().get(name, {}).get("event_launch_seconds")


def layers() -> dict[str, ConvProblem]:
    """The layers of the papers' tables by name, for a batch of 1.

    >>> str(layers()["P13"])
    'pointwise 64x14x14->384'
    """
    return {layer.name: layer.problem for table in _tables("layers").values()
            for layer in table.layers}


def networks() -> dict[str, Network]:
    """The shipped networks by name.

    >>> str(networks()["mobilenet_v2"].layers[1].problem)
    'depthwise 32x112x112->32 3x3'
    """
    return dict(_tables("networks"))


def find(text: str, batch: int | None = None) -> list[NamedProblem]:
    """The problems that *text* names; *batch*, where given, replaces theirs.

    *text* is a network or a table of layers, one layer of it, a range of layers, or a problem as
    one token (see `dscore.core.token`). Letter case does not matter in names. An element type and a
    layout may follow: ``P13_float16_nhwc``. Another operation than the convolution stands in front:
    ``input_gradient:D1-D30``, without what follows the sums.

    Raises SpecError for anything else, naming what comes close.

    >>> [layer.name for layer in find("P1-P3")], str(find("mobilenet_v2/52", batch=8)[0].problem)
    (['P1', 'P2', 'P3'], 'pointwise 320x7x7->1280 batch 8')
    >>> find("weight_gradient:D1")[0].name
    'weight_gradient:D1'
    """
    text = token.require_text(text).strip()
    operation, colon, layers = text.rpartition(":")
    problems = _problems(layers if colon else text, batch)
    return [_of_operation(layer, operation.lower()) for layer in problems] if colon else problems


def _problems(text: str, batch: int | None) -> list[NamedProblem]:
    if token.looks_like_token(text.lower()):
        problem = token.parse_problem(text.lower())
        problem = problem if batch is None else problem.with_batch(batch)
        return [NamedProblem(token.problem_token(problem), problem)]
    name, form = token.form_of(text)
    if not (problems := _named(name) or _range(name)):
        raise _unknown(text)
    return [replace(layer, name=layer.name + text[len(name):], problem=replace(
        layer.problem, batch=layer.problem.batch if batch is None else batch,
        spec=layer.problem.spec.in_form(**form))) for layer in problems]


def _of_operation(layer: NamedProblem, operation: str) -> NamedProblem:
    """The *operation* of a layer, of whose convolution alone it is."""
    problem, name = layer.problem, f"{operation}:{layer.name}"
    if problem.operation != "conv":
        raise SpecError(f"{name}: the problem is of the operation {problem.operation} already")
    linear = replace(problem.spec, bias=False, activation=None, residual=None, scaled=False,
                     arithmetic="sum", filter="plain")
    return replace(layer, name=name, problem=replace(problem, spec=linear, operation=operation))


@lru_cache(maxsize=1)
def _devices() -> dict[str, Device]:
    described = (device_of_table(table, at) for at, table in shipped_tables("devices").items())
    return {one.name: one for one in described}


@lru_cache(maxsize=1)
def _weights() -> dict[str, Table]:
    """The files of weights by the device's name."""
    return {Path(shown).stem: table for shown, table in shipped_tables("weights").items()}


@lru_cache(maxsize=1)
def _called() -> dict[str, Device]:
    """The shipped devices by what drivers call them, where only one is called so."""
    names = [(_key(name), one) for one in _devices().values() for name in one.driver_names]
    return {key: one for key, one in names if [other for other, _ in names].count(key) == 1}


def _key(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())


@lru_cache(maxsize=2)
def _tables(folder: str) -> dict[str, Network]:
    described = (_network(table, shown) for shown, table in shipped_tables(folder).items())
    return {one.name: one for one in described}


@lru_cache(maxsize=1)
def _index() -> dict[str, tuple[Network, int]]:
    """Every layer's lower-case name, with where it stands."""
    tables = (*_tables("layers").values(), *_tables("networks").values())
    return {layer.name.lower(): (table, at)
            for table in tables for at, layer in enumerate(table.layers)}


def device_of_table(table: Table, shown: str) -> Device:
    """The device that the keys of a file describe; *shown* names the file in an error."""
    required = [field.name for field in fields(Device) if field.default is MISSING]
    try:
        require_keys(table, required, [field.name for field in fields(Device)])
        return Device(**table)
    except SpecError as error:
        raise SpecError(f"{shown}: {error}") from None


def _network(table: Table, shown: str) -> Network:
    """A file of layers: a title, what is common to all rows, and the rows.

    A row without a name is named by its network and its place.
    """
    stem = Path(shown).stem
    try:
        require_keys(table, ("title", "layer"), ("title", "common", "layer"))
        common, rows = table.get("common", {}), table["layer"]
        _require_type(table["title"], "title", str, "a text")
        _require_type(common, "common", dict, "a table")
        _require_type(rows, "layer", list, "an array of tables")
        problems = tuple(_layer(row, common, f"layer[{at}]", f"{stem}/{at + 1}")
                         for at, row in enumerate(rows))
    except SpecError as error:
        raise SpecError(f"{shown}: {error}") from None
    return Network(stem, table["title"], problems)


def _layer(row: Any, common: Table, where: str, default: str) -> NamedProblem:
    _require_type(row, where, dict, "a table")
    try:
        row = common | row
        require_keys(row, ("size", "kernel"), _ROW_KEYS)
        name, label = row.get("name", default), row.get("label", "")
        _require_type(name, "name", str, "a text")
        _require_type(label, "label", str, "a text")
        return NamedProblem(name, _problem(row), label)
    except SpecError as error:
        # An error that begins with a field's name continues the path to it.
        field = str(error).partition(" ")[0]
        raise SpecError(f"{where}{'.' if field in _ROW_KEYS else ': '}{error}") from None


def _problem(row: Table) -> ConvProblem:
    """The problem of a row; `channels` is a depthwise layer's: in, out and groups at once."""
    if "channels" in row:
        both = [key for key in ("in", "out", "groups") if key in row]
        if both:
            raise SpecError(f"channels stands for in, out and groups; leave out {', '.join(both)}")
        row = row | dict.fromkeys(("in", "out", "groups"), require_int(row["channels"], "channels"))
    require_keys(row, ("in", "out"), row)
    height, width = pair_of(row["size"], "size")
    options = {key: row[key] for key in _SPEC_KEYS if key in row}
    if options.get("activation") == "none":
        options["activation"] = None
    spec = ConvSpec.make(require_int(row["in"], "in"), require_int(row["out"], "out"),
                         row["kernel"], **options)
    return ConvProblem(spec, 1, height, width)


def _require_type(value: Any, name: str, kind: type, wanted: str) -> None:
    if not isinstance(value, kind) or value == []:
        raise SpecError(f"{name} must be {wanted}, got {value!r}")


def _named(text: str) -> tuple[NamedProblem, ...]:
    """The network, the table or the layer of that name; none where there is none."""
    key, index = text.lower(), _index()
    for tables in (_tables("networks"), _tables("layers")):
        if key in tables:
            return tables[key].layers
    return (index[key][0].layers[index[key][1]],) if key in index else ()


def _range(text: str) -> tuple[NamedProblem, ...]:
    """The layers from one name to another of the same table; none where *text* is no range."""
    index = _index()
    for dash in re.finditer("[-–]", text):  # a name may itself hold a hyphen
        ends = _ends(text[:dash.start()].strip(), text[dash.end():].strip())
        unknown = [end for end in ends if end.lower() not in index]
        if len(unknown) == 1:
            raise _unknown(unknown[0], f" in the range {text!r}")
        if not unknown:
            (inside, first), (other, last) = (index[end.lower()] for end in ends)
            if inside is not other or last < first:
                raise SpecError(f"the range {text!r} is empty: its ends must be layers of one "
                                "table or network, the earlier first")
            return inside.layers[first:last + 1]
    return ()


def _ends(first: str, last: str) -> tuple[str, str]:
    """Both ends of a range; a *last* that is a number alone is named as *first* is, as in P1-45."""
    return first, re.sub(r"\d+$", last, first) if re.fullmatch(r"\d+", last) else last


def _unknown(text: str, where: str = "") -> SpecError:
    nets, tables = _tables("networks"), _tables("layers")
    network = nets.get(text.lower().partition("/")[0])
    if network:
        return SpecError(f"nothing is named {text!r}{where}: {network.name} has the layers "
                         f"{network.name}/1 to {network.name}/{len(network.layers)}")
    close = (" (several are separated by spaces)" if "," in text
             else did_you_mean(text, [*nets, *tables, *layers()]))
    return SpecError(
        f"nothing is named {text!r}{where}{close}; give a network ({', '.join(nets)}), a table "
        f"({', '.join(tables)}), a layer (mobilenet_v2/7, P13), a range (P1-P45) or a problem "
        "(n1c64h14w14_o384k1)")
