"""Whole programs: started by our launcher, failing, interrupted, forked, ending with work in flight."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from support import SECONDS_MAX, SECRET, ended, free_port, run, start

import unisono as un


def test_the_ring_of_the_page(tmp_path):
    output = run(
        tmp_path,
        4,
        """
        import numpy as np
        import unisono as un

        with un.init() as world:
            left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
            token = np.array([world.rank])
            seen = np.zeros(1, "int64")
            world.send_recv(token, right, seen, left)
            print("got", seen[0])
        """,
    )
    assert sorted(output.split("\n")) == ["", "[0] got 3", "[1] got 0", "[2] got 1", "[3] got 2"]


def test_the_module_starts_ranks_with_its_interpreter(tmp_path):
    file = tmp_path / "hello.py"
    file.write_text("import unisono as un\nprint(un.init().size)\n")
    command = [sys.executable, "-m", "unisono", "run", "-n", "2", str(file)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True).stdout
    assert sorted(output.split()) == ["2", "2", "[0]", "[1]"]


def test_an_exception_on_one_rank_ends_the_others(tmp_path):
    status, output = ended(
        start(
            tmp_path,
            3,
            """
            import numpy as np
            import unisono as un

            with un.init() as world:
                if world.rank == 1:
                    raise ValueError("rank 1 has no data")
                world.all_reduce(np.ones(3))
            """,
        )
    )
    assert status != 0 and "ValueError: rank 1 has no data" in output
    assert "Aborted: rank 1 aborted" in output


def test_a_lost_rank_is_named_and_the_others_go_on(tmp_path):
    output = run(
        tmp_path,
        4,
        """
        import os, signal
        import numpy as np
        import unisono as un

        world = un.init()
        if world.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                world.all_reduce(np.ones(1000))
        except un.PeerLost as error:
            assert error.ranks == [2], error
            survivors = world.shrink()
        own = np.array([world.rank])
        survivors.communicator.all_reduce(own)
        print("sum", own[0], survivors.new_ranks)
        """,
        arguments=["--keep-going"],
    )
    assert output.count("sum 4 [0, 1, None, 2]") == 3, output


def test_exit_with_work_in_flight(tmp_path):
    program = """
    import numpy as np
    import sys
    import unisono as un

    world = un.init()
    works = [world.recv_async(np.zeros(10), un.ANY, 5) for _ in range(3)]
    works[0].on_done(lambda: print("never"))
    world.barrier()
    {ending}
    """
    quick = {**os.environ, "UNISONO_DROP_TIMEOUT_MS": "1000"}
    for ending in ("sys.exit(0)", "del works", "del works, world"):
        _, output = ended(start(tmp_path, 2, program.format(ending=ending), env=quick))
        assert "this process ends with 3 started calls that are not over" in output, output
        assert not any(word in output for word in ("never", "panicked", "Fatal", "signal", "Traceback")), output


def test_a_forked_child_lives_and_may_not_call(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        import os
        import numpy as np
        import unisono as un

        world = un.init()
        own = np.ones(3)
        world.all_reduce(own)
        child = os.fork()
        if child == 0:
            # As a worker of a DataLoader: it computes, and ends.
            assert own.sum() == 6
            try:
                world.all_reduce(own)
            except un.Forked as error:
                print("refused", error.kind)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        child = os.fork()
        if child == 0:
            raise SystemExit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        world.all_reduce(own)
        print("parent", own.tolist())
        """,
    )
    assert output.count("refused Forked") == 2 and output.count("parent [4.0, 4.0, 4.0]") == 2, output


