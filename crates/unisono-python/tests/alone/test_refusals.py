"""Interpreters, worlds, stores and memory that the package refuses, by name and without a crash."""

from __future__ import annotations

import array
import ctypes
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from support import SECONDS_MAX, run

import unisono as un


def of_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own that no launcher starts."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)


def test_a_sub_interpreter_is_refused():
    program = """
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters

    import unisono as un

    world = un.init()
    program = "try:\\n import unisono\\nexcept ImportError as error:\\n print(error, flush=True)"
    interpreters.run_string(interpreters.create(), program)
    assert world.all_gather_object(1) == [1]
    """
    ended = of_python(program)
    assert ended.returncode == 0 and "sub-interpreters cannot use it" in ended.stdout, ended


def test_a_free_threaded_build_is_refused_by_name():
    """By a test double of such a build: its own variable of sysconfig."""
    program = """
    import sysconfig

    ask = sysconfig.get_config_var
    sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else ask(name)
    import unisono
    """
    ended = of_python(program)
    assert ended.returncode == 1 and "ImportError: unisono does not support free-threaded builds" in ended.stderr, ended
    assert "Py_GIL_DISABLED" in ended.stderr


def test_one_world_after_another(tmp_path):
    output = run(
        tmp_path,
        1,
        """
        import numpy as np
        import unisono as un

        for number in range(3):
            with un.init() as world:
                assert un.is_initialized()
                world.all_reduce(np.ones(1))
            assert not un.is_initialized()
            try:
                world.all_reduce(np.ones(1))
            except un.Closed as error:
                print(number, error.call)
        """,
    )
    assert output.count("program.py:11") == 3, output


