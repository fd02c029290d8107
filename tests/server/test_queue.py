from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from plain_caller import opened_session

from samplekit.wire import names as wire

RATE = {"adam_params": {"learning_rate": 1e-3}}


def step_of(session):
    return int(session.http.get(wire.GET_SESSION.path(session_id=session.session_id)).json()["step"])


def test_a_retry_with_the_same_key_is_the_same_operation(open_session, running):
    session = open_session()
    session.accumulate()
    first = session.submit("optim-step", RATE, key="once").json()
    again = [session.submit("optim-step", RATE, key="once").json()["id"] for _ in range(3)]
    assert set(again) == {first["id"]}
    assert session.wait("optim-step", first["id"])["output"] == {"step": "1"}
    assert session.submit("optim-step", RATE, key="once").json()["output"] == {"step": "1"}  # its answer is kept
    assert step_of(session) == 1
    counted = running.service.sessions[session.session_id].operations
    assert [operation.key for operation in counted.values() if operation.kind == "optim-step"] == ["once"]


@pytest.mark.parametrize("other", [("optim-step", {"adam_params": {"learning_rate": 2e-3}}), ("sample", RATE)])
def test_the_same_key_for_something_else_is_a_conflict_that_says_not_to_retry(open_session, other):
    session = open_session()
    session.accumulate()
    session.run("optim-step", RATE, key="mine")
    answer = session.submit(*other, key="mine")
    assert answer.status_code == 409
    assert answer.headers[wire.SHOULD_RETRY] == "false"
    assert "mine" in answer.json()["error"]["message"]
    assert step_of(session) == 1


def test_keys_belong_to_their_session(open_session):
    first, second = open_session(), open_session()
    first.accumulate()
    second.accumulate()
    assert first.run("optim-step", RATE, key="k")["id"] != second.run("optim-step", RATE, key="k")["id"]
    assert step_of(first) == step_of(second) == 1


def test_an_operation_without_a_key_is_refused(open_session):
    session = open_session()
    path = wire.SUBMIT_OPERATION.path(session_id=session.session_id, kind="optim-step")
    answer = session.http.post(path, json=RATE)
    assert answer.status_code == 400
    assert "Idempotency-Key" in answer.json()["error"]["message"]


def test_operations_run_in_the_order_they_were_accepted(open_session, forward_body, make_samples, running):
    session = open_session()
    scored = forward_body(make_samples([30, 40, 50]), return_loss_fn_outputs=True)
    accepted = []
    for _ in range(4):  # nothing is waited for
        accepted.append(("forward-backward", session.submit("forward-backward", scored).json()["id"]))
        accepted.append(
            ("optim-step", session.submit("optim-step", {"adam_params": {"learning_rate": 3e-3}}).json()["id"])
        )
    ended = [session.wait(kind, identifier)["output"] for kind, identifier in accepted]
    losses = [output["loss"] for output in ended if "loss" in output]
    assert losses == sorted(losses, reverse=True)  # each step acts on the next pass
    assert len(set(losses)) == 4
    assert [output["step"] for output in ended if "step" in output] == ["1", "2", "3", "4"]
    kept = running.service.sessions[session.session_id].operations
    assert list(kept) == [identifier for _, identifier in accepted]


def test_gradients_add_up_over_requests_until_a_step(open_session, forward_body, make_samples):
    samples = make_samples([12, 30, 7])
    together, apart = open_session(), open_session()
    together.output("forward-backward", forward_body(samples))
    apart.output("forward-backward", forward_body(samples[:1]))
    apart.output("forward-backward", forward_body(samples[1:]))
    scores = []
    for session in (together, apart):
        session.output("optim-step", {"adam_params": {"learning_rate": 1e-3}})
        scores.append(session.output("forward-backward", forward_body(samples, forward_only=True))["loss"])
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)


def test_logprobs_outside_the_mask_read_zero_and_the_others_give_the_loss(open_session, forward_body, make_samples):
    session = open_session()
    (whole,) = make_samples([6])
    body = forward_body([whole], forward_only=True, return_loss_fn_outputs=True)
    full = session.output("forward-backward", body)["loss_fn_outputs"][0]["tensors"]["logprobs"]
    assert full["dtype"] == "float32"
    body["samples"][0]["loss_fn_inputs"]["weights"]["data"] = [0, 1, 0, 0.5, 2, 0]
    masked = session.output("forward-backward", body)
    values = masked["loss_fn_outputs"][0]["tensors"]["logprobs"]["data"]
    assert values == [0, full["data"][1], 0, full["data"][3], full["data"][4], 0]
    assert masked["loss"] == pytest.approx(-values[1] - 0.5 * values[3] - 2 * values[4], rel=1e-5)


def test_a_loss_that_is_not_finite_fails_and_the_session_goes_on(open_session, forward_body, make_samples):
    session = open_session()
    body = forward_body(make_samples([5]))
    body["samples"][0]["loss_fn_inputs"]["weights"]["data"] = [3e38] * 5
    shown = session.run("forward-backward", body)
    assert shown["status"] == wire.OperationStatus.FAILED
    assert shown["error"]["code"] == wire.OperationErrorCode.NON_FINITE_LOSS
    step = session.run("optim-step", RATE)
    assert step["status"] == wire.OperationStatus.FAILED
    assert step["error"]["code"] == wire.OperationErrorCode.INVALID_INPUT
    assert "no gradient was accumulated since the last step" in step["error"]["message"]
    assert step_of(session) == 0
    assert session.output("forward-backward", forward_body(make_samples([5])))["loss"] > 0
    assert session.output("optim-step", RATE) == {"step": "1"}
    assert session.run("optim-step", RATE)["error"]["code"] == wire.OperationErrorCode.INVALID_INPUT


