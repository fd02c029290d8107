import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samplekit import build_sample
from samplekit.server.drawing import draw, drawing_logprobs, uniform_draws
from samplekit.server.generation import generate, score_prompts
from samplekit.server.policy import NonFiniteError, Policy
from samplekit.server.settings import DrawingSettings
from samplekit.server.stop_strings import StopWatch
from samplekit.training import target_logprobs

NEVER = frozenset()


@pytest.fixture(scope="module")
def model(loaded):
    return Policy(loaded).served


@pytest.fixture(scope="module")
def prompts():
    rng = np.random.default_rng(5)
    return [rng.integers(3, 2560, length) for length in (3, 17, 1, 9)]


def drawn(model, loaded, prompts, num_completions=1, stop_ids=NEVER, **options):
    options = {"seed": 1, "max_tokens": 12, **options}
    watch = StopWatch(loaded.tokenizer, options.get("stop", ()), stop_ids)
    return generate(model, prompts, num_completions, DrawingSettings(**options), watch)


def rescored(model, prompt, completion, temperature=1.0):
    tokens = [*prompt.tolist(), *completion.tokens]
    with torch.no_grad():
        (found,) = target_logprobs(model, [build_sample(tokens, [1] * len(tokens))], temperature=temperature)
    return found[len(prompt) - 1 :].numpy()


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.5])
def test_logprobs_are_those_of_a_forward_pass_at_the_same_temperature(model, loaded, prompts, temperature):
    found = drawn(model, loaded, prompts, num_completions=3, temperature=temperature)
    for prompt, completions in zip(prompts, found, strict=True):
        assert len(completions) == 3
        for completion in completions:
            assert len(completion.tokens) == 12
            expected = rescored(model, prompt, completion, temperature)
            np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)


def test_temperature_zero_takes_the_likeliest_token_and_reports_the_models_logprob(model, loaded, prompts):
    for prompt, (completion,) in zip(prompts, drawn(model, loaded, prompts, temperature=0.0), strict=True):
        tokens = prompt.tolist()
        for token in completion.tokens:  # without cache, batch or padding
            with torch.no_grad():
                assert int(model(torch.tensor([tokens])).logits[0, len(tokens) - 1].argmax()) == token
            tokens.append(token)
        np.testing.assert_allclose(completion.logprobs, rescored(model, prompt, completion), atol=1e-4)


def test_a_seed_repeats_whatever_else_is_in_the_batch(model, loaded, prompts):
    together = drawn(model, loaded, prompts, num_completions=4, seed=9)
    for prompt, expected in zip(prompts, together, strict=True):
        (alone,) = drawn(model, loaded, [prompt], num_completions=4, seed=9)
        assert [item.tokens for item in alone] == [item.tokens for item in expected]
        (fewer,) = drawn(model, loaded, [prompt], num_completions=1, seed=9)
        assert fewer[0].tokens == expected[0].tokens
    assert drawn(model, loaded, prompts, seed=10)[0][0].tokens != together[0][0].tokens


def test_many_rows_take_several_batches_in_order(model, loaded, prompts, monkeypatch):
    expected = drawn(model, loaded, prompts, num_completions=5)
    monkeypatch.setattr("samplekit.server.generation.BATCH_ROWS", 3)
    found = drawn(model, loaded, prompts, num_completions=5)
    assert [[item.tokens for item in row] for row in found] == [[item.tokens for item in row] for row in expected]


def test_rows_that_end_leave_the_others_unchanged(model, loaded, prompts):
    free = drawn(model, loaded, prompts, num_completions=4)
    ends = frozenset({free[0][0].tokens[2], free[1][2].tokens[0], free[3][1].tokens[5]})
    found = drawn(model, loaded, prompts, num_completions=4, stop_ids=ends)
    for row, expected_row in zip(found, free, strict=True):
        for completion, expected in zip(row, expected_row, strict=True):
            first = next((place for place, token in enumerate(expected.tokens) if token in ends), None)
            length = 12 if first is None else first + 1  # the token that ends a completion stays in it
            assert completion.tokens == expected.tokens[:length]
            assert completion.stopped == (first is not None)
            np.testing.assert_allclose(completion.logprobs, expected.logprobs[:length], atol=1e-5)


def test_a_stop_string_ends_a_completion_where_its_text_first_holds_it(model, loaded, prompts):
    (free,) = drawn(model, loaded, prompts[:1], max_tokens=30)
    text = loaded.tokenizer.decode(free[0].tokens)
    stop = text[len(text) // 2 :][:3]
    (found,) = drawn(model, loaded, prompts[:1], max_tokens=30, stop=[stop])
    count = next(n for n in range(31) if stop in loaded.tokenizer.decode(free[0].tokens[:n]))
    assert found[0].tokens == free[0].tokens[:count]
    assert found[0].stopped


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 2559), min_size=1, max_size=40), st.integers(0, 60), st.integers(1, 8))
def test_the_stop_watch_agrees_with_decoding_everything(loaded, tokens, start, length):
    text = loaded.tokenizer.decode(tokens)
    stop = text[start : start + length] or "<|im_end|>"
    watch = StopWatch(loaded.tokenizer, (stop,), NEVER)
    for count in range(1, len(tokens) + 1):
        held = stop in loaded.tokenizer.decode(tokens[:count])
        if "\ufffd" in stop:  # half a letter is no text that anyone can ask for
            return
        assert watch.ended(tokens[:count]) == held
        if held:
            return


