"""Every request that was recorded from the vendor's SDK, sent to the local service as it stands."""

import json
from pathlib import Path

import pytest

from samplekit.wire import names as wire

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "wire" / "exchanges.json").read_text())
# What cannot be carried out here, by a word of the call, and the name that its refusal must say.
REFUSED = {
    "muon": "muon_params",  # the session trains by Adam; test_muon.py sends the same to one that trains by Muon
    "no params": "learning_rate",
    "LARGE": "payload_id",  # nothing was uploaded here
}
SUBMITS = [
    exchange
    for exchange in RECORDED
    if exchange["method"] == "POST"
    and "/operations/" in exchange["path"]
    and exchange["request_body"] is not None
    # the same requests again, for the sake of answers that were invented
    and exchange["call"] not in {"result payload download", "operation FAILED"}
]


@pytest.mark.parametrize("exchange", SUBMITS, ids=lambda item: item["call"])
def test_a_recorded_operation_is_carried_out_or_refused_by_name(session, exchange):
    kind = exchange["path"].rpartition("/")[2]
    named = [name for word, name in REFUSED.items() if word in exchange["call"]]
    if named:
        answer = session.submit(kind, exchange["request_body"])
        assert answer.status_code == 400
        assert all(name in answer.json()["error"]["message"] for name in named)
        return
    if kind == "optim-step":
        session.accumulate()
    shown = session.run(kind, exchange["request_body"])
    assert shown["status"] == wire.OperationStatus.COMPLETED
    recorded = next(
        item["response_body"]["output"]
        for item in RECORDED[RECORDED.index(exchange) :]
        if item["method"] == "GET" and f"/{kind}/" in item["path"] and "output" in item["response_body"]
    )
    assert shape_of(recorded) <= shape_of(shown["output"])


def shape_of(value, path=""):
    """Every member path with its JSON type; items of a list share one."""
    if isinstance(value, dict):
        return {path} | {found for name, item in value.items() for found in shape_of(item, f"{path}.{name}")}
    if isinstance(value, list):
        return {path} | {found for item in value for found in shape_of(item, f"{path}[]")}
    kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    return {f"{path}:{kind}"} - {".metrics.loss/clip/high_fraction:number", ".metrics.loss/kl_ref/mean:number"}
