"""A run taken up again: whether its session has ended is asked, never guessed, and nothing is lost before there is another."""

import json

import httpx
import pytest

from samplekit.cli.submit_state import RunState
from samplekit.wire.names import SessionStatus


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def answering(service, **answers):
    """Let the service answer some requests, by how their line ends, in a way of its own."""
    plain = service.answer

    def answer(line, body, headers):
        found = [answers[words] for words in answers if line.endswith(words)]
        return found[0] if found else plain(line, body, headers)

    service.answer = answer
    return lambda: setattr(service, "answer", plain)


@pytest.fixture(params=[[], ["--save-every", 4]], ids=["no checkpoint", "a checkpoint"])
def left(request, submit, service, tmp_path):
    """Leave a run after 5 steps, in a session that runs on; gives its command."""

    def trouble(_line, _when):
        if sum(seen[0].endswith("optim-step") for seen in service.seen) > 6:
            raise httpx.ConnectError("away")

    service.trouble = trouble
    assert submit(*request.param)[0] == 3
    service.trouble = lambda *_: None
    assert RunState.read(tmp_path / "run").step == 5
    return lambda *more: submit(*request.param, *more)


@pytest.mark.parametrize("status", [400, 401, 403, 409, 429, 500, 503])
@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_a_service_that_is_down_ends_no_run(left, service, tmp_path, status, resume):
    before = contents(tmp_path / "run")
    mend = answering(service, **{"training-sessions/ts-0": httpx.Response(status, json={"error": "maintenance"})})
    code, _, said = left(*resume)
    assert (code, f"{status}" in said) == (3, True), said
    assert "session ts-0 of this run may still run and cost: the same command goes on with it" in said
    assert (contents(tmp_path / "run"), len(service.sessions)) == (before, 1)
    mend()
    assert left(*resume)[0] == 0
    (session,) = service.sessions.values()
    assert (session.status, len(session.steps)) == ("STOPPED", 10)


def test_a_session_that_does_not_come_to_run_in_time_has_not_ended(left, service, tmp_path):
    before = contents(tmp_path / "run")
    service.sessions["ts-0"].status = "CREATING"
    code, _, said = left()
    assert (code, "did not become RUNNING" in said, "the same command goes on with it" in said) == (3, True, True)
    assert (contents(tmp_path / "run"), len(service.sessions)) == (before, 1)


@pytest.mark.parametrize("status", ["STOPPING", "STOPPED", "ERROR", "EXPIRED", "unknown to the service"])
def test_a_session_that_has_ended_is_followed_by_another(left, service, status):
    known = {item.rpartition("_")[2] for item in SessionStatus}
    if status in known:
        service.sessions["ts-0"].status = status
    else:
        service.sessions["ts-1"] = service.sessions.pop("ts-0")
    code, _, said = left()
    assert (code, "the run's session is gone" in said) == (0, True)
    *_, last = service.sessions.values()
    assert (last.status, len(last.steps)) == ("STOPPED", 10)


@pytest.mark.parametrize("line", ["POST model-resources", "POST training-sessions"])
def test_nothing_of_a_run_changes_where_no_other_session_can_be_opened(left, service, tmp_path, line):
    before = contents(tmp_path / "run")
    service.sessions["ts-0"].status = "EXPIRED"
    mend = answering(service, **{line: httpx.Response(403, json={"error": "quota"})})
    for _ in range(2):
        assert left()[0] == 3
        assert contents(tmp_path / "run") == before
    mend()
    assert left()[0] == 0


def test_nothing_of_a_finished_run_changes_where_no_session_can_be_opened(submit, service, tmp_path):
    assert submit("--save")[0] == 0
    before = contents(tmp_path / "run")
    answering(service, **{"POST training-sessions": httpx.Response(403, json={"error": "quota"})})
    assert submit("--overwrite")[0] == 3
    assert contents(tmp_path / "run") == before


def test_a_finished_run_whose_session_could_not_be_asked_for_is_stopped_by_the_same_command(submit, service):
    mend = answering(service, **{"/stop": httpx.Response(503)})
    assert submit()[0] == 3
    mend()
    mend = answering(service, **{"GET training-sessions/ts-0": httpx.Response(503)})
    code, _, said = submit()
    assert (code, "may still run and cost" in said) == (3, True)
    mend()
    assert submit()[0] == 0
    assert [session.status for session in service.sessions.values()] == ["STOPPED"]


@pytest.fixture
def without_checkpoints(submit, service):
    """Leave a run whose checkpoint the service does not have any more: it was started anew with nothing."""

    def trouble(_line, _when):
        if sum(seen[0].endswith("optim-step") for seen in service.seen) > 6:
            raise httpx.ConnectError("away")

    service.trouble = trouble
    assert submit("--save-every", 4)[0] == 3
    service.__init__()
    plain = service.answer

    def answer(line, body, headers):
        if line == "GET checkpoints":
            return {"data": [{"id": name, "base_model": "samplekit/tiny"} for name in service.checkpoints]}
        if line == "POST training-sessions" and body.get("resume_from_checkpoint_id", "none") not in {
            "none",
            *service.checkpoints,
        }:
            return httpx.Response(404, json={"error": "no such checkpoint"})
        return plain(line, body, headers)

    service.answer = answer
    return lambda *more: submit("--save-every", 4, *more)


def test_a_checkpoint_that_is_gone_is_named_and_may_be_begun_without(without_checkpoints, service, tmp_path):
    before = contents(tmp_path / "run")
    for _ in range(2):
        code, _, said = without_checkpoints()
        assert code == 3
        assert "does not have checkpoint training-checkpoint-4 of this run any more: pass --overwrite" in said
        assert "take another --run-dir" in said
        assert contents(tmp_path / "run") == before
    code, _, said = without_checkpoints("--overwrite")
    assert (code, "the run begins anew" in said, "is gone on with" in said) == (0, True, False)
    (session,) = service.sessions.values()
    assert (session.status, session.resumed, len(session.steps)) == ("STOPPED", None, 10)
    rows = (tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines()
    assert [json.loads(row)["step"] for row in rows] == list(range(1, 11))


def test_a_run_is_said_to_go_on_from_where_it_does(submit, service):
    def trouble(_line, _when):
        if sum(seen[0].endswith("optim-step") for seen in service.seen) > 6:
            raise httpx.ConnectError("away")

    service.trouble = trouble
    assert submit("--save-every", 4)[0] == 3
    service.trouble = lambda *_: None
    service.sessions["ts-0"].status = "STOPPED"
    code, _, said = submit("--save-every", 4)
    assert (code, "is gone on with, after step 4\n" in said, "after step 5" in said) == (0, True, False)
