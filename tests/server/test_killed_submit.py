"""kill -9 of `samplekit submit` at any moment: the same command again ends as a run that nothing disturbed."""

import itertools
import json

import httpx
import pytest
from dying_submit import submitters

import samplekit as sk
from samplekit.wire import names as wire

SAMPLES = [sk.build_sample([*range(10 + n, 90 + n)], [0] * 20 + [1] * 60) for n in range(10)]
OPTIONS = ["--model", "samplekit/tiny", "--epochs", 2, "--batch-size", 2, "--accumulate", 2, "--learning-rate", 1e-3,
           "--held-out", 2, "--template", "none"]  # fmt: skip
STEPS = 4
FINISHED = "holds a finished run"


@pytest.fixture(scope="module")
def people():
    with submitters() as found:
        yield found


@pytest.fixture(scope="module")
def command(people, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    sk.write_samples(folder / "samples.jsonl", SAMPLES)

    def run(name, *more, **moment):
        """Give exit code, words, and what came of it: losses and rates by step, scores, the trained weights' bytes."""
        run_dir = folder / name
        code, said = people.run(
            folder / f"{name}.log", folder / "samples.jsonl", *OPTIONS, "--run-dir", run_dir,
            "--download", run_dir / "trained", *more, **moment,
        )  # fmt: skip
        if code != 0 and FINISHED not in said:
            return code, said, run_dir
        rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
        held_out = json.loads((run_dir / "run.json").read_text())["held_out"]
        weights = {path.name: path.read_bytes() for path in (run_dir / "trained").glob("*.safetensors")}
        return code, said, ([(row["loss"], row["learning_rate"]) for row in rows], held_out, weights)

    return run


@pytest.fixture(scope="module")
def undisturbed(running, command):
    code, said, found = command("whole", *at_service(running))
    assert code == 0, said
    assert list(found[1]) == ["0", "2", "4"]
    assert found[2]
    return found


def killed_and_gone_on_with(command, name, *more, **moment):
    code, said, _ = command(name, *more, **moment)
    assert code == -9, said
    code, said, found = command(name, *more)
    assert code == 0, said
    return found, said


def at_service(running):
    return "--base-url", running.url


def states(running):
    return [session.status for session in running.service.sessions.values()]


MOMENTS = [
    ("request", 9, "after"),  # an upload's operation accepted, its id not yet known here
    ("state", 8, "before"),
    ("metrics", 2, "half"),
    ("piece", 1, "after"),
]


@pytest.mark.parametrize(("place", "number", "when"), MOMENTS)
def test_a_run_at_a_service_that_lives_on_ends_as_an_undisturbed_one(
    running, command, undisturbed, place, number, when
):
    before = len(running.service.sessions)
    moment = {"place": place, "number": number, "when": when}
    found, said = killed_and_gone_on_with(command, f"killed-{place}", *at_service(running), **moment)
    assert "is gone on with" in said
    assert found == undisturbed
    assert len(running.service.sessions) == before + 1  # in the same session
    (session,) = list(running.service.sessions.values())[before:]
    kinds = [operation.kind for operation in session.operations.values()]
    assert kinds.count("optim-step") == STEPS
    assert kinds.count("inference-checkpoint") == 1
    assert wire.SessionStatus.RUNNING not in states(running)


def test_a_run_on_a_service_of_its_own_goes_on_from_its_state_directory(command, undisturbed):
    moment = {"place": "metrics", "number": 3, "when": "before"}
    found, said = killed_and_gone_on_with(command, "own-kept", "--save-every", 2, **moment)
    assert "after step 2" in said
    assert found == undisturbed


def test_a_run_without_a_checkpoint_on_a_service_of_its_own_begins_anew(command, undisturbed):
    found, said = killed_and_gone_on_with(command, "own", place="metrics", number=2, when="after")
    assert "begins anew" in said
    assert found == undisturbed


def test_an_upload_that_is_gone_meanwhile_is_sent_again(running, command, undisturbed):
    for number in range(1, 9):  # until state was last saved between an upload and its operation
        name = f"gone-{number}"
        code, said, run_dir = command(name, *at_service(running), place="state", number=number, when="after")
        assert code == -9, said
        if uploads := json.loads((run_dir / "run.json").read_text())["uploads"]:
            break
    (payload_id,) = uploads.values()
    running.service.payloads.discard(payload_id)
    code, said, found = command(name, *at_service(running))
    assert code == 0, said
    assert found == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("place", ["request", "state", "piece"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_killed_at_every_moment_in_turn_ends_as_an_undisturbed_one(running, command, undisturbed, place, when):
    for number in itertools.count(1):
        name = f"{place}-{when}-{number}"
        code, said, found = command(name, *at_service(running), place=place, number=number, when=when)
        if code == 0:
            break  # it has no so many moments
        assert code == -9, said
        code, said, found = command(name, *at_service(running))
        assert code == 0 or FINISHED in said, said  # killed once all was done and written down
        assert found == undisturbed, number
    assert number > 3
    # A session that was being created when the process died is known to the service alone.
    left = [item for item in running.service.sessions.values() if item.is_active]
    assert all(not item.operations for item in left)
    for item in left:
        httpx.post(f"{running.url}{wire.STOP_SESSION.path(session_id=item.id)}")
