"""A training session, async: each call submits one operation and gives its handle at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from samplekit.client import calls, upkeep
from samplekit.client.generation import GenerationSettings, model_inputs
from samplekit.client.operations import AsyncOperation
from samplekit.client.registry import warn_of_leftovers
from samplekit.client.state import Samples, SessionState
from samplekit.wire.names import OperationKind

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from samplekit.client.calls import Submission
    from samplekit.client.drivers import AsyncDriver
    from samplekit.client.flows import Terms
    from samplekit.client.ownership import Reminders
    from samplekit.client.plans import OpenSession
    from samplekit.client.results import TrainResult
    from samplekit.losses import Loss
    from samplekit.rollouts import Group
    from samplekit.wire.listings import Checkpoint

T = TypeVar("T")


class AsyncSession(SessionState):
    """A training session; leaving its ``async with`` block stops what was created for it.

    Leaving waits up to 300 s for what was submitted, unless an error ends the block, and warns of what was lost.

    Operations run in the order they were submitted, so a step may be submitted before the gradient it applies is
    computed. Samples are checked before they are sent; `allow` names findings to accept.
    """

    def __init__(self, opened: OpenSession, terms: Terms, driver: AsyncDriver, reminders: Reminders) -> None:
        super().__init__(opened, terms, reminders)
        self._driver = driver

    async def forward(
        self, samples: Samples, loss: Loss, *, idempotency_key: str | None = None
    ) -> AsyncOperation[TrainResult]:
        """Score samples without a gradient; the result holds logprobs.

        Args:
            samples: Samples, or mappings in the service's spelling.
            loss: which loss to report; positions it leaves out read logprob 0.
            idempotency_key: of an earlier try of this very call, as its error carries it: one operation comes of both.

        Raises:
            SampleError: a sample is at fault; nothing is sent.
        """
        return await self._submit(
            calls.train(samples, loss, self._checks(), forward_only=True, outputs=True), idempotency_key
        )

    async def forward_backward(
        self, samples: Samples, loss: Loss, *, return_logprobs: bool = False, idempotency_key: str | None = None
    ) -> AsyncOperation[TrainResult]:
        """Compute a loss over samples and add its gradient to what is accumulated.

        Args:
            samples: Samples, or mappings in the service's spelling; inputs the loss does not read are left out.
            loss: such as ``CrossEntropy()``.
            return_logprobs: whether the result holds logprobs; they make large answers.
            idempotency_key: of an earlier try of this very call, as its error carries it: one operation comes of both.

        Raises:
            SampleError: a sample is at fault; nothing is sent.
        """
        checks = self._checks()
        return await self._submit(
            calls.train(samples, loss, checks, forward_only=False, outputs=return_logprobs), idempotency_key
        )

    async def custom_forward_backward(
        self, samples: Samples, gradients: Iterable[object], *, idempotency_key: str | None = None
    ) -> AsyncOperation[None]:
        """Add a gradient that was computed here.

        Args:
            samples: as in forward_backward.
            gradients: for each sample d loss / d logprob of its target tokens, float32 (T_i,); used as it is.
            idempotency_key: of an earlier try of this very call, as its error carries it: one operation comes of both.

        Raises:
            AlignmentError: the gradients do not match the samples.
            SampleError: a sample is at fault, or a gradient is not finite; nothing is sent.
        """
        return await self._submit(calls.custom(samples, gradients, self._checks()), idempotency_key)

    async def optim_step(
        self,
        *,
        learning_rate: float | None = None,
        beta1: float | None = None,
        beta2: float | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        grad_clip_norm: float | None = None,
        muon: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncOperation[int]:
        """Apply the accumulated gradient; the result is the number of steps done.

        Args:
            learning_rate: of Adam; the service documents no default.
            beta1: None means 0.9.
            beta2: None means 0.95.
            eps: None means 1e-8.
            weight_decay: None means 0.
            grad_clip_norm: None means 1.0; 0 does not clip.
            muon: settings of Muon (learning_rate, momentum, newton_schulz_steps, weight_decay, grad_clip_norm), with
                Adam's under ``"adam"``; on resources made with ``optimizer="muon"``.
            idempotency_key: of an earlier try of this very call, as its error carries it: one operation comes of both.

        Raises:
            SampleError: a setting is out of range.
        """
        adam = {
            "learning_rate": learning_rate,
            "beta1": beta1,
            "beta2": beta2,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_clip_norm": grad_clip_norm,
        }
        return await self._submit(calls.optim_step(adam, muon), idempotency_key)

    async def generate(
        self,
        prompts: Sequence[Any],
        *,
        num_samples: int = 1,
        max_tokens: int | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        stop: Sequence[str] | str = (),
        seed: int | None = None,
        prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        return_routed_experts: bool = False,
        idempotency_key: str | None = None,
    ) -> AsyncOperation[list[Group]]:
        """Draw completions with their logprobs; the result is one Group a prompt, in their order.

        Args:
            prompts: each a sequence of token ids, or a ModelInput.
            num_samples: completions a prompt (G).
            max_tokens: of a completion; None means 512.
            temperature: 0 takes the likeliest token, to look at; anything else but 1 bends importance ratios and warns.
            top_p: below 1 likewise.
            top_k: above 0 likewise.
            stop: strings at which a completion ends, such as ``ChatTemplate.stop_strings``.
            seed: of the draws.
            prompt_logprobs: whether groups hold the prompt's logprobs.
            topk_prompt_logprobs: how many of the likeliest tokens to give for every position of a prompt, 0 to 20; the
                groups are `DrawnGroup` then, as they are where the service says which weights drew them.
            return_routed_experts: whether completions hold a ``routed_experts_key``, for models of experts.
            idempotency_key: of an earlier try of this very call, as its error carries it: one operation comes of both.

        Raises:
            SampleError: a setting is out of range, or a prompt is empty or no token ids; nothing is sent.
        """
        settings = GenerationSettings(
            num_samples, max_tokens, temperature, top_p, top_k, stop, seed,
            prompt_logprobs, topk_prompt_logprobs, return_routed_experts,
        )  # fmt: skip
        settings.warn_if_bent(stacklevel=2)
        return await self._submit(calls.generate(model_inputs(prompts), settings), idempotency_key)

    async def weights_sync(
        self, kind: str = "synchronous", *, idempotency_key: str | None = None
    ) -> AsyncOperation[int]:
        """Give the trained weights to the generators; the result is their version.

        Args:
            kind: ``"synchronous"``, ``"background_publish"`` or ``"pipeline"``.
            idempotency_key: of an earlier try of this very call, as its error carries it: one operation comes of both.
        """
        return await self._submit(calls.weights_sync(kind), idempotency_key)

    async def save_inference_checkpoint(self, *, idempotency_key: str | None = None) -> AsyncOperation[Checkpoint]:
        """Save weights to serve or to download with ``client.download``.

        Args:
            idempotency_key: of an earlier try of this very call, as its error carries it: one operation comes of both.
        """
        return await self._submit(
            calls.save_checkpoint(OperationKind.INFERENCE_CHECKPOINT, self._about()), idempotency_key
        )

    async def save_training_checkpoint(self, *, idempotency_key: str | None = None) -> AsyncOperation[Checkpoint]:
        """Save weights and the optimizer's state, to go on from with ``client.session(resume_from=...)``.

        Args:
            idempotency_key: of an earlier try of this very call, as its error carries it: one operation comes of both.
        """
        return await self._submit(
            calls.save_checkpoint(OperationKind.TRAINING_CHECKPOINT, self._about()), idempotency_key
        )

    async def rename(self, name: str) -> None:
        """Give the session another name in the service's lists; an empty one clears it."""
        await self._driver.run(upkeep.rename_session(self._terms, self.id, name))

    async def annotate(self, metadata: Mapping[str, Any]) -> None:
        """Write metadata of your own to the session; members left out stay as they are, empty texts clear them."""
        await self._driver.run(upkeep.annotate_session(self._terms, self.id, metadata))

    def operation(self, id: str, kind: str, *, prompts: Sequence[Any] | None = None) -> AsyncOperation[Any]:  # noqa: A002
        """Pick up an operation that was submitted earlier, perhaps by another process.

        Args:
            id: its ``.id``.
            kind: its ``.kind``.
            prompts: of kind ``"sample"``, what it was submitted with.
        """
        return AsyncOperation(self._pick_up(id, kind, prompts), self._driver)

    async def stop(self) -> None:
        """Stop the session, and the resources if they were created for it; wait until nothing more is paid.

        Operations that still run are dropped: collect their results first. It warns of failures nobody collected.
        """
        self._mark_left()
        leftovers = await self._driver.run(self._end_flow())
        warn_of_leftovers(self.id, leftovers)

    def detach(self) -> None:
        """Let the session run on when its ``async with`` block is left. It costs until stopped."""
        self._let_run_on()

    async def _submit(self, submission: Submission[T], key: str | None) -> AsyncOperation[T]:
        return AsyncOperation(await self._driver.run(self._submit_flow(submission, key)), self._driver)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del kind, traceback
        if self._left:
            return
        self._mark_left()
        leftovers = await self._driver.run(self._leave_flow(orderly=error is None))
        warn_of_leftovers(self.id, leftovers)
