"""All 77 exchanges recorded from the vendor's SDK, sent to the local service: its answers have the recorded shapes."""

import json
import re
from pathlib import Path

import httpx
import pytest
from plain_caller import opened_session

from samplekit.server import LocalService
from samplekit.server.optimizers import HAS_MUON
from samplekit.wire import names as wire

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "wire" / "exchanges.json").read_text())
# Refused here, by the index of the request: the name that the refusal must say. Its operation is not asked for.
REFUSED = {35: "learning_rate"}
# What no request of the SDK brings about in a small model is asked for by another: a result that is large, a failure.
LARGE_RESULT, FAILURE = 69, 72
MUON = {"optimizer_config": {"muon": {"scaling_strategy": "MUON_SCALING_STRATEGY_MATCH_ADAM"}}}
LEFT_OUT = set() if HAS_MUON else {37, 38}  # torch before 2.9 has no Muon
# What a recorded answer holds and the service's does not: the call, the member, and why. Nothing else may be missing.
MISSING = [
    (r".*", r"\.output\.metrics\.loss/.*:number", "the recording gives every loss the same metrics; each has its own"),
    (
        r"ModelResourcesClient",
        r"\.status_details\.queue_position:number",
        "nothing queues: resources are ready at once",
    ),
    (r"session.create_inf", r"\.output\.checkpoint\.registration.*", "there is no registry of models"),
]
if HAS_MUON:
    MISSING.append((r"model_resources.list", r".*\.adam:object", "the first resources here train by Muon"))
# What the service's answer holds besides: all are members of the SDK's response models.
_ASKED = r"(\.data\[\])?\.(display_name|lora_config\.seed|metadata\.wandb.*):(str|object)"
_CHECKPOINTS = r"(\.data\[\])?\.(inference|training)_checkpoints\[\].*"
MORE = [
    (r"supported_models", r".*\.trainer_config\.full.*", "the service trains full weights too"),
    (r"trainer.forward", r"\.output\.metrics\.loss/.*:number", "the recording gives every loss the same metrics"),
    (r"ModelResourcesClient", r"\.expires_at:str", "resources that are ready at once expire"),
    (r"session|create_session", _ASKED, "what was asked for is shown; the recording invented a session without"),
    (r"session", _CHECKPOINTS, "checkpoints that were saved are shown"),
]
if HAS_MUON:
    MORE.append((r"model_resources.list", r".*\.muon.*", "the first resources here train by Muon"))
COMPARED = [index for index in range(len(RECORDED)) if index not in LEFT_OUT and index - 1 not in REFUSED]


def shape_of(value, path=""):
    """Every member path with its JSON type; items of a list share one."""
    if isinstance(value, dict):
        return {f"{path}:object"} | {
            found for name, item in value.items() for found in shape_of(item, f"{path}.{name}")
        }
    if isinstance(value, list):
        return {f"{path}:list"} | {found for item in value for found in shape_of(item, f"{path}[]")}
    kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    return {f"{path}:{kind}"}


class Replay:
    """Sends recorded requests in their order, with the ids that the service gave in place of those recorded.

    Attributes:
        answers: of the service, by index.
    """

    def __init__(self, http, large, muon_session_id):
        self.http, self.large, self.muon_session_id = http, large, muon_session_id
        self.ids = {"Qwen/Qwen3.8-27B": "samplekit/tiny"}
        self.answers = {}

    def run(self):
        for index, exchange in enumerate(RECORDED):
            if index in COMPARED:
                self.answers[index] = self.send(index, exchange)
        return self

    def filled(self, value):
        text = json.dumps(value)
        for name, found in self.ids.items():
            text = text.replace(name, found)
        return json.loads(text)

    def send(self, index, exchange):
        method, path, body = exchange["method"], exchange["path"], exchange["request_body"]
        if "muon" in exchange["call"]:  # what trains by Adam refuses it
            path = path.replace("{session_id}", self.muon_session_id)
        path, body = self.filled(path), self.filled(self.body_of(index, body))
        if method == "GET" and "/operations/" in path:
            return self.wait(path)
        is_submitted = "/operations/" in path
        headers = {"Idempotency-Key": f"key-{index}"} if is_submitted else {}
        content = None if body is None else json.dumps(body).encode()
        response = self.http.request(method, path, content=content, headers=headers)
        assert response.status_code == (400 if index in REFUSED else 200), (index, response.text)
        shown = response.json()
        if index not in REFUSED:
            self.learn(index, path, shown)
        return shown

    def body_of(self, index, body):
        if index == LARGE_RESULT:
            return self.large
        if index == FAILURE:  # a ratio that is not finite
            body = json.loads(json.dumps(RECORDED[19]["request_body"]))
            inputs = body["samples"][0]["loss_fn_inputs"]
            inputs["logprobs"]["data"] = [-1000.0 for _ in inputs["logprobs"]["data"]]
            inputs["advantages"]["data"] = [-1.0 for _ in inputs["advantages"]["data"]]
        return body

    def learn(self, index, path, shown):
        """Take over the ids of an answer, and upload what a later request names."""
        if "/operations/" in path:
            self.ids["{operation_id}"] = shown["id"]
        elif path == wire.CREATE_RESOURCES.path():
            self.ids["{resources_id}"] = shown["id"]
        elif path == wire.CREATE_SESSION.path():
            self.ids["{session_id}"] = shown["id"]
        elif path.endswith("/upload-url"):
            self.ids["pl-in-1"] = shown["payload_id"]
            body = {key: item for key, item in RECORDED[index + 1]["request_body"].items() if key != "payload_id"}
            assert httpx.put(shown["upload_url"], content=json.dumps(body).encode()).status_code == 200

    def wait(self, path):
        for _ in range(600):
            shown = self.http.get(path).json()
            if shown["status"] in wire.TERMINAL_OPERATIONS:
                output = shown.get("output", {})
                if "inference-checkpoint" in path:
                    self.ids["ckpt-inf-1"] = output["checkpoint"]["id"]
                if "payload_id" in output:
                    self.ids["{payload_id}"] = output["payload_id"]
                return shown
        raise AssertionError(f"{path} does not end")


