"""Weights & Biases and TensorBoard: given every row, and never in a run's way."""

import json

import pytest

from samplekit.cli.submit_logs import Logs
from samplekit.cli.submit_state import RunState


def losses(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]


class Broken:
    """Stands for wandb and for TensorBoard's writer: one of its calls raises, from its n-th call on."""

    def __init__(self, name, number):
        self.name, self.number, self.calls, self.rows = name, number, [], []

    def _call(self, name):
        self.calls.append(name)
        if name == self.name and self.calls.count(name) >= self.number:
            raise RuntimeError("no room\nat line 2")

    def init(self, **_):
        self._call("init")
        return self

    def SummaryWriter(self, _folder, *, purge_step):
        return self.init()

    def log(self, row, *, step):
        self._call("log")
        self.rows.append(step)

    def add_scalar(self, name, value, step):
        self._call("log")

    def finish(self):
        self._call("finish")

    close = finish


@pytest.mark.parametrize("option", [["--wandb", "p"], ["--tensorboard"]])
@pytest.mark.parametrize(("name", "number"), [("init", 1), ("log", 1), ("log", 3), ("finish", 1)])
def test_a_place_that_fails_is_warned_of_once_and_the_run_goes_on(
    submit, service, tmp_path, monkeypatch, option, name, number
):
    broken = Broken(name, number)
    monkeypatch.setattr("samplekit.cli.submit_logs.import_module", lambda _: broken)
    code, _, said = submit(*option)
    assert code == 0
    assert said.count("warning") == said.count("(RuntimeError: no room)") == 1
    assert "metrics.jsonl has every row" in said
    assert [row["step"] for row in losses(tmp_path)] == list(range(1, 11))
    assert RunState.read(tmp_path / "run").finished
    assert broken.calls.count(name) == number  # not tried again
    assert broken.calls.count("finish") == (name != "init")  # what it has may still be sent


def test_of_two_places_one_that_fails_leaves_the_other_every_row(submit, monkeypatch):
    broken, whole = Broken("log", 2), Broken(None, 0)
    modules = {"wandb": whole, "tensorboard": None, "torch.utils.tensorboard": broken}
    monkeypatch.setattr("samplekit.cli.submit_logs.import_module", modules.__getitem__)
    assert submit("--wandb", "p", "--tensorboard")[0] == 0
    assert whole.rows == list(range(1, 11))


@pytest.mark.parametrize("option", [["--wandb", "p"], ["--tensorboard"]])
def test_a_package_that_is_not_there_is_named_before_a_session_is_opened(submit, service, option, monkeypatch):
    monkeypatch.setattr("samplekit.cli.submit_logs.import_module", failing_import)
    code, _, said = submit(*option)
    assert (code, "pip install" in said) == (2, True)
    assert service.sessions == {}


def failing_import(name):
    raise ImportError(name)


class FakeModule:
    """Stands for wandb and for TensorBoard's writer."""

    def __init__(self):
        self.rows, self.closed = [], 0

    def init(self, *, project, config, dir, id, resume):  # noqa: A002 - as wandb calls them
        assert (project, resume, bool(id), bool(dir), config["loss"]) == ("p", "allow", True, True, "cross_entropy")
        return self

    def SummaryWriter(self, log_dir, *, purge_step):
        assert (log_dir.endswith("tensorboard"), purge_step) == (True, 0)
        return self

    def log(self, data, *, step):
        self.rows += [(step, name) for name in data]

    def add_scalar(self, name, value, step):
        self.rows.append((step, name))

    def close(self):
        self.closed += 1

    finish = close


@pytest.mark.parametrize("option", [["--wandb", "p"], ["--tensorboard"]])
def test_metrics_go_where_they_are_asked_to(submit, option, monkeypatch):
    fake = FakeModule()
    monkeypatch.setattr("samplekit.cli.submit_logs.import_module", lambda name: fake)
    assert submit(*option, "--held-out", 4)[0] == 0
    assert {name for _, name in fake.rows} >= {"loss", "learning_rate", "held_out_loss"}
    assert [step for step, name in fake.rows if name == "loss"] == list(range(1, 9))
    assert fake.closed == 1


def test_a_row_is_given_to_each_place_once_however_often_it_is_taken():
    given = []
    logs = Logs([lambda step, row: given.append((1, step, row)), lambda step, row: given.append((2, step, row))])
    rows = [(step, {name: float(step)}) for step in range(50) for name in ("loss", "held_out_loss")]
    for step, row in rows:
        for _ in range(3):
            logs.add(step, row)
            logs.give()
    assert given == [(place, step, row) for step, row in rows for place in (1, 2)]


def test_a_place_that_was_interrupted_is_not_given_the_same_row_again_and_the_next_one_is():
    given = []

    def interrupted(step, _):
        given.append(("a", step))
        raise KeyboardInterrupt

    logs = Logs([interrupted, lambda step, _: given.append(("b", step))])
    logs.add(1, {"loss": 1.0})
    with pytest.raises(KeyboardInterrupt):
        logs.give()
    logs.add(1, {"loss": 1.0})
    logs.give()
    assert given == [("a", 1), ("b", 1)]
