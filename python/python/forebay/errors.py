"""What can go wrong, by what the caller does next.

Every error of the package is an :class:`Error`; its message names the offending value and the way out. Messages may change,
classes and their ``kind`` do not.
"""


class Error(Exception):
    """Anything that a store refuses.

    ``cause`` says in one word what it came of, finer than its class: ``"Connection"`` where the server cannot be reached,
    ``"Deadline"`` where one call took too long. Empty where only the message says more.
    """

    kind = "error"
    cause = ""


class InputError(Error, ValueError):
    """Mend the call: an argument is wrong, and will be wrong tomorrow. Nothing was changed."""

    kind = "input"


class StateError(Error, RuntimeError):
    """A legal call at the wrong moment. The message names the state and the way out. Nothing was changed."""

    kind = "state"


class CapacityError(Error):
    """Out of room: free some, or raise the limit that the message names. Nothing was changed."""

    kind = "capacity"


class RetryError(Error):
    """Make the same call again later. Nothing was changed, but where ``cause`` is ``"Deadline"``: nobody can tell then whether the
    call was made."""

    kind = "retry"


class WaitTimeout(RetryError, TimeoutError):
    """Nothing became ready in the time that was given."""


class CorruptError(Error):
    """Stored bytes are not what was written. The message names file and offset; retrying cannot help."""

    kind = "corrupt"


class ClosedError(Error):
    """The store accepts nothing more: open it again. What was under way is whole or absent."""

    kind = "closed"
