"""What one request fails at, and whose fault that is: an instance's, or the request's own.

An instance that fails is put out of rotation at once, and another is asked. Where that one fails at the same request in the same way, the
request is taken for the cause: it is refused (``RequestError``), the second instance stays, and the first comes back if it is well. That
goes for failures that a request can bring about wherever it is sent: an answer that is not as documented, and a status of 500. A server
that is gone, overloaded or has other weights is so for every request.

An instance that has failed at several such requests since its last answer is no witness any more: a further instance is asked, where there
is one, and if that one answers the others stay out. Where all that failed are such and nobody else serves, no request is blamed: all go
out, and the error is the instance's.
"""

from __future__ import annotations

from .errors import AnswerError, InstanceError, InstanceRefusedError, InstanceTimeoutError, RequestError, StampError
from .lease import Lease

__all__ = ["Trial", "may_another"]

_OVERLOADED = (502, 503, 504)


class Trial:
    """The failures of one request so far."""

    def __init__(self) -> None:
        self._failed: dict[str, list[tuple[Lease, InstanceError]]] = {}
        self._refused: str | None = None

    def failed(self, lease: Lease, error: InstanceError) -> None:
        """Takes the instance out of rotation for what it failed at. Raises RequestError where the request is the cause, and the
        instance's own error where no instance is left to say so."""
        kind = _kind(error)
        if kind is None:
            lease.fail(error)
            return
        before = self._failed.setdefault(kind, [])
        leases = [*(earlier for earlier, _ in before), lease]
        names = {each.instance.name for each in leases}
        suspicious = {each.instance.name for each in leases if each.is_suspicious}
        if len(names) == 1 or (suspicious and lease.serving() - names):
            lease.fail(error, is_doubtful=True)
            before.append((lease, error))
            return
        if suspicious == names:
            lease.fail(error)
            raise error
        self._refused = kind
        for each in {each.instance.name: each for each in leases}.values():
            each.doubt()
        raise RequestError(
            f"instances {sorted(names)} failed at the same request, all with {kind}, so it is taken for the cause; change it ({error.what})",
            before[0][1],
        ) from error

    def end(self) -> None:
        """The request has its answer, or is given up: who was put out for it alone comes back."""
        for kind, failures in self._failed.items():
            for lease, error in failures:
                if kind == self._refused:
                    lease.acquit(error)
                lease.settle()


def may_another(lease: Lease, error: InstanceError | StampError, trial: Trial) -> bool:
    """Whether another instance, or another time, may do better. Takes one that failed out of rotation."""
    if isinstance(error, StampError):
        return True
    if isinstance(error, InstanceTimeoutError):
        lease.timed_out(error)
        return False  # it was the request's own time
    is_restarted = lease.held.adapter is not None and (error.status == 404 or lease.held.adapter in error.what)
    is_refused = isinstance(error, InstanceRefusedError) and error.status is not None and error.status < 500
    if is_refused and not is_restarted:
        return False
    trial.failed(lease, error)
    return True


def _kind(error: InstanceError) -> str | None:
    """In which way a request failed, where it may be the cause of that."""
    if isinstance(error, AnswerError):
        return "an answer that is not as documented"
    if isinstance(error, InstanceRefusedError) and error.status is not None and error.status >= 500:
        return None if error.status in _OVERLOADED else f"the status {error.status}"
    return None
