"""What DeepSpeed's compressed_allreduce gives, written anew from its description: several rounds with error feedback.

Writes little-endian f32 to standard output. For each number of ranks: ranks, elements, elements with padding, rounds;
in each round, for each rank its input, its input with error, the scale, the packed signs (a number for each byte) and the
new error; for each rank as owner the sum with error, the scale, the packed signs and the new error; then the output.
tests/deepspeed.bin is what `python3 deepspeed.py > deepspeed.bin` has written; it needs NumPy.
"""

import math
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(3)

ELEMENTS, ROUNDS = 43, 4


def signs(values):
    """Plus for everything that is not below zero."""
    return ~(values < 0)


def decode(bits, scale):
    return np.where(bits, np.float32(1), np.float32(-1)) * scale


def encode(values):
    """Scale (the root of the mean square), packed signs, and what they leave out."""
    wide = values.astype(np.float64)
    scale = np.float32(math.sqrt(math.fsum(wide * wide) / values.size))
    bits = signs(values)
    return scale, np.packbits(bits), values - decode(bits, scale)


def write(*arrays):
    for array in arrays:
        sys.stdout.buffer.write(np.atleast_1d(array).astype("<f4").tobytes())


def run(ranks, random):
    multiple = ranks * math.lcm(ranks, 8)
    padded = -(-ELEMENTS // multiple) * multiple
    share = padded // ranks
    worker = [np.zeros(padded, np.float32) for _ in range(ranks)]
    server = [np.zeros(share, np.float32) for _ in range(ranks)]
    write(ranks, ELEMENTS, padded, ROUNDS)
    for _ in range(ROUNDS):
        sent = []
        for rank in range(ranks):
            given = (random.uniform(-0.5, 0.5, ELEMENTS) + 0.01 * rank).astype(np.float32)
            summed = worker[rank] + np.pad(given, (0, padded - ELEMENTS))
            scale, packed, worker[rank] = encode(summed)
            write(given, summed, scale, packed, worker[rank])
            sent.append((packed.reshape(ranks, -1), scale))
        output = []
        for owner in range(ranks):
            mean = np.zeros(share, np.float32)
            for packed, scale in sent:
                bits = np.unpackbits(packed[owner]).astype(bool)
                mean = mean + decode(bits, scale * np.float32(1 / ranks))
            mean = mean + server[owner]
            scale, packed, server[owner] = encode(mean)
            write(mean, scale, packed, server[owner])
            output.append(decode(signs(mean), scale))
        write(np.concatenate(output)[:ELEMENTS])


random = np.random.default_rng(2026)
for ranks in (1, 2, 3, 4, 8):
    run(ranks, random)
