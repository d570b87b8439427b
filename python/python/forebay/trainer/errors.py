"""What goes wrong in a trainer, under the tree of ``forebay.errors``: the parent says what the caller does next."""

from __future__ import annotations

from ..errors import InputError, RetryError, StateError

__all__ = [
    "LayoutError",
    "NonFiniteGradientError",
    "OtherSettingsError",
    "OtherVersionError",
    "ParameterChangedError",
    "RankLostError",
    "RanksDifferError",
    "ShardedParameterError",
    "SpoiledCacheError",
    "TornWeightsError",
    "VersionConflictError",
]


class LayoutError(InputError):
    """A state or a file is of other tensors than the model's. Nothing was changed."""


class OtherSettingsError(InputError):
    """A state's moments were made by other settings of the optimiser. Nothing was changed; ``other_optimizer=True`` takes it all the same."""


class ShardedParameterError(InputError):
    """A parameter's values are spread over processes, or are of a kind of tensor that has no plain memory."""


class ParameterChangedError(StateError):
    """A parameter no longer lies in the trainer's buffer, or somebody else wrote to it. ``adopt()`` takes it in as it is."""


class NonFiniteGradientError(StateError):
    """A gradient has values that are no numbers. Weights, moments and cache are as before; ``drop()`` empties the cache."""


class OtherVersionError(StateError):
    """Rows or a store are at another version than the trainer's weights. Nothing was changed."""


class SpoiledCacheError(StateError):
    """A micro-batch failed when part of its gradient was in the cache. ``drop()`` empties it; its rows are to be given back."""


class TornWeightsError(StateError):
    """A change of weights or moments was interrupted: parts of them are of before and parts of after. A stored state makes them whole
    (``resume``, ``restore``), and so does ``join`` with the weights of another rank."""


class VersionConflictError(StateError):
    """Somebody else has stored a version of this key in between. Nothing was stored."""


class RankLostError(RetryError):
    """Another rank died, or did not take part in time. Weights, moments and cache are as before: join a new group and call again."""


class RanksDifferError(StateError):
    """Ranks that train together have other weights, versions or settings. Nothing was changed; ``join()`` makes them equal."""
