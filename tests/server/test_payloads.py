import asyncio
import copy

import httpx
import numpy as np
import pytest

from samplekit import build_sample
from samplekit.server import create_app
from samplekit.server.payloads import PayloadStore
from samplekit.wire import names as wire


def shrunk(value, key=""):
    """What a client sends beside an upload: every number list cut to its first eight."""
    if isinstance(value, dict):
        return {name: shrunk(item, name) for name, item in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], int | float):
            return value[:8]
        return [shrunk(item) for item in value]
    return value


def upload(session, body):
    path = wire.UPLOAD_URL.path(session_id=session.session_id)
    announced = session.http.post(path).json()
    with httpx.Client() as bare:  # the signed URL needs no other header
        import json

        assert bare.put(announced["upload_url"], content=json.dumps(body).encode()).status_code == 200
    return announced["payload_id"]


@pytest.fixture
def body(make_samples, forward_body):
    return forward_body(make_samples([40, 30]))


def test_an_uploaded_body_gives_what_an_inline_one_gives(open_session, body):
    session = open_session()
    flags = {"forward_only": True, "return_loss_fn_outputs": True}
    inline = session.output("forward-backward", {**body, **flags})
    payload_id = upload(session, body)
    uploaded = session.output("forward-backward", {**shrunk(body), **flags, "payload_id": payload_id})
    assert uploaded == inline
    assert len(uploaded["loss_fn_outputs"][0]["tensors"]["logprobs"]["data"]) == 40


def test_a_stand_in_whose_shown_weights_are_all_zero_is_fine(open_session, forward_body):
    session = open_session()
    whole = build_sample(np.arange(20) + 5, [0] * 12 + [1] * 8)
    body = forward_body([whole])
    assert not any(shrunk(body)["samples"][0]["loss_fn_inputs"]["weights"]["data"])
    assert session.output("forward-backward", {**shrunk(body), "payload_id": upload(session, body)})["loss"] > 0


def test_it_is_the_upload_that_is_held_to_the_rules(open_session, body):
    session = open_session()
    broken = copy.deepcopy(body)
    broken["samples"][1]["model_input"]["chunks"][0]["encoded_text"]["tokens"][20] = 99_999
    answer = session.submit("forward-backward", {**shrunk(body), "payload_id": upload(session, broken)})
    assert answer.status_code == 400
    assert "samples[1]" in answer.json()["error"]["message"]


def test_a_stand_in_of_another_shape_is_refused(open_session, body):
    session = open_session()
    fewer = {**body, "samples": body["samples"][:1]}
    other = copy.deepcopy(body)
    other["samples"][0]["loss_fn_inputs"]["weights"]["dtype"] = "int64"
    more = {**body, "extra": 1}
    for stand_in in (shrunk(fewer), shrunk(other), shrunk(more)):
        answer = session.submit("forward-backward", {**stand_in, "payload_id": upload(session, body)})
        assert answer.status_code == 400
        assert "upload" in answer.json()["error"]["message"]


def test_later_chunks_may_be_left_out_of_a_stand_in(open_session, body):
    session = open_session()
    tokens = body["samples"][0]["model_input"]["chunks"][0]["encoded_text"]["tokens"]
    chunks = [{"encoded_text": {"tokens": part}} for part in (tokens[:5], tokens[5:20], tokens[20:])]
    body["samples"][0]["model_input"]["chunks"] = chunks
    stand_in = shrunk(body)
    stand_in["samples"][0]["model_input"]["chunks"] = [chunks[0], {"encoded_text": {"tokens": tokens[5:8]}}]
    assert session.output("forward-backward", {**stand_in, "payload_id": upload(session, body)})["loss"] > 0


def test_payloads_belong_to_their_session_and_must_be_there(open_session, body):
    first, second = open_session(), open_session()
    payload_id = upload(first, body)
    empty = first.http.post(wire.UPLOAD_URL.path(session_id=first.session_id)).json()["payload_id"]
    for session, identifier in ((second, payload_id), (first, empty), (first, "pl-none")):
        answer = session.submit("forward-backward", {**shrunk(body), "payload_id": identifier})
        assert answer.status_code == 400
        assert identifier in answer.json()["error"]["message"]
    path = wire.DOWNLOAD_URL.path(session_id=second.session_id, payload_id=payload_id)
    assert second.http.post(path).status_code == 404


