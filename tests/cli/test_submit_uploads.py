"""What a run uploads, whole or in parts: forgotten once an operation names it, and sent again where it is gone."""

import itertools
import json

import httpx
import pytest
from training_double import SAMPLES, URL

import samplekit as sk
from samplekit.cli.submit_state import RunState
from samplekit.files import RunFolder

MOST = 2  # samples in a body; more are refused for their size


class Depot:
    """Keeps what is uploaded to a training double, which reads it in place of what stands for it."""

    def __init__(self, service):
        self.service, self.kept, self.named = service, {}, set()
        self.plain, service.answer = service.answer, self.answer

    def answer(self, line, body, headers):
        if line.endswith("payloads/upload-url"):
            name = f"payload-{len(self.kept)}"
            self.kept[name] = None
            return {"payload_id": name, "upload_url": f"{URL}/put/{name}"}
        if line.startswith("PUT "):
            self.kept[line.rpartition("/")[2]] = body
            return {}
        if not isinstance(body, dict) or "payload_id" not in body:
            return self.plain(line, body, headers)
        if len(body["samples"]) > MOST:
            return httpx.Response(413, json={"error": "too large"})
        return self.read(line, body, headers)

    def read(self, line, body, headers):
        """Answer as to the whole body, under a key that holds for the id too."""
        session = self.service.sessions[line.split("/")[1]]
        payload, key = body.pop("payload_id"), headers["idempotency-key"]
        if key in session.operations:
            known = payload in self.named
            return session.operations[key][1] if known else httpx.Response(409, headers={"x-should-retry": "false"})
        if self.kept.get(payload) is None:
            return httpx.Response(404, json={"error": f"no payload {payload}"})
        self.named.add(payload)
        return self.plain(line, {**body, "samples": self.kept[payload]["samples"]}, headers)


def no_picture(*_, **__):
    raise sk.MissingExtraError("a picture takes as long as the run")


def applied(service):
    *_, last = service.sessions.values()
    return last.steps


@pytest.fixture
def depot(service, monkeypatch):
    monkeypatch.setattr("samplekit.wire.requests.INLINE_LIMIT_BYTES", 100)
    return Depot(service)


@pytest.fixture
def saved(monkeypatch):
    """Every number of uploads that a state was written down with."""
    numbers, save = [], RunState.save

    def counting(state, folder):
        numbers.append(len(state.uploads))
        save(state, folder)

    monkeypatch.setattr(RunState, "save", counting)
    return numbers


@pytest.mark.parametrize("size", [MOST, 2 * MOST, 4 * MOST])
def test_uploads_are_forgotten_once_their_operation_is_known(submit, depot, tmp_path, saved, size):
    assert submit("--batch-size", size)[0] == 0
    assert len(depot.kept) >= 40 // size
    assert RunState.read(tmp_path / "run").uploads == {}
    assert max(saved) <= 2 * size - 1  # those of one call: each part, and what was refused for its size before


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_whose_uploads_are_gone_goes_on_and_sends_them_again(submit, service, depot, tmp_path, monkeypatch, when):
    monkeypatch.setattr(RunFolder, "plot_loss", no_picture)
    sk.write_samples(tmp_path / "few.jsonl", SAMPLES[: 2 * MOST])

    def run():
        return submit("--batch-size", 2 * MOST, "--template", "none", path=tmp_path / "few.jsonl")

    assert run()[0] == 0
    expected, again = applied(service), 0
    for number in itertools.count(1):
        service.sessions.clear()
        service.checkpoints.clear()
        service.trouble = lambda *_: None
        depot.kept.clear()
        depot.named.clear()
        for path in (tmp_path / "run").glob("*"):
            path.unlink()
        seen = itertools.count()

        def trouble(_line, moment, seen=seen, number=number):
            if moment == when and next(seen) >= number:
                raise httpx.ConnectError("away")

        service.trouble = trouble
        if run()[0] == 0:
            break
        service.trouble = lambda *_: None
        if RunState.path_in(tmp_path / "run").exists():
            again += len(RunState.read(tmp_path / "run").uploads) > 1
        depot.kept.update(dict.fromkeys(depot.kept))  # all of them
        code, _, said = run()
        assert code == 0, (number, said)
        assert json.dumps(applied(service)) == json.dumps(expected), number
    assert again > 3
