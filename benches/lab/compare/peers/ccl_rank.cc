// ccl_rank.cc: one rank of oneCCL on host memory in the comparison. Built by `cargo xtask compare`; started by Intel
// MPI's mpirun with the folder that turns.h describes as the only argument.
#include <mpi.h>

#include <oneapi/ccl.hpp>

#include "turns.h"

static ccl::communicator *communicator;

static void call_once(const struct call *call, int root) {
  size_t all = call->elements, share = all / (size_t)call->ranks;
  const auto type = ccl::datatype::float32;
  const auto sum = ccl::reduction::sum;
  ccl::communicator &comm = *communicator;
  switch (call->operation) {
    case ALL_REDUCE: ccl::allreduce(call->a, call->a, all, type, sum, comm).wait(); break;
    case REDUCE_SCATTER: ccl::reduce_scatter(call->a, call->b, share, type, sum, comm).wait(); break;
    case ALL_GATHER: ccl::allgather(call->a, call->b, share, type, comm).wait(); break;
    case ALL_TO_ALL: ccl::alltoall(call->a, call->b, share, type, comm).wait(); break;
    case BROADCAST: ccl::broadcast(call->a, all, type, root, comm).wait(); break;
    // Its documentation knows no reduce in place.
    case REDUCE: ccl::reduce(call->a, call->b, all, type, sum, root, comm).wait(); break;
    case BARRIER: ccl::barrier(comm); break;
    case SEND_RECV:
      if (call->rank == 0) {
        ccl::send(call->a, all, type, 1, comm).wait();
        ccl::recv(call->b, all, type, 1, comm).wait();
      } else if (call->rank == 1) {
        ccl::recv(call->b, all, type, 0, comm).wait();
        ccl::send(call->b, all, type, 0, comm).wait();
      }
      break;
    case OPERATIONS: break;
  }
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  ccl::init();
  MPI_Init(&argc, &argv);
  struct rank rank;
  memset(&rank, 0, sizeof rank);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank.ranks);
  ccl::shared_ptr_class<ccl::kvs> store;
  ccl::kvs::address_type address;
  if (rank.rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  MPI_Bcast(address.data(), (int)address.size(), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank.rank != 0) store = ccl::create_kvs(address);
  auto comm = ccl::create_communicator(rank.ranks, rank.rank, store);
  communicator = &comm;
  rank.call_once = call_once;
  rank.reduces_into_b = 1;
  auto version = ccl::get_library_version();
  char text[64];
  snprintf(text, sizeof text, "oneCCL %u.%u.%u", version.major, version.minor, version.update);
  open_rank(&rank, argv[1], text);
  try {
    take_turns(&rank);
  } catch (std::exception &problem) {
    reply(&rank, "0 error rank %d: %.300s", rank.rank, problem.what());
    _exit(1);
  }
  // Its tear-down can hang; the comparison only needs the process to end.
  MPI_Barrier(MPI_COMM_WORLD);
  _exit(0);
}
