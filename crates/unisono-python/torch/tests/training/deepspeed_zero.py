"""One rank of a training with DeepSpeed's ZeRO on the CPU, in a process that its launcher has started.

    torchrun --nproc-per-node 2 deepspeed_zero.py BACKEND STAGE

Rank 0 prints the losses of all steps as JSON.
"""

from __future__ import annotations

import json
import os
import sys

# DeepSpeed asks for an accelerator when it is imported.
os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist

STEPS = 8


def main(backend: str, stage: int) -> None:
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend=backend, verbose=False)
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "zero_optimization": {"stage": stage},
        # The optimiser of torch: DeepSpeed's own ones compile their kernels.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    losses = []
    for step in range(STEPS):
        inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * rank + step))
        loss = (engine(inputs) - inputs[:, :4].sum(1, keepdim=True)).square().mean()
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    if rank == 0:
        print(json.dumps({"losses": losses, "backend": str(dist.get_backend())}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
