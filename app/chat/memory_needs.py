"""What a pair needs of the memory that is free, by purpose. Pure arithmetic on a plan; its sums are the plan's own."""

from __future__ import annotations

from dataclasses import dataclass

from models import DoesNotFit, Hardware, LoadPlan
from models.memory import PROCESS_BYTES, Memory
from models.planner import HOST_RESERVE_SHARE


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes in one kind of memory."""

    place: str
    """`memory` or `GPU memory`."""
    target: int
    """The target's weights."""
    draft: int
    """The draft's."""
    context: int
    """KV caches of both."""
    work: int
    """Buffers to compute in, the process, the GPU's driver."""
    free: int

    @property
    def total(self) -> int:
        return self.target + self.draft + self.context + self.work


def needs_of(answer: LoadPlan | DoesNotFit, machine: Hardware) -> tuple[Needs, ...]:
    """The scarcer kind of memory first; GPU memory only where some of it is used."""
    plan = answer.smallest if isinstance(answer, DoesNotFit) else answer
    target, draft = plan.target, plan.draft or Memory()
    host_free = max(0, machine.available_bytes - int(HOST_RESERVE_SHARE * machine.ram_bytes))
    host = Needs(
        "memory", _host_weights(target), _host_weights(draft), target.kv + draft.kv,
        target.compute + target.logits + draft.compute + draft.logits + PROCESS_BYTES, host_free,
    )
    if not plan.device_bytes:
        return (host,)
    device = Needs(
        "GPU memory", target.device_weights, draft.device_weights, target.device_kv + draft.device_kv,
        plan.device_bytes - target.device_weights - draft.device_weights - target.device_kv - draft.device_kv,
        sum(device.free_bytes for device in machine.devices),
    )
    if any(device.unified for device in machine.devices):
        return (
            Needs(
                "memory", host.target + device.target, host.draft + device.draft, host.context + device.context,
                host.work + device.work, host.free,
            ),
        )
    return tuple(sorted((device, host), key=lambda needs: -needs.total / max(1, needs.free)))


def _host_weights(memory: Memory) -> int:
    return memory.mapped - memory.cold + memory.repacked + memory.texts
