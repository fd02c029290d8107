"""Generation over HTTP: logprobs of which weights, at which temperature, under which version."""

import numpy as np
import pytest
import torch

import samplekit as sk
from samplekit.training import target_logprobs

PROMPTS = [[5, 6, 7], [900, 31, 44, 8, 12]]
LOSS = {"type": "LOSS_TYPE_IMPORTANCE_SAMPLING"}


def draw(session, **settings):
    body = {"model_inputs": [{"chunks": [{"encoded_text": {"tokens": tokens}}]} for tokens in PROMPTS]}
    params = {"max_tokens": 9, "seed": 3, **settings}
    return session.output("sample", {**body, "num_samples": 3, "sampling_params": params, "prompt_logprobs": True})


def sequences(output):
    """(prompt, tokens, logprobs) of every completion; ids may be text."""
    for prompt, result in zip(PROMPTS, output["results"], strict=True):
        for item in result["sequences"]:
            yield prompt, [int(token) for token in item["tokens"]], item["logprobs"]


def scored(model, prompt, tokens, temperature=1.0):
    sample = sk.build_sample([*prompt, *tokens], np.ones(len(prompt) + len(tokens)))
    with torch.no_grad():
        (found,) = target_logprobs(model, [sample], temperature=temperature)
    return found.numpy()


def versions(output):
    return {segment["version"] for result in output["results"] for segment in result["policy_segments"]}


def assert_drawn_by(model, output, temperature=1.0):
    for prompt, tokens, logprobs in sequences(output):
        expected = scored(model, prompt, tokens, temperature)[len(prompt) - 1 :]
        np.testing.assert_allclose(logprobs, expected, atol=1e-4)


def served(running, session):
    return running.service.sessions[session.session_id].policy.served


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_logprobs_are_of_the_distribution_that_was_drawn_from(running, session, temperature):
    found = draw(session, temperature=temperature)
    assert_drawn_by(served(running, session), found, temperature)


def test_greedy_tokens_carry_the_models_own_logprobs(running, session):
    assert_drawn_by(served(running, session), draw(session, temperature=0.0))


@pytest.mark.parametrize("cut", [{"top_k": 3}, {"top_p": 0.3}])
def test_a_cut_distribution_is_normalised_again(running, session, cut):
    for prompt, tokens, logprobs in sequences(draw(session, **cut)):
        whole = scored(served(running, session), prompt, tokens)[len(prompt) - 1 :]
        assert (np.array(logprobs) > whole + 0.1).all()  # what was cut off went to the tokens that stayed


def test_prompts_are_scored_at_temperature_1_whatever_is_drawn_at(running, session):
    for prompt, result in zip(PROMPTS, draw(session, temperature=0.6)["results"], strict=True):
        assert result["prompt_logprobs"][0] == 0.0
        expected = scored(served(running, session), prompt, [])
        np.testing.assert_allclose(result["prompt_logprobs"][1:], expected, atol=1e-4)


def rl_body(output):
    """Every completion as a sample; those of a group take turns in being good and bad."""
    samples = []
    for place, (prompt, tokens, logprobs) in enumerate(sequences(output)):
        mask = [0] * len(prompt) + [1] * len(tokens)
        full = [0.0] * len(prompt) + logprobs
        samples.append(
            sk.build_sample([*prompt, *tokens], mask, advantages=1.0 - 2 * (place % 2), logprobs=full).to_wire()
        )
    return {"loss": LOSS, "samples": samples}


def test_weights_generate_under_their_version_once_they_are_synced(running, open_session):
    session = open_session()
    before = draw(session)
    assert versions(before) == {0}
    assert session.output("forward-backward", rl_body(before))["metrics"]["loss/ratio/mean"] == pytest.approx(1)
    session.output("optim-step", {"adam_params": {"learning_rate": 1e-2}})
    assert draw(session) == before
    stale = session.output("forward-backward", {**rl_body(before), "forward_only": True})
    assert abs(stale["metrics"]["loss/ratio/mean"] - 1) > 1e-2
    assert session.output("weights-sync", {"weight_sync_type": "WEIGHT_SYNC_TYPE_SYNCHRONOUS"}) == {
        "weights_version": "1"
    }
    after = draw(session)
    assert versions(after) == {1}
    assert list(sequences(after)) != list(sequences(before))
    assert_drawn_by(running.service.sessions[session.session_id].policy.trained, after)
    fresh = session.output("forward-backward", {**rl_body(after), "forward_only": True})
    assert fresh["metrics"]["loss/ratio/mean"] == pytest.approx(1, abs=1e-4)


def test_lora_sessions_generate_from_their_adapters(running, open_session):
    session = open_session(lora={"rank": 4, "seed": 1})
    session.output("forward-backward", rl_body(draw(session)))
    session.output("optim-step", {"adam_params": {"learning_rate": 1e-1}})
    session.output("weights-sync", {"weight_sync_type": "WEIGHT_SYNC_TYPE_SYNCHRONOUS"})
    found = draw(session)
    assert_drawn_by(running.service.sessions[session.session_id].policy.trained, found)
    with pytest.raises(AssertionError):
        assert_drawn_by(running.service.model.module, found)
