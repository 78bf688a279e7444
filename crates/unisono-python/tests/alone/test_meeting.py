"""Ranks that find each other without our launcher: by hand, by variables, by mpirun, through a store of the program."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from support import SECONDS_MAX, SECRET, ended, free_port


def outputs_of_two(tmp_path, program: str, **variables_of_rank) -> list[str]:
    """The outputs of two processes that no launcher of ours started. The first argument is the rank."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program))
    ranks = []
    for rank in range(2):
        variables = {name: value.format(rank=rank) for name, value in variables_of_rank.items()}
        command = [sys.executable, str(file), str(rank)]
        ranks.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables})
        )
    try:
        return [rank.communicate(timeout=SECONDS_MAX)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


SUM = """
own = np.ones(2)
world.all_reduce(own)
print(own.tolist())
world.close()
"""


def test_a_world_by_hand(tmp_path):
    program = f"""
import sys
import numpy as np
import unisono as un

address = "tcp://127.0.0.1:{free_port()}"
world = un.init(init_method=address, rank=int(sys.argv[1]), world_size=2, join_timeout=30)
"""
    assert outputs_of_two(tmp_path, program + SUM, UNISONO_SECRET=SECRET) == ["[2.0, 2.0]\n"] * 2


def test_the_variables_of_torchrun(tmp_path):
    program = """
import numpy as np
import unisono as un

world = un.init(join_timeout=30)
"""
    variables = {
        "RANK": "{rank}",
        "LOCAL_RANK": "{rank}",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TORCHELASTIC_RUN_ID": "none",
        "UNISONO_SECRET": SECRET,
    }
    assert outputs_of_two(tmp_path, program + SUM, **variables) == ["[2.0, 2.0]\n"] * 2


def test_mpirun_of_its_wheel(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("import numpy as np\nimport unisono as un\nworld = un.init(join_timeout=30)\n" + SUM)
    mpirun = str(Path(sys.executable).parent / "mpirun")
    command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "4", sys.executable, str(file)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    status, output = ended(subprocess.Popen(command, text=True, start_new_session=True, **streams))
    assert (status, output) == (0, "[4.0, 4.0]\n" * 4)


def test_a_meeting_through_a_store_of_the_program(tmp_path):
    program = f"""
import os, sys, time
import numpy as np
import unisono as un

class Folder:
    def set(self, key, value):
        path = os.path.join({str(tmp_path)!r}, key.replace("/", "_"))
        with open(path + ".partial", "wb") as file:
            file.write(value)
        os.rename(path + ".partial", path)

    def get(self, key, seconds):
        try:
            with open(os.path.join({str(tmp_path)!r}, key.replace("/", "_")), "rb") as file:
                return file.read()
        except FileNotFoundError:
            time.sleep(min(seconds, 0.01))
            return None

world = un.init(store=Folder(), rank=int(sys.argv[1]), world_size=2, join_timeout=30)
"""
    assert outputs_of_two(tmp_path, program + SUM) == ["[2.0, 2.0]\n"] * 2


def test_a_store_that_raises_or_lies():
    program = [sys.executable, "-c", textwrap.dedent("""
        import sys
        import unisono as un

        class Store:
            def set(self, key, value):
                raise RuntimeError("the store is gone")

            def get(self, key, seconds):
                return 3

        try:
            un.init(store=Store(), rank=int(sys.argv[1]), world_size=2, join_timeout=10)
        except un.Rendezvous as error:
            print(error)
    """)]
    outputs = [
        subprocess.run([*program, str(rank)], capture_output=True, text=True, timeout=SECONDS_MAX).stdout
        for rank in range(2)
    ]
    assert "RuntimeError: the store is gone" in outputs[0] and "TypeError" in outputs[1], outputs