def test_a_url_that_is_not_signed_opens_nothing(open_session, body):
    session = open_session()
    announced = session.http.post(wire.UPLOAD_URL.path(session_id=session.session_id)).json()
    url = httpx.URL(announced["upload_url"])
    for forged in (url.copy_set_param("signature", "0" * 64), url.copy_remove_param("signature")):
        assert session.http.put(forged, content=b"{}").status_code == 403
        assert session.http.get(forged).status_code == 403
    assert session.http.get(url).status_code == 404  # nothing was written yet


def test_a_large_result_comes_as_a_payload_and_says_the_same(open_session, forward_body, make_samples):
    session = open_session()
    body = forward_body(make_samples([140] * 400), forward_only=True, return_loss_fn_outputs=True)
    output = session.output("forward-backward", body)
    assert "loss_fn_outputs" not in output
    assert output["loss"] > 0
    path = wire.DOWNLOAD_URL.path(session_id=session.session_id, payload_id=output["payload_id"])
    url = session.http.post(path).json()["download_url"]
    with httpx.Client() as bare:
        downloaded = bare.get(url).json()
    logprobs = [item["tensors"]["logprobs"]["data"] for item in downloaded["loss_fn_outputs"]]
    assert [len(values) for values in logprobs] == [140] * 400
    assert -sum(map(sum, logprobs)) == pytest.approx(output["loss"], rel=1e-5)


def test_a_try_that_was_given_up_does_not_touch_its_retry(loaded, tmp_path):
    """The late one begins while the retry is half there, and ends, breaks off, or comes when the work is done."""
    app = create_app(loaded, state_dir=tmp_path)
    store, body = app.state.service.payloads, b'{"x":"' + b"a" * 3_000_000 + b'"}'

    async def put(http, url, after):
        half, late, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def retry():
            yield body[:1_500_000]
            half.set()
            await late.wait()
            yield body[1_500_000:]

        async def given_up():
            await half.wait()
            yield body[:1000]
            late.set()
            await go.wait()
            if after == "breaks off":
                raise RuntimeError("reset by peer")
            yield body[1000:]

        slow = asyncio.create_task(http.put(url, content=given_up()))
        assert (await http.put(url, content=retry())).status_code == 200
        payload_id = httpx.URL(url).path.rpartition("/")[2]
        assert store.path(payload_id).read_bytes() == body
        if after == "is done":
            store.discard(payload_id)
        go.set()
        (answer,) = await asyncio.gather(slow, return_exceptions=True)
        if after == "is done":
            assert answer.status_code == 404
        else:
            assert isinstance(answer, RuntimeError) if after == "breaks off" else answer.status_code == 200
            assert store.path(payload_id).read_bytes() == body
            store.discard(payload_id)
        assert [path.name for path in store.path(payload_id).parent.iterdir()] == ["secret"]

    async def check():
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
        ):
            resources = (await http.post(wire.CREATE_RESOURCES.path(), json={"base_model": "samplekit/tiny"})).json()
            opened = await http.post(wire.CREATE_SESSION.path(), json={"model_resources_id": resources["id"]})
            path = wire.UPLOAD_URL.path(session_id=opened.json()["id"])
            for after in ("ends", "breaks off", "is done"):
                await put(http, (await http.post(path)).json()["upload_url"], after)

    asyncio.run(check())


def test_what_a_killed_service_was_writing_is_gone_when_it_starts_again(tmp_path):
    store = PayloadStore(tmp_path)
    payload_id = store.create("ts-1")
    waiting = sorted(tmp_path.iterdir())
    for name in ("tmpabc.partial", f"{payload_id}.ts-1.partial", "secret.partial"):
        (tmp_path / name).write_bytes(b"half")
    again = PayloadStore(tmp_path)
    assert sorted(tmp_path.iterdir()) == waiting
    with again.writing(payload_id) as file:
        file.write(b"{}")
    assert again.owned(payload_id, "ts-1").read_bytes() == b"{}"


def test_files_go_when_their_work_is_done(open_session, body, running):
    session = open_session()
    folder = running.service.payloads.path(upload(session, body)).parent
    before = len(list(folder.iterdir()))
    payload_id = upload(session, body)
    assert len(list(folder.iterdir())) == before + 1
    session.output("forward-backward", {**shrunk(body), "payload_id": payload_id})
    assert len(list(folder.iterdir())) == before
