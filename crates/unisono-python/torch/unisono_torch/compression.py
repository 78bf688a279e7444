"""Compressed gradients for DistributedDataParallel.

    ddp = DistributedDataParallel(model)
    hook = CompressionHook(ddp, codec="int8")
    ddp.register_comm_hook(hook, compress_hook)

Each bucket of DDP has a state of its own, which keeps the errors that a codec with feedback still owes. Errors belong
to the bucket's parameters in their order. DDP orders its buckets anew after its first step, and a program that goes on
from a checkpoint begins with DDP's first order again. So the hook remembers the order of the second step, and sorts
gradients that come in another one.
"""

# Annotations are objects here: DDP checks those of a hook.
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ._backend import backend_of
from ._states import new_state, read_state, state_as_tensor

__all__ = ["CODECS", "DTYPES", "CompressionHook", "compress_hook", "local_hook"]

# The codecs of docs/compression.md.
CODECS = ("sign", "sign-rms", "int8", "int4", "bf16")

# The elements that they take.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# The steps of DDP before its buckets are in their final order, and the first one after that.
WARMUP_STEPS_MIN = 2

# The names of a bucket's parameters, in their order.
Names = tuple[str, ...]


@dataclasses.dataclass
class _Bucket:
    """Parameters that are compressed together."""

    dtype: torch.dtype
    # Of the first compressed call, or of a checkpoint.
    state: Any | None = None


@dataclasses.dataclass
class _Unsorted:
    """Gradients that have come in another order, with the future that DDP waits for."""

    names: Names
    bucket: dist.GradBucket
    future: Future[torch.Tensor]

    def parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each parameter's part of the bucket, as it lies in memory."""
        flat = self.bucket.buffer()
        for name, gradient in zip(self.names, self.bucket.gradients(), strict=True):
            start = gradient.storage_offset() - flat.storage_offset()
            yield name, flat[start : start + gradient.numel()]


