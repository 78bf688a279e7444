"""Joining by every store and launcher, ends of programs with work in flight, and what stays after many groups."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from support import SECONDS_MAX, ended, environment, is_calm, run, start, start_by_torchrun

STORES = {
    "TCP": 'dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0)',
    "File": 'dist.FileStore(os.path.abspath("store"), size)',
    "Prefix": 'dist.PrefixStore("mine", dist.PrefixStore("ours", dist.FileStore(os.path.abspath("store"), size)))',
}


@pytest.mark.parametrize("store", STORES.values(), ids=STORES.keys())
def test_every_store(tmp_path, store):
    output = run(
        tmp_path,
        3,
        f"""
        store = {store}
        for attempt in range(2):
            dist.init_process_group("unisono", store=store, rank=rank, world_size=size)
            mine = own()
            dist.all_reduce(mine)
            print("sum", attempt, mine[0].item())
            dist.destroy_process_group()
        """,
        joins=False,
    )
    assert output.count("sum 0 3.0") == 3 and output.count("sum 1 3.0") == 3, output


def alone(folder, program: str, **settings: str) -> str:
    """The output of a process without a launcher."""
    file = folder / "alone.py"
    file.write_text("import os, torch\nimport torch.distributed as dist\n" + textwrap.dedent(program))
    clean = {name: value for name, value in environment(**settings).items() if name not in ("RANK", "WORLD_SIZE")}
    result = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, env={**clean, **settings}, timeout=SECONDS_MAX
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_one_rank_with_a_store_of_its_process(tmp_path):
    output = alone(
        tmp_path,
        """
        # torch refuses "cuda:nccl" where there is no GPU, whatever the CPU has.
        for name in ("unisono", "cpu:unisono", "cpu:unisono,cuda:gloo"):
            dist.init_process_group(name, store=dist.HashStore(), rank=0, world_size=1)
            mine = torch.ones(3)
            dist.all_reduce(mine)
            print(name, mine.tolist())
            dist.destroy_process_group()
        """,
    )
    assert output.split("\n")[:3] == [
        "unisono [1.0, 1.0, 1.0]",
        "cpu:unisono [1.0, 1.0, 1.0]",
        "cpu:unisono,cuda:gloo [1.0, 1.0, 1.0]",
    ]


# Half a launcher's variables, wrong ones, and those of another launcher around the program.
ODD = [
    {"WORLD_SIZE": "4"},
    {"RANK": "3"},
    {"RANK": "7", "WORLD_SIZE": "8", "LOCAL_RANK": "7", "LOCAL_WORLD_SIZE": "8"},
    {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
]


@pytest.mark.parametrize("variables", ODD, ids=lambda variables: " ".join(variables))
def test_a_program_that_says_its_rank_needs_no_variables(tmp_path, variables):
    output = alone(
        tmp_path,
        """
        dist.init_process_group("unisono", init_method="file://" + os.path.abspath("%s"), rank=0, world_size=1)
        dist.barrier()
        print("joined", dist.get_rank(), dist.get_world_size())
        """
        % (tmp_path / "store"),
        **variables,
    )
    assert "joined 0 1" in output


def test_spawned_ranks_with_half_of_the_variables(tmp_path):
    output = alone(
        tmp_path,
        """
        import torch.multiprocessing as mp

        def work(rank, path):
            dist.init_process_group("unisono", init_method=f"file://{path}", rank=rank, world_size=3)
            mine = torch.full((3,), float(rank))
            dist.all_reduce(mine)
            print(f"sum {mine[0].item()}\\n", end="", flush=True)
            dist.destroy_process_group()

        if __name__ == "__main__":
            mp.spawn(work, ("%s",), nprocs=3)
        """
        % (tmp_path / "store"),
        WORLD_SIZE="3",
    )
    assert output.count("sum 3.0") == 3


def test_a_setting_that_cannot_be_used_is_named(tmp_path):
    with pytest.raises(AssertionError, match="UNISONO_CALL_TIMEOUT_S=soon"):
        alone(
            tmp_path,
            'dist.init_process_group("unisono", store=dist.HashStore(), rank=0, world_size=1)',
            UNISONO_CALL_TIMEOUT_S="soon",
        )


def test_a_group_bound_to_a_device(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        dist.init_process_group("cpu:unisono", device_id=torch.device("cpu:0"))
        mine = own()
        dist.all_reduce(mine)
        part = dist.split_group(split_ranks=[[0], [1]])
        dist.all_reduce(mine, group=part)
        group = dist.new_group([1])
        if rank == 1:
            dist.all_reduce(mine, group=group)
        print("sum", mine[0].item(), dist.get_backend(part))
        dist.destroy_process_group()
        """,
        joins=False,
    )
    assert output.count("sum 1.0") == 2, output


