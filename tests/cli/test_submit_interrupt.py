"""Ctrl-C at every line of submit: the run ends, gone on with, as one that nothing disturbed, and pays for no step twice."""

import contextlib
import gc
import json
import sys
from pathlib import Path

import httpx
import pytest
from training_double import SAMPLES

import samplekit as sk
import samplekit.cli.submit_run
from samplekit.cli.submit_state import RunState
from samplekit.files import RunFolder

STEPS = 3
# An interrupt may fall on the very line that leaves a file's block; a process that ends lets go of the file.
pytestmark = pytest.mark.filterwarnings(r"ignore:Exception ignored in. <_io\.FileIO")
FILES = {str(path) for path in Path(samplekit.cli.submit_run.__file__).parent.glob("submit*.py")}


class Interrupts:
    """Raises KeyboardInterrupt at a line of submit when ``wanted`` says so; knows which lines were come to."""

    def __init__(self, wanted):
        self.wanted, self.lines, self.raised = wanted, [], None

    def _line(self, frame, event, _):
        if event == "line":
            line = Path(frame.f_code.co_filename).name, frame.f_lineno
            self.lines.append(line)
            if self.wanted(line, self.lines):
                self.raised = line
                raise KeyboardInterrupt
        return self._line

    def _call(self, frame, _event, _):
        return self._line if frame.f_code.co_filename in FILES else None

    @contextlib.contextmanager
    def watching(self):
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield self
        finally:
            sys.settrace(before)


class Board:
    """Stands for TensorBoard: what is opened to go on hides what was written from a step on."""

    def __init__(self):
        self.points = []

    def SummaryWriter(self, _folder, *, purge_step):
        self.points = [point for point in self.points if point[0] < purge_step]
        return self

    def add_scalar(self, name, value, step):
        self.points.append((step, name, value))

    def close(self):
        pass


class Place:
    """A run in a folder at a service, started as often as it takes."""

    def __init__(self, submit, service, tmp_path, monkeypatch):
        self.service, self.board, self.folder = service, Board(), tmp_path / "run"
        monkeypatch.setattr("samplekit.cli.submit_logs.import_module", lambda _: self.board)
        path = tmp_path / "few.jsonl"
        sk.write_samples(path, SAMPLES[:8])
        self.submit = lambda: submit(
            "--epochs", 1, "--batch-size", 1, "--accumulate", 2, "--held-out", 2, "--evaluate-every", 2, "--save-every",
            2, "--save", "--tensorboard", "--template", "none", path=path,
        )  # fmt: skip

    def clear(self):
        """Forget everything, for another run."""
        self.service.__init__()
        self.board.points.clear()
        for path in self.folder.glob("*"):
            path.unlink()

    def found(self):
        """Give what came of a run: what was applied, logged, scored and drawn."""
        rows = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            del row["tokens_per_second"]
        *_, last = self.service.sessions.values()
        scores = [json.loads(line) for line in (self.folder / "held_out.jsonl").read_text().splitlines()]
        assert {str(row["step"]): row["held_out_loss"] for row in scores} == RunState.read(self.folder).held_out
        return last.steps, rows, scores, drawn(self.board)

    def leave_running(self, number):
        """Run until the service is out of reach, with steps that no checkpoint holds, in a session that runs on."""

        def trouble(line, when):
            done = sum(seen[0].endswith("optim-step") for seen in self.service.seen)
            if done > number or (done == number and when == "after"):
                raise httpx.ConnectError("away")

        self.service.trouble = trouble
        assert self.submit()[0] == 3
        self.service.trouble = lambda *_: None

    def interrupted(self, wanted):
        with Interrupts(wanted).watching() as interrupts:
            code, _, said = self.submit()
        gc.collect()  # frames of the traceback may hold the folder, as no process does that has ended
        if interrupts.raised is not None:
            assert code == 130, (interrupts.raised, said)
        return interrupts, said

    def finish(self):
        code, _, said = self.submit()
        assert code == 0 or "holds a finished run" in said, said

    def steps_accepted(self):
        said = [said for session in self.service.sessions.values() for said, _ in session.operations.values()]
        return sum(json.loads(item)[0] == "optim-step" for item in said)


def drawn(board):
    return [point for point in board.points if point[1] != "tokens_per_second"]


def no_picture(*_, **__):
    raise sk.MissingExtraError("a picture takes as long as the run")


@pytest.fixture
def place(submit, service, tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "plot_loss", no_picture)
    return Place(submit, service, tmp_path, monkeypatch)


def nowhere(_line, _lines):
    return False


def require_as_undisturbed(place, expected, where):
    """Require the same weights, rows and scores; of what is drawn elsewhere a row may lack, and none is drawn twice."""
    steps, rows, held_out, points = place.found()
    assert (steps, rows, held_out) == expected[:3], where
    assert len(points) == len(set(points)), where
    assert set(points) <= set(expected[3]), where
    assert len({point[0] for point in {*expected[3]} - {*points}}) <= 1, where
    assert place.steps_accepted() == STEPS, where  # none was paid for twice
    assert {session.status for session in place.service.sessions.values()} == {"STOPPED"}, where


def begin(place, left_after):
    place.clear()
    if left_after:
        place.leave_running(left_after)


def sweep(place, left_after, moments):
    """Interrupt a run at each of some moments, which are given as tests of a line and of those before it."""
    place.submit()
    expected = place.found()
    assert len(expected[0]) == STEPS
    begin(place, left_after)
    whole, _ = place.interrupted(nowhere)
    require_as_undisturbed(place, expected, "whole")
    count = 0
    for wanted in moments(whole.lines):
        begin(place, left_after)
        interrupts, said = place.interrupted(wanted)
        assert "warning" not in said, interrupts.raised
        place.finish()
        require_as_undisturbed(place, expected, interrupts.raised)
        count += interrupts.raised is not None
    return count


def each_line_of(*files):
    """Interrupt at every line of some files, from where a session is asked for, when a run first comes to it."""

    def moments(lines):
        own = lines[next(index for index, line in enumerate(lines) if line[0] == "submit_session.py") :]
        return [lambda line, _, chosen=chosen: line == chosen for chosen in sorted(set(own)) if chosen[0] in files]

    return moments


def each_moment(lines):
    first = next(index for index, line in enumerate(lines) if line[0] == "submit_session.py")
    return [lambda _, before, number=number: len(before) == number for number in range(first, len(lines) + 1)]


def each_moment_of_opening(lines):
    """Interrupt whenever a run comes to a line of what opens its session: the last ones leave a block, a value in hand."""
    return [
        lambda _, before, number=number: len(before) == number
        for number, line in enumerate(lines, start=1)
        if line[0] == "submit_session.py"
    ]


def test_a_run_interrupted_at_any_moment_of_opening_its_session_ends_as_an_undisturbed_one(place):
    assert sweep(place, 0, each_moment_of_opening) > 40


def test_a_run_taken_up_in_its_session_and_interrupted_at_any_line_ends_as_an_undisturbed_one(place):
    assert sweep(place, 1, each_line_of("submit_run.py", "submit_logs.py", "submit_state.py")) > 90


@pytest.mark.slow
@pytest.mark.parametrize("left_after", [0, 2])
def test_a_run_interrupted_at_every_moment_in_turn_ends_as_an_undisturbed_one(place, left_after):
    assert sweep(place, left_after, each_moment) > 500
