"""Trains models of PyTorch on the micro-batches of a store.

    model = transformers.AutoModelForCausalLM.from_pretrained(...)
    trainer = forebay.trainer.Trainer(model, optimizer=AdamW(lr=1e-6), columns=Columns(old_logprobs="logprobs"))

    with store.step() as step:
        for batch in step.micro_batches(train, size=16):
            trainer.accumulate(batch)
        trainer.commit()
        trainer.save(states, "solver/trainer")
        step.commit({"solver": trainer.version})

Words. A *subject* is what is trained: a whole model, or an *adapter* of a frozen *base*. Its parameters are views of *flat buffers*, laid
out by a *layout*. The *gradient cache* is the unnormalised sum of the gradients of a step's micro-batches, in fp32; the *denominator* that
belongs to it is applied once, at the *commit*. A *state* is a mapping of named *payloads*, whole buffers as a rule, which a *state store*
keeps by key and version.

Read in this order: ``trainer`` (what one calls), ``stateful`` (what outlives it), ``objective``, ``cache``, ``layout`` and ``flat``,
``parameters``, ``subject``, ``base``, ``lora`` and ``peft``, ``state`` with ``directory`` and ``objects``, ``ranks`` and ``reduction``, ``claims``, ``columns`` and
``staging``; of early training ``early``, ``members``, ``groups``, ``line``, ``advantages``, ``sums``. Of ``forebay`` only ``forebay.inference.local`` imports this package, which imports torch. ``docs/pytorch.md`` says what it
promises.
"""

from .adamw import AdamW
from .advantages import GroupRelative
from .base import AdapterSubject, FrozenBase
from .batch import MicroBatch
from .columns import Columns
from .directory import DirectoryStateStore
from .early import Early
from .errors import (
    LayoutError,
    NonFiniteGradientError,
    OtherSettingsError,
    OtherVersionError,
    ParameterChangedError,
    RankLostError,
    RanksDifferError,
    ShardedParameterError,
    SpoiledCacheError,
    TornWeightsError,
    VersionConflictError,
)
from .layout import Layout
from .lora import Adapter, Base
from .objective import AdvantageTerm, Numerator, Objective, PolicyGradient, token_logprobs
from .objects import ObjectStateStore
from .peft import PeftAdapter, PeftBase
from .ranks import Ranks
from .state import Payload, StateStore
from .subject import Subject, WholeModel
from .trainer import Trainer
from .update import Accumulated, Update

__all__ = [
    "Accumulated",
    "AdamW",
    "Adapter",
    "AdapterSubject",
    "AdvantageTerm",
    "Base",
    "Columns",
    "DirectoryStateStore",
    "Early",
    "FrozenBase",
    "GroupRelative",
    "Layout",
    "LayoutError",
    "MicroBatch",
    "NonFiniteGradientError",
    "Numerator",
    "ObjectStateStore",
    "Objective",
    "OtherSettingsError",
    "OtherVersionError",
    "ParameterChangedError",
    "Payload",
    "PeftAdapter",
    "PeftBase",
    "PolicyGradient",
    "RankLostError",
    "Ranks",
    "RanksDifferError",
    "ShardedParameterError",
    "SpoiledCacheError",
    "StateStore",
    "Subject",
    "TornWeightsError",
    "Trainer",
    "Update",
    "VersionConflictError",
    "WholeModel",
    "token_logprobs",
]
