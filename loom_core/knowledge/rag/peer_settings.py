"""How processes that share the folder of a knowledge base speak with each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from loom_core.storage.local_socket import Transport, default_transport

__all__ = ["PeerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """What this process is called among the others, and how long it waits for them.

    Attributes:
        program: its name, such as `loom-kb`, for people who want to know who holds what.
        transport: what its socket is made of, when it serves.
        silence: seconds without a sign of life after which the owner is not waited for: it may be stopped,
            or the machine be short of memory. The question is then answered here.
        deadline: seconds for a whole answer of the owner's.
        pause: seconds for which an owner that did not answer, or not for us, is not asked again.
    """

    program: str = "python"
    transport: Transport = field(default_factory=default_transport)
    silence: float = 2.0
    deadline: float = 30.0
    pause: float = 5.0
