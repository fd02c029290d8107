"""Checkpoints: saved by a session, listed page by page, resumed from."""

from __future__ import annotations

import httpx
import pytest
from service_double import OPERATIONS, SESSION, operation

import samplekit as sk

SAVED = {"id": "ck-1", "step": "7", "created_at": "2026-01-02T00:00:00Z"}
LISTED = {**SAVED, "base_model": "m", "session_id": SESSION, "type": "CHECKPOINT_TYPE_TRAINING", "lora_rank": "8"}


def page(*ids, after=None):
    meta = {"limit": 2, "has_more": after is not None}
    return {
        "data": [{**LISTED, "id": name} for name in ids],
        "meta": meta if after is None else {**meta, "next_cursor": after},
    }


@pytest.mark.parametrize("kind", ["inference", "training"])
def test_a_session_saves_a_checkpoint_that_says_what_it_is_of(side, kind):
    registration = {"adapter": {"id": "ml", "revision_id": "mr"}}
    saved = {**SAVED, "registration": registration}
    side.double.answer(f"POST {OPERATIONS}/{kind}-checkpoint", operation("PENDING"))
    side.double.answer(f"GET {OPERATIONS}/{kind}-checkpoint/op-1", operation("COMPLETED", {"checkpoint": saved}))
    session = side.session()
    saving = getattr(session, f"save_{kind}_checkpoint")()
    found = saving.result()
    assert (found.id, found.step, found.kind, found.created_at) == ("ck-1", 7, kind, "2026-01-02T00:00:00Z")
    assert (found.base_model, found.session_id, found.registration) == ("m", SESSION, registration)
    again = session.operation("op-1", saving.kind).result()
    assert again == found
    (seen,) = side.double.calls("POST .*")
    assert seen.content == b""
    assert seen.headers["idempotency-key"] == saving.idempotency_key


@pytest.mark.parametrize("output", [None, {}, {"checkpoint": 3}, {"checkpoint": {"id": ""}}])
def test_a_saved_checkpoint_without_an_id_is_a_named_error(side, output):
    side.double.answer(f"POST {OPERATIONS}/.*", operation("COMPLETED", output))
    with pytest.raises(sk.OperationError, match="op-1"):
        side.session().save_training_checkpoint().result()


def test_pages_are_followed_to_the_end(side):
    side.double.answer("GET /v1/rl/checkpoints", page("a", "b", after="b"), page("c", "d", after="d"), page("e"))
    found = side.client().checkpoints(session_id=SESSION, kind="training", base_model="m")
    assert [item.id for item in found] == ["a", "b", "c", "d", "e"]
    assert (found[0].kind, found[0].lora_rank, found[0].step) == ("training", 8, 7)
    start = f"/v1/rl/checkpoints?base_model=m&session_id={SESSION}&type=CHECKPOINT_TYPE_TRAINING"
    asked = [item.path for item in side.double.seen]
    assert asked == [start, *(f"{start.replace('?', f'?after={x}&')}" for x in "bd")]


@pytest.mark.parametrize(("limit", "pages"), [(1, 1), (2, 1), (3, 2), (9, 3)])
def test_a_limit_ends_the_pages(side, limit, pages):
    side.double.answer("GET /v1/rl/checkpoints", page("a", "b", after="b"), page("c", "d", after="d"), page("e"))
    assert len(side.client().checkpoints(limit=limit)) == min(limit, 5)
    assert len(side.double.seen) == pages
    assert side.double.seen[0].path == f"/v1/rl/checkpoints?limit={limit}"


def test_a_list_that_leads_back_to_itself_is_given_up(side):
    side.double.answer("GET /v1/rl/checkpoints", page("a", after="a"))
    with pytest.raises(sk.ServiceError, match="leads back"):
        side.client().checkpoints()
    assert len(side.double.seen) == 2


@pytest.mark.parametrize("meta", [None, {}, 3, {"has_more": False, "next_cursor": "x"}, {"has_more": True}])
def test_a_list_ends_where_no_page_follows(side, meta):
    side.double.answer("GET /v1/rl/checkpoints", {**page("a"), "meta": meta})
    assert [item.id for item in side.client().checkpoints()] == ["a"]


@pytest.mark.parametrize(
    "options",
    [{"kind": "both"}, {"kind": 3}, {"limit": 0}, {"limit": True}, {"session_id": ""}, {"base_model": 5}],
)
def test_a_wrong_question_is_refused_before_it_is_asked(side, options):
    with pytest.raises(sk.SampleError, match=next(iter(options))):
        side.client().checkpoints(**options)
    assert side.double.seen == []


@pytest.mark.parametrize("body", [{}, {"data": None}, {"data": [{}]}, {"data": [{"id": "a", "step": "x"}]}, []])
def test_a_page_that_cannot_be_read_is_a_named_error(side, body):
    side.double.answer("GET /v1/rl/checkpoints", body)
    with pytest.raises(sk.ConnectionFailedError, match="list checkpoints"):
        side.client(max_retries=1).checkpoints()
    assert len(side.double.seen) == 2


def test_a_checkpoint_of_an_adapter_is_resumed_as_an_adapter(side):
    side.double.answer("GET .*/checkpoints/ck-1", {**LISTED, "lora_rank": 8})
    side.client().session(resume_from="ck-1").detach()
    assert side.double.calls("POST .*/model-resources")[0].body["lora_enabled"] is True
    body = side.double.calls("POST .*/training-sessions")[0].body
    assert (body["resume_from_checkpoint_id"], body["lora_config"]) == ("ck-1", {"rank": 8})


def test_a_checkpoint_that_is_not_there_is_said_before_anything_is_created(side):
    side.double.answer("GET .*/checkpoints/ck-9", httpx.Response(404))
    with pytest.raises(sk.StatusError, match="get checkpoint ck-9"):
        side.client().session(base_model="m", resume_from="ck-9")
    assert {item.method for item in side.double.seen} == {"GET"}