@pytest.fixture(scope="module")
def replayed(loaded):
    tokens = [3 + at % 2500 for at in range(201)]
    inputs = {
        "target_tokens": {"data": tokens[1:], "dtype": "int64"},
        "weights": {"data": [1.0] * 200, "dtype": "float32"},
    }
    sample = {"model_input": {"chunks": [{"encoded_text": {"tokens": tokens[:200]}}]}, "loss_fn_inputs": inputs}
    large = {
        "loss": {"type": "LOSS_TYPE_CROSS_ENTROPY"},
        "samples": [sample] * 300,
        "forward_only": True,
        "return_loss_fn_outputs": True,
    }
    with (
        LocalService(model=loaded) as service,  # of its own: lists begin with the oldest
        httpx.Client(base_url=service.url, timeout=60) as http,
        opened_session(http, **(MUON if HAS_MUON else {})) as session,
    ):
        session.accumulate()
        yield Replay(http, large, session.session_id).run()


def explained(table, call, members, met):
    """What no row of a table explains; rows that explain something are added to ``met``."""
    left = []
    for member in sorted(members):
        rows = [row for row in table if re.match(row[0], call) and re.fullmatch(row[1], member)]
        met.update(rows)
        left += [] if rows else [member]
    return left


@pytest.mark.parametrize("index", COMPARED, ids=lambda index: f"{index} {RECORDED[index]['call']}")
def test_an_answer_has_the_recorded_shape(replayed, index):
    call, found = RECORDED[index]["call"], shape_of(replayed.answers[index])
    if index in REFUSED:
        assert found == {":object", ".error:object", ".error.message:str", ".error.type:str", ".error.code:number"}
        assert REFUSED[index] in replayed.answers[index]["error"]["message"]
        return
    recorded = shape_of(RECORDED[index]["response_body"])
    assert explained(MISSING, call, recorded - found, set()) == []
    assert explained(MORE, call, found - recorded, set()) == []


def test_77_exchanges_are_compared_but_for_those_left_out_by_name(replayed):
    assert len(RECORDED) == 77
    after_refusals = {index + 1 for index in REFUSED}
    assert sorted({*COMPARED, *after_refusals, *LEFT_OUT}) == list(range(77))
    assert len(COMPARED) == 77 - len(after_refusals) - len(LEFT_OUT)
    assert set(replayed.answers) == set(COMPARED)


def test_every_explanation_is_needed(replayed):
    met = set()
    for index in set(COMPARED) - set(REFUSED):
        call, recorded = RECORDED[index]["call"], shape_of(RECORDED[index]["response_body"])
        found = shape_of(replayed.answers[index])
        explained(MISSING, call, recorded - found, met)
        explained(MORE, call, found - recorded, met)
    assert {*MISSING, *MORE} - met == set()


def test_the_states_of_operations_are_those_recorded(replayed):
    polls = [index for index in COMPARED if "{operation_id}" in RECORDED[index]["path"]]
    assert len(polls) >= 26
    for index in polls:
        assert replayed.answers[index]["status"] == RECORDED[index]["response_body"]["status"]


@pytest.mark.parametrize(
    ("found", "recorded"),
    [({"a": 1}, {"a": "1"}), ({"a": []}, {"a": {}}), ({"a": None}, {"a": 1}), ({}, {"a": []}), ({"a": True}, {"a": 1})],
)
def test_the_comparison_of_shapes_can_fail(found, recorded):
    assert explained(MISSING, "session.retrieve", shape_of(recorded) - shape_of(found), set())
