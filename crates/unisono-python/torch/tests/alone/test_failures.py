"""Programs that are wrong, or that lose a rank: every rank gets an error with the cause."""

from __future__ import annotations

import os
import signal

from support import ended, is_calm, run, start


def test_a_mismatch_names_both_lines(tmp_path):
    output = run(
        tmp_path,
        3,
        """
        try:
            if rank == 1:
                dist.broadcast(own(), 0)  # other
            else:
                dist.all_reduce(own())  # most
        except dist.DistBackendError as error:
            print("error", error)
        """,
    )
    lines = open(tmp_path / "program.py").read().split("\n")
    other = next(at for at, line in enumerate(lines, 1) if line.endswith("# other"))
    most = next(at for at, line in enumerate(lines, 1) if line.endswith("# most"))
    errors = [line for line in output.split("\n") if "error" in line]
    assert len(errors) == 3, output
    for error in errors:
        assert f"program.py:{other}" in error and f"program.py:{most}" in error and "broadcast(3 x f32" in error, error


def test_a_mismatch_of_shapes_and_of_types(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        for k, tensors in enumerate([(torch.ones(3), torch.ones(4)), (torch.ones(3), torch.ones(3).long())]):
            group = dist.new_group()
            try:
                dist.all_reduce(tensors[rank], group=group)
            except dist.DistBackendError as error:
                print("error", k, error)
        """,
    )
    assert output.count("error 0") == 2 and output.count("3 x f32") >= 4 and output.count("4 x f32") == 2, output
    assert output.count("error 1") == 2 and output.count("3 x i64") == 2, output


def test_a_killed_rank_is_named_and_the_others_shrink(tmp_path):
    output = run(
        tmp_path,
        4,
        """
        group = dist.new_group()
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                dist.all_reduce(own())
        except dist.DistBackendError as error:
            print("error", error)
        dist.shrink_group([2])
        mine = own()
        dist.all_reduce(mine)
        part = dist.new_group([0, 2])
        if dist.get_rank() != 1:
            dist.all_reduce(mine, group=part)
        print("sum", dist.get_rank(), dist.get_world_size(), mine[0].item())
        dist.destroy_process_group()
        """,
        keep_going=True,
    )
    assert output.count("error unisono: lost rank 2") == 3, output
    assert "sum 0 3 8.0" in output and "sum 1 3 4.0" in output and "sum 2 3 8.0" in output, output


def test_a_killed_rank_ends_asynchronous_calls_and_receives(tmp_path):
    output = run(
        tmp_path,
        3,
        """
        group = dist.new_group()
        works = {"all_reduce": dist.all_reduce(own(), async_op=True)}
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        works["recv"] = dist.irecv(own(), 1, group=group)
        for name, work in works.items():
            try:
                work.wait()
                # Rank 1 may have sent its part before its end.
                print("done", name)
            except dist.DistBackendError as error:
                print("error", name, error)
        """,
        keep_going=True,
    )
    assert output.count("error recv unisono: lost rank 1") == 2, output


def test_an_exception_on_one_rank(tmp_path):
    status, output = ended(
        start(
            tmp_path,
            3,
            """
            dist.barrier()
            if rank == 1:
                raise ValueError("rank 1 has no data")
            dist.all_reduce(own())
            """,
        )
    )
    assert status != 0 and "ValueError: rank 1 has no data" in output, output
    assert "rank 1" in output and "DistBackendError: unisono: " in output, output


def test_calls_after_the_end_of_a_group(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        group = dist.new_group()
        part = backend(group)
        dist.destroy_process_group(group)
        for call in (lambda: part.allreduce([own()]), lambda: part.barrier(), lambda: part.send([own()], 1 - rank, 0)):
            try:
                call()
            except RuntimeError as error:
                print("beneath", str(error).split("\\n")[0])
        try:
            dist.all_reduce(own(), group=group)
        except (RuntimeError, ValueError) as error:
            print("group", str(error).split("\\n")[0])
        dist.barrier()
        dist.destroy_process_group()
        try:
            dist.all_reduce(own())
        except ValueError as error:
            print("default", error)
        """,
    )
    assert output.count("beneath unisono: the group is destroyed") == 6, output
    assert output.count(" group Process group") == 2 and output.count("default Default process group") == 2, output


def test_a_group_that_this_rank_is_not_in(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        group = dist.new_group([0])
        mine = own()
        if rank == 1:
            assert dist.all_reduce(mine, group=group) is None and mine[0].item() == 1.0
            assert dist.get_rank(group) == -1
        else:
            dist.all_reduce(mine, group=group)
        dist.barrier()
        print("over")
        """,
    )
    assert output.count("over") == 2, output


def test_a_forked_child_lives_and_may_not_call(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        mine = torch.ones(3)
        dist.all_reduce(mine)
        child = os.fork()
        if child == 0:
            assert mine.sum() == 6
            for group in (lambda: None, lambda: dist.new_group(use_local_synchronization=True)):
                try:
                    dist.all_reduce(mine, group=group())
                except RuntimeError as error:
                    print("refused", "forked" in str(error))
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        dist.all_reduce(mine)
        print("parent", mine.tolist())
        """,
    )
    assert output.count("refused True") == 4 and output.count("parent [4.0, 4.0, 4.0]") == 2, output


def test_workers_of_a_loader(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        from torch.utils.data import DataLoader, TensorDataset

        loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2, num_workers=2, persistent_workers=True)
        for _ in range(2):
            for (batch,) in loader:
                mine = batch.clone()
                dist.all_reduce(mine)
                assert torch.equal(mine, batch * 2)
        print("over")
        dist.destroy_process_group()
        """,
    )
    assert output.count("over") == 2 and is_calm(output), output


def test_ctrl_c_ends_a_wait(tmp_path):
    for wait in ("dist.all_reduce(own())", "dist.recv(own(), 1)", "dist.all_reduce(own(), async_op=True).wait()"):
        output = run(
            tmp_path,
            2,
            f"""
            dist.barrier()
            if rank == 0:
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    {wait}
                except KeyboardInterrupt:
                    print("interrupted")
            else:
                try:
                    dist.recv(own(), 0, tag=9)
                except dist.DistBackendError as error:
                    print("ended by", error)
            """,
        )
        assert "interrupted" in output and "ended by" in output, (wait, output)


def test_output_that_is_read_slowly(tmp_path):
    """A rank that waits for the reader of its output is only late."""
    job = start(
        tmp_path,
        2,
        """
        if rank == 1:
            sys.stdout.write("x" * 300_000 + "\\n")
            sys.stdout.flush()
        mine = own()
        dist.all_reduce(mine)
        print("sum", mine[0].item())
        """,
    )
    assert job.stdout is not None
    os.kill(job.pid, 0)
    read = 0
    while chunk := job.stdout.read(4096):
        read += chunk.count("sum 1.0")
    assert read == 2 and job.wait(60) == 0


def test_the_signal_of_the_module(tmp_path):
    """SIGTERM of the launcher ends ranks that wait."""
    job = start(tmp_path, 2, 'print("ready", flush=True)\nif rank == 0: dist.recv(own(), 1)\nelse: time.sleep(80)\n')
    assert job.stdout is not None
    job.stdout.readline()
    job.send_signal(signal.SIGTERM)
    status, _ = ended(job)
    assert status != 0