def test_workers_of_multiprocessing(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        import multiprocessing
        import numpy as np
        import unisono as un

        def square(number):
            return number * number

        if __name__ == "__main__":
            with un.init() as world:
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    own = np.array(pool.map(square, range(10)))
                world.all_reduce(own)
                print(own.sum())
        """,
    )
    assert output.count("570") == 2, output


# On rank 0, for a rank 1 that does not come.
WAITS = {
    "a collective": "world.all_reduce(np.zeros(10))",
    "a barrier": "world.barrier()",
    "a receive": "world.recv(np.zeros(1), un.ANY)",
    "a probe": "world.probe(1)",
    "a handle": "world.recv_async(np.zeros(1), un.ANY).wait()",
    "a handle with a timeout": "world.recv_async(np.zeros(1), un.ANY).wait(50)",
    "handles": "un.wait_any([world.recv_async(np.zeros(1), 1, tag) for tag in range(2)])",
    "an object": "world.broadcast_object(None, 1)",
    "a message with an object": "world.recv_object(1)",
    "a split": "world.split(0)",
    "a prepared call": "world.prepare_all_reduce(np.zeros(10)).call(np.zeros(10))",
    "a group of calls": "with world.group_calls() as group: group.barrier(); group.send(np.zeros(1), 1, 5)",
    "a compressed call": "world.compressed_all_reduce(np.zeros(8, 'f4'), un.SUM, un.CompressionState(world, 'int8', 8))",
    "a started compressed call": (
        "world.compressed_all_reduce_async(np.zeros(8, 'f4'), un.SUM, un.CompressionState(world, 'int8', 8)).wait()"
    ),
}
WAITS_OF_CONTROL = {
    "the store": "world.store().get('never', 50)",
    "a monitored barrier": "world.monitored_barrier(50)",
    "an agreement": "world.agree(True)",
}
INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
import unisono as un

world = un.init()
world.barrier()
signalled = []

def interrupt():
    signalled.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

if world.rank == 0:
    threading.Timer(0.3, interrupt).start()
    try:
        {wait}
    except KeyboardInterrupt as error:
        print("interrupted after", round(1000 * (time.monotonic() - signalled[0])), "ms", error.__notes__)
else:
    try:
        {others}
    except un.Error as error:
        print("ended by", error.kind, error.ranks)
"""


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_ctrl_c_ends_a_wait_and_says_so(tmp_path, wait):
    others = "world.recv(np.zeros(1), 0, 77)"
    output = run(tmp_path, 2, INTERRUPTED.format(wait=wait, others=others))
    print(output)
    assert "Ctrl-C has ended a call, and its communicator on every rank" in output and "ended by Aborted [0]" in output, output


@pytest.mark.parametrize("wait", WAITS_OF_CONTROL.values(), ids=WAITS_OF_CONTROL.keys())
def test_ctrl_c_ends_a_wait_for_the_control_plane(tmp_path, wait):
    others = "world.store().wait(['over'], 50)"
    output = run(tmp_path, 2, INTERRUPTED.format(wait=wait, others=others) + """
if world.rank == 0:
    world.store().set("over", b"")
""")
    print(output)
    assert "interrupted after" in output, output


def test_ctrl_c_ends_the_wait_for_the_other_ranks(tmp_path):
    program = """
    import os, signal, threading
    import unisono as un

    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        un.init(init_method="tcp://127.0.0.1:{port}", rank=0, world_size=2, join_timeout=50)
    except KeyboardInterrupt:
        print("interrupted")
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program.format(port=free_port())))
    secret = {**os.environ, "UNISONO_SECRET": SECRET}
    ended_rank = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, env=secret, timeout=SECONDS_MAX
    )
    assert ended_rank.stdout == "interrupted\n", ended_rank


def test_a_handler_that_raises_nothing_ends_no_wait(tmp_path):
    program = """
    import os, signal, threading, time
    import numpy as np
    import unisono as un

    world = un.init()
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    world.barrier()
    if world.rank == 0:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        world.recv(np.zeros(1), 1)
        print("seen", seen)
    else:
        time.sleep(0.7)
        world.send(np.zeros(1), 0)
    """
    assert "seen [1]" in run(tmp_path, 2, program)


def multiply(world, factor):
    return world.rank * factor


def fails(world):
    if world.rank == 1:
        raise ValueError("no data")
    world.barrier()


def test_run_gives_the_results_of_the_ranks(capsys):
    assert un.run(3, multiply, 5) == [0, 5, 10]
    local = 7

    def closure(world):
        print("hello from", world.rank)
        return local + world.broadcast_object(world.rank + 1)

    assert un.run(2, closure) == [8, 8]
    assert "[1] hello from 1" in capsys.readouterr().out


def test_run_raises_what_ranks_raised():
    with pytest.raises(un.RunFailed, match="rank 1: ValueError: no data") as caught:
        un.run(3, fails)
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(caught.value.errors[0], un.Aborted)


def test_run_of_a_notebook():
    """Its functions are of `__main__`, and no file has them."""
    cell = """
import unisono as un

def scaled(world):
    if world.rank == 1 and scale == 3:
        raise ValueError("rank 1 has no data")
    return scale * world.all_gather_object(world.rank)[1]

scale = 2
print(un.run(2, scaled))
scale = 3
try:
    un.run(2, scaled)
except un.RunFailed as error:
    print("failed", error)
{hidden}
try:
    print(un.run(2, scaled))
except ImportError as error:
    print("refused", error)
"""
    hidden = "import sys; sys.modules['cloudpickle'] = None"
    program = f"exec(compile({cell.format(hidden=hidden)!r}, '<cell>', 'exec'), globals())"
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX).stdout
    assert output.startswith("[2, 2]\n"), output
    assert "failed rank 0: Aborted: rank 1 aborted the communicator; rank 1: ValueError: rank 1 has no data" in output
    # One traceback, of the rank that failed first, and with no line of the package.
    assert output.count("Traceback") == 1 and "_rank.py" not in output, output
    assert "needs the package cloudpickle" in output


def test_settings_that_cannot_be_used_are_named(tmp_path):
    status, output = ended(
        start(tmp_path, 1, "import unisono as un\nun.init()\n", env={**os.environ, "UNISONO_CALL_TIMEOUT_S": "soon"})
    )
    assert status != 0 and "unisono.Configuration: UNISONO_CALL_TIMEOUT_S=soon" in output, output


def test_signals_reach_the_program(tmp_path):
    job = start(
        tmp_path,
        2,
        """
        import signal, time
        import unisono as un

        world = un.init()
        print("ready", flush=True)
        time.sleep(60)
        """,
    )
    assert job.stdout is not None
    job.stdout.readline()
    job.send_signal(signal.SIGTERM)
    status, _ = ended(job)
    assert status != 0


def test_a_second_world_is_refused_by_the_lines_of_the_program(tmp_path):
    output = run(
        tmp_path,
        1,
        """
        import unisono as un
        world = un.init()
        try:
            un.init()
        except un.InvalidArgument as error:
            print(error)
        assert un.init(adopt=True).size == world.size
        """,
    )
    assert "program.py:3" in output and "program.py:5" in output, output
