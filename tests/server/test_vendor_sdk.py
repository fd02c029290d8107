"""What the vendor's SDK, together 3.1.1, does beyond a training loop (tests/test_sdk.py), as whole stories.

That no call of it is left out is held in test_vendor_raw_calls.py and test_vendor_client_calls.py.
"""

import asyncio

import pytest
import torch
from together import AsyncTogether, Together
from together.post_training import ModelResourcesClient
from together.post_training.checkpoints import download_checkpoint, download_checkpoint_async
from together.post_training.clients.session import SessionClient

from samplekit.server import LocalService
from samplekit.server.optimizers import HAS_MUON

SAMPLE = {
    "model_input": {"chunks": [{"encoded_text": {"tokens": [100, 101, 102]}}]},
    "loss_fn_inputs": {
        "target_tokens": {"data": [101, 102, 103], "dtype": "int64"},
        "weights": {"data": [0.0, 1.0, 1.0], "dtype": "float32"},
    },
}
PROMPT = {"chunks": [{"encoded_text": {"tokens": [100, 101, 102]}}]}
CROSS_ENTROPY = {"type": "cross_entropy"}
STEP = {"learning_rate": 1e-2}


@pytest.fixture(scope="module")
def service(loaded):
    with LocalService(model=loaded, token="key") as running:
        yield running


@pytest.fixture
def make_resources(service):
    def make(**options):
        return ModelResourcesClient.create(
            api_key="key", base_url=service.url, base_model="samplekit/tiny",
            compute_config={"num_generator_replicas": 1}, inactive_timeout=600, **options,
        )  # fmt: skip

    return make


@pytest.fixture
def together(service):
    return Together(api_key="key", base_url=f"{service.url}")


def test_models_prices_resources_and_sessions_are_found_renamed_extended_and_stopped(make_resources, together):
    rl = together.post_training
    (model,) = rl.supported_models.get().data
    assert model.base_model == "samplekit/tiny"
    assert rl.model_resources.estimate_cost(base_model="samplekit/tiny").price_per_hour == 0
    with make_resources() as resources:
        before = resources.retrieve().expires_at
        assert resources.extend_expiry(seconds=7200).expires_at > before
        ready = rl.model_resources.list(status=["MODEL_RESOURCES_STATUS_READY"], created_by="me", limit=100)
        assert resources.model_resources_id in [item.id for item in ready.data]
        with resources.create_session(display_name="first", lora_config={"rank": 4}) as session:
            listed = rl.sessions.list(model_resources_id=resources.model_resources_id)
            assert [item.id for item in listed.data] == [session.session_id]
            assert rl.sessions.update(session.session_id, display_name="second").display_name == "second"
            attached = SessionClient.attach(
                session_id=session.session_id, api_key="key", base_url=str(together.base_url)
            )
            assert attached.trainer.forward(samples=[SAMPLE], loss=CROSS_ENTROPY).loss > 0
            attached.detach()
        assert rl.sessions.retrieve(session.session_id).status == "TRAINING_SESSION_STATUS_STOPPED"
    assert rl.model_resources.retrieve(resources.model_resources_id).status == "MODEL_RESOURCES_STATUS_STOPPED"


def test_checkpoints_are_saved_listed_fetched_and_resumed(make_resources, together, service, tmp_path):
    rl = together.post_training
    with make_resources() as resources:
        with resources.create_session(lora_config={"rank": 4}) as session:
            session.trainer.forward_backward(samples=[SAMPLE], loss=CROSS_ENTROPY)
            session.trainer.optim_step(adam_params=STEP)
            inference = session.create_inference_checkpoint()
            training = session.create_training_checkpoint()
            trained = session.trainer.forward(samples=[SAMPLE], loss=CROSS_ENTROPY).loss
            own = session.retrieve()
        assert [item.id for item in own.inference_checkpoints] == [inference.id]
        assert [item.id for item in own.training_checkpoints] == [training.id]
        listed = rl.checkpoints.list(session_id=session.session_id, limit=1)
        assert listed.meta.has_more
        rest = rl.checkpoints.list(session_id=session.session_id, after=listed.meta.next_cursor)
        assert [item.id for item in [*listed.data, *rest.data]] == [inference.id, training.id]
        assert rl.checkpoints.retrieve(training.id).lora_rank == 4
        merged = download_checkpoint(together, inference.id, output_dir=tmp_path / "merged")
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in merged}

        async def fetch():
            async with AsyncTogether(api_key="key", base_url=str(together.base_url)) as client:
                return await download_checkpoint_async(
                    client, inference.id, variant="CHECKPOINT_VARIANT_ADAPTER", output_dir=tmp_path / "adapter"
                )

        adapter = asyncio.run(fetch())
        assert {"adapter_config.json", "adapter_model.safetensors"} <= {path.name for path in adapter}
        with resources.create_session(resume_from_checkpoint_id=training.id) as again:
            assert again.retrieve().step == "1"
            assert again.trainer.forward(samples=[SAMPLE], loss=CROSS_ENTROPY).loss == pytest.approx(trained)


@pytest.mark.skipif(not HAS_MUON, reason="torch before 2.9 has no Muon")
def test_muon_trains_full_weights_and_every_kind_of_sync_ends(make_resources):
    config = {"muon": {"scaling_strategy": "MUON_SCALING_STRATEGY_MATCH_ADAM"}}
    with (
        make_resources(lora_enabled=False, optimizer_config=config) as resources,
        resources.create_session() as session,
    ):
        first = session.trainer.forward_backward(samples=[SAMPLE], loss=CROSS_ENTROPY).loss
        assert session.trainer.optim_step(muon_params={**STEP, "adam": STEP}).step == "1"
        assert session.trainer.forward(samples=[SAMPLE], loss=CROSS_ENTROPY).loss < first
        for kind in ("SYNCHRONOUS", "BACKGROUND_PUBLISH", "PIPELINE"):
            assert session.trainer.weights_sync(weight_sync_type=f"WEIGHT_SYNC_TYPE_{kind}").weights_version == "1"
        drawn = session.generator.sample_batch([PROMPT, PROMPT], sampling_params={"max_tokens": 2, "seed": 1})
        assert [len(result.sequences) for result in drawn] == [1, 1]
        scored = session.generator.compute_logprobs_batch([PROMPT, PROMPT])
        assert scored[0] == scored[1]
        weights = torch.tensor(SAMPLE["loss_fn_inputs"]["weights"]["data"])
        session.trainer.custom_forward_backward(samples=[SAMPLE], gradients=[{"data": (-weights).tolist()}])
