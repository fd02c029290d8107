"""What an error says to do next agrees with what may have become of the call, and with what the service says itself."""

from __future__ import annotations

import httpx
import pytest
from service_double import OPERATIONS, READY

import samplekit as sk

SUBMIT = f"POST {OPERATIONS}/optim-step"
CREATE = "POST .*/training-sessions"
LOST, REFUSED = httpx.ReadTimeout("slow"), httpx.ConnectError("refused")
BUSY, GATEWAY, CROWDED = httpx.Response(503), httpx.Response(504), httpx.Response(429)
DENIED = httpx.Response(401)
NOT_AGAIN = "trying again gives the same"


def told(status, again):
    return httpx.Response(status, headers={"x-should-retry": again})


def refusal(side, *answers):
    """The error of a step that was answered so, the last again and again."""
    side.double.answer(SUBMIT, *answers)
    with pytest.raises(sk.ServiceError) as caught:
        side.session().optim_step(learning_rate=1.0)
    return caught.value


@pytest.mark.parametrize(
    "answers",
    [
        [LOST, REFUSED],
        [GATEWAY, REFUSED],
        [LOST, CROWDED, REFUSED],
        [LOST, BUSY],
        [LOST, DENIED],
        [BUSY],
        [LOST, CROWDED],
    ],
)
def test_a_call_that_any_try_may_have_carried_out_says_to_go_on_under_its_key(side, answers):
    error = refusal(side, *answers)
    assert f"its idempotency key was {error.idempotency_key}: the service may have accepted it" in str(error)
    assert "make the same call again only with idempotency_key= as this error carries it" in str(error)
    assert getattr(error, "sent", True)


@pytest.mark.parametrize(
    "answers", [[REFUSED], [CROWDED, REFUSED], [told(503, "true"), REFUSED], [CROWDED], [told(503, "true")], [DENIED]]
)
def test_a_call_that_no_try_can_have_carried_out_is_simply_made_again(side, answers):
    error = refusal(side, *answers)
    assert "idempotency key" not in str(error)
    assert not getattr(error, "sent", False)


@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
def test_what_is_not_to_be_tried_again_is_not_said_to_be(side, status):
    error = refusal(side, told(status, "false"))
    assert NOT_AGAIN in str(error)
    assert "try again later" not in str(error)
    assert "wait and try again" not in str(error)


@pytest.mark.parametrize("status", [400, 403, 404, 409])
def test_what_is_not_to_be_tried_again_anyway_says_what_to_do(side, status):
    assert NOT_AGAIN not in str(refusal(side, told(status, "false")))


@pytest.mark.parametrize("status", [400, 408, 409, 500, 503])
@pytest.mark.parametrize("pattern", [CREATE, "POST .*/model-resources"])
def test_what_the_service_refused_before_it_began_is_no_unknown_outcome(side, pattern, status):
    side.double.answer(pattern, told(status, "true"))
    with pytest.raises(sk.StatusError, match=r"after 8 tries.*refused before it began.*do so later") as caught:
        side.client().session(base_model="m")
    assert "outcome unknown" not in str(caught.value)
    assert "repair" not in str(caught.value)


def test_what_was_refused_and_then_lost_is_an_unknown_outcome(side):
    side.double.answer("POST .*/model-resources", CROWDED, LOST, READY)
    with pytest.raises(sk.ConnectionFailedError, match="outcome unknown") as caught:
        side.client().session(base_model="m")
    assert caught.value.sent
