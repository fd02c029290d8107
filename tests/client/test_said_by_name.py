"""What can only be answered by raising, raised with words that say what to do instead."""

from __future__ import annotations

import copy
import pickle

import httpx
import pytest
from service_double import KEY, OPERATIONS, READY, RUNNING, SESSION, URL, operation

import samplekit as sk

LONG = "x" * 100_000


@pytest.fixture
def things(side):
    """A client, a session and an operation, without a face."""
    side.double.answer(f"POST {OPERATIONS}/.*", operation("PENDING"))
    client = side.client()
    session = client.attach(SESSION)
    step = session.optim_step(learning_rate=1.0)
    return [getattr(item, "_inner", item) for item in (client, session, step)]


@pytest.mark.parametrize("way", [pickle.dumps, copy.deepcopy])
def test_what_stays_in_its_process_says_what_to_keep_instead(things, way):
    client, session, step = things
    with pytest.raises(
        TypeError, match=rf"a client is neither pickled nor copied: make one for {URL} .*TOGETHER_API_KEY"
    ):
        way(client)
    with pytest.raises(TypeError, match=rf"a session is neither pickled nor copied: .*client\.attach\('{SESSION}'\)"):
        way(session)
    with pytest.raises(TypeError, match=r"an operation is neither .*session\.operation\('op-1', 'optim-step'\)"):
        way(step)


@pytest.mark.parametrize("identity", [",", "op-x,", ",op-x", "op-x,,op-y"])
def test_ids_that_lack_one_are_refused(side, identity):
    session = side.session()
    with pytest.raises(sk.SampleError, match=rf"id is '{identity}', expected an Operation's \.id"):
        session.operation(identity, "forward-backward")


@pytest.mark.parametrize("timeout", [1e300, 86_401, 10**30])
def test_a_timeout_no_socket_takes_is_refused(side, timeout):
    with pytest.raises(sk.SampleError, match=r"timeout is .*, expected a finite number above 0 and at most 86,400"):
        side.client(timeout=timeout)


@pytest.mark.parametrize(("end", "hinted"), [("/v1", True), ("/v1/", True), ("", False)])
@pytest.mark.parametrize("key", [KEY, None])
def test_a_404_where_the_base_url_ends_in_v1_says_to_leave_that_out(side, end, hinted, key):
    side.double.answer("GET .*", httpx.Response(404))
    client = side.client(base_url=(URL if key else "http://localhost:1") + end, api_key=key)
    with pytest.raises(sk.StatusError) as caught:
        client.supported_models()
    assert ("leave /v1 out of the base_url" in str(caught.value)) == hinted
    assert ("check the id and the base_url" in str(caught.value)) != hinted


def raised(work):
    with pytest.raises(sk.ServiceError) as caught:
        work()
    return str(caught.value)


def test_words_of_the_service_of_any_length_are_cut_in_errors(side):
    client = side.client()
    failed = {**READY, "status": "MODEL_RESOURCES_STATUS_ERROR", "error": {"code": LONG, "message": LONG}}
    side.double.answer("GET .*/model-resources/res-1", failed)
    assert len(raised(lambda: client.session(base_model="m"))) < 2000
    side.double.answer("GET .*/model-resources/res-1", READY)
    ended = {**RUNNING, "status": "TRAINING_SESSION_STATUS_ERROR", "error": {"message": LONG}}
    side.double.answer(f"GET .*/training-sessions/{SESSION}", ended)
    assert len(raised(lambda: client.attach(SESSION))) < 2000
    side.double.answer("GET .*/checkpoints", {"data": [], "meta": {"limit": 20, "has_more": True, "next_cursor": LONG}})
    assert "too long or too odd for a URL" in raised(client.checkpoints)
    page = {"data": [], "meta": {"limit": 20, "has_more": True, "next_cursor": LONG[:20_000]}}
    side.double.answer("GET .*/checkpoints", page)
    said = raised(client.checkpoints)
    assert "leads back to itself" in said
    assert len(said) < 2000
