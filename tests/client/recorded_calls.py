"""The exchanges recorded from the vendor's SDK, in the groups that one call of it made, and our calls for each."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import samplekit as sk

_TEXT = (Path(__file__).parents[1] / "data" / "wire" / "exchanges.json").read_text()
_IDS = {
    "{session_id}": "sess-1",
    "{resources_id}": "res-1",
    "{operation_id}": "op-1",
    "{payload_id}": "pl-out-1",
}
for _name, _id in _IDS.items():
    _TEXT = _TEXT.replace(_name, _id)
EXCHANGES = json.loads(_TEXT)
# The recorded calls by the index of their first exchange; what one call of the SDK sent stands together.
GROUPS = {
    found[0][0]: [index for index, _ in found]
    for found in (list(items) for _, items in itertools.groupby(enumerate(EXCHANGES), lambda pair: pair[1]["call"]))
}
MODEL = "Qwen/Qwen3.8-27B"
LONG = 60_000  # positions of a sample whose body is uploaded
ADAM = {
    "learning_rate": 0.0001, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "grad_clip_norm": 1.0,
}  # fmt: skip
METADATA = {"wandb": {"entity": "me", "project": "p"}}
MUON = {"learning_rate": 0.001, "momentum": 0.95, "newton_schulz_steps": 5, "adam": {"learning_rate": 0.0001}}


def samples_of(index):
    return [sk.Sample.from_wire(item) for item in EXCHANGES[index]["request_body"]["samples"]]


def long_sample():
    return sk.build_sample(range(LONG + 1), [1] * (LONG + 1))


def train(index, loss):
    body = EXCHANGES[index]["request_body"]

    def call(session):
        if body.get("forward_only"):
            return session.forward(samples_of(index), loss)
        outputs = body.get("return_loss_fn_outputs", False)
        return session.forward_backward(samples_of(index), loss, return_logprobs=outputs)

    return call


def custom(index):
    gradients = [item["data"] for item in EXCHANGES[index]["request_body"]["gradients"]]
    return lambda session: session.custom_forward_backward(samples_of(index), gradients)


def generate(index, **options):
    prompts = [
        [token for chunk in item["chunks"] for token in chunk["encoded_text"]["tokens"]]
        for item in EXCHANGES[index]["request_body"]["model_inputs"]
    ]
    return lambda session: session.generate(prompts, **options)


def train_on_a_long_sample(session):
    return session.forward_backward([long_sample(), *samples_of(11)], sk.CrossEntropy())


def train_on_chunks(session):
    chunks = [sk.EncodedText([1, 2, 3, 4, 5]), sk.EncodedText(range(LONG)), sk.EncodedText([7])]
    inputs = {
        "target_tokens": sk.TensorData(range(LONG + 6), "int64"),
        "weights": sk.TensorData([1] * (LONG + 6), "int64"),
    }
    session.allow = {"target_not_next"}  # the recorded sample's targets are not its next tokens
    return session.forward_backward([sk.Sample(sk.ModelInput(chunks), inputs)], sk.CrossEntropy())


def send_a_long_gradient(session):
    long = long_sample()
    bare = sk.Sample(long.model_input, {"target_tokens": long.loss_fn_inputs["target_tokens"]})
    return session.custom_forward_backward([bare], [[0.1] * LONG])


# Ours on a session that runs: each gives an operation, whose result is asked for.
OPERATIONS = {
    9: train(9, sk.CrossEntropy()),
    11: train(11, sk.CrossEntropy()),
    13: train(13, sk.CrossEntropy()),
    15: train(15, sk.GRPO(aggregation="token_mean")),
    17: train(17, sk.GRPO(beta=0.05)),
    19: train(19, sk.PPO()),
    21: train(21, sk.CISPO()),
    23: train(23, sk.DRO(beta=0.05)),
    25: train(25, sk.DPPO()),
    27: train(27, sk.ImportanceSampling()),
    29: custom(29),
    31: custom(31),
    33: lambda session: session.optim_step(**ADAM),
    35: lambda session: session.optim_step(),
    37: lambda session: session.optim_step(muon=MUON),
    39: lambda session: session.weights_sync(),
    41: generate(
        41, num_samples=2, prompt_logprobs=True, topk_prompt_logprobs=2, max_tokens=64, stop=["<|im_end|>"], seed=42
    ),
    43: generate(43),
    45: generate(45, prompt_logprobs=True, max_tokens=1),
    47: lambda session: session.save_inference_checkpoint(),
    49: lambda session: session.save_training_checkpoint(),
    57: train_on_a_long_sample,
    60: train_on_chunks,
    63: send_a_long_gradient,
    66: lambda session: session.generate([range(2 * LONG)]),
    69: train(69, sk.CrossEntropy()),
    72: train(72, sk.CrossEntropy()),
}
# Ours on a session that runs, with no operation of it.
ON_SESSIONS = {
    53: lambda session: session.rename("renamed"),
    74: lambda session: session.stop(),
}
# Ours on resources that are ready.
ON_RESOURCES = {
    5: lambda resources: resources.extend(600),
    6: lambda resources: resources.session(lora_rank=32, lora_seed=7, name="run-1", metadata=METADATA).detach(),
    76: lambda resources: resources.stop(),
}


def create(client):
    made = client.create_resources(base_model=MODEL, lora=True, optimizer="adam", inactive_timeout=3600)
    made.wait()
    made.detach()


# Ours on a client, and a folder to download into.
ON_CLIENTS = {
    0: lambda client, _: client.supported_models(),
    1: lambda client, _: client.estimate_cost(base_model=MODEL, lora_rank=32),
    2: lambda client, _: client.resources(
        status=["MODEL_RESOURCES_STATUS_READY", "MODEL_RESOURCES_STATUS_PENDING"], created_by="me", limit=5
    ),
    3: lambda client, _: create(client),
    51: lambda client, _: client.attach("sess-1"),
    52: lambda client, _: client.sessions(
        status=["TRAINING_SESSION_STATUS_RUNNING", "TRAINING_SESSION_STATUS_ERROR"], limit=5
    ),
    54: lambda client, _: client.checkpoints(session_id="sess-1", kind="inference"),
    55: lambda client, _: client.session(resume_from="ckpt-inf-1").detach(),
    56: lambda client, folder: client.download("ckpt-inf-1", folder),
}
CALLS = {**OPERATIONS, **ON_SESSIONS, **ON_RESOURCES, **ON_CLIENTS}