def test_stopping_a_session_fails_what_waits_and_refuses_what_comes(open_session, forward_body, make_samples):
    session = open_session()
    body = forward_body(make_samples([2000] * 3))
    waiting = [session.submit("forward-backward", body).json()["id"] for _ in range(3)]
    shown = session.http.post(wire.STOP_SESSION.path(session_id=session.session_id)).json()
    assert shown["status"] in {wire.SessionStatus.STOPPING, wire.SessionStatus.STOPPED}
    last = session.wait("forward-backward", waiting[-1])
    assert last["status"] == wire.OperationStatus.FAILED
    assert last["error"]["code"] == wire.OperationErrorCode.SESSION_NOT_ACTIVE
    session.wait("forward-backward", waiting[0])
    refused = session.submit("optim-step", RATE)
    assert refused.status_code == 400
    assert "STOP" in refused.json()["error"]["message"]
    path = wire.GET_SESSION.path(session_id=session.session_id)
    assert session.http.get(path).json()["status"] == wire.SessionStatus.STOPPED
    again = session.http.post(wire.STOP_SESSION.path(session_id=session.session_id))
    assert again.json()["status"] == wire.SessionStatus.STOPPED


def test_generation_uses_the_weights_of_the_last_sync(open_session, forward_body, make_samples):
    session = open_session()
    body = {"model_inputs": [{"chunks": [{"encoded_text": {"tokens": [5, 6, 7]}}]}], "num_samples": 1,
            "sampling_params": {"max_tokens": 8, "temperature": 0}}  # fmt: skip

    def drawn():
        (result,) = session.output("sample", body)["results"]
        return result["policy_segments"][0]["version"], result["sequences"][0]["tokens"]

    first = drawn()
    for _ in range(3):
        session.output("forward-backward", forward_body(make_samples([30])))
        session.output("optim-step", {"adam_params": {"learning_rate": 3e-2}})
    assert drawn() == first
    synced = session.output("weights-sync", {"weight_sync_type": "WEIGHT_SYNC_TYPE_SYNCHRONOUS"})
    assert synced == {"weights_version": "3"}
    version, tokens = drawn()
    assert version == 3
    assert tokens != first[1]
    state = session.http.get(wire.GET_SESSION.path(session_id=session.session_id)).json()["policy_state"]
    assert state["applied_weights_version"] == state["trainer_step"] == "3"


def test_completions_have_the_protocols_shape(open_session):
    session = open_session()
    inputs = [{"chunks": [{"encoded_text": {"tokens": tokens}}]} for tokens in ([5, 6, 7], [9])]
    body = {"model_inputs": inputs, "num_samples": 2, "prompt_logprobs": True, "topk_prompt_logprobs": 2,
            "sampling_params": {"max_tokens": 4, "seed": "7", "stop": ["<|im_end|>"]}}  # fmt: skip
    results = session.output("sample", body)["results"]
    assert [len(result["sequences"]) for result in results] == [2, 2]
    for result, length in zip(results, (3, 1), strict=True):
        assert len(result["prompt_logprobs"]) == len(result["topk_prompt_logprobs"]) == length
        assert result["prompt_logprobs"][0] == 0
        assert result["topk_prompt_logprobs"][0] == {}
        for sequence in result["sequences"]:
            assert all(isinstance(token, str) for token in sequence["tokens"])  # int64 in JSON
            assert len(sequence["tokens"]) == len(sequence["logprobs"])
            assert sequence["stop_reason"] in set(wire.StopReason)
    assert session.output("sample", body)["results"] == results  # the seed repeats


def test_sessions_without_a_generator_do_not_generate(open_session):
    session = open_session(compute_config={"num_generator_replicas": 0})
    answer = session.submit("sample", {"model_inputs": [{"chunks": [{"encoded_text": {"tokens": [5]}}]}]})
    assert answer.status_code == 400
    assert "generator" in answer.json()["error"]["message"]


def test_an_unknown_operation_or_kind_is_not_found(open_session):
    session = open_session()
    done = session.run("optim-step", RATE)
    for kind, identifier in (("optim-step", "op-none"), ("sample", done["id"])):
        path = wire.GET_OPERATION.path(session_id=session.session_id, kind=kind, operation_id=identifier)
        assert session.http.get(path).status_code == 404
    assert session.submit("backward", {}).status_code == 404


def test_two_sessions_of_one_base_train_apart(open_session, forward_body, make_samples):
    first, second = open_session(lora={"rank": 2}), open_session(lora={"rank": 2})
    body = forward_body(make_samples([20]))
    before = second.output("forward-backward", {**body, "forward_only": True})["loss"]
    for _ in range(2):
        first.output("forward-backward", body)
        first.output("optim-step", {"adam_params": {"learning_rate": 3e-3}})
    assert first.output("forward-backward", {**body, "forward_only": True})["loss"] < before
    assert second.output("forward-backward", {**body, "forward_only": True})["loss"] == before


def test_many_clients_at_once_lose_nothing(running, forward_body, make_samples):
    body = forward_body(make_samples([8]))

    def one_client(number):
        lora = {"rank": 2, "seed": number}
        with httpx.Client(base_url=running.url, timeout=60) as http, opened_session(http, lora=lora) as session:
            kinds = []
            for _ in range(3):
                kinds.append(("forward-backward", session.submit("forward-backward", body)))
                kinds.append(("optim-step", session.submit("optim-step", RATE)))
            ended = [session.wait(kind, answer.json()["id"]) for kind, answer in kinds]
            steps = [shown["output"]["step"] for shown in ended if "step" in shown["output"]]
            return steps, len(running.service.sessions[session.session_id].operations)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one_client, range(8))) == [(["1", "2", "3"], 6)] * 8
