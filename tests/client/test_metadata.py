"""Metadata of sessions: one's own refused before anything is paid, anybody's read without hiding the other sessions."""

from __future__ import annotations

import httpx
import pytest
from service_double import RUNNING, SESSION

import samplekit as sk
from samplekit.client import Client
from samplekit.server import LocalService
from samplekit.wire.names import MAX_ANSWER_DEPTH


def nested(levels, innermost=1, kind=dict):
    for _ in range(levels):
        innermost = {"a": innermost} if kind is dict else [innermost]
    return innermost


def endless():
    found = {}
    found["itself"] = found
    return found


def test_metadata_is_written_and_read(side):
    side.double.answer(f"PATCH .*/training-sessions/{SESSION}", {"id": SESSION})
    session = side.session()
    session.annotate({"wandb": {"run": "r"}})
    assert side.double.seen[0].body == {"metadata": {"wandb": {"run": "r"}}}
    with pytest.raises(sk.SampleError, match="metadata"):
        session.annotate("r")
    listed = {"data": [{"id": "s", "status": "x", "metadata": {"wandb": {"run": "r"}}}]}
    side.double.answer("GET .*/training-sessions", listed)
    assert side.client().sessions()[0].metadata == {"wandb": {"run": "r"}}


ODD = {
    "deep mappings": ({"a": nested(40)}, r"body\.metadata\.a\.a.*nests deeper than 32.*flatter"),
    "deep lists": ({"run": nested(40, kind=list)}, r"body\.metadata\.run\[0\]\[0\].*nests deeper than 32"),
    "too deep for a stack": ({"a": nested(5000)}, "nests deeper than 32"),
    "itself": (endless(), r"body\.metadata\.itself\.itself.*nests deeper than 32"),
    "half a letter": ({"a": {"b": "\ud800"}}, r"body\.metadata\.a\.b holds half"),
    "no number": ({"a": [1.0, float("inf")]}, r"body\.metadata\.a\[1\] is inf"),
    "too large a number": ({"a": 2**64}, r"body\.metadata\.a is 18446744073709551616"),
    "an object": ({"a": object()}, r"body\.metadata\.a is an object"),
    "a name that is none": ({"a": {3: "x"}}, r"a name in body\.metadata\.a is 3"),
}


@pytest.mark.parametrize("name", ODD)
def test_metadata_that_cannot_be_sent_is_refused_by_place_before_anything_is_asked(side, name):
    metadata, words = ODD[name]
    with pytest.raises(sk.SampleError, match=words) as caught:
        side.client().session(base_model="m", metadata=metadata)
    assert len(str(caught.value)) < 300
    session = side.session()
    with pytest.raises(sk.SampleError, match=words):
        session.annotate(metadata)
    with pytest.raises(sk.SampleError, match=words):
        side.client().attach_resources("res-1").session(metadata=metadata)
    assert {item.method for item in side.double.seen} == {"GET"}


def test_what_is_sent_is_what_was_given(side):
    metadata = {"a": {"b": [1]}}
    opening = side.client()._inner.session(base_model="m", metadata=metadata) if side.loop else None
    if opening is None:
        side.client().session(base_model="m", metadata=metadata).detach()
    else:
        metadata["a"]["b"].append(float("nan"))

        async def opened():
            (await opening).detach()

        side.loop.run_until_complete(opened())
    (seen,) = side.double.calls("POST .*/training-sessions")
    assert seen.body["metadata"] == {"a": {"b": [1]}}


def answer(levels, kind):
    """A page with a session whose metadata nests so deep, printed without recursion, and one beside it."""
    opening, closing = ("[", "]") if kind is list else ('{"a":', "}")
    deep = opening * levels + '"]}[{"' + closing * levels
    odd = f'{{"id":"odd","status":"x","metadata":{{"deep":{deep},"b":1}}}}'
    return httpx.Response(200, text=f'{{"data":[{odd},{{"id":"good","status":"x"}}]}}')


@pytest.mark.parametrize("kind", [dict, list])
@pytest.mark.parametrize("levels", [60, 61, 62, 300, 1100, 50_000])
def test_a_session_of_somebody_else_hides_no_other(side, levels, kind):
    side.double.answer("GET .*/training-sessions", answer(levels, kind))
    odd, good = side.client().sessions()
    assert (odd.id, good.id, odd.metadata["b"]) == ("odd", "good", 1)
    found, depth = odd.metadata["deep"], 4
    while not isinstance(found, str):
        (found,) = found.values() if kind is dict else found
        depth += 1
    assert (found, depth) == (("]}[{", levels + 4) if levels <= 60 else ("(nests too deep)", MAX_ANSWER_DEPTH))
    repr(odd)


def test_a_session_of_ones_own_with_deep_metadata_is_attached_to_and_stopped(side):
    running = httpx.Response(
        200, text=str({**RUNNING, "metadata": "?"}).replace("'", '"').replace('"?"', str(nested(90, kind=list)))
    )
    side.double.answer(f"GET .*/{SESSION}", running)
    side.double.answer(f"POST .*/{SESSION}/stop", running, httpx.Response(404))
    session = side.client().attach(SESSION)
    side.double.answer(f"GET .*/{SESSION}", running, {**RUNNING, "status": "TRAINING_SESSION_STATUS_STOPPED"})
    session.stop()


def test_a_page_that_is_cut_off_in_its_depth_is_a_named_error(side):
    side.double.answer("GET .*/training-sessions", httpx.Response(200, text='{"data":[' + "[" * 100))
    with pytest.raises(sk.ConnectionFailedError, match=r"list training sessions.*nests deeper than 64"):
        side.client().sessions()
    assert len(side.double.seen) == 1


def test_lists_of_a_local_service_go_on_beside_metadata_as_deep_as_it_takes():
    with (
        LocalService() as service,
        Client(base_url=service.url) as client,
        client.create_resources(lora=True) as made,
    ):
        url = f"{service.url}/v1/rl/training-sessions"
        body = f'{{"model_resources_id":"{made.id}","lora_config":{{"rank":2}},"metadata":{{"a":%s}}}}'
        for levels in (28, 50, 100):
            assert httpx.post(url, content=body % str(nested(levels, kind=list))).status_code in {200, 400}
        with made.session(lora_rank=2, metadata={"a": nested(29)}) as session:
            assert session.id in {item.id for item in client.sessions()}