class CompressionHook:
    """The state of `compress_hook` for one DDP module: its codec, its steps, and the errors of its buckets.

    ddp: the module, whose group has this backend for the CPU.
    codec: the name of a codec, one of CODECS. "sign" and "sign-rms" have error feedback.
    warmup_steps: so many first steps exchange exact gradients; 2 at least, because DDP orders its buckets anew after
        its first step. 15 to 25 % of a training are usual for "sign" and "sign-rms".

    A gradient with a NaN or an infinity is a RuntimeError of the backward pass on all ranks, which names the rank. The
    program skips that step.
    """

    def __init__(
        self, ddp: DistributedDataParallel, *, codec: str = "int8", warmup_steps: int = WARMUP_STEPS_MIN
    ) -> None:
        check_codec(codec)
        if warmup_steps < WARMUP_STEPS_MIN:
            raise ValueError(
                f"warmup_steps is {warmup_steps}, allowed is {WARMUP_STEPS_MIN} or above: DDP orders its buckets anew "
                "after its first step"
            )
        self.codec = codec
        self.warmup_steps = warmup_steps
        # The steps so far, those of earlier runs included.
        self.steps = 0
        self._group = ddp.process_group
        self._backend = backend_of(self._group)
        self._names: dict[torch.Tensor, str] = {}
        for name, parameter in ddp.module.named_parameters():
            if parameter.requires_grad and name not in ddp.parameters_to_ignore:
                _check_dtype(parameter.dtype, f"the parameter {name!r}")
                self._names[parameter] = name
        # In DDP's final order, once that is known.
        self._buckets: dict[Names, _Bucket] = {}
        self._has_order = False
        # The steps of this process.
        self._own_steps = 0
        # Of the step that runs: the means of its buckets so far, and gradients that have come in another order.
        self._begun: dict[Names, Future[torch.Tensor]] = {}
        self._unsorted: list[_Unsorted] = []

    def state_dict(self) -> dict[str, Any]:
        """The state of this rank between two steps, for a checkpoint: each rank saves its own."""
        buckets = [
            {
                "parameters": list(names),
                "dtype": bucket.dtype,
                "elements": self._elements(names),
                "errors": None if bucket.state is None else state_as_tensor(bucket.state),
            }
            # DDP's first order is not kept.
            for names, bucket in (self._buckets.items() if self._has_order else ())
        ]
        return {"codec": self.codec, "steps": self.steps, "buckets": buckets}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint of the same rank of as many ranks.

        Raises ValueError for a checkpoint of another codec, of other parameters, or of another rank; the hook is then
        as before.
        """
        if state["codec"] != self.codec:
            raise ValueError(f"the checkpoint is of the codec {state['codec']!r}, the hook has {self.codec!r}")
        saved = [name for bucket in state["buckets"] for name in bucket["parameters"]]
        if saved and sorted(saved) != sorted(self._names.values()):
            other = sorted(set(saved) ^ set(self._names.values()))
            raise ValueError(f"the checkpoint is of other parameters: {', '.join(other[:5]) or 'some come twice'}")
        buckets = {}
        for bucket in state["buckets"]:
            names, dtype, errors = tuple(bucket["parameters"]), bucket["dtype"], bucket["errors"]
            if bucket["elements"] != self._elements(names):
                raise ValueError(f"the checkpoint is of parameters of another size: {', '.join(names[:5])}")
            owed = None if errors is None else read_state(self._backend, self.codec, dtype, errors)
            buckets[names] = _Bucket(dtype, owed)
        self._end_last_step()
        self.steps, self._buckets, self._has_order = state["steps"], buckets, bool(buckets)

    def _elements(self, names: Names) -> int:
        elements = {name: parameter.numel() for parameter, name in self._names.items()}
        return sum(elements[name] for name in names)

    def _reduce(self, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        """Starts the mean of a bucket's gradients; of gradients in another order once all of them have come."""
        names = tuple(self._names[parameter] for parameter in bucket.parameters())
        flat = bucket.buffer()
        _check_dtype(flat.dtype, f"the bucket of {names[0]!r}")
        if bucket.index() == 0:
            self._end_last_step()
            if not self._has_order:
                self._buckets = {}
        if not self._has_order:
            self._buckets[names] = _Bucket(flat.dtype)
        if names in self._buckets:
            future = self._mean(names, flat)
        else:
            future = Future()
            self._unsorted.append(_Unsorted(names, bucket, future))
        if bucket.is_last():
            if self._unsorted:
                self._reduce_sorted()
            self._has_order = self._has_order or self._own_steps > 0
            self._own_steps += 1
            self.steps += 1
        return future

    def _reduce_sorted(self) -> None:
        """Starts the means of gradients that have come in another order, sorted into the hook's."""
        parts = {name: part for unsorted in self._unsorted for name, part in unsorted.parts()}
        vectors = {
            names: torch.cat([parts[name] for name in names])
            for names in self._buckets
            if names not in self._begun
        }

        waiting = self._unsorted

        def sort_back(means: Future[list[Future[torch.Tensor | Exception]]]) -> None:
            results = [mean.value() for mean in means.value()]
            for result in results:
                if isinstance(result, Exception):
                    for unsorted in waiting:
                        unsorted.future.set_exception(result)
                    return
            for names, mean in zip(vectors, results, strict=True):
                for name, part in zip(names, mean.split([parts[name].numel() for name in names]), strict=True):
                    parts[name].copy_(part)
            for unsorted in waiting:
                unsorted.future.set_result(unsorted.bucket.buffer())

        # Of futures that fail, `collect_all` waits for the first one only.
        means = [self._mean(names, flat).then(_result) for names, flat in vectors.items()]
        torch.futures.collect_all(means).then(sort_back)

    def _end_last_step(self) -> None:
        """Waits for the means of a step that has failed: DDP waits for the first bucket that fails, and no further."""
        for mean in self._begun.values():
            mean.then(_result).wait()
        self._begun, self._unsorted = {}, []

    def _mean(self, names: Names, flat: torch.Tensor) -> Future[torch.Tensor]:
        # A first order that is not DDP's final one owes nothing.
        is_exact = self.steps < self.warmup_steps or not (self._has_order or self._own_steps > 0)
        if is_exact:
            work = dist.all_reduce(flat, dist.ReduceOp.AVG, self._group, async_op=True)
        else:
            bucket = self._buckets[names]
            if bucket.state is None:
                bucket.state = new_state(self._backend, self.codec, flat)
            work = self._backend.compressed_all_reduce(flat, dist.ReduceOp.AVG, bucket.state, async_op=True)
        mean = work.get_future().then(lambda future: future.value()[0])
        self._begun[names] = mean
        return mean


def compress_hook(state: CompressionHook, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """The hook for `DistributedDataParallel.register_comm_hook`, with a CompressionHook of the same module."""
    return state._reduce(bucket)


def local_hook(state: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """A hook that leaves each rank its own gradients, for an optimiser that exchanges something else: OneBitAdam."""
    future: Future[torch.Tensor] = Future()
    future.set_result(bucket.buffer())
    return future


def _result(future: Future[torch.Tensor]) -> torch.Tensor | Exception:
    try:
        return future.value()
    except Exception as error:  # of whatever type the call's is
        return error


def check_codec(codec: str) -> None:
    """Raises ValueError for a name that no codec has."""
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r} is none of {', '.join(CODECS)}")


def _check_dtype(dtype: torch.dtype, subject: str) -> None:
    if dtype not in DTYPES:
        allowed = ", ".join(str(each) for each in DTYPES)
        raise TypeError(f"unisono_torch: {subject} is of {dtype}; codecs take {allowed}")
