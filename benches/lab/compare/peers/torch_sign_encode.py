"""torch_sign_encode.py: the worker half of a 1-bit collective in torch, on one thread, beside a copy.

The order of operations is DeepSpeed's (deepspeed/runtime/comm/nccl.py, compressed_allreduce): the residual is added, the
scale is the norm over the root of the number of elements, what plus or minus the scale leaves out becomes the residual,
and the signs are computed again to be packed (here by numpy.packbits, there by cupy.packbits). Compare with
sign_encode and sign_encode_global of `unisono bench kernels`, on the same machine.

Needs torch (a CPU build is enough) and numpy. Prints a JSON array: Gelem/s at 32 Ki and 16 Mi elements.
"""

import json
import statistics
import time

import numpy
import torch

SIZES = (32 << 10, 16 << 20)
BLOCK_SECONDS = 4e-3
ROUNDS = 15


def sign_encode(buffer, residual):
    """What a worker sends of `buffer`: packed signs and the scale. `buffer` and `residual` are changed."""
    buffer.add_(residual)
    scale = torch.norm(buffer) / numpy.sqrt(buffer.numel())
    residual.set_(buffer - scale * buffer.sign().add_(1).bool().float().add_(-0.5).mul_(2.0))
    return numpy.packbits(buffer.sign_().add_(1).bool().numpy()), scale


def seconds(call, calls):
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def calls_per_block(call):
    calls = 1
    while seconds(call, calls) * calls < BLOCK_SECONDS:
        calls *= 2
    return calls


def measure(elements):
    gradient = torch.randn(elements, generator=torch.Generator().manual_seed(1))
    residual, buffer = torch.zeros(elements), torch.empty(elements)

    def encode():
        # The gradient of the next step: DeepSpeed compresses in place, so every call needs a fresh buffer.
        buffer.copy_(gradient)
        return sign_encode(buffer, residual)

    # The definition, once, from a residual of zero.
    packed, scale = encode()
    value = torch.where(gradient >= 0, scale, -scale)
    assert torch.equal(residual, gradient - value)
    assert numpy.array_equal(packed, numpy.packbits((gradient >= 0).numpy()))

    ways = [encode, lambda: buffer.copy_(gradient)]
    calls = [calls_per_block(way) for way in ways]
    times = [[], []]
    for _ in range(ROUNDS):
        for way, count, found in zip(ways, calls, times):
            found.append(seconds(way, count))
    encoding, copying = (statistics.median(found) for found in times)
    # The copy of the gradient is not DeepSpeed's.
    gelem_s, copy_gelem_s = elements / (encoding - copying) / 1e9, elements / copying / 1e9
    return {
        "kernel": "sign_encode_global",
        "target": f"torch {torch.__version__}",
        "elements": elements,
        "gelem_s": round(gelem_s, 4),
        "memcpy_gelem_s": round(copy_gelem_s, 3),
        "ratio": round(gelem_s / copy_gelem_s, 4),
    }


torch.set_num_threads(1)
with torch.no_grad():
    print(json.dumps([measure(elements) for elements in SIZES], indent=2))
