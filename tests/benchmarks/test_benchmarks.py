"""Every row runs at a tiny size, and its contenders do the same work. Nothing here looks at a time."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.forms import FORMS
from benchmarks.meters import cpu_time, held_bytes, output_bytes
from benchmarks.rollouts import rollouts
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size, offer, require
from benchmarks.verdicts import as_json, run_row
from benchmarks.works import all_rows

TINY = Size(num_samples=3, num_tokens=40, rounds=5)
ROWS = all_rows()


@pytest.mark.filterwarnings("ignore")  # peers warn while they are imported
@pytest.mark.parametrize("key", ROWS)
def test_contenders_of_a_row_give_equal_results(key):
    case = ROWS[key].prepare(TINY)
    results = {name: case.normal(name, work()) for name, work in case.contenders.items()}
    for name, result in results.items():
        assert result == results[OURS], name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", [key for key in ROWS if key != "import"])
def test_a_row_is_held_to_each_of_its_gates(key):
    row = ROWS[key]
    verdicts = run_row(row, TINY)
    assert [item.versus for item in verdicts] == [gate.versus for reading in row.readings for gate in reading.gates]
    for item in verdicts:
        assert item.verdict in ("ok", "MISS", "-") or item.verdict.startswith("skipped: ")


@pytest.mark.parametrize("key", ROWS)
def test_every_gate_names_a_contender(key):
    row = ROWS[key]
    case = row.prepare(TINY)
    known = case.contenders.keys() | case.skipped.keys()
    assert {gate.versus for reading in row.readings for gate in reading.gates} <= known


def test_rows_are_found_by_file():
    assert set(ROWS) >= {"build", "memory", "json", "validate", "import"}


def test_rollouts_are_the_same_each_time_and_objects_of_their_own():
    first, second = list(rollouts(TINY)), list(rollouts(TINY))
    assert first == second
    assert first[0].tokens is not second[0].tokens
    assert {len(values) for values in first[0][:3]} == {TINY.num_tokens}


@pytest.mark.filterwarnings("ignore")
def test_a_form_of_its_own_result_differs_where_a_value_differs():
    case = ROWS["build"].prepare(TINY)
    found = case.normal(OURS, case.contenders[OURS]())
    other = [FORMS[OURS]()(item._replace(advantage=9.0)) for item in rollouts(TINY)]
    assert case.normal(OURS, other) != found


def _row(costs, gates):
    case = Case(dict.fromkeys(costs, int), lambda _name, result: result, {"absent": "absent is not installed"})
    return Row("toy", "toy work", lambda _size: case, [Reading("toys", lambda _contenders, _rounds: costs, gates)])


def test_a_peer_is_divided_by_ours_and_a_floor_divides_ours():
    costs = {OURS: [2.0, 2.0, 4.0], "peer": [12.0, 12.0, 12.0], FLOOR: [1.0, 1.0, 1.0]}
    gates = (Gate("peer", 6), Gate("peer", 6.1), Gate(FLOOR, 2, "floor"), Gate(FLOOR, 1.9, "floor"), Gate("peer"))
    verdicts = run_row(_row(costs, gates), TINY)
    assert [item.measured for item in verdicts] == [6, 6, 2, 2, 6]
    assert [item.verdict for item in verdicts] == ["ok", "MISS", "ok", "MISS", "-"]
    assert (verdicts[0].low, verdicts[0].high) == (3, 6)


def test_a_value_is_held_to_its_limit():
    verdicts = run_row(_row({OURS: [20.5]}, (Gate(OURS, 20, "value", "bytes/token"),)), TINY)
    assert (verdicts[0].shown, verdicts[0].verdict) == ("20.5 bytes/token", "MISS")


def test_an_absent_peer_is_named_and_has_no_number():
    (verdict,) = run_row(_row({OURS: [1.0]}, (Gate("absent", 6),)), TINY)
    assert (verdict.measured, verdict.verdict) == (None, "skipped: absent is not installed")


def test_offer_skips_a_contender_whose_package_is_missing():
    def missing():
        require("no_such_package_here.inner")

    ready, skipped = offer({OURS: lambda: int, "other": missing})
    assert list(ready) == [OURS]
    assert skipped["other"].startswith("no_such_package_here is not installed")


def test_meters_measure_each_round_and_weigh_what_is_kept():
    assert len(cpu_time({OURS: lambda: sum(range(1000))}, 5)[OURS]) == 5
    kept = held_bytes({"kept": lambda: bytearray(100_000), "dropped": lambda: len(bytearray(100_000))}, 5)
    assert 100_000 <= kept["kept"][0] < 110_000
    assert kept["dropped"][0] < 10_000
    assert output_bytes({OURS: lambda: b"1234"}, 5) == {OURS: [4.0]}


@pytest.mark.filterwarnings("ignore")
def test_the_command_prints_ratios_as_a_table_and_as_records():
    table = CliRunner().invoke(main, ["--row", "memory", "--quick"], env={"COLUMNS": "150"})
    assert table.exit_code == 0, table.output
    assert "memory kept" in table.output
    assert "bytes/token" in table.output
    records = CliRunner().invoke(main, ["--row", "memory", "--quick", "--json"])
    assert {item["versus"] for item in json.loads(records.stdout)} >= {OURS, "SDK dicts"}
    assert "Example: python -m benchmarks" in CliRunner().invoke(main, ["--help"]).output


def test_records_hold_no_bare_time():
    records = as_json(run_row(_row({OURS: [0.25], "peer": [0.5]}, (Gate("peer"),)), TINY))
    assert records[0]["measured"] == 2
    assert 0.25 not in records[0].values()
    assert 0.5 not in records[0].values()
