"""A service that is down while a run goes on: said once when it is gone and once when it is back, in a pipe too."""

import httpx
import pytest

GONE = "the service does not answer"
BACK = "the service answers again"


def refused():
    raise httpx.ConnectError("Connection refused")


def busy():
    return httpx.Response(429)


def break_at(service, ending, trouble):
    """Let the first three requests of a kind meet trouble."""
    left, plain = 3, service.answer

    def answer(line, body, headers):
        nonlocal left
        if line.endswith(ending) and left:
            left -= 1
            return trouble()
        return plain(line, body, headers)

    service.answer = answer


@pytest.mark.parametrize("trouble", [refused, busy])
@pytest.mark.parametrize("line", ["supported-models", "training-sessions", "forward-backward", "optim-step", "stop"])
def test_a_service_that_is_down_for_a_while_is_said_to_be_gone_and_back_once(submit, service, trouble, line):
    break_at(service, line, trouble)
    code, shown, said = submit()
    assert code == 0
    assert (said.count(GONE), said.count(BACK)) == (1, 1), said
    assert said.index(GONE) < said.index(BACK)
    assert ("Connection refused" in said) == (trouble is refused)
    assert GONE not in shown


def test_a_service_that_stays_down_is_not_said_to_be_back(submit, service):
    def away(_line, _when):
        if sum(seen[0].endswith("optim-step") for seen in service.seen) > 3:
            raise httpx.ConnectError("Connection refused")

    service.trouble = away
    code, _, said = submit()
    assert (code, GONE in said, BACK in said) == (3, True, False)
    assert "Connection refused" in said


def test_a_service_that_answers_is_not_spoken_of(submit):
    code, _, said = submit("--held-out", 4, "--json")
    assert (code, GONE in said, BACK in said) == (0, False, False)
