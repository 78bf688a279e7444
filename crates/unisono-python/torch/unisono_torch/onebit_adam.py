"""1-bit Adam: Adam whose steps exchange one bit for each parameter (Tang et al., ICML 2021).

    optimizer = OneBitAdam(model.parameters(), lr=1e-3, freeze_step=1000)

Adam cannot take compressed gradients: it divides by the root of their squares, and error feedback needs an update that
is linear in the compressed values. So the variance is measured for `freeze_step` steps with exact gradients and then
frozen. From then on each rank adds its own gradient to the common momentum, and the ranks average the results
compressed.

The optimiser exchanges gradients itself, so that nothing else may: a model is used as it is, or in a
DistributedDataParallel with the hook `compression.local_hook`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import Optimizer

from ._backend import backend_of
from ._states import new_state, read_state, state_as_tensor
from .compression import check_codec

__all__ = ["EXCHANGED", "OneBitAdam"]

# The vectors that ranks can exchange after the warm-up.
EXCHANGED = ("preconditioned", "momentum")

# The options that are equal before and after a checkpoint.
_OPTIONS = ("freeze_step", "codec", "exchanged")


class OneBitAdam(Optimizer):
    """1-bit Adam for parameters of float32 that are the same on all ranks, with bias correction and AdamW's decay.

    params, lr, betas, eps, weight_decay: as torch.optim.AdamW, with groups of parameters.
    freeze_step: so many first steps exchange exact gradients; the variance is frozen after them. 15 to 25 % of a
        training are usual.
    codec: the name of a codec, one of compression.CODECS.
    exchanged: "preconditioned", the momentum divided by the root of the frozen variance, in which a parameter without
        variance stays where it is; or "momentum" itself, as in the paper. There a parameter without variance, to which
        one bit cannot say zero, stays where it is as well.
    group: the ranks; None is the default group.

    A step raises RuntimeError on all ranks when some rank's gradient has a NaN or an infinity, or is so large that a
    moment would have one. Then no parameter and no moment has changed. A parameter without a gradient has a gradient of
    zeros, because all ranks exchange vectors of one length.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        freeze_step: int,
        codec: str = "sign",
        exchanged: str = "preconditioned",
        group: Any | None = None,
    ) -> None:
        if freeze_step < 1:
            raise ValueError(f"freeze_step is {freeze_step}: without a warm-up there is no variance to divide by")
        check_codec(codec)
        if exchanged not in EXCHANGED:
            raise ValueError(f"exchanged is {exchanged!r}, and none of {', '.join(EXCHANGED)}")
        self.freeze_step = freeze_step
        self.codec = codec
        self.exchanged = exchanged
        # The steps so far, those of earlier runs included.
        self.steps = 0
        self._group = group
        self._backend = backend_of(group)
        # Made by the first step: the vectors of all parameters, one after the other, and the errors.
        self._flat: _Flat | None = None
        self._errors: Any | None = None
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As of every optimiser, before the first step."""
        if self.steps > 0:
            raise RuntimeError("OneBitAdam takes no more parameters after its first step: ranks exchange one vector")
        self._flat = None
        super().add_param_group(param_group)
        _check_parameters(self.param_groups[-1])
        _check_options(self.param_groups[-1])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on all ranks, each with the gradient of its own data."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            _check_options(group)
        flat = self._vectors()
        gradient = flat.gradient()
        if self.steps < self.freeze_step:
            self._step_exactly(flat, gradient)
        else:
            self._step_compressed(flat, gradient)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The state of this rank, for a checkpoint: each rank saves its own, because each owes other errors."""
        state = super().state_dict()
        state["one_bit"] = {name: getattr(self, name) for name in _OPTIONS}
        state["one_bit"]["steps"] = self.steps
        state["one_bit"]["errors"] = None if self._errors is None else state_as_tensor(self._errors)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a checkpoint of the same rank of as many ranks.

        Raises ValueError for a checkpoint of other options, of other parameters, or of another rank; the optimiser is
        then as before.
        """
        if "one_bit" not in state_dict:
            raise ValueError("the checkpoint is not of OneBitAdam")
        saved = state_dict["one_bit"]
        for name in _OPTIONS:
            if saved[name] != getattr(self, name):
                raise ValueError(f"the checkpoint has {name}={saved[name]!r}, the optimiser {getattr(self, name)!r}")
        errors = saved["errors"]
        if errors is not None:
            errors = read_state(self._backend, self.codec, torch.float32, errors)
        super().load_state_dict(state_dict)
        self.steps, self._errors = saved["steps"], errors
        self._flat = None
        if self.steps > 0:
            self._flat = _Flat(self.param_groups, self.state)

    def _vectors(self) -> _Flat:
        if self._flat is None:
            self._flat = _Flat(self.param_groups, self.state)
            self._check_parameters(self._flat)
        return self._flat

    def _check_parameters(self, flat: _Flat) -> None:
        """Refuses parameters that differ between ranks: steps would keep them apart for ever."""
        own = torch.stack([part.view(torch.int32).sum() for part in flat.parameters()]).sum()
        own = torch.stack([own, torch.tensor(flat.elements)])
        least, most = own.clone(), own.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN, self._group)
        dist.all_reduce(most, dist.ReduceOp.MAX, self._group)
        if not torch.equal(least, most):
            raise RuntimeError(
                "OneBitAdam: the parameters differ between ranks. Broadcast them before the first step, or put the "
                "model into a DistributedDataParallel with the hook unisono_torch.compression.local_hook"
            )

    def _step_exactly(self, flat: _Flat, gradient: torch.Tensor) -> None:
        own_square_is_finite = bool(gradient.square().isfinite().all())
        dist.all_reduce(gradient, dist.ReduceOp.AVG, self._group)
        # All ranks have the same bits, and find the same.
        if not gradient.square().isfinite().all():
            raise self._blame(own_square_is_finite)
        self.steps += 1
        for group, part in flat.groups():
            beta1, beta2 = group["betas"]
            own = gradient[part]
            momentum, variance = flat.momentum[part], flat.variance[part]
            momentum.mul_(beta1).add_(own, alpha=1 - beta1)
            variance.mul_(beta2).addcmul_(own, own, value=1 - beta2)
            root = variance.div(bias_correction(beta2, self.steps)).sqrt_().add_(group["eps"])
            flat.move(group, part, momentum / root, self.steps)

    def _blame(self, is_innocent: bool) -> RuntimeError:
        own = torch.tensor([float(is_innocent)])
        ranks = [torch.empty(1) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(ranks, own, self._group)
        guilty = [str(rank) for rank, innocent in enumerate(ranks) if not innocent.item()]
        subject = f"rank {', '.join(guilty)} of the group" if guilty else "the mean of all ranks"
        return RuntimeError(
            f"OneBitAdam: {subject} has a gradient with a NaN, an infinity or an element too large to be squared; the "
            "step is not done"
        )

    def _step_compressed(self, flat: _Flat, gradient: torch.Tensor) -> None:
        factor = flat.preconditioner(self.freeze_step)
        is_preconditioned = self.exchanged == "preconditioned"
        # The last momentum of the warm-up is Adam's.
        own = gradient.mul_(factor) if is_preconditioned and self.steps > self.freeze_step else gradient
        for group, part in flat.groups():
            beta1 = group["betas"][0]
            own[part].mul_(1 - beta1).add_(flat.momentum[part], alpha=beta1)
        if is_preconditioned and self.steps == self.freeze_step:
            own.mul_(factor)
        if self._errors is None:
            self._errors = new_state(self._backend, self.codec, own)
        self._backend.compressed_all_reduce(own, dist.ReduceOp.AVG, self._errors, async_op=False)
        # One bit does not say zero: these parameters have none.
        own.masked_fill_(factor == 0, 0.0)
        self.steps += 1
        flat.momentum.copy_(own)
        update = own if is_preconditioned else own.mul_(factor)
        for group, part in flat.groups():
            flat.move(group, part, update[part], self.steps)


class _Flat:
    """The moments of all parameters, one after the other. The optimiser's state has a view for each parameter."""

    def __init__(self, groups: list[dict[str, Any]], state: dict[torch.Tensor, Any]) -> None:
        self._groups = groups
        self._parameters = [parameter for group in groups for parameter in group["params"]]
        self._lengths = [parameter.numel() for parameter in self._parameters]
        self.elements = sum(self._lengths)
        self.momentum = self._vector(state, "exp_avg")
        self.variance = self._vector(state, "exp_avg_sq")
        self._preconditioner: torch.Tensor | None = None

    def _vector(self, state: dict[torch.Tensor, Any], name: str) -> torch.Tensor:
        """A vector with the values of the state, which becomes the views of it."""
        vector = torch.zeros(self.elements)
        for parameter, part in zip(self._parameters, vector.split(self._lengths), strict=True):
            view = part.view(parameter.shape)
            if name in state[parameter]:
                view.copy_(state[parameter][name])
            state[parameter][name] = view
        return vector

    def parameters(self) -> list[torch.Tensor]:
        return self._parameters

    def gradient(self) -> torch.Tensor:
        """A copy of the gradients."""
        return torch.cat([_gradient(parameter).reshape(-1) for parameter in self._parameters])

    def groups(self) -> Iterator[tuple[dict[str, Any], slice]]:
        """Each group of parameters with its part of the vectors."""
        start = 0
        for group in self._groups:
            length = sum(parameter.numel() for parameter in group["params"])
            yield group, slice(start, start + length)
            start += length

    def preconditioner(self, freeze_step: int) -> torch.Tensor:
        """One over the root of the variance as it is at the end of the warm-up; 0 where that is 0."""
        if self._preconditioner is None:
            self._preconditioner = torch.zeros(self.elements)
            for group, part in self.groups():
                variance = self.variance[part]
                root = variance.div(bias_correction(group["betas"][1], freeze_step)).sqrt_().add_(group["eps"])
                self._preconditioner[part] = root.reciprocal_().masked_fill_(variance == 0, 0.0)
        return self._preconditioner

    def move(self, group: dict[str, Any], part: slice, update: torch.Tensor, steps: int) -> None:
        """Moves the parameters of a group."""
        length = group["lr"] / bias_correction(group["betas"][0], steps)
        kept = 1 - group["lr"] * group["weight_decay"]
        lengths = [parameter.numel() for parameter in group["params"]]
        for parameter, own in zip(group["params"], update.split(lengths), strict=True):
            parameter.mul_(kept).sub_(own.view(parameter.shape), alpha=length)


