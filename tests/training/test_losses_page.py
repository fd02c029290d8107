"""docs/losses.md: its code runs as printed, against the tiny model and the local service."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import samplekit as sk
from samplekit.client import Client
from samplekit.server import LocalService, load_model
from samplekit.training import dpo_loss, loss_gradients, target_logprobs

PAGE = (Path(__file__).parents[2] / "docs/losses.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def sampled(model, length):
    tokens = list(range(10, 10 + length))
    mask = [0, 0] + [1] * (length - 2)
    with torch.no_grad():
        (found,) = target_logprobs(model, [sk.build_sample(tokens, mask)])
    logprobs = [0.0, *found.tolist()]
    return sk.build_sample(tokens, mask, logprobs=logprobs, advantages=1.0)


def test_every_block_runs_and_dpo_raises_the_margin_through_the_service():
    model = load_model().module.requires_grad_(True)
    samples = [sampled(model, length) for length in (6, 9, 7, 12)]
    logged = []
    with LocalService() as service, Client(base_url=service.url) as client, client.session() as session:
        names = {
            "model": model, "samples": samples, "parts": [samples[:1], samples[1:]], "session": session,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.0), "logger": SimpleNamespace(log=logged.append),
        }  # fmt: skip
        for block in BLOCKS:
            exec(block, names)
        assert names["found"].ok
        samples = names["samples"]  # with a reference by now
        assert samples[0].loss_fn_inputs["reference_logprobs"].data.tolist()[1:] == pytest.approx(
            samples[0].loss_fn_inputs["logprobs"].data.tolist()[1:], abs=1e-5
        )
        assert logged[0]["loss/ratio/mean"] == pytest.approx(1, abs=1e-4)
        assert [len(item) for item in names["gradients"]] == [item.length for item in samples]
        before = dpo_loss([torch.tensor(row) for row in names["rows"]], samples).metrics["dpo/margin/mean"]
        served = session.forward(samples, sk.CrossEntropy()).result().logprobs
        again = sk.SampleList(samples).map(sk.Sample.with_reference_logprobs, served)
        for sample, row in zip(again, served, strict=True):
            assert sample.loss_fn_inputs["reference_logprobs"].data.tolist() == row.tolist()
        for _ in range(3):
            session.optim_step(learning_rate=1e-3)
            rows = session.forward(samples, sk.CrossEntropy()).result().logprobs
            session.custom_forward_backward(samples, loss_gradients(dpo_loss, rows, samples))
        rows = session.forward(samples, sk.CrossEntropy()).result().logprobs
        after = dpo_loss([torch.tensor(row) for row in rows], samples).metrics["dpo/margin/mean"]
    assert before == pytest.approx(0, abs=1e-4)
    assert after > before + 0.01


@pytest.mark.parametrize("loss", [sk.PPO(), sk.GRPO(), sk.CISPO(), sk.DPPO()])
def test_the_page_prints_the_defaults_that_the_losses_have(loss):
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{type(loss).__name__}()`"))
    for name, value in vars(loss).items():
        if type(loss) is not sk.GRPO or name not in ("clip_low", "clip_high"):  # GRPO's bounds are "PPO's"
            assert f"{name}={value!r}".replace("'", '"') in row
