"""One rank of a training with a framework of torch, in a process that a launcher has started.

    torchrun --nproc-per-node 2 models.py BACKEND NAME

Rank 0 prints the losses of all steps as JSON. They do not depend on the backend.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS = 12


def layers() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1))


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * rank + step))
    return inputs, inputs[:, :4].sin().sum(1, keepdim=True)


def losses(model: nn.Module, optimizer: Any, *, same_data: bool = False, first: int = 0) -> list[float]:
    """Trains, and gives the mean loss of the ranks in each step."""
    result = []
    for step in range(first, first + STEPS):
        inputs, targets = batch(step, 0 if same_data else dist.get_rank())
        optimizer.zero_grad()
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        result.append(mean.item() / dist.get_world_size())
    return result


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def ddp() -> list[float]:
    model = DistributedDataParallel(layers(), bucket_cap_mb=0.004)
    return losses(model, adam(model))


def ddp_with(hook: Callable[..., Any], make_state: Callable[[], Any], **options: Any) -> list[float]:
    model = DistributedDataParallel(layers(), **options)
    model.register_comm_hook(make_state(), hook)
    return losses(model, adam(model))


def bf16_hook() -> list[float]:
    # torch asks for NCCL where a hook has the name of its own one.
    def hook(state, bucket):  # type: ignore[no-untyped-def] # DDP reads annotations, and wants no texts
        return default_hooks.bf16_compress_hook(state, bucket)

    return ddp_with(hook, lambda: None, bucket_cap_mb=0.004)


def fp16_hook() -> list[float]:
    return ddp_with(default_hooks.fp16_compress_hook, lambda: None, bucket_cap_mb=0.004)


def power_sgd() -> list[float]:
    # One bucket: torch's hook starts calls in callbacks of futures, whose order two buckets leave to chance wherever
    # futures end on a thread of their own.
    def state() -> powerSGD_hook.PowerSGDState:
        return powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3)

    return ddp_with(powerSGD_hook.powerSGD_hook, state)


def ddp_and_rpc() -> list[float]:
    """DDP in a program that also has torch's RPC, which brings its own connections."""
    from torch.distributed import rpc

    rank = dist.get_rank()
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=dist.get_world_size())
    result = ddp()
    other = (rank + 1) % dist.get_world_size()
    assert rpc.rpc_sync(f"worker{other}", max, args=(rank, 0)) == rank
    rpc.shutdown()
    return result


def fsdp1() -> list[float]:
    model = FullyShardedDataParallel(layers(), device_id=torch.device("cpu"), use_orig_params=True)
    return losses(model, adam(model))


def fsdp2() -> list[float]:
    model = layers()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh())
    fully_shard(model, mesh=mesh())
    return losses(model, adam(model))


def tensor_parallel() -> list[float]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = parallelize_module(layers(), mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return losses(model, torch.optim.Adam(model.parameters(), lr=0.01, foreach=False), same_data=True)


def zero_redundancy() -> list[float]:
    model = DistributedDataParallel(layers())
    return losses(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01))


def checkpoint() -> list[float]:
    """FSDP2, saved in the middle by all ranks and loaded into a new model."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = layers()
        fully_shard(model, mesh=mesh())
        return model, adam(model)

    model, optimizer = make()
    before = losses(model, optimizer)
    folder: list[Any] = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder[0])
    expected = losses(model, optimizer, first=STEPS)
    model, optimizer = make()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder[0])
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    found = losses(model, optimizer, first=STEPS)
    assert found == expected, f"{found} after the load, {expected} without it"
    return before + found


def pipeline() -> list[float]:
    """The layers divided among two ranks, which exchange activations and gradients as messages."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, model = dist.get_rank(), layers()
    part = nn.Sequential(*(model[:2] if rank == 0 else model[2:]))
    stage = PipelineStage(part, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=lambda output, target: (output - target).square().mean())
    optimizer, result = adam(part), []
    for step in range(STEPS):
        inputs, targets = batch(step, 0)
        optimizer.zero_grad()
        own: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=own)
        optimizer.step()
        mean = torch.stack(own).mean().detach() if own else torch.zeros(())
        dist.broadcast(mean, 1)
        result.append(mean.item())
    return result


def mesh() -> Any:
    return dist.init_device_mesh("cpu", (dist.get_world_size(),))


TRAININGS = {
    function.__name__: function
    for function in (
        ddp,
        bf16_hook,
        fp16_hook,
        power_sgd,
        ddp_and_rpc,
        fsdp1,
        fsdp2,
        tensor_parallel,
        zero_redundancy,
        checkpoint,
        pipeline,
    )
}


def main(backend: str, name: str) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(backend)
    result = TRAININGS[name]()
    if dist.get_rank() == 0:
        print(json.dumps({"losses": result, "backend": dist.get_backend()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
