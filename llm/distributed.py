"""Several processes that train one model: who generates what, and sums over all of them.

Data parallel. Every process holds the whole model, the whole batch of prompts and the same
allocator under the same seed, so all of them take the same rounds; each generates its share of
a request, and rewards and responses are exchanged before anyone tells the allocator. Gradients
are summed over processes once an update, so no process has to have as many rows as the others.
Run by ``torchrun --nproc-per-node N -m llm train …``. ``accelerate launch --num_processes N`` does the
same on GPUs; on a CPU it starts one process, whatever N is, which a run then says. Tried on CPUs (gloo); never
on GPUs (NCCL).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

__all__ = ["World"]

T = TypeVar("T")


class World:
    """The processes of a run; one alone unless a launcher started several."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = 0
        self.notes = _lonely(os.environ)
        """What is worth telling of the processes."""
        self.device: str | None = None
        if self.size > 1:
            from accelerate import Accelerator

            self._accelerator: Any = Accelerator()
            self.rank = int(self._accelerator.process_index)
            self.device = str(self._accelerator.device)

    @property
    def is_main(self) -> bool:
        """Whether this process writes logs and checkpoints."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Return which of `count` things are this process's: contiguous shares, of equal sizes to within one."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def padding(self, count: int) -> int:
        """Return how many more things there would be if every process had as many as the one with most."""
        return -count % self.size

    def join(self, mine: Sequence[T]) -> list[T]:
        """Return what all processes hold, in the order of their shares."""
        if self.size == 1:
            return list(mine)
        from accelerate.utils import gather_object

        gathered: list[T] = gather_object(list(mine))
        return gathered

    def sum(self, tensor: Any) -> Any:
        """Return the sum of a tensor over all processes."""
        if self.size == 1:
            return tensor
        # NCCL knows tensors on a GPU alone.
        moved = tensor.to(self._accelerator.device)
        return self._accelerator.reduce(moved, reduction="sum").to(tensor.device)

    def sum_gradients(self, parameters: Sequence[Any]) -> None:
        """Sum the gradients over all processes, in place; a process without a gradient adds zeros."""
        if self.size == 1:
            return
        import torch

        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.copy_(self._accelerator.reduce(parameter.grad, reduction="sum"))

    def close(self) -> None:
        """Part from the other processes when all of them are done; a process that just ends may be aborted by gloo."""
        if self.size > 1:
            import torch

            self._accelerator.wait_for_everyone()
            torch.distributed.destroy_process_group()

    def wait(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            self._accelerator.wait_for_everyone()


def _lonely(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return a warning where a launcher was asked for several processes and started one."""
    # Accelerate sets the address of the first process for several of them alone, on a CPU as well, where it then
    # starts a single one and tells it nothing of a world.
    alone = "WORLD_SIZE" not in environment and "RANK" not in environment
    if not (alone and "MASTER_ADDR" in environment and "ACCELERATE_USE_CPU" in environment):
        return ()
    told = (
        "accelerate launch was asked for several processes and started one: this run trains alone. On a CPU start "
        "them by torchrun --nproc-per-node N -m llm train …"
    )
    return (told,)
