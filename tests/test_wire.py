"""What client and server say to each other: routes, bodies as bytes, answers of any shape."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import samplekit as sk
from samplekit.wire import answers, lifecycles, names, offers
from samplekit.wire.answers import AnswerError
from samplekit.wire.requests import dumps, forward_backward_body, sample_body, small_body

EXCHANGES = json.loads((Path(__file__).parent / "data" / "wire" / "exchanges.json").read_text())
ROUTES = {name: value for name, value in vars(names).items() if isinstance(value, names.Route)}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["id", "status", "output", "error", "data", "code", "message", "compute_configs", "step",
                         "lora_config", "rank", "status_details", "queue_position", "trainer_config", "full", "base_model"])
        | st.text(max_size=4),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


def segments(path: str) -> list[str]:
    return path.partition("?")[0].split("/")


def matches(route: names.Route, method: str, path: str) -> bool:
    """Whether a recorded request is one of this row."""
    mine, theirs = segments(route.template), segments(path)
    return (
        route.method == method
        and len(mine) == len(theirs)
        and all(one == other or one.startswith("{") for one, other in zip(mine, theirs, strict=True))
    )


def test_every_recorded_request_is_one_of_our_routes_and_every_operation_one_of_our_kinds():
    for item in EXCHANGES:
        found = [name for name, route in ROUTES.items() if matches(route, item["method"], item["path"])]
        assert found, item["path"]
        parts = segments(item["path"])
        if "operations" in parts:
            assert parts[parts.index("operations") + 1] in set(names.OperationKind)


def test_every_recorded_enum_value_is_one_of_ours():
    known = {
        item.value
        for owner in vars(names).values()
        if isinstance(owner, type) and issubclass(owner, names.StrEnum) and owner is not names.StrEnum
        for item in owner  # type: ignore[attr-defined]
    }
    families = ("TRAINING_OPERATION_STATUS_", "TRAINING_SESSION_STATUS_", "MODEL_RESOURCES_STATUS_", "STOP_REASON_",
                "CHECKPOINT_TYPE_", "CHECKPOINT_VARIANT_", "WEIGHT_SYNC_TYPE_", "TRAINING_OPERATION_ERROR_CODE_")  # fmt: skip
    text = json.dumps(EXCHANGES).replace("%2C", '"')
    words = {word for piece in text.split('"') for word in piece.replace("=", "&").split("&")}
    recorded = {word for word in words if word.startswith(families)}
    assert len(recorded) > 10
    assert recorded <= known


@pytest.mark.parametrize("name", ROUTES)
def test_reading_and_keyed_routes_are_repeatable_and_creating_and_stopping_ones_are_not(name):
    route = ROUTES[name]
    assert route.template.startswith("/v1/rl/")
    if route.method == "GET" or route.keyed:
        assert route.repeatable
    if name.startswith(("CREATE", "STOP")):
        assert not route.repeatable
        assert not route.keyed
    if route.method != "GET" and not route.keyed:
        assert route.repeatable == (name in {"ESTIMATE_COST", "UPLOAD_URL", "DOWNLOAD_URL"})  # which change nothing


def test_ids_stay_one_segment_and_must_be_there():
    assert names.GET_SESSION.path(session_id="a/b?c#d e") == "/v1/rl/training-sessions/a%2Fb%3Fc%23d%20e"
    for ids in ({}, {"session_id": ""}, {"session_id": "a", "more": "b"}):
        with pytest.raises(ValueError, match="session_id"):
            names.GET_SESSION.path(**ids)


# ---- bodies ----


def some_samples(num: int = 3) -> list[sk.Sample]:
    return [sk.build_sample(range(index, index + 20), [0] * 5 + [1] * 15) for index in range(num)]


def test_a_body_in_pieces_is_one_compact_json_object():
    samples = some_samples()
    body = forward_backward_body(samples, sk.CrossEntropy(), forward_only=True, return_outputs=True)
    read = json.loads(b"".join(body.inline()))
    assert list(read) == ["loss", "samples", "forward_only", "return_loss_fn_outputs"]
    assert [sk.Sample.from_wire(item) for item in read["samples"]] == samples
    assert b"".join(body.inline()) == json.dumps(read, separators=(",", ":")).encode()
    assert body.num_bytes == len(b"".join(body.payload()))
    assert list(json.loads(b"".join(body.payload()))) == ["loss", "samples"]


def test_a_body_is_uploaded_from_the_first_byte_over_the_limit_without_its_flags():
    loss = sk.CrossEntropy()

    def body(key: str) -> Any:
        plain = some_samples(1)[0]
        return forward_backward_body([sk.Sample(plain.model_input, plain.loss_fn_inputs, key)], loss, forward_only=True)

    fill = names.INLINE_LIMIT_BYTES - body("x").num_bytes + 1
    assert body("x" * fill).num_bytes == names.INLINE_LIMIT_BYTES == 524_288
    assert not body("x" * fill).needs_upload
    assert body("x" * (fill + 1)).needs_upload


def test_a_stand_in_keeps_eight_values_and_what_is_no_number():
    long = sk.build_sample(
        range(100), [0] * 50 + [1] * 50, routed_experts_key="rk", advantages=0.1, logprobs=[-0.1] * 100
    )
    body = forward_backward_body([long], sk.GRPO(), forward_only=True)
    read = json.loads(b"".join(body.stand_in("pl")))
    (sample,) = read["samples"]
    assert sample["model_input"]["chunks"][0]["encoded_text"]["tokens"] == list(range(8))
    assert {len(item["data"]) for item in sample["loss_fn_inputs"].values()} == {8}
    assert sample["routed_experts_key"] == "rk"
    assert (read["payload_id"], read["forward_only"], read["loss"]) == ("pl", True, sk.GRPO().to_wire())


def test_a_payload_over_the_services_limit_is_refused(monkeypatch):
    monkeypatch.setattr("samplekit.wire.requests.PAYLOAD_LIMIT_BYTES", 100)
    with pytest.raises(sk.SampleError, match="at most 100"):
        forward_backward_body(some_samples(), sk.CrossEntropy()).payload()


def test_floats_print_shortest_and_read_back_bit_for_bit():
    values = np.array([0.1, -1e-8, 3.4e38, 1 / 3, 5e-324], dtype=np.float32)
    sample = sk.Sample(
        sk.ModelInput.from_tokens([1, 2, 3, 4, 5]),
        {"target_tokens": sk.TensorData([2, 3, 4, 5, 6], "int64"), "weights": sk.TensorData(values, "float32")},
    )
    text = b"".join(forward_backward_body([sample], sk.CrossEntropy()).inline())
    assert b"[0.1," in text
    read = json.loads(text)["samples"][0]["loss_fn_inputs"]["weights"]["data"]
    assert np.array_equal(np.array(read, dtype=np.float32), values)


def test_none_is_left_out_and_nan_is_refused():
    assert dumps({"a": None, "b": {"c": None, "d": 1}}) == b'{"b":{"d":1}}'
    for bad in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(sk.SampleError, match=r"body\.a\.b"):
            dumps({"a": {"b": bad}})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1.0, float("nan")], r"body\.a\[1\] is nan"),
        ([{"b": [float("inf")]}], r"body\.a\[0\]\.b\[0\] is inf"),
        ((1, float("nan")), r"body\.a\[1\]"),
        (np.array([0.0, np.nan]), r"body\.a\[1\]"),
        (np.float32("nan"), r"body\.a "),
        ([None], r"body\.a\[0\] is None"),
        (2**64, rf"body\.a is {2**64}"),
        (object(), r"body\.a is an object"),
        ({1: 2}, "a name in body.a is 1"),
        ("\ud800", r"body\.a holds half"),
    ],
)
def test_what_json_cannot_say_is_refused_by_its_place_and_never_becomes_null(value, words):
    with pytest.raises(sk.SampleError, match=words):
        dumps({"a": value})


def test_numbers_of_numpy_and_lists_are_sent():
    value = {"a": [np.int64(1), np.float32(0.5), np.True_], "b": (1, "x"), "c": np.array([1, 2])}
    assert dumps(value) == b'{"a":[1,0.5,true],"b":[1,"x"],"c":[1,2]}'


def test_small_bodies_and_prompts():
    assert small_body({}).inline() == (b"{", b"}")
    assert b"".join(small_body({}).stand_in("p")) == b'{"payload_id":"p"}'
    assert b"".join(small_body({"a": 1}).stand_in("p")) == b'{"a":1,"payload_id":"p"}'
    body = sample_body([sk.ModelInput.from_tokens([1, 2])], num_samples=2, sampling_params={"seed": None, "top_k": -1})
    expected = {
        "model_inputs": [{"chunks": [{"encoded_text": {"tokens": [1, 2]}}]}],
        "num_samples": 2,
        "sampling_params": {"top_k": -1},
    }
    assert json.loads(b"".join(body.inline())) == expected


# ---- answers ----

READERS = [
    answers.parse_operation, lifecycles.parse_lifecycle, offers.parse_supported_models, offers.parse_cost, answers.parse_object,
]  # fmt: skip


@given(JSON, st.sampled_from(READERS))
def test_no_answer_of_any_shape_crashes_a_reader(value, read):
    with contextlib.suppress(AnswerError):
        read(json.dumps(value).encode())


@given(st.binary(max_size=40), st.sampled_from(READERS))
def test_no_bytes_crash_a_reader(body, read):
    with contextlib.suppress(AnswerError):
        read(body)


@given(JSON)
def test_no_output_crashes_the_readers_of_outputs(value):
    output = {"metrics": value, "loss_fn_outputs": value}
    assert isinstance(answers.parse_metrics(output), dict)
    with contextlib.suppress(AnswerError):
        answers.parse_logprobs(output)


def test_recorded_answers_are_read():
    for item in EXCHANGES:
        body = json.dumps(item["response_body"]).encode()
        if "/operations/" in item["path"]:
            read = answers.parse_operation(body)
            assert read.finished == (read.status in names.TERMINAL_OPERATIONS)
            assert read.failed == (item["call"] == "operation FAILED" and item["method"] == "GET")
    session = lifecycles.parse_lifecycle(json.dumps(EXCHANGES[8]["response_body"]).encode())
    assert (session.status, session.step, session.lora_rank) == (names.SessionStatus.RUNNING, 0, 32)
    resources = lifecycles.parse_lifecycle(json.dumps(EXCHANGES[3]["response_body"]).encode())
    assert resources.queue_position == 2
    (model,) = offers.parse_supported_models(json.dumps(EXCHANGES[0]["response_body"]).encode())
    assert model.lora == offers.Limits(512, 32_768, 64)
    assert model.full is None


@given(st.integers(-(2**63), 2**63 - 1))
def test_int64_is_read_as_number_or_string(value):
    assert answers.as_int(value, "n") == answers.as_int(str(value), "n") == value


@pytest.mark.parametrize("bad", [None, "", "x", "1.5", 1.5, [], {}, float("inf"), float("nan")])
def test_what_is_no_whole_number_is_an_answer_error(bad):
    with pytest.raises(AnswerError, match="'n'"):
        answers.as_int(bad, "n")


def test_nan_in_an_answer_is_read():
    assert np.isnan(answers.parse_json(b'{"loss": NaN}')["loss"])


@pytest.mark.parametrize("bad", [[[1.0]], [1.0, None], [None, 1.0], [True], [{}], ["x"], [10**400], 3, None, "12"])
def test_what_is_no_list_of_numbers_is_an_answer_error(bad):
    with pytest.raises(AnswerError, match="'n"):
        answers.as_floats(bad, "n")


def test_numbers_of_answers_may_be_strings_and_beyond_float32():
    assert answers.as_floats([1, "-0.5", 1e300], "n").tolist() == [1, -0.5, float("inf")]
    assert answers.as_floats([], "n").shape == (0,)


def test_a_number_that_no_float_holds_is_no_metric_and_an_answer_error():
    assert answers.parse_metrics({"metrics": {"a": 10**400, "b": 1, "c": float("inf")}}) == {"b": 1, "c": float("inf")}
    with pytest.raises(AnswerError, match="'n'"):
        answers.as_float(10**400, "n")


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("inner", ["1", "NaN", '"[[[[{{{{"', r'"\"[[[["', r'"\\"'])
def test_answers_are_read_to_a_depth_of_64(opening, inner):
    closing = {"[": "]", '{"a":': "}"}[opening]
    answers.parse_json((opening * 64 + inner + closing * 64).encode())
    with pytest.raises(answers.DeepAnswerError, match="deeper than 64"):
        answers.parse_json((opening * 65 + inner + closing * 65).encode())


def test_many_brackets_side_by_side_or_in_text_are_not_deep():
    wide = [[index, {"a": ["[[[[" * 100]}] for index in range(1000)]
    assert answers.parse_json(json.dumps(wide).encode()) == wide
    assert answers.parse_json(json.dumps([float("inf"), *wide]).encode())[1:] == wide
