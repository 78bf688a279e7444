"""One rank of a training with compressed gradients, in a process that a launcher has started.

    unisono run --comms -n 2 -- python compressed.py METHOD

METHOD is exact, adam, one-bit-adam or the name of a codec. Rank 0 prints the loss on a held-out set as JSON.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from unisono_torch.compression import CompressionHook, compress_hook, local_hook
from unisono_torch.onebit_adam import OneBitAdam

STEPS = 400
WARMUP_STEPS = 80
BATCH = 32


def data(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(count, 20, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs[:, :5].sin().sum(1, keepdim=True) + inputs[:, 5:6] * inputs[:, 6:7]


def make(method: str) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(20, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 1))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.02)
    if method == "adam":
        return ddp, torch.optim.Adam(ddp.parameters(), lr=0.01)
    if method == "one-bit-adam":
        ddp.register_comm_hook(None, local_hook)
        return ddp, OneBitAdam(ddp.parameters(), lr=0.01, freeze_step=WARMUP_STEPS)
    if method != "exact":
        ddp.register_comm_hook(CompressionHook(ddp, codec=method, warmup_steps=WARMUP_STEPS), compress_hook)
    return ddp, torch.optim.SGD(ddp.parameters(), lr=0.05)


def main(method: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("unisono")
    model, optimizer = make(method)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
    for step in range(STEPS):
        inputs, targets = data(1000 * (dist.get_rank() + 1) + step, BATCH)
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        inputs, targets = data(1, 2000)
        loss = (model(inputs) - targets).square().mean().item()
        of_zero = targets.square().mean().item()
    if dist.get_rank() == 0:
        print(json.dumps({"loss": loss, "loss of zero": of_zero}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
