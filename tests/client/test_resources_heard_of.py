"""What resources know of themselves is what was heard last, and who stopped them is not warned of what ran on them."""

from __future__ import annotations

import gc
import warnings

import httpx
import pytest
from service_double import READY, RUNNING, SESSION

import samplekit as sk

STOP = "POST .*/res-1/stop"


def resources(status):
    return {**READY, "status": f"MODEL_RESOURCES_STATUS_{status}"}


def lost(request):
    raise httpx.ReadTimeout("lost", request=request)


# row: (what stopping answers, what looking answers afterwards, the status that is known then)
STOPPED = {
    "at once": (resources("STOPPED"), resources("READY"), "STOPPED"),
    "soon": (resources("STOPPING"), resources("STOPPED"), "STOPPING"),
    "an answer that was lost": (lost, resources("STOPPED"), "STOPPED"),
    "unknown by then": (httpx.Response(404), httpx.Response(404), "STOPPED"),
    "in error by then": (httpx.Response(409), resources("ERROR"), "ERROR"),
}


@pytest.mark.parametrize("name", STOPPED)
def test_stopped_resources_know_it(side, name):
    stop, look, status = STOPPED[name]
    made = side.client(max_retries=0).create_resources(base_model="m")
    side.double.answer(STOP, stop)
    side.double.answer("GET .*/res-1", look)
    made.stop()
    assert made.status == made.info.status.rpartition("_")[2] == status
    assert made.base_model == "m"


def test_resources_that_do_not_stop_know_what_was_heard(side):
    made = side.client(max_retries=0).create_resources(base_model="m")
    side.double.answer(STOP, httpx.Response(400))
    side.double.answer("GET .*/res-1", resources("CREATING"))
    with pytest.raises(sk.StatusError):
        made.stop()
    assert made.status == "CREATING"


@pytest.mark.parametrize(("last", "known"), [("READY", "READY"), ("ERROR", "ERROR")])
def test_resources_know_what_a_session_on_them_waited_for(side, last, known):
    side.double.answer("POST .*/model-resources", resources("PENDING"))
    made = side.client().create_resources(base_model="m")
    side.double.answer("GET .*/res-1", resources("CREATING"), {**resources(last), "expires_at": "then"})
    try:
        made.session().detach()
    except sk.ServiceError:
        assert last == "ERROR"
    assert (made.status, made.info.expires_at) == (known, "then")
    made.detach()


def test_resources_that_never_become_ready_know_it(side):
    made = side.client().create_resources(base_model="m")
    side.double.answer("GET .*/res-1", resources("STOPPED"))
    with pytest.raises(sk.ServiceError, match="is STOPPED"):
        made.wait()
    assert made.status == "STOPPED"
    made.detach()


def _two_sessions(side, first_on, second_on):
    first = first_on.session(lora_rank=2)
    side.double.answer("POST .*/training-sessions", {**RUNNING, "id": "sess-2"})
    side.double.answer("GET .*/training-sessions/sess-2", {**RUNNING, "id": "sess-2"})
    return first, second_on.session(lora_rank=2)


def _own(side, client):
    """Resources of one's own with two sessions."""
    made = client.create_resources(base_model="m", lora=True)
    return made.stop, (made, *_two_sessions(side, made, made))


def _twice(side, client):
    """Resources that are held twice; the one that did not create them stops them."""
    made = client.create_resources(base_model="m", lora=True)
    again = client.attach_resources("res-1")
    return again.stop, (made, again, *_two_sessions(side, made, again))


def _for_a_session(_side, client):
    """Resources created for a session, stopped by themselves."""
    session = client.session(base_model="m")
    return client.attach_resources("res-1").stop, (session,)


def _by_a_session(_side, client):
    """Resources stopped by a session that was made to answer for them."""
    made = client.create_resources(base_model="m")
    first, session = made.session(), client.attach(SESSION)
    session.adopt()
    return session.stop, (made, first, session)


@pytest.mark.parametrize("build", [_own, _twice, _for_a_session, _by_a_session])
def test_what_was_on_stopped_resources_is_not_warned_of(side, build):
    client = side.client()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stop, kept = build(side, client)
        stop()
        client.close()
        del kept
        gc.collect()


@pytest.mark.parametrize("build", [_own, _for_a_session])
def test_what_was_on_resources_that_could_not_be_stopped_is_warned_of(side, build):
    client = side.client(max_retries=0)
    stop, kept = build(side, client)
    side.double.answer(STOP, httpx.Response(400))
    with pytest.raises(sk.StatusError):
        stop()
    with pytest.warns(ResourceWarning, match=r"session sess-\d on model resources res-1 was never stopped"):
        client.close()
    del kept


def test_sessions_on_other_resources_are_warned_of(side):
    client = side.client()
    made = client.create_resources(base_model="m")
    side.double.answer("POST .*/model-resources", {**READY, "id": "res-2"})
    side.double.answer("GET .*/model-resources/res-2", {**READY, "id": "res-2"})
    side.double.answer("GET .*/training-sessions/.*", {**RUNNING, "model_resources_id": "res-2"})
    other = client.session(base_model="m")
    made.stop()
    with pytest.warns(ResourceWarning, match="on model resources res-2 was never stopped"):
        client.close()
    del other
