// mpi_rank.c: one rank of any MPI in the comparison. Built once per MPI by `cargo xtask compare`; started by its mpirun
// with the folder that turns.h describes as the only argument.
#include <mpi.h>

#include "turns.h"

static void call_once(const struct call *call, int root) {
  int all = (int)call->elements, share = all / call->ranks;
  switch (call->operation) {
    case ALL_REDUCE: MPI_Allreduce(MPI_IN_PLACE, call->a, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case REDUCE_SCATTER:
      MPI_Reduce_scatter_block(call->a, call->b, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case ALL_GATHER: MPI_Allgather(call->a, share, MPI_FLOAT, call->b, share, MPI_FLOAT, MPI_COMM_WORLD); break;
    case ALL_TO_ALL: MPI_Alltoall(call->a, share, MPI_FLOAT, call->b, share, MPI_FLOAT, MPI_COMM_WORLD); break;
    case BROADCAST: MPI_Bcast(call->a, all, MPI_FLOAT, root, MPI_COMM_WORLD); break;
    case REDUCE:
      if (call->rank == root) MPI_Reduce(MPI_IN_PLACE, call->a, all, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
      else MPI_Reduce(call->a, NULL, all, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
      break;
    case BARRIER: MPI_Barrier(MPI_COMM_WORLD); break;
    case SEND_RECV:
      if (call->rank == 0) {
        MPI_Send(call->a, all, MPI_FLOAT, 1, 7, MPI_COMM_WORLD);
        MPI_Recv(call->b, all, MPI_FLOAT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else if (call->rank == 1) {
        MPI_Recv(call->b, all, MPI_FLOAT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(call->b, all, MPI_FLOAT, 0, 7, MPI_COMM_WORLD);
      }
      break;
    case OPERATIONS: break;
  }
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  MPI_Init(&argc, &argv);
  struct rank rank;
  memset(&rank, 0, sizeof rank);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank.ranks);
  rank.call_once = call_once;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(version, &length);
  // The first line: some print their whole configuration.
  version[strcspn(version, "\n")] = 0;
  open_rank(&rank, argv[1], version);
  take_turns(&rank);
  MPI_Finalize();
  return 0;
}
