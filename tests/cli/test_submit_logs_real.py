"""The real Weights & Biases and the real TensorBoard, where they are installed: what they have of a run that was broken off."""

import inspect
import json
import struct

import httpx
import pytest

from samplekit.cli.submit_logs import wandb_log
from samplekit.cli.submit_state import RunState


@pytest.fixture
def gone_on_with(submit, service):
    """Run until the service is away after 5 steps, lose the session, and go on from the checkpoint of step 4."""

    def run(*options):
        def away(_line, _when):
            if sum(seen[0].endswith("optim-step") for seen in service.seen) > 6:
                raise httpx.ConnectError("away")

        service.trouble = away
        code, _, said = submit("--save-every", 4, "--held-out", 4, *options)
        assert (code, "is given nothing more" in said) == (3, False), said
        service.trouble = lambda *_: None
        service.sessions["ts-0"].status = "EXPIRED"
        code, _, said = submit("--save-every", 4, "--held-out", 4, *options)
        assert (code, "is given nothing more" in said) == (0, False), said

    return run


def test_tensorboard_has_every_step_once(gone_on_with, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    gone_on_with("--tensorboard")
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 2  # a file a process
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard"), size_guidance={"scalars": 0})
    found.Reload()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert set(found.Tags()["scalars"]) == {*rows[0], "held_out_loss"} - {"step"}
    assert [event.step for event in found.Scalars("loss")] == [row["step"] for row in rows] == list(range(1, 9))
    rates = [event.value for event in found.Scalars("learning_rate")]
    assert rates == pytest.approx([row["learning_rate"] for row in rows])
    assert [event.step for event in found.Scalars("held_out_loss")] == [0, 4, 8]


def records(path):
    """Cut a file that Weights & Biases wrote offline into its records: after 7 bytes, a log as LevelDB keeps it."""
    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32_768 - at % 32_768 < 7:  # a block's end that holds no header
            at += 32_768 - at % 32_768
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in {1, 4}:  # whole, or its last part
            yield record
            record = b""


def history(path):
    """Give the rows that were logged."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows = []
    for data in records(path):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
    return rows


def test_weights_and_biases_has_one_run_with_every_row(gone_on_with, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    gone_on_with("--wandb", "project")
    name = RunState.read(tmp_path / "run").id
    first, second = sorted((tmp_path / "run" / "wandb").glob(f"offline-run-*/run-{name}.wandb"))
    given = [
        [(row["_step"], "held_out_loss" in row, "loss" in row) for row in history(path)] for path in (first, second)
    ]
    # Rows of one step are one row there; what the second process gives of step 5 anew is dropped where both are merged.
    assert given[0] == [
        (0, True, False),
        (1, False, True),
        (2, False, True),
        (3, False, True),
        (4, True, True),
        (5, False, True),
    ]
    assert given[1] == [(5, False, True), (6, False, True), (7, False, True), (8, True, True)]


def test_weights_and_biases_is_called_as_it_asks(tmp_path, monkeypatch):
    """The double of the other tests takes what the real one does."""
    wandb = pytest.importorskip("wandb")
    called = []

    def init(**options):
        inspect.signature(wandb.init).bind(**options)
        called.append(options)
        return type("Opened", (), {"log": log, "finish": lambda self: None})()

    def log(self, row, **options):
        inspect.signature(wandb.Run.log).bind(self, row, **options)
        called.append(options)

    monkeypatch.setattr(wandb, "init", init)
    place = wandb_log("project", {"loss": "x"}, tmp_path, "abc")
    place.log(3, {"loss": 1.0})
    assert (called[0]["id"], called[0]["resume"], called[1]) == ("abc", "allow", {"step": 3})