def test_two_worlds_at_once(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        import numpy as np
        import unisono as un

        first, second = un.init(), un.init(another=True)
        works = [world.all_reduce_async(np.full(3, factor)) for world, factor in ((second, 2), (first, 1))]
        first.store().set("key", b"first")
        second.barrier()
        print([array.tolist() for array in un.wait_all(works)], second.store().try_get("key"))
        first.close()
        second.all_reduce(np.ones(1))
        try:
            un.init(adopt=True, another=True)
        except un.InvalidArgument as error:
            print(error)
        """,
    )
    assert output.count("[[4, 4, 4], [2, 2, 2]] None") == 2 and output.count("does not go with another") == 2, output


def test_calls_of_all_kinds_after_close(tmp_path):
    output = run(
        tmp_path,
        2,
        """
        import numpy as np
        import unisono as un

        world = un.init()
        group, store, own = world.duplicate(), world.store(), np.ones(2, "float32")
        prepared, state = group.prepare_all_reduce(own), un.CompressionState(group, "int8", 2)

        def grouped():
            with group.group_calls() as calls:
                calls.all_reduce(own)

        def started():
            group.all_reduce_async(own).wait()

        group.close()
        for call in (
            group.barrier, group.duplicate, grouped, started,
            lambda: prepared.call(own), lambda: group.send(own, None), lambda: group.recv(own, 0),
            lambda: group.probe(0), lambda: group.broadcast_object(1), lambda: group.split(0),
            lambda: group.all_gather_coalesced([own], [np.ones(4, "float32")]),
            lambda: group.compressed_all_reduce(own, un.SUM, state),
            lambda: group.compressed_all_reduce_async(own, un.SUM, state).wait(),
        ):
            try:
                call()
            except un.Closed:
                pass
        group.close()
        world.close()
        for call in (world.barrier, lambda: store.get("key", 1), lambda: world.make_group("key", [0, 1])):
            try:
                call()
            except un.Error as error:
                assert error.kind in ("Closed", "StoreTimeout", "PeerLost"), error
        print("over")
        """,
    )
    assert output.count("over") == 2, output


def test_a_store_that_dies():
    program = """
    import sys
    import unisono as un

    class Store:
        calls = 0

        def set(self, key, value):
            self.count()

        def get(self, key, seconds):
            self.count()
            return None

        def count(self):
            Store.calls += 1
            if Store.calls > 1:
                raise ConnectionResetError("the store has died")

    try:
        un.init(store=Store(), rank=int(sys.argv[1]), world_size=2, join_timeout=2)
    except un.Rendezvous as error:
        print(error)
    """
    # Rank 0 has told its address by then, and waits for the other.
    for rank, text in (("0", "missing: rank 1"), ("1", "ConnectionResetError: the store has died")):
        ended = of_python(program, rank)
        assert text in ended.stdout, ended


def test_a_store_that_never_answers_ends_at_the_deadline():
    program = """
    import sys, time
    import unisono as un

    class Store:
        def set(self, key, value):
            pass

        def get(self, key, seconds):
            time.sleep(min(seconds, 0.05))

    try:
        un.init(store=Store(), rank=int(sys.argv[1]), world_size=2, join_timeout=1)
    except un.Rendezvous as error:
        print("missing", error)
    """
    for rank in "01":
        assert "missing" in of_python(program, rank).stdout


def test_a_store_that_lies():
    program = """
    import sys
    import unisono as un

    class Store:
        def set(self, key, value):
            pass

        def get(self, key, seconds):
            return b"no arrival of any rank" * 3

    try:
        un.init(store=Store(), rank=int(sys.argv[1]), world_size=2, join_timeout=2)
    except un.Error as error:
        print(error.kind, error)
    """
    for rank, text in (("0", "Rendezvous"), ("1", "in the program's store is not from rank 0")):
        ended = of_python(program, rank)
        assert text in ended.stdout, ended


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("number", ctypes.c_int32)]


class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    """`DLManagedTensor` of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class ArrayOfCard:
    """A test double of an array in the memory of a card: `kDLCUDA` is 2. Nobody may read its address."""

    def __init__(self, device: int = 2, shape: tuple[int, ...] = (3,), code: int = 2, lanes: int = 1) -> None:
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        dtype = Type(code, 32, lanes)
        self.tensor = Tensor(0x10, Device(device, 1), len(shape), dtype, self.shape, None, 0, None, None)

    def __dlpack__(self):
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return capsule(ctypes.addressof(self.tensor), b"dltensor", None)


def test_an_array_on_another_device(unisono_world):
    with pytest.raises(un.InvalidArgument, match="array: .*on device 1 of type 2 of DLPack, not on the host"):
        unisono_world.all_reduce(ArrayOfCard())
    with pytest.raises(un.InvalidArgument, match="out: .*on device 1 of type 2"):
        unisono_world.all_reduce(np.ones(3, "float32"), out=ArrayOfCard())


def test_tensors_that_lie(unisono_world):
    for lie in (ArrayOfCard(1, code=99), ArrayOfCard(1, lanes=4), ArrayOfCard(1, shape=(-1, 3))):
        with pytest.raises(un.InvalidArgument, match="array"):
            unisono_world.all_reduce(lie)
    with pytest.raises(un.InvalidArgument, match="array"):
        unisono_world.all_reduce(ArrayOfCard(1, shape=(2**40, 2**40)))


@pytest.mark.parametrize("own", [bytearray(32), array.array("B", bytes(32))], ids=["bytearray", "array"])
def test_memory_that_grows_during_a_call_is_refused_by_its_owner(unisono_world, own):
    work = unisono_world.recv_async(own, 0, 3)
    with pytest.raises(BufferError):
        own.extend(b"more")
    unisono_world.send(b"\1" * 32, 0, 3)
    work.wait()
    own.extend(b"more")
    assert bytes(own) == b"\1" * 32 + b"more"


def test_numpy_resizes_no_array_of_a_call(unisono_world):
    own = np.zeros(4)
    work = unisono_world.recv_async(own, 0, 3)
    with pytest.raises(ValueError, match="cannot resize an array"):
        own.resize(8)
    unisono_world.send(np.ones(4), 0, 3)
    work.wait()
    own.resize(8)
    assert own.tolist() == [1.0] * 4 + [0.0] * 4


def test_zero_size_arrays_in_every_call(unisono_world):
    own, comm = np.zeros((0, 3)), unisono_world
    for call in (comm.all_reduce, comm.scan, comm.exscan, comm.broadcast, comm.reduce, comm.all_gather, comm.gather):
        assert call(own).size == 0, call
    assert comm.scatter(own, np.zeros(0)).size == comm.reduce_scatter(own).size == comm.all_to_all(own).size == 0
    comm.send(own, 0)
    assert comm.recv(np.zeros(0), 0).count == 0
    whole = np.zeros(4)
    # A part without elements shares no memory.
    comm.all_reduce(whole, out=np.zeros(4))
    comm.all_gather(whole[2:2], out=whole[1:1])
    comm.all_reduce([whole, whole[2:2]])
    # Out of array.array, memoryview and bytes, too.
    assert comm.all_gather(b"").size == 0 and comm.all_gather(memoryview(bytearray())).size == 0
