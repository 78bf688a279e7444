"""torch_sign_encode.py ELEMENTS DEVICE: the worker half of a 1-bit collective in torch on a card.

The order of operations is DeepSpeed's (deepspeed/runtime/comm/nccl.py, compressed_allreduce): the residual is added, the
scale is the norm over the root of the number of elements, what plus or minus the scale leaves out becomes the residual,
and the signs are computed again to be packed, by cupy.packbits. Without CuPy torch's own operations pack them, which the
result says. The gradient's copy, which DeepSpeed does not make, is not in the time.

Prints a JSON object: milliseconds on the card. Needs torch with CUDA. For processors: benches/compare/peers.
"""

import json
import math
import statistics
import sys

import torch

ROUNDS = 21
WARM_UP = 5

elements, device = int(sys.argv[1]), int(sys.argv[2])
if not torch.cuda.is_available():
    sys.exit("torch has no CUDA here")
torch.cuda.set_device(device)
try:
    import cupy

    packed_by = "CuPy " + cupy.__version__
except ImportError:
    cupy = None
    packed_by = "torch"

weights = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device="cuda")


def packbits(flags):
    """One bit of each element, the first one in the highest bit of a byte."""
    if cupy is not None:
        return torch.from_dlpack(cupy.packbits(cupy.from_dlpack(flags.to(torch.uint8))))
    return (flags.to(torch.uint8).view(-1, 8) * weights).sum(dim=1, dtype=torch.uint8)


def sign_encode(buffer, residual):
    """What a worker sends of `buffer`: packed signs and the scale. `buffer` and `residual` are changed."""
    buffer.add_(residual)
    scale = torch.norm(buffer) / math.sqrt(buffer.numel())
    residual.set_(buffer - scale * buffer.sign().add_(1).bool().float().add_(-0.5).mul_(2.0))
    return packbits(buffer.sign_().add_(1).bool()), scale


with torch.no_grad():
    gradient = torch.randn(elements, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    residual, buffer = torch.zeros(elements, device="cuda"), torch.empty(elements, device="cuda")

    # The definition, once, from a residual of zero.
    buffer.copy_(gradient)
    packed, scale = sign_encode(buffer, residual)
    assert torch.allclose(residual, gradient - torch.where(gradient >= 0, scale, -scale), atol=1e-6)
    bits = packed[: elements // 8].view(-1, 1).bitwise_and(weights).ne(0).view(-1)
    assert torch.equal(bits, gradient[: bits.numel()] >= 0)

    times = []
    for round in range(WARM_UP + ROUNDS):
        buffer.copy_(gradient)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        sign_encode(buffer, residual)
        end.record()
        torch.cuda.synchronize()
        if round >= WARM_UP:
            times.append(start.elapsed_time(end))

print(
    json.dumps(
        {
            "torch": f"torch {torch.__version__}",
            "packed_by": packed_by,
            "median_ms": statistics.median(times),
            "min_ms": min(times),
            "max_ms": max(times),
        }
    )
)
