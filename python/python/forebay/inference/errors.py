"""What goes wrong between weights and instances, under the tree of ``forebay.errors``: the parent says what the caller does next."""

from __future__ import annotations

from ..errors import CorruptError, InputError, RetryError, StateError, WaitTimeout

__all__ = [
    "AnswerError",
    "DirectoryTakenError",
    "InstanceError",
    "InstanceRefusedError",
    "InstanceTimeoutError",
    "InstanceUnreachableError",
    "NoInstanceError",
    "PublicationError",
    "RequestError",
    "StampError",
    "WrongWeightsError",
]


class InstanceError(RetryError):
    """One instance did not do what it was asked. Others are not affected; asking it again is safe.

    instance: its name. version: the label of the version that it was to have, where one was on its way.
    endpoint: verb and path of the call. status: of HTTP, where there was an answer.
    is_untouched: whether the instance still has, whole, the weights that it had before.
    """

    def __init__(
        self, what: str, *, instance: str, endpoint: str | None = None, status: int | None = None, version: str | None = None
    ) -> None:
        super().__init__(what)
        self.what, self.instance, self.endpoint, self.status, self.version = what, instance, endpoint, status, version
        self.is_untouched = False

    def __str__(self) -> str:
        where = f" {self.endpoint}" if self.endpoint else ""
        answer = f" answered {self.status}" if self.status is not None else ""
        bound = f" (on the way to {self.version})" if self.version else ""
        return f"instance {self.instance!r}{bound}:{where}{answer}: {self.what}"


class InstanceUnreachableError(InstanceError):
    """There was no answer: the connection was refused, or broke."""


class InstanceTimeoutError(InstanceError, TimeoutError):
    """There was no answer in the time that was given."""


class InstanceRefusedError(InstanceError):
    """The instance answered that it would not, or could not."""


class AnswerError(InstanceRefusedError):
    """The instance answered, and its answer is not as documented. It was not used."""


class RequestError(InputError):
    """Two instances failed at this request in the same way, so the request is taken for the cause: change it. Neither instance is out for
    it. What the first of them said is ``first``, what the second said is the cause (``__cause__``)."""

    def __init__(self, what: str, first: InstanceError) -> None:
        super().__init__(what)
        self.first = first


class WrongWeightsError(InstanceError):
    """An instance has other weights than it was told to load, or says so. It gets no request until it has been loaded anew."""


class NoInstanceError(WaitTimeout):
    """No instance had the version that is asked for in the time that was given. The message says what each is at."""


class DirectoryTakenError(StateError):
    """Another subscriber writes its versions to this directory, and would remove those of this one. Give each a directory of its own."""


class StampError(StateError):
    """An answer whose version cannot be known. It was not used."""


class PublicationError(CorruptError):
    """What was published is not what its manifest says. The version before it is served on."""
