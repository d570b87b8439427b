"""Brings published weights to the servers that generate, and stamps each response with the version that made it.

    rotation = Rotation([ServerInstance(VllmServer("http://gpu-1:8000")), ServerInstance(SglangServer("http://gpu-2:30000"))])
    with Subscriber(states, "solver/weights", rotation, template="models/base", directory="run/served") as subscriber:
        trainer.publish(states, "solver/weights")
        subscriber.wait(trainer.version, timeout_s=600)
        made = Rollouts(rotation).generate(prompt, sampling=Sampling(max_tokens=64))
        solver.insert(**made.stamp, sample_ids=["q1_0_0"], response=[made.tokens], logprobs=[made.logprobs])

Words. A *publication* is one version of a policy's weights, with its fingerprint. An *instance* generates with them; a *rotation* is the
instances of one policy, and knows which of them has the version that is aimed at. A *label* is what a server says that it has. *Evidence*
is how it is known that it really has it.

Invariants
- No request is answered by weights of which parts are of different versions: an instance whose weights are being changed, or whose
  change failed, gets none.
- A response's version is what its instance said or was seen to have, never what was meant to be there.
- What happens to one instance concerns no other, but that they compare checksums.

Read in this order: ``version``, ``instance``, ``publication`` and ``checkpoint``, ``rotation`` and ``lease``, ``rollouts`` with ``trial``, ``subscriber``; then
``server`` (the order of calls), ``agreement`` (checksums), ``vllm`` and ``sglang`` (the routes), ``engine``, ``answers`` and ``endpoint``; ``local``
for a model in this process, which alone imports torch, and is imported as ``forebay.inference.local``. Nothing of ``forebay`` imports
this package. ``docs/inference.md`` says what it promises.
"""

from .agreement import Agreement
from .checkpoint import Template, write_checkpoint
from .errors import (
    AnswerError,
    DirectoryTakenError,
    InstanceError,
    InstanceRefusedError,
    InstanceTimeoutError,
    InstanceUnreachableError,
    NoInstanceError,
    PublicationError,
    RequestError,
    StampError,
    WrongWeightsError,
)
from .instance import Answer, Held, Instance, ReportedSpan, Request, Sampling
from .lease import Lease
from .publication import Publication, PublishedTensor, read_publication
from .rollouts import Generation, Rollouts
from .rotation import InstanceState, Rotation
from .server import Engine, ServerInstance
from .sglang import SglangServer
from .subscriber import Subscriber, WatchedStore
from .version import Span, Version
from .vllm import VllmServer

__all__ = [
    "Agreement",
    "Answer",
    "AnswerError",
    "DirectoryTakenError",
    "Engine",
    "Generation",
    "Held",
    "Instance",
    "InstanceError",
    "InstanceRefusedError",
    "InstanceState",
    "InstanceTimeoutError",
    "InstanceUnreachableError",
    "Lease",
    "NoInstanceError",
    "Publication",
    "PublicationError",
    "PublishedTensor",
    "ReportedSpan",
    "Request",
    "RequestError",
    "Rollouts",
    "Rotation",
    "Sampling",
    "ServerInstance",
    "SglangServer",
    "Span",
    "StampError",
    "Subscriber",
    "Template",
    "Version",
    "VllmServer",
    "WatchedStore",
    "WrongWeightsError",
    "read_publication",
    "write_checkpoint",
]
