"""What a model reads: encoded text, in chunks; and the frozen models that all parts of a sample are."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)  # fmt: skip
from pydantic_core import core_schema

from samplekit.sample.arrays import IntArray, freeze, ids_array
from samplekit.sample.kinds import is_mapping, is_sequence


def array_field(item: dict[str, Any]) -> tuple[GetPydanticSchema, WithJsonSchema]:
    """Say that a field holds an array that its class converts, and how JSON schemas describe it."""
    return (
        GetPydanticSchema(lambda _source, _handler: core_schema.any_schema()),
        WithJsonSchema({"type": "array", "items": item, "minItems": 1}),
    )


class Frozen(BaseModel):
    """Frozen and closed; fields may be given by position, in order, or by name."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")
    all_fields: ClassVar[set[str]]

    if not TYPE_CHECKING:

        def __init__(self, *values: object, **fields: object) -> None:
            # no named parameters: pydantic itself reports what is missing or unknown
            names = list(type(self).model_fields)
            if len(values) > len(names):
                raise TypeError(f"{type(self).__name__} takes {len(names)} values at most, got {len(values)}")
            super().__init__(**dict(zip(names, values, strict=False)), **fields)

        @classmethod
        def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
            super().__pydantic_init_subclass__(**kwargs)
            cls.__signature__ = _signature(cls)
            cls.all_fields = set(cls.model_fields)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002 - frozen
        """Copy with some fields replaced and checked again; without changes it is the model itself, which is frozen."""
        if not update:
            return self
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **update})

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self  # frozen through and through

    def __str__(self) -> str:
        return repr(self)


ModelT = TypeVar("ModelT", bound=Frozen)


def hold(model: type[ModelT], **fields: object) -> ModelT:
    """Make a model of values that are known to be right: model_construct for all fields at once, four times as fast."""
    made = model.__new__(model)
    set_slot = object.__setattr__
    set_slot(made, "__dict__", fields)
    set_slot(made, "__pydantic_fields_set__", model.all_fields)
    set_slot(made, "__pydantic_extra__", None)
    set_slot(made, "__pydantic_private__", None)
    return made


def _signature(model: type[BaseModel]) -> inspect.Signature:
    """Describe the constructor as it is called: every field by position or by name."""
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=empty if field.is_required() else field.get_default(call_default_factory=True),
            )
            for name, field in model.model_fields.items()
        ]
    )


class EncodedText(Frozen):
    """A run of token ids.

    Attributes:
        tokens: int64 (T,), read-only.
    """

    tokens: Annotated[IntArray, *array_field({"type": "integer", "minimum": 0})]

    if TYPE_CHECKING:

        def __init__(self, tokens: object) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _convert(cls, data: object) -> object:
        if is_mapping(data) and "tokens" in data:
            return {**data, "tokens": ids_array(data["tokens"], "tokens")}
        return data

    @field_serializer("tokens", when_used="json")
    def _listed(self, tokens: IntArray) -> list[int]:
        ids: list[int] = tokens.tolist()
        return ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncodedText) and np.array_equal(self.tokens, other.tokens)

    def __hash__(self) -> int:
        return hash(self.tokens.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return EncodedText, (self.tokens,)

    def __repr__(self) -> str:
        return f"EncodedText(int64[{len(self.tokens)}])"


class Chunk(Frozen):
    """One piece of a model's input; the service knows encoded text only."""

    encoded_text: EncodedText


class ModelInput(Frozen):
    """The tokens a model reads, in one or more chunks.

    Attributes:
        chunks: at least one; `ModelInput.from_tokens` makes exactly one.
    """

    chunks: Annotated[tuple[Chunk, ...], Field(min_length=1)]

    if TYPE_CHECKING:

        def __init__(self, chunks: Sequence[Any]) -> None: ...

    @field_validator("chunks", mode="before")
    @classmethod
    def _wrap_texts(cls, chunks: object) -> object:
        if not is_sequence(chunks):
            return chunks
        return tuple({"encoded_text": item} if isinstance(item, EncodedText) else item for item in chunks)

    @classmethod
    def from_tokens(cls, ids: object) -> ModelInput:
        """Hold one sequence of token ids as a single chunk.

        Raises:
            pydantic.ValidationError: the ids are no token ids.
        """
        return cls([EncodedText(ids)])

    @property
    def tokens(self) -> IntArray:
        """All token ids, int64 (T,), read-only."""
        if len(self.chunks) == 1:
            return self.chunks[0].encoded_text.tokens
        return freeze(np.concatenate([chunk.encoded_text.tokens for chunk in self.chunks]))

    @property
    def length(self) -> int:
        """How many tokens the model reads (T)."""
        return sum(len(chunk.encoded_text.tokens) for chunk in self.chunks)

    def head(self, count: int) -> ModelInput:
        """Give the first tokens, all of them where there are fewer; chunks beyond them are left out."""
        texts: list[EncodedText] = []
        for chunk in self.chunks:
            left = count - sum(len(text.tokens) for text in texts)
            if left > 0:
                texts.append(EncodedText(chunk.encoded_text.tokens[:left]))
        return ModelInput(texts)

    def __repr__(self) -> str:
        return f"ModelInput({self.length} tokens in {len(self.chunks)} chunk{'s' * (len(self.chunks) > 1)})"
