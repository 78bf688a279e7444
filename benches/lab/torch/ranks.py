"""One rank of `compare.py`: the times of calls, of training steps and of groups. Rank 0 prints them as a line of JSON.

Arguments: the backend of torch.distributed, and the seconds that each measurement takes about. `torchrun` starts it.
"""

import faulthandler
import json
import os
import sys
import time

import torch
import torch.distributed as dist

# A rank that hangs shows where, and ends the comparison.
HANG_S = 240
# Measurements of a cell in one run, of which the median counts.
REPEATS = 5
SIZES = {"64 B": 64, "1 KiB": 1 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
GROUPS = 10

faulthandler.dump_traceback_later(HANG_S, exit=True)


def slowest(seconds):
    """The time of the slowest rank."""
    longest = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.item()


def measure(step, seconds):
    """Microseconds of a step, on the slowest rank. A step may give the part of its time that counts."""

    def run(count):
        dist.barrier()
        start, counted = time.perf_counter(), None
        for _ in range(count):
            part = step()
            if part is not None:
                counted = (counted or 0) + part
        whole = time.perf_counter() - start
        return slowest((whole if counted is None else counted) / count)

    run(2)
    start = time.perf_counter()
    run(3)
    # All ranks make as many.
    once = slowest((time.perf_counter() - start) / 3)
    count = max(2, min(10_000, int(seconds / REPEATS / once)))
    return sorted(run(count) for _ in range(REPEATS))[REPEATS // 2] * 1e6


def synchronous(tensor):
    dist.all_reduce(tensor)


def asynchronous(tensor):
    dist.all_reduce(tensor, async_op=True).wait()


def with_future(tensor):
    dist.all_reduce(tensor, async_op=True).get_future().wait()


def returned(tensor):
    """The time until an asynchronous call returns, without the wait for its end."""
    start = time.perf_counter()
    work = dist.all_reduce(tensor, async_op=True)
    end = time.perf_counter()
    work.wait()
    return end - start


def all_reduces(seconds):
    """The time of each form and size, with a check of a sum before and after the timed ones, which are of zeros."""
    size = dist.get_world_size()
    cells = {f"all_reduce, {name}": (synchronous, bytes_) for name, bytes_ in SIZES.items()}
    cells["all_reduce, 64 B, async and wait"] = (asynchronous, 64)
    cells["all_reduce, 64 B, with a future"] = (with_future, 64)
    cells["all_reduce, 64 B, async call returns"] = (returned, 64)
    times = {}
    for name, (form, size_bytes) in cells.items():
        tensor = torch.full((size_bytes // 4,), float(dist.get_rank() + 1))
        form(tensor)
        assert (tensor == size * (size + 1) / 2).all(), f"{name}: a wrong sum"
        # Sums of sums would grow beyond every number.
        tensor.zero_()
        times[name] = measure(lambda: form(tensor), seconds)
        assert (tensor == 0).all(), f"{name}: a wrong sum"
        tensor.fill_(float(dist.get_rank() + 1))
        form(tensor)
        assert (tensor == size * (size + 1) / 2).all(), f"{name}: a wrong sum"
    return times


def wide():
    """1.3 million parameters in 3 layers."""
    return torch.nn.Sequential(*[torch.nn.Linear(660, 660) for _ in range(3)])


def deep():
    """40 small layers."""
    return torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(40)])


def batch(model, rank):
    torch.manual_seed(rank)
    return torch.randn(32, model[0].in_features)


def loss_of(model, inputs):
    return (model(inputs) - inputs).pow(2).mean()


def check_gradients(model, parallel):
    """The gradients of one step are the average of the ranks', which this process computes alone."""
    size = dist.get_world_size()
    expected = [torch.zeros_like(one) for one in model.parameters()]
    for rank in range(size):
        gradients = torch.autograd.grad(loss_of(model, batch(model, rank)), list(model.parameters()))
        for sum_, own in zip(expected, gradients):
            sum_ += own / size
    loss_of(parallel, batch(model, dist.get_rank())).backward()
    for mean, parameter in zip(expected, model.parameters()):
        torch.testing.assert_close(parameter.grad, mean, rtol=1e-4, atol=1e-6)


def check_equal(model):
    """All ranks have the same parameters, bit for bit."""
    flat = torch.cat([one.detach().flatten() for one in model.parameters()])
    others = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(others, flat)
    assert flat.isfinite().all() and all(torch.equal(flat, other) for other in others), "parameters differ"


def training(seconds):
    """The time of a step of data-parallel training."""
    times = {}
    for name, make, bucket_mib in (
        ("DDP, 1.3 M parameters, 25 MiB buckets", wide, 25),
        ("DDP, 1.3 M parameters, 2 MiB buckets", wide, 2),
        ("DDP, 40 small layers, 0.02 MiB buckets", deep, 0.02),
    ):
        torch.manual_seed(0)
        model = make()
        parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket_mib)
        check_gradients(model, parallel)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        inputs = batch(model, dist.get_rank())

        def step():
            optimizer.zero_grad()
            loss_of(parallel, inputs).backward()
            optimizer.step()

        times[name] = measure(step, 2 * seconds)
        check_equal(model)
    return times


def new_groups(seconds):
    """The time to make a group, and to make one and its first call; the time to destroy one does not count."""
    size = dist.get_world_size()

    def make(has_call):
        start = time.perf_counter()
        group = dist.new_group(range(size))
        if has_call:
            tensor = torch.ones(16)
            dist.all_reduce(tensor, group=group)
        end = time.perf_counter()
        assert not has_call or (tensor == size).all(), "a wrong sum"
        # Gloo's ranks fail to connect to one that destroys the group already.
        dist.barrier()
        dist.destroy_process_group(group)
        return end - start

    return {
        "new_group": measure(lambda: make(False), seconds),
        "new_group and its first all_reduce": measure(lambda: make(True), seconds),
    }


def held():
    """The threads and the descriptors of this process."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def ten_groups():
    """The threads and descriptors that ten groups of all ranks add to the process."""
    size = dist.get_world_size()
    threads, descriptors = held()
    groups = [dist.new_group(range(size)) for _ in range(GROUPS)]
    counts = {}
    for name, form in (("calls", synchronous), ("futures", with_future)):
        for group in groups:
            tensor = torch.ones(16)
            if form is synchronous:
                dist.all_reduce(tensor, group=group)
            else:
                dist.all_reduce(tensor, group=group, async_op=True).get_future().wait()
            assert (tensor == size).all(), "a wrong sum"
        more_threads, more_descriptors = held()
        counts[f"ten groups, threads after {name}"] = more_threads - threads
        counts[f"ten groups, descriptors after {name}"] = more_descriptors - descriptors
    for group in groups:
        dist.destroy_process_group(group)
    return counts


def main():
    backend, seconds = sys.argv[1], float(sys.argv[2])
    dist.init_process_group(backend)
    # Counted before a future of the default group has made a thread.
    counts = ten_groups()
    times = all_reduces(seconds) | training(seconds) | new_groups(seconds)
    if dist.get_rank() == 0:
        print("TIMES " + json.dumps({"times": times, "counts": counts}), flush=True)
    dist.destroy_process_group()


main()
