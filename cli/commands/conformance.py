"""`dscore conformance`: search for a case that a backend gets wrong, and report it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dscore.cli import options
from dscore.cli.inputs import reproduction
from dscore.cli.show.json import Record, json_text, plan_record, print_json
from dscore.cli.show.text import (
    counted,
    print_note,
    print_table,
    print_text,
    progress,
    require_writable,
)
from dscore.core.errors import SpecError, require_int, require_one_of
from dscore.core.numerics import layer_types
from dscore.core.text import write_whole

if TYPE_CHECKING:
    from dscore.checking.conformance import Failure, Report
    from dscore.core.device import Device


@dataclass(frozen=True)
class ConformanceRequest:
    """The options of the command line."""

    backend: str
    examples: int
    seed: int
    devices: tuple[str, ...]
    algorithms: tuple[str, ...]
    dtype: str | None
    report: str | None


def conformance(
    backend: options.BackendName = "auto",
    examples: Annotated[int, typer.Option(
        "--examples", metavar="N",
        help="Number of random cases, shared among the algorithms.")] = 200,
    seed: options.Seed = 0,
    device: options.DeviceNames = None,
    algorithm: Annotated[list[str] | None, typer.Option(
        "--algorithm", metavar="NAME,...", show_default=False,
        help="Draw cases of these algorithms, such as gemm,direct (repeatable).  "
        "[default: all]")] = None,
    dtype: Annotated[str | None, typer.Option(
        "--dtype", metavar="float32|float16|bfloat16|int8", show_default=False,
        help="Draw layers of this element type.  [default: all]")] = None,
    report: Annotated[str | None, typer.Option(
        "--report", metavar="FILE", show_default=False,
        help="Also write a report: .json, or .xml for JUnit.")] = None,
    json: options.Json = False,
) -> None:
    """Search for a case that a backend gets wrong.

    It runs random layers, sizes and tilings, and holds each result to its error bound; those of
    int8 must be equal, but for gates of floats.

    \b
    dscore conformance
    dscore conformance --algorithm row_reuse --examples 1000 --seed 7
    dscore conformance --dtype int8 --backend emulated
    dscore conformance --backend mypackage.mine:Backend --report conformance.xml

    A failure is shown as the smallest case that still fails, with a command that runs it again.
    Ends with 1 if there is one.
    """
    algorithms = tuple(name for listed in algorithm or () for name in listed.split(","))
    _search(ConformanceRequest(backend, examples, seed, tuple(device or ()), algorithms, dtype,
                               report), json)


def _search(request: ConformanceRequest, json: bool) -> None:
    """Search, print and write the report; exit 1 where a case fails."""
    from dscore import api
    from dscore.algorithms import registry
    from dscore.checking.conformance import conformance

    require_int(request.examples, "--examples")
    require_int(request.seed, "--seed", 0)
    names = [require_one_of(name, "--algorithm", registry.names())
             for name in dict.fromkeys(request.algorithms)]
    if request.dtype is not None:
        require_one_of(request.dtype, "--dtype", layer_types())
    devices = {text: api.device_of(text) for text in request.devices}
    if request.report is not None:
        _require_form(request.report)
    with progress(request.examples) as begin:
        report = conformance(request.backend, request.examples, request.seed,
                             tuple(devices.values()), names, lambda: begin(""), request.dtype)
    record = _record(request, report, devices)
    if request.report is not None:
        write_whole(request.report, _text(request.report, record))
    _show(record, json)
    if not report.ok:
        raise typer.Exit(1)


def _require_form(path: str) -> None:
    if Path(path).suffix.lower() not in (".json", ".xml"):
        raise SpecError(f"--report: {path} must end in .json, or .xml for JUnit")
    require_writable(path)


def _record(request: ConformanceRequest, report: Report, devices: dict[str, Device]) -> Record:
    failures = [_failure_record(request, failure, devices) for failure in report.failures]
    return {"backend": report.backend, "devices": list(report.devices), "seed": report.seed,
            "ok": report.ok, "seconds": report.seconds, "examples": report.examples,
            "failures": failures}


def _failure_record(request: ConformanceRequest, failure: Failure,
                    devices: dict[str, Device]) -> Record:
    plan = failure.plan
    named = next((text for text, device in devices.items() if device == plan.device), None)
    return {"algorithm": failure.algorithm, "message": failure.message,
            "reproduce": reproduction(request.backend, plan, failure.seed, named),
            "seed": failure.seed, "plan": plan_record(plan)}


def _show(record: Record, json: bool) -> None:
    if json:
        print_json(record)
    else:
        failed = {failure["algorithm"] for failure in record["failures"]}
        print_table(("algorithm", ">examples", "result"),
                    [(name, f"{count:,}", "FAILED" if name in failed else
                      "holds" if count else "not run")
                     for name, count in record["examples"].items()], verdict=True)
        print()
    prose = sys.stderr if json else sys.stdout
    for failure in record["failures"]:
        print_text(_described(failure), prose)
        print(f"  reproduce  {failure['reproduce']}\n", file=prose)
    print_note(_summary(record), prose)


def _described(failure: Record) -> str:
    """A minimal case in words."""
    plan = failure["plan"]
    tiling = " ".join(f"{name}={value}" for name, value in plan["tiling"].items())
    return (f"{failure['algorithm']}: {failure['message']}\n"
            f"  problem    {plan['title']}   {plan['problem']}\n"
            f"  tiling     {tiling} on {plan['device']}")


def _summary(record: Record) -> str:
    failed, ran = len(record["failures"]), counted(sum(record["examples"].values()), "example")
    result = (f"{counted(failed, 'algorithm')} failed" if failed
              else "every result within its bound")
    return (f"{record['backend']} on {', '.join(record['devices'])}: {ran}, {result}, "
            f"seed {record['seed']}, {record['seconds']:.1f} s")


def _text(path: str, record: Record) -> str:
    return _junit(record) if path.lower().endswith(".xml") else json_text(record) + "\n"


def _junit(record: Record) -> str:
    """The report as JUnit XML, a test case for each algorithm."""
    from xml.etree import ElementTree

    failures = {failure["algorithm"]: failure for failure in record["failures"]}
    examples = record["examples"]
    suite = ElementTree.Element(
        "testsuite", name=f"dscore conformance {record['backend']}", tests=str(len(examples)),
        failures=str(len(failures)), errors="0", time=f"{record['seconds']:.3f}",
        skipped=str(sum(not count for count in examples.values())))
    for name, count in examples.items():
        case = ElementTree.SubElement(suite, "testcase", name=name,
                                      classname=f"dscore.checking.conformance.{record['backend']}")
        if name in failures:
            shown = ElementTree.SubElement(case, "failure",
                                           message=failures[name]["message"].partition("\n")[0])
            shown.text = f"{_described(failures[name])}\n  reproduce  {failures[name]['reproduce']}"
        elif not count:
            ElementTree.SubElement(case, "skipped", message="no examples were asked for")
        ElementTree.SubElement(case, "system-out").text = counted(count, "example")
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
