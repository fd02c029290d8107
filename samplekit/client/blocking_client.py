"""The blocking client of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from samplekit.client import offers, opening
from samplekit.client.connections import Connections
from samplekit.client.downloads import download_checkpoint
from samplekit.client.drivers import BlockingDriver
from samplekit.client.endpoint import Endpoint, http_options
from samplekit.client.flows import Terms
from samplekit.client.lists import BlockingLists
from samplekit.client.ownership import Reminders
from samplekit.client.plans import ResourcesPlan, SessionPlan
from samplekit.client.resources import Resources
from samplekit.client.runtime import Runtime
from samplekit.client.session import Session
from samplekit.client.settings import flag, text, whole_number
from samplekit.wire.names import MAX_ANSWER_BYTES, SESSION_RETRIES

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from samplekit.wire.offers import CostEstimate, SupportedModel


class Client(BlockingLists):
    """Talk to a Together-compatible training service.

    Leaving its ``with`` block closes connections; a session stops when its own block is left. Threads may share it, and
    a process that is forked makes connections of its own.

    Args:
        base_url: where the service is; None reads TOGETHER_BASE_URL, then takes the public service. Plain http is for
            this machine only.
        api_key: None reads TOGETHER_API_KEY; a service on this machine needs none.
        timeout: seconds one request may wait for an answer. Operations outlive it.
        max_retries: tries after the first of each request, where repeating does no harm.
        transport: an httpx transport to use instead of the network.
        max_answer_bytes: how large an answer may be that is read into memory, decompressed; files of checkpoints are
            written as they come, and bounded by the size that the service names.

    Raises:
        ServiceError: no key is known, or the URL is not safe.
        SampleError: timeout, max_retries or max_answer_bytes is out of range.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 300.0,
        max_retries: int = SESSION_RETRIES,
        transport: httpx.BaseTransport | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._endpoint = Endpoint.resolve(base_url, api_key, timeout, max_answer_bytes)
        options = http_options(self._endpoint)
        self._connections = Connections(lambda: httpx.Client(transport=transport, **options))
        self._reminders = Reminders(self._endpoint.base_url)
        self._run_on(Runtime(), max_retries)

    @classmethod
    def with_runtime(
        cls,
        runtime: Runtime,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 300.0,
        max_retries: int = SESSION_RETRIES,
        transport: httpx.BaseTransport | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> Self:
        """Make a client on a clock, sleep and chance of one's own, as tests do."""
        client = cls(
            base_url=base_url,
            api_key=api_key,
            timeout=timeout,
            max_retries=max_retries,
            transport=transport,
            max_answer_bytes=max_answer_bytes,
        )
        client._run_on(runtime, max_retries)
        return client

    def _run_on(self, runtime: Runtime, max_retries: int) -> None:
        self._terms = Terms(runtime, whole_number("max_retries", max_retries, least=0), self._endpoint.is_local)
        self._driver = BlockingDriver(self._connections, self._endpoint, runtime)

    @property
    def base_url(self) -> str:
        """Where the service is."""
        return self._endpoint.base_url

    def supported_models(self) -> list[SupportedModel]:
        """List the models the service trains, with their limits."""
        return self._driver.run(offers.get_models(self._terms))

    def estimate_cost(
        self,
        *,
        base_model: str | None = None,
        lora_rank: int | None = None,
        num_generators: int = 1,
        lora: bool = False,
        gpu_type: str | None = None,
        optimizer: str | None = None,
        muon_scaling: str | None = None,
        inactive_timeout: int | None = None,
        base_weights: str | None = None,
    ) -> CostEstimate:
        """Ask what resources would cost per hour; arguments as in `create_resources`, and a session's lora_rank.

        Raises:
            SampleError: a setting is out of range.
        """
        SessionPlan(base_model, lora_rank)
        holds_adapters = flag("lora", lora) or lora_rank is not None
        plan = ResourcesPlan(
            base_model,
            holds_adapters,
            num_generators,
            gpu_type,
            optimizer,
            muon_scaling,
            inactive_timeout,
            base_weights,
        )
        return self._driver.run(offers.estimate_cost(self._terms, plan, lora_rank))

    def session(
        self,
        *,
        base_model: str | None = None,
        lora_rank: int | None = None,
        lora_alpha: int | None = None,
        lora_seed: int | None = None,
        num_generators: int = 1,
        name: str | None = None,
        resume_from: str | None = None,
        lora_dropout: float | None = None,
        lora_train_unembed: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        load_optimizer: bool | None = None,
    ) -> Session:
        """Create resources and a training session on them, and wait until it runs.

        Args:
            base_model: what to train; None takes the only model there is, or that of the checkpoint.
            lora_rank: of a LoRA adapter; None trains full weights, or with resume_from what the checkpoint is of.
            lora_alpha: None means 64.
            lora_seed: of the adapter's first weights; not read with resume_from, whose weights are there already.
            num_generators: replicas that generate; 0 trains only.
            name: shown in the service's lists.
            resume_from: id of a checkpoint to go on from; one that Muon trained needs `create_resources`.
            lora_dropout: None means 0.
            lora_train_unembed: whether the adapter covers the output layer; None means True.
            metadata: your own, kept with the session, such as ``{"wandb": {"project": "p"}}``.
            load_optimizer: with resume_from, whether to take the optimizer's state too; None takes what there is.

        Raises:
            SampleError: a setting is out of range; nothing was created.
            ServiceError: it cannot be had; what was created is stopped again.
        """
        plan = SessionPlan(
            base_model, lora_rank, lora_alpha, lora_seed, num_generators, name, resume_from,
            lora_dropout, lora_train_unembed, metadata, load_optimizer,
        )  # fmt: skip
        opened = self._driver.run(opening.open_session(self._terms, plan))
        return Session(opened, self._terms, self._driver, self._reminders)

    def attach(self, session_id: str) -> Session:
        """Take up a session that runs already; leaving it does not stop it."""
        opened = self._driver.run(opening.attach_session(self._terms, text("session_id", session_id)))
        return Session(opened, self._terms, self._driver, self._reminders)

    def create_resources(
        self,
        *,
        base_model: str | None = None,
        lora: bool = False,
        num_generators: int = 1,
        gpu_type: str | None = None,
        optimizer: str | None = None,
        muon_scaling: str | None = None,
        inactive_timeout: int | None = None,
        base_weights: str | None = None,
    ) -> Resources:
        """Create model resources for one or several sessions; they cost from when they are ready until stopped.

        ``session`` does this by itself; resources of one's own serve several adapters, another optimizer or a longer
        life.

        Args:
            base_model: what they are for; None takes the only model there is.
            lora: whether they hold adapters; else one session with full weights.
            num_generators: replicas that generate; 0 trains only.
            gpu_type: None means the model's default.
            optimizer: ``"adam"`` or ``"muon"``; None leaves it to the service.
            muon_scaling: ``"match_adam"`` or ``"original"``.
            inactive_timeout: seconds without an operation after which they stop by themselves, 300 to 86,400.
            base_weights: a model of the service's registry whose weights are trained instead of the base model's.

        Raises:
            SampleError: a setting is out of range; nothing was created.
        """
        plan = ResourcesPlan(
            base_model, lora, num_generators, gpu_type, optimizer, muon_scaling, inactive_timeout, base_weights
        )
        made = self._driver.run(opening.create_resources(self._terms, plan))
        return Resources(made, self._terms, self._driver, self._reminders, owned=True)

    def attach_resources(self, resources_id: str) -> Resources:
        """Take up resources that are there already; leaving their block does not stop them."""
        found = self._driver.run(opening.find_resources(self._terms, text("resources_id", resources_id)))
        return Resources(found, self._terms, self._driver, self._reminders, owned=False)

    def download(self, checkpoint_id: str, folder: str | os.PathLike[str], *, variant: str = "adapter") -> list[Path]:
        """Fetch the files of a checkpoint into a folder; broken off and asked again, only what is missing is fetched.

        Processes that ask at once for the same folder, as the ranks of a run do, fetch once: one does, the others wait.

        Args:
            checkpoint_id: of an inference checkpoint.
            folder: made where it is not there; files appear in it once all of them are whole. It may hold files of the
                same names, which are replaced, and no others.
            variant: ``"adapter"``, or ``"merged"`` for the whole model, as after training full weights.

        Returns:
            The paths of the files.

        Raises:
            SampleError: the folder holds other files, such as those of another variant; nothing was changed.
            ServiceError: the service will not give them, or not with the sizes it named.
            OSError: a file cannot be written.
        """
        return self._driver.run(download_checkpoint(self._terms, checkpoint_id, folder, variant))

    def close(self) -> None:
        """Close the connections. Sessions and operations go on at the service; those never stopped are warned of."""
        self._reminders.warn()
        self._connections.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.base_url}>"
