"""A service that repeats the key, wherever it does so, puts it into no error, note, log or attribute."""

from __future__ import annotations

import json
import logging
import traceback
import warnings

import httpx
import pytest
from service_double import KEY, OPERATIONS, READY, SESSION, operation

import samplekit as sk

SUBMIT = f"POST {OPERATIONS}/.*"
MODELS = "GET .*/supported-models"


def escaped(text):
    """Text as JSON may spell it, every character in hexadecimal."""
    return "".join(rf"\u{ord(char):04X}" for char in text)


def told(error):
    """All that an error tells, with its causes, notes, attributes and the variables of its frames."""
    chain = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    found = []
    while error is not None:
        found += [str(error), repr(error), repr(vars(error))]
        error = error.__cause__ or error.__context__
    return "".join([chain, *found])


def raised(work):
    with pytest.raises(sk.ServiceError) as caught:
        work()
    return caught.value


def limits(value):
    lora = {"max_batch_size": value, "max_seq_length": 1}
    return {"data": [{"base_model": "m", "compute_configs": [{"trainer_config": {"lora": lora}}]}]}


ANSWERS = {
    "a redirect": httpx.Response(307, json={"error": {"message": f"moved, send {KEY}"}}),
    "a redirect of text": httpx.Response(302, text=f"moved, send {KEY}"),
    "an error": httpx.Response(400, json={"error": {"message": KEY, KEY: [KEY]}}),
    "an error of text": httpx.Response(400, text=f"Authorization: Bearer {KEY}"),
    "an escaped one": httpx.Response(400, content=b'{"message": "%b"}' % escaped(KEY).encode()),
    "an error's id": httpx.Response(400, headers={"x-request-id": KEY}),
    "a number that is none": limits(KEY),
    "a list that is none": {"data": KEY},
    "an escaped number": httpx.Response(200, content=json.dumps(limits("?")).replace("?", escaped(KEY)).encode()),
    "a model": {"data": [{"base_model": f"{KEY}{n}"} for n in range(2)]},
    "cut short": httpx.Response(400, text="x" * 490 + KEY),
    "a broken line": httpx.RemoteProtocolError(f"illegal status line: bytearray(b'HTTP/1.1 {KEY}')"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_no_answer_brings_the_key_into_an_error(side, name, caplog):
    caplog.set_level(logging.DEBUG)
    side.double.answer(MODELS, ANSWERS[name])
    client = side.client(max_retries=0)
    error = raised(client.session)
    shown = told(error) + caplog.text
    assert KEY not in shown
    assert KEY[: len(KEY) // 2] not in shown


def test_a_failed_operation_does_not_repeat_the_key(side):
    side.double.answer(SUBMIT, operation("FAILED", error={"code": f"X{KEY}", "message": f"bad key {KEY}"}))
    step = side.session().optim_step(learning_rate=1.0)
    error = raised(step.result)
    assert KEY not in told(error)
    assert "bad key ***" in str(error)


def test_a_failure_that_is_warned_of_does_not_repeat_the_key(side):
    side.double.answer(SUBMIT, operation("FAILED", error={"message": f"bad key {KEY}"}))
    with warnings.catch_warnings(record=True) as caught, side.client().session(base_model="m") as session:
        warnings.simplefilter("always")
        session.optim_step(learning_rate=1.0)
    assert [str(item.message) for item in caught if "bad key ***" in str(item.message)]
    assert not [item for item in caught if KEY in str(item.message)]


def test_resources_that_failed_do_not_repeat_the_key(side):
    failed = {**READY, "status": "MODEL_RESOURCES_STATUS_ERROR", "error": {"code": "X", "message": f"no {KEY}"}}
    side.double.answer("GET .*/model-resources/res-1", failed)
    client = side.client()
    error = raised(lambda: client.session(base_model="m"))
    assert "no ***" in str(error)
    assert KEY not in told(error)


def test_a_note_about_what_could_not_be_stopped_does_not_repeat_the_key(side):
    side.double.answer("GET .*/model-resources/res-1", httpx.Response(403, text=KEY))
    side.double.answer("POST .*/model-resources/res-1/stop", httpx.Response(403, text=KEY))
    client = side.client()
    error = raised(lambda: client.session(base_model="m"))
    assert "could not be stopped" in error.__notes__[0]
    assert KEY not in told(error)


def test_an_output_that_cannot_be_read_does_not_repeat_the_key(side):
    side.double.answer(SUBMIT, operation("COMPLETED", {"step": KEY}))
    step = side.session().optim_step(learning_rate=1.0)
    assert KEY not in told(raised(step.result))


@pytest.mark.parametrize("key", ["m", "sess", "local", "12345678", "res-1"])
def test_a_key_that_is_a_plain_word_or_number_leaves_answers_that_succeeded_alone(side, key):
    session = side.client(api_key=key).session(base_model="m")
    assert (session.id, session.base_model, session.resources_id) == (SESSION, "m", "res-1")
    side.double.answer(SUBMIT, operation("COMPLETED", {"loss": 0.12345678}))
    sample = sk.build_sample([1, 2, 3], [1, 1, 1])
    assert session.forward_backward([sample], sk.CrossEntropy()).result().loss == 0.12345678
    session.detach()


def test_a_key_of_any_length_is_blotted_from_a_refusal(side):
    side.double.answer(f"GET .*/{SESSION}", httpx.Response(403, text="not with abc"))
    client = side.client(api_key="abc")
    assert "not with ***" in str(raised(lambda: client.attach(SESSION)))


def test_a_key_with_signs_that_patterns_and_json_know_is_blotted(side):
    key = 'a+b/c"d\\e(f.g*'
    for body in (json.dumps({"message": key}), json.dumps({"message": key}).replace("/", r"\/"), key):
        side.double.answer(f"GET .*/{SESSION}", httpx.Response(403, text=body))
        client = side.client(api_key=key)
        error = raised(lambda client=client: client.attach(SESSION))
        assert "answered 403: ***;" in str(error)


WORDS = {
    "tokens and not tok": "tokens and not ***",
    "stok, tok_1, tok-1, 1tok": "stok, tok_1, tok-1, 1tok",
    "Bearer tok": "Bearer ***",
    "tok": "***",
    "key=tok&more": "key=***&more",
    "é tok.": "é ***.",
}


@pytest.mark.parametrize("key", ["tok", "tok_4567-890abc"])
@pytest.mark.parametrize("words", WORDS)
def test_a_short_key_is_blotted_where_it_is_a_word(side, key, words):
    said = words.replace("tok", key)
    side.double.answer(f"GET .*/{SESSION}", httpx.Response(403, content=said.encode()))
    client = side.client(api_key=key)
    error = raised(lambda: client.attach(SESSION))
    assert f"answered 403: {WORDS[words].replace('tok', key)};" in str(error)


@pytest.mark.parametrize("key", ["tok", "tok_4567-890abc", KEY])
@pytest.mark.parametrize("before", ["\\n", "\\t", "\\u0020", "\\u000a", "\\/", '\\"', "="])
def test_a_key_after_an_escape_is_blotted(side, key, before):
    for spelled in (key, escaped(key)):
        body = '{"message": "x' + before + spelled + '\\n"}'
        side.double.answer(f"GET .*/{SESSION}", httpx.Response(403, content=body.encode()))
        client = side.client(api_key=key)
        error = raised(lambda client=client: client.attach(SESSION))
        assert "***" in str(error)
        assert key not in told(error)


@pytest.mark.parametrize("key", ["k" * 16, KEY])
@pytest.mark.parametrize("around", ["x{}y", "_{}_", "-{}0", "{}s", "\\u0041{}"])
def test_a_long_key_is_blotted_anywhere(side, key, around):
    side.double.answer(f"GET .*/{SESSION}", httpx.Response(403, text=around.format(key)))
    client = side.client(api_key=key)
    error = raised(lambda: client.attach(SESSION))
    assert "***" in str(error)
    assert key not in told(error)
