"""1-bit Adam: its warm-up is Adam, its later steps are those of Adam with a frozen variance, and checkpoints.

    unisono run -n 2 -- python -m pytest tests/ranks/test_onebit_adam.py
"""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from unisono_torch.compression import local_hook
from unisono_torch.onebit_adam import EXCHANGED, OneBitAdam


@pytest.fixture(autouse=True)
def one_thread(world: Any) -> None:
    """Each test has a default group, and ranks share the cores."""
    torch.set_num_threads(1)


def layers() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 60), nn.Tanh(), nn.Linear(60, 1))


def groups(model: nn.Module) -> list[dict[str, Any]]:
    """Two groups of parameters with other options."""
    first, _, last = model
    return [{"params": first.parameters()}, {"params": last.parameters(), "lr": 0.02, "weight_decay": 0.1}]


def loss(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    inputs = torch.randn(16, 20, generator=torch.Generator().manual_seed(1000 * rank + step))
    return (model(inputs) - inputs[:, :5].sin().sum(1, keepdim=True)).square().mean()


def train(model: nn.Module, optimizer: OneBitAdam, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss(model, step, dist.get_rank()).backward()
        optimizer.step()


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def assert_same_on_all_ranks(tensor: torch.Tensor) -> None:
    others = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(others, tensor)
    for other in others:
        assert torch.equal(other, tensor)


def train_exactly(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """The same training on one rank, with the data of all."""
    size = dist.get_world_size()
    for step in steps:
        optimizer.zero_grad()
        sum(loss(model, step, rank) / size for rank in range(size)).backward()
        optimizer.step()


def test_the_warm_up_is_adam() -> None:
    ours, theirs = layers(), layers()
    optimizer = OneBitAdam(groups(ours), lr=0.01, freeze_step=20)
    train(ours, optimizer, range(20))
    train_exactly(theirs, torch.optim.AdamW(groups(theirs), lr=0.01, weight_decay=0.0), range(20))
    assert torch.allclose(weights(ours), weights(theirs), rtol=1e-4, atol=1e-5)
    assert_same_on_all_ranks(weights(ours))


@pytest.mark.parametrize("exchanged", EXCHANGED)
def test_later_steps_are_those_of_adam_with_a_frozen_variance(exchanged: str) -> None:
    ours, theirs = layers(), layers()
    # bf16 leaves out little.
    optimizer = OneBitAdam(groups(ours), lr=0.01, freeze_step=10, codec="bf16", exchanged=exchanged)
    train(ours, optimizer, range(20))
    frozen = FrozenAdam(theirs, freeze_step=10)
    train_exactly(theirs, frozen, range(20))
    start = weights(layers())
    error = (weights(ours) - weights(theirs)).norm() / (weights(theirs) - start).norm()
    assert error < 0.02
    # Without the freeze the training goes elsewhere.
    other = layers()
    train_exactly(other, torch.optim.AdamW(groups(other), lr=0.01, weight_decay=0.0), range(20))
    assert (weights(ours) - weights(other)).norm() > 3 * (weights(ours) - weights(theirs)).norm()


class FrozenAdam(torch.optim.Optimizer):
    """The definition of a step, in double precision and without communication."""

    def __init__(self, model: nn.Module, freeze_step: int) -> None:
        super().__init__(groups(model), {"lr": 0.01, "weight_decay": 0.0})
        self.freeze_step, self.steps = freeze_step, 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.steps += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                state, gradient = self.state[parameter], parameter.grad.double()
                state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * gradient
                if self.steps <= self.freeze_step:
                    state["v"] = 0.999 * state.get("v", 0.0) + 0.001 * gradient**2
                root = (state["v"] / (1 - 0.999 ** min(self.steps, self.freeze_step))).sqrt() + 1e-8
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(group["lr"] / (1 - 0.9**self.steps) * state["m"] / root)


@pytest.mark.parametrize("exchanged", EXCHANGED)
@pytest.mark.parametrize("codec", ["sign", "sign-rms", "int8"])
def test_it_finds_the_minimum(codec: str, exchanged: str) -> None:
    model = layers()
    before = loss(model, 5000, 0).item()
    optimizer = OneBitAdam(model.parameters(), lr=0.01, freeze_step=60, codec=codec, exchanged=exchanged)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 300)
    for step in range(300):
        train(model, optimizer, range(step, step + 1))
        schedule.step()
    assert loss(model, 5000, 0).item() < 0.2 * before
    assert_same_on_all_ranks(weights(model))


@pytest.mark.parametrize("cut", [2, 5, 6, 9])
@pytest.mark.parametrize("exchanged", EXCHANGED)
def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(exchanged: str, cut: int) -> None:
    def make() -> tuple[nn.Module, OneBitAdam]:
        model = layers()
        return model, OneBitAdam(groups(model), lr=0.01, freeze_step=5, exchanged=exchanged)

    whole, optimizer = make()
    train(whole, optimizer, range(12))
    first, optimizer = make()
    train(first, optimizer, range(cut))
    file = io.BytesIO()
    torch.save([first.state_dict(), optimizer.state_dict()], file)
    second, optimizer = make()
    file.seek(0)
    model_state, optimizer_state = torch.load(file, weights_only=True)
    second.load_state_dict(model_state)
    optimizer.load_state_dict(optimizer_state)
    train(second, optimizer, range(cut, 12))
    assert optimizer.steps == 12
    assert torch.equal(weights(whole), weights(second))


def test_in_a_ddp_that_leaves_gradients_alone() -> None:
    ddp, alone = DistributedDataParallel(layers(), bucket_cap_mb=0.004), layers()
    ddp.register_comm_hook(None, local_hook)
    for model in (ddp, alone):
        train(model, OneBitAdam(model.parameters(), freeze_step=3), range(8))
    assert torch.equal(weights(ddp), weights(alone))


@pytest.mark.parametrize("exchanged", EXCHANGED)
def test_a_parameter_without_gradients_stays_where_it_is(exchanged: str) -> None:
    model, unused = layers(), nn.Parameter(torch.full((100,), 3.0))
    optimizer = OneBitAdam([*model.parameters(), unused], lr=0.01, freeze_step=3, exchanged=exchanged)
    train(model, optimizer, range(10))
    assert torch.equal(unused, torch.full((100,), 3.0))
    assert weights(model).isfinite().all()


@pytest.mark.parametrize("steps_before", [2, 6])
def test_a_gradient_that_is_not_finite_names_its_rank_and_changes_nothing(steps_before: int) -> None:
    model = layers()
    optimizer = OneBitAdam(model.parameters(), freeze_step=4)
    train(model, optimizer, range(steps_before))
    before = weights(model).clone(), copy.deepcopy(optimizer.state_dict()["state"])
    guilty = dist.get_world_size() - 1
    optimizer.zero_grad()
    loss(model, 50, dist.get_rank()).backward()
    if dist.get_rank() == guilty:
        model[0].weight.grad[3, 4] = float("inf")
    with pytest.raises(RuntimeError, match=f"rank {guilty}"):
        optimizer.step()
    assert torch.equal(weights(model), before[0])
    for key, moments in optimizer.state_dict()["state"].items():
        for name, moment in moments.items():
            assert torch.equal(moment, before[1][key][name])
    train(model, optimizer, range(steps_before, 10))
    assert_same_on_all_ranks(weights(model))


def test_parameters_that_differ_between_ranks_are_refused() -> None:
    model = layers()
    with torch.no_grad():
        model[0].bias[0] += dist.get_rank()
    optimizer = OneBitAdam(model.parameters(), freeze_step=4)
    with pytest.raises(RuntimeError, match="the parameters differ between ranks. Broadcast them"):
        train(model, optimizer, range(1))


def test_options_that_cannot_be_are_refused() -> None:
    parameters = list(layers().parameters())
    for options, text in [
        ({"freeze_step": 0}, "freeze_step is 0: without a warm-up"),
        ({"codec": "int3"}, "'int3' is none of sign"),
        ({"exchanged": "gradient"}, "'gradient', and none of preconditioned, momentum"),
        ({"betas": (1.0, 0.9)}, r"betas\[0\] is 1.0, allowed is 0 to below 1"),
        ({"lr": -1.0}, "lr is -1.0, allowed is 0 or above"),
        ({"eps": 0.0}, "eps is 0.0, allowed is above 0"),
        ({"weight_decay": float("nan")}, "weight_decay is nan, allowed is 0 or above"),
    ]:
        with pytest.raises(ValueError, match=text):
            OneBitAdam(parameters, **{"freeze_step": 5, **options})
    with pytest.raises(TypeError, match="takes parameters of torch.float32 on the CPU, not of torch.float64"):
        OneBitAdam(layers().double().parameters(), freeze_step=5)


def test_parameters_that_come_late_are_refused() -> None:
    model = layers()
    optimizer = OneBitAdam(model[0].parameters(), freeze_step=5)
    optimizer.add_param_group({"params": model[2].parameters()})
    train(model, optimizer, range(1))
    with pytest.raises(RuntimeError, match="takes no more parameters after its first step"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})


def test_checkpoints_of_something_else_are_refused() -> None:
    model = layers()
    optimizer = OneBitAdam(model.parameters(), freeze_step=2)
    train(model, optimizer, range(4))
    state = optimizer.state_dict()
    with pytest.raises(ValueError, match="the checkpoint has freeze_step=2, the optimiser 3"):
        OneBitAdam(model.parameters(), freeze_step=3).load_state_dict(state)
    with pytest.raises(ValueError, match="the checkpoint is not of OneBitAdam"):
        OneBitAdam(model.parameters(), freeze_step=3).load_state_dict(torch.optim.Adam(model.parameters()).state_dict())
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, state)
    with pytest.raises(ValueError, match="the errors in the checkpoint cannot be used: .*rank"):
        OneBitAdam(model.parameters(), freeze_step=2).load_state_dict(states[(dist.get_rank() + 1) % len(states)])
