"""torch_rank.py: one rank of torch.distributed's Gloo on CPU tensors in the comparison.

Started once per rank with RANK and WORLD_SIZE set and the folder that turns.h describes as the only argument. It takes
turns exactly as turns.h does, except that the ranks line up by one slot each, since Python has no atomic addition.
"""

import mmap
import os
import statistics
import struct
import sys
import time

import torch
import torch.distributed as dist

PATTERN_PERIOD = 61
SHORT_CALL_S, CALIBRATION_CALLS = 2e-3, 8
BLOCKS_MIN, BLOCKS_MAX, CALLS_MAX = 3, 40, 20000
# Byte offsets of the slots in the shared file, 64 bytes per rank each; AGREED holds calls and blocks.
ARRIVED, START, END, MARK, AGREED = 0, 8192, 16384, 24576, 32768

folder = sys.argv[1]
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
shared = mmap.mmap(os.open(f"{folder}/shared", os.O_RDWR), 65536)
generation = 0
call_index = 0
capacity = 0
a_all = b_all = pattern_all = torch.zeros(0)


def put(region, value, slot=None):
    struct.pack_into("d", shared, region + 64 * (rank if slot is None else slot), value)


def get(region, slot):
    return struct.unpack_from("d", shared, region + 64 * slot)[0]


def line_up():
    global generation
    generation += 1
    struct.pack_into("q", shared, ARRIVED + 64 * rank, generation)
    for other in range(ranks):
        while struct.unpack_from("q", shared, ARRIVED + 64 * other)[0] < generation:
            os.sched_yield()


def pattern(first, elements):
    first %= PATTERN_PERIOD
    return pattern_all[first : first + elements]


def reserve(elements):
    global capacity, a_all, b_all, pattern_all
    if elements > capacity:
        capacity = elements
        pattern_all = torch.arange(PATTERN_PERIOD + capacity).remainder_(PATTERN_PERIOD).add_(1).to(torch.float32)
        a_all, b_all = torch.zeros(capacity), torch.zeros(capacity)
    return a_all[:elements], b_all[:elements]


def send_recv(a, b):
    if rank == 0:
        dist.send(a, 1)
        dist.recv(b, 1)
    elif rank == 1:
        dist.recv(b, 0)
        dist.send(b, 0)


def calls(operation, a, b):
    """What a call of the operation is, as a function of its root. Slices are made here, outside of what is timed."""
    share = a.numel() // ranks
    part_a, part_b = a[:share], b[:share]
    return {
        "all_reduce": lambda root: dist.all_reduce(a),
        "reduce_scatter": lambda root: dist.reduce_scatter_tensor(part_b, a),
        "all_gather": lambda root: dist.all_gather_into_tensor(b, part_a),
        "all_to_all": lambda root: dist.all_to_all_single(b, a),
        "broadcast": lambda root: dist.broadcast(a, root),
        "reduce": lambda root: dist.reduce(a, root),
        "barrier": lambda root: dist.barrier(),
        "send_recv": lambda root: send_recv(a, b),
    }[operation]


def is_right(operation, a, b):
    """Whether every element on this rank is what the operation with root 0 must give."""
    elements = a.numel()
    share = elements // ranks
    total = ranks * (ranks + 1) / 2
    if operation == "barrier":
        return all(get(MARK, r) == 1 for r in range(ranks))
    if operation == "all_reduce" or operation == "reduce" and rank == 0:
        return torch.equal(a, pattern(0, elements) * total)
    if operation == "reduce_scatter":
        return torch.equal(b[:share], pattern(share * rank, share) * total)
    if operation == "all_gather":
        return all(torch.equal(b[share * r : share * (r + 1)], pattern(0, share) * (r + 1)) for r in range(ranks))
    if operation == "all_to_all":
        own = pattern(share * rank, share)
        return all(torch.equal(b[share * r : share * (r + 1)], own * (r + 1)) for r in range(ranks))
    if operation == "broadcast":
        return torch.equal(a, pattern(0, elements))
    if operation == "send_recv" and rank <= 1:
        return torch.equal(b, pattern(0, elements))
    return True


def checked(operation, call, a, b):
    a.copy_(pattern(0, a.numel()) * (rank + 1))
    b.zero_()
    put(MARK, 0)
    line_up()
    if operation == "barrier" and rank == ranks - 1:
        time.sleep(0.002)  # A barrier must let nobody out before all have come in.
    put(MARK, 1)
    call(0)
    right = is_right(operation, a, b)
    line_up()
    put(MARK, float(right))
    line_up()
    right = all(get(MARK, r) == 1 for r in range(ranks))
    a.zero_()
    b.zero_()
    return right


def block(call, count):
    global call_index
    line_up()
    start = time.monotonic()
    for index in range(call_index, call_index + count):
        call(index % ranks)
    end = time.monotonic()
    call_index += count
    put(START, start)
    put(END, end)
    line_up()
    start, end = min(get(START, r) for r in range(ranks)), max(get(END, r) for r in range(ranks))
    line_up()
    return (end - start) / count


def take_turn(turn, operation, size_bytes, block_s, budget_s):
    a, b = reserve(size_bytes // 4)
    call = calls(operation, a, b)
    right = checked(operation, call, a, b)
    block(call, 1)
    call_s = block(call, 1)
    if call_s < SHORT_CALL_S:
        call_s = block(call, CALIBRATION_CALLS)
    if rank == 0:
        count = min(max(int(block_s / max(call_s, 1e-8)), 1), CALLS_MAX)
        put(AGREED, count, 0)
        put(AGREED, min(max(int(budget_s / (count * call_s)), BLOCKS_MIN), BLOCKS_MAX), 1)
    line_up()
    count, blocks = int(get(AGREED, 0)), int(get(AGREED, 1))
    times = [block(call, count) for _ in range(blocks)]
    share = 0.5e6 if operation == "send_recv" else 1e6
    if rank == 0:
        say(f"{turn} {statistics.median(times) * share:.4f} {min(times) * share:.4f} {blocks} {count} {int(right)}")


def say(line):
    os.write(reply, line.encode() + b"\n")


torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
with open(f"{folder}/pid.{rank}", "w") as file:
    file.write(f"{os.getpid()}\n")
reply = os.open(f"{folder}/reply", os.O_WRONLY)
line_up()
if rank == 0:
    say(f"ready torch {torch.__version__}")
turn_id = "0"
try:
    # Read line by line: iteration over the file would wait for more than one.
    with open(f"{folder}/command.{rank}") as commands:
        while line := commands.readline():
            turn_id, name, size, block_us, budget_us = line.split()
            take_turn(turn_id, name, int(size), float(block_us) * 1e-6, float(budget_us) * 1e-6)
except Exception as problem:  # Whatever went wrong, the comparison must hear of it.
    say(f"{turn_id} error rank {rank}: {problem!r}"[:400])
    os._exit(1)
os._exit(0)