def test_a_stop_string_needs_a_tokenizer():
    with pytest.raises(ValueError, match="tokenizer"):
        StopWatch(None, ("x",), NEVER).ended([1])


def test_prompt_scores_equal_the_forward_pass_and_start_with_a_placeholder(model, prompts):
    for prompt, scores in zip(prompts, score_prompts(model, prompts, top=3), strict=True):
        assert scores.logprobs.shape == (len(prompt),)
        assert scores.logprobs[0] == 0.0
        assert scores.top_ids.shape == scores.top_logprobs.shape == (len(prompt), 3)
        if len(prompt) == 1:
            continue
        with torch.no_grad():
            (expected,) = target_logprobs(model, [build_sample(prompt, [1] * len(prompt))])
            logits = model(torch.tensor(prompt)[None]).logits[0]
        np.testing.assert_allclose(scores.logprobs[1:], expected.numpy(), atol=1e-5)
        best = torch.log_softmax(logits, -1).topk(3, -1)
        np.testing.assert_allclose(scores.top_logprobs[1:], best.values[: len(prompt) - 1].numpy(), atol=1e-5)
        assert (np.diff(scores.top_logprobs[1:], axis=-1) <= 0).all()


# The policy that draws: probabilities 0.5, 0.3, 0.15, 0.05

LOGITS = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.5, 0.3, 0.15, 0.05]),
        ({"top_k": 2}, [0.625, 0.375, 0, 0]),  # 0.5 / 0.8, 0.3 / 0.8
        ({"top_k": 0}, [0.5, 0.3, 0.15, 0.05]),
        ({"top_k": 99}, [0.5, 0.3, 0.15, 0.05]),
        ({"top_p": 0.49}, [1, 0, 0, 0]),  # the first alone reaches 0.49
        ({"top_p": 0.51}, [0.625, 0.375, 0, 0]),
        ({"top_p": 0.9}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ({"top_k": 2, "top_p": 0.6}, [1, 0, 0, 0]),  # top_k first: 0.625 reaches 0.6 alone
        ({"temperature": 0.5}, [0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365]),  # squares
        ({"temperature": 0.0}, [0.5, 0.3, 0.15, 0.05]),
    ],
)
def test_the_policy_is_what_its_settings_say(options, expected):
    found = drawing_logprobs(LOGITS, DrawingSettings(seed=0, **options)).exp()
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float32), atol=1e-6, rtol=1e-5)


def test_draws_follow_the_policy_and_never_leave_it():
    options = DrawingSettings(seed=0, max_tokens=20_000, top_k=3)
    logprobs = drawing_logprobs(LOGITS, options).expand(20_000, -1)
    found = draw(logprobs, torch.from_numpy(uniform_draws(options, PROMPT, 0)), options)
    shares = np.bincount(found.numpy(), minlength=4) / 20_000
    np.testing.assert_allclose(shares, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0], atol=0.012)  # three standard errors
    assert shares[3] == 0


@pytest.mark.parametrize("uniform", [0.0, 0.999999999999, float(np.nextafter(1.0, 0.0))])
def test_the_ends_of_the_unit_interval_draw_a_possible_token(uniform):
    options = DrawingSettings(seed=0, top_k=2)
    logprobs = drawing_logprobs(LOGITS.flip(-1), options)  # the impossible tokens stand first
    token = int(draw(logprobs, torch.tensor([uniform], dtype=torch.float64), options))
    assert torch.isfinite(logprobs[0, token])


PROMPT = np.array([5, 6, 7])


def test_a_prompt_given_twice_draws_two_sets_of_completions(model, loaded):
    prompt = np.array([40, 41, 42])
    (alone,) = drawn(model, loaded, [prompt], num_completions=4, seed=9)
    first, second = drawn(model, loaded, [prompt, prompt], num_completions=2, seed=9)
    assert [item.tokens for item in (*first, *second)] == [item.tokens for item in alone]


def test_random_numbers_depend_on_seed_prompt_and_place_alone():
    short, long = (uniform_draws(DrawingSettings(seed=4, max_tokens=n), PROMPT, 2) for n in (5, 9))
    assert np.array_equal(short, long[:5])
    five = DrawingSettings(seed=4, max_tokens=5)
    others = [
        uniform_draws(five, PROMPT, 3),
        uniform_draws(DrawingSettings(seed=5, max_tokens=5), PROMPT, 2),
        uniform_draws(five, np.array([5, 6, 8]), 2),
        uniform_draws(five, np.array([5, 6]), 2),
    ]
    assert len({tuple(draws) for draws in (short, *others)}) == 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_weights_are_an_error_and_no_nan_is_given_out(loaded, temperature):
    broken = Policy(loaded).served
    broken.get_input_embeddings().weight.data[5] = float("nan")
    prompt = np.array([5, 6, 7])
    with pytest.raises(NonFiniteError, match="broken"):
        drawn(broken, loaded, [prompt], temperature=temperature)
    with pytest.raises(NonFiniteError, match="broken"):
        score_prompts(broken, [prompt])