def bias_correction(beta: float, steps: int) -> float:
    """1 - beta^steps, by products only: a power may give other bits on another machine, and ranks would drift apart."""
    power, square, left = 1.0, beta, steps
    while left > 0:
        if left & 1:
            power *= square
        square *= square
        left >>= 1
    return 1 - power


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    if parameter.grad is None:
        return torch.zeros(parameter.numel())
    if parameter.grad.layout is not torch.strided:
        raise TypeError(f"OneBitAdam takes dense gradients, not one of {parameter.grad.layout}")
    return parameter.grad


def _check_parameters(group: dict[str, Any]) -> None:
    for parameter in group["params"]:
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise TypeError(
                f"OneBitAdam takes parameters of torch.float32 on the CPU, not of {parameter.dtype} on "
                f"{parameter.device}"
            )


def _check_options(group: dict[str, Any]) -> None:
    (beta1, beta2), rate, decay = group["betas"], group["lr"], group["weight_decay"]
    rules = [
        ("lr", rate, 0 <= rate < math.inf, "0 or above"),
        ("betas[0]", beta1, 0 <= beta1 < 1, "0 to below 1"),
        ("betas[1]", beta2, 0 <= beta2 < 1, "0 to below 1"),
        ("eps", group["eps"], 0 < group["eps"] < math.inf, "above 0"),
        ("weight_decay", decay, 0 <= decay < math.inf, "0 or above"),
    ]
    for name, value, is_valid, allowed in rules:
        if not is_valid:
            raise ValueError(f"{name} is {value}, allowed is {allowed}")
