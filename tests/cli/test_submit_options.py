"""Options of submit that cannot be: refused by their names, before anything is created."""

import os

import pytest
from training_double import SAMPLES

import samplekit as sk

NUMBERS = ["--learning-rate", "--warmup", "--weight-decay", "--grad-clip"]


@pytest.mark.parametrize("option", NUMBERS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e16", "many"])
def test_a_number_that_the_service_does_not_take_is_a_wrong_call(submit, service, option, value):
    code, _, said = submit(option, value)
    assert (code, option in said) == (2, True), said
    assert service.seen == []


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_a_beta_that_is_no_number_is_a_wrong_call(submit, service, value):
    code, _, said = submit("--loss", "grpo", "--beta", value)
    assert (code, "--beta" in said, service.seen) == (2, True, [])


def test_the_largest_norm_is_clipped_at_and_clips_nothing(submit, service):
    assert submit("--grad-clip", "1e15")[0] == 0
    assert {step["grad_clip_norm"] for step in service.sessions["ts-0"].steps} == {1e15}


@pytest.mark.parametrize(("epochs", "code"), [(10**12, 2), (2_500_001, 2)])
def test_more_samples_than_a_plan_holds_are_refused_at_once(submit, service, epochs, code):
    found, _, said = submit("--epochs", epochs)
    assert (found, f"--epochs {epochs}" in said, service.sessions) == (code, True, {})


def test_a_sample_that_fits_in_no_batch_is_named_by_its_line(submit, service, tmp_path):
    long = sk.build_sample(range(5_000), [0] + [1] * 4_999)
    path, held_out = tmp_path / "long.jsonl", tmp_path / "held_out.jsonl"
    sk.write_samples(path, [*SAMPLES[:3], long, long])
    code, _, said = submit("--template", "none", path=path)
    assert (code, f"{path}:4 has 4999 positions, expected at most 4096 (the model's max_seq_length)" in said) == (
        1,
        True,
    )
    assert "as have 1 other:" in said
    code, _, said = submit("--max-tokens", 11, path=(sk.write_samples(path, SAMPLES[:4]), path)[1])
    assert (code, f"{path}:4 has 12 positions, expected at most 11 (--max-tokens)" in said) == (1, True)
    sk.write_samples(held_out, [long])
    code, _, said = submit("--held-out", held_out, "--template", "none", path=path)
    assert (code, f"{held_out}:1 has 4999 positions" in said, service.sessions) == (1, True, {})


def test_a_pipe_or_a_device_is_refused_before_it_is_read(submit, service, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        code, _, said = submit(path=path)
        assert (code, "is a pipe or a device" in said, service.seen) == (2, True, [])


@pytest.mark.parametrize(
    ("warmup", "warned"), [("1e9", True), ("10", True), ("9", False), ("0.9", False), ("0", False)]
)
def test_a_warm_up_that_lasts_the_whole_run_is_warned_of(submit, warmup, warned):
    code, _, said = submit("--warmup", warmup)
    assert (code, "the whole run" in said) == (0, warned)