def test_other_backends_beside_ours(tmp_path):
    """Two groups of Gloo and ours in one program, each the default one once."""
    output = run(
        tmp_path,
        2,
        """
        for first, second in (("gloo", "unisono"), ("unisono", "gloo")):
            dist.init_process_group(first)
            group = dist.new_group(backend=second)
            part = dist.new_group([1], backend=second)
            mine = torch.ones(3)
            dist.all_reduce(mine)
            dist.all_reduce(mine, group=group)
            if rank == 1:
                dist.all_reduce(mine, group=part)
            print(first, mine[0].item())
            dist.destroy_process_group()
        """,
        joins=False,
    )
    assert output.count("gloo 4.0") == 2 and output.count("unisono 4.0") == 2, output


def test_ranks_with_different_backends(tmp_path):
    output = run(
        tmp_path,
        3,
        """
        try:
            dist.init_process_group("gloo" if rank == 1 else "unisono", timeout=timedelta(seconds=4))
        except Exception as error:
            print("error", rank, " ".join(str(error).split()))
        """,
        joins=False,
        keep_going=True,
    )
    assert "error 0" in output and "error 2" in output, output
    ours = [line for line in output.split("\n") if "error 0" in line or "error 2" in line]
    assert any("rank 1" in line for line in ours), ours


def test_torchrun_starts_ranks_again(tmp_path):
    status, output = ended(
        start_by_torchrun(
            tmp_path,
            3,
            """
            attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
            mine = own()
            dist.all_reduce(mine)
            print(f"sum {attempt} {mine[0].item()}", flush=True)
            if rank == 1 and attempt < 2:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.barrier()
            dist.destroy_process_group()
            """,
            "--standalone",
            "--max-restarts",
            "2",
        )
    )
    assert status == 0, output
    assert all(output.count(f"sum {attempt} 3.0") >= 1 for attempt in (0, 1)) and output.count("sum 2 3.0") == 3, output


ENDS = {
    "messages in flight": (
        "works = [dist.irecv(own(), 1 - rank, tag=5), dist.isend(own(), 1 - rank, tag=6)]; sys.exit(0)"
    ),
    "a collective in flight": "work = dist.all_reduce(own(), async_op=True) if rank == 0 else None; sys.exit(0)",
    "a function that waits": (
        "future = dist.irecv(own(), 1 - rank, tag=5).get_future().then(lambda _: print('never')); sys.exit(0)"
    ),
    "a function that runs": (
        "future = dist.all_reduce(own(), async_op=True).get_future().then(lambda _: time.sleep(1)); sys.exit(0)"
    ),
    "destroyed with a receive": "work = dist.irecv(own(), 1 - rank, tag=5); dist.destroy_process_group(); sys.exit(0)",
    "nothing destroyed": "dist.all_reduce(own()); group = dist.new_group(); sys.exit(0)",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_ends(tmp_path, end):
    """No rank crashes or fails. Of a receive that nothing comes for, the job may say that its sender is gone."""
    _, output = ended(start(tmp_path, 2, f"dist.barrier()\n{end}\n", UNISONO_DROP_TIMEOUT_MS="1000"))
    assert "never" not in output and "exited with" not in output and is_calm(output), output


def test_a_thousand_groups_leave_nothing(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        import gc

        def kept():
            gc.collect()
            status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
            return len(os.listdir("/proc/self/fd")), int(status["Threads"]), int(status["VmRSS"].split()[0])

        def cycle(k):
            members = [0, 1] if k % 3 else [k % 2]
            group = dist.new_group(members)
            if rank in members:
                mine = own()
                dist.all_reduce(mine, group=group)
                dist.all_reduce(mine, group=group, async_op=True).get_future().wait()
                dist.destroy_process_group(group)

        for k in range(200):
            cycle(k)
        before = kept()
        for k in range(1000):
            cycle(k)
        after = kept()
        print("kept", before, after)
        # Not all threads need have come or gone; a leak would be hundreds.
        assert after[0] <= before[0] + 2 and after[1] <= before[1] + 2, (before, after)
        # In KiB.
        assert after[2] - before[2] < 3000, (before, after)
        dist.destroy_process_group()
        """,
        # torch's own record of calls grows to 2,000 calls.
        TORCH_FR_BUFFER_SIZE="0",
    )
    assert output.count("kept") == 2, output


def test_worlds_one_after_the_other_leave_nothing(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        def kept():
            status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
            return len(os.listdir("/proc/self/fd")), int(status["Threads"])

        store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0)
        seen = []
        for attempt in range(40):
            dist.init_process_group("unisono", store=store, rank=rank, world_size=size)
            mine = own()
            dist.all_reduce(mine)
            dist.all_reduce(mine, async_op=True).get_future().wait()
            dist.barrier()
            dist.destroy_process_group()
            seen.append(kept())
        # A thread may still return from the function of the last future, which holds the last world.
        for _ in range(600):
            if seen[-1][0] <= seen[4][0] + 2 and seen[-1][1] <= seen[4][1] + 1:
                break
            time.sleep(0.05)
            seen.append(kept())
        else:
            raise SystemExit(f"descriptors and threads: {seen}")
        print("kept", seen[4], seen[-1])
        """,
        joins=False,
    )
    assert output.count("kept") == 2, output
