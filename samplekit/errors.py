r"""Every exception samplekit raises.

SamplekitError
|- SampleError (ValueError)        the data cannot become a sample
|  |- AlignmentError               arrays disagree about their length
|  |- TemplateError                a chat template did not do what a sample needs: .code .message_index .hint
|  |  \- PrefixMismatchError       the template renders the prompt differently: .index, both contexts
|  |- LossInputError               a loss reads an input the sample lacks, or of another dtype
|  \- FileFormatError              a line of a file is not what it should be: .path .line
|- PackingError (ValueError)       rows cannot be filled as asked
|- ServiceError                    the service said no, or nothing
|  |- ConnectionFailedError (ConnectionError)    .sent .idempotency_key
|  |- StatusError                  .status .request_id .body .idempotency_key
|  \- OperationError               .operation_id .kind .code
|     |- OperationFailedError
|     \- OperationTimeoutError (TimeoutError)   still running: keep the Operation and ask again
\- MissingExtraError (ImportError) names the command that installs the extra

A message says where, what was found, what was expected and what to do, in one sentence.
Every class pickles: errors cross process pools.
"""

from __future__ import annotations

from typing import Any, Self, cast


def _rebuild(cls: type[SamplekitError], fields: dict[str, Any]) -> SamplekitError:
    """Recreate an error from its fields, as pickle asks; not through __init__, whose parameters differ by class."""
    error = cls.__new__(cls)
    error.args = (fields["message"],)
    error.__dict__.update(fields)
    return error


class SamplekitError(Exception):
    """Root of every error of this package."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def reworded(self, message: str) -> Self:
        """Give the same error with another message, such as one that also names the row."""
        return cast("Self", _rebuild(type(self), {**self.__dict__, "message": message}))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), dict(self.__dict__))


class SampleError(SamplekitError, ValueError):
    """The data cannot become a sample."""


class AlignmentError(SampleError):
    """Arrays that describe the same tokens disagree about their length."""


class TemplateError(SampleError):
    """A chat template did not do what a sample needs.

    Attributes:
        code: which outcome of the ladder this is, such as ``"no_stop_token"``.
        message_index: the message at fault, or None where it is the whole conversation.
        hint: the first thing to try.
        template: the template's name or hash.
    """

    def __init__(
        self, message: str, *, code: str, message_index: int | None = None, hint: str = "", template: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message_index = message_index
        self.hint = hint
        self.template = template


class PrefixMismatchError(TemplateError):
    """The template renders the prompt differently once the reply is there.

    Attributes:
        index: the first token (or, where the texts differ, character) that differs.
        prompt_context: what stands around it in the prompt, decoded.
        full_context: what stands around it in the full render, decoded.
    """

    def __init__(
        self,
        message: str,
        *,
        index: int,
        prompt_context: str = "",
        full_context: str = "",
        code: str = "prefix_mismatch",
        message_index: int | None = None,
        hint: str = "",
        template: str = "",
    ) -> None:
        super().__init__(message, code=code, message_index=message_index, hint=hint, template=template)
        self.index = index
        self.prompt_context = prompt_context
        self.full_context = full_context


class LossInputError(SampleError):
    """A loss reads an input that the sample lacks, or has with another dtype."""


class FileFormatError(SampleError):
    """A file holds something that cannot be read, named as path:line.

    Attributes:
        path: the file.
        line: its line, from 1; 0 where the fault is the file itself.
    """

    def __init__(self, message: str, *, path: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.line = line


class PackingError(SamplekitError, ValueError):
    """Rows cannot be filled as asked."""


class ServiceError(SamplekitError):
    """The service said no, or nothing."""


class ConnectionFailedError(ServiceError, ConnectionError):
    """No answer came: refused, reset, timed out, or cut short.

    Attributes:
        sent: whether the service may have seen the request.
        idempotency_key: of a call of a session that submits an operation: hand it to the same call again, and the
            service accepts one operation, whatever became of the first try. None for other calls.
    """

    def __init__(self, message: str, *, sent: bool = False, idempotency_key: str | None = None) -> None:
        super().__init__(message)
        self.sent = sent
        self.idempotency_key = idempotency_key


class StatusError(ServiceError):
    """The service answered with an error status.

    Attributes:
        status: the HTTP status.
        request_id: the service's id of the request, where it gave one.
        body: the answer's body: whatever JSON it was, or its text.
        idempotency_key: as of a ConnectionFailedError, for a service that was at fault or had no room.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        request_id: str | None = None,
        body: Any = None,  # noqa: ANN401 - any JSON
        idempotency_key: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id
        self.body = body
        self.idempotency_key = idempotency_key


class OperationError(ServiceError):
    """An operation that the service accepted did not give a result.

    Attributes:
        operation_id: the service's id of the operation.
        kind: its kind as the path spells it, such as ``"forward-backward"``.
        code: the service's error code, where it gave one.
    """

    def __init__(self, message: str, *, operation_id: str, kind: str, code: str | None = None) -> None:
        super().__init__(message)
        self.operation_id = operation_id
        self.kind = kind
        self.code = code


class OperationFailedError(OperationError):
    """The service carried the operation out and it failed."""


class OperationTimeoutError(OperationError, TimeoutError):
    """The operation is still running, or its result on its way: keep the Operation and ask again."""


class MissingExtraError(SamplekitError, ImportError):
    """An optional dependency is absent; the message names the command that installs it.

    Attributes:
        extra: the extra that brings it.
    """

    def __init__(self, message: str, *, extra: str = "") -> None:
        super().__init__(message)
        self.extra = extra
