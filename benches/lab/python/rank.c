// One rank of `compare.py`: the two short calls of `ranks.py` in C, as mpi4py makes them. Rank 0 prints their times in
// microseconds as a line of JSON. Argument: the seconds that each measurement takes about.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 16, REPEATS = 5, CALLS_MAX = 10000 };

static float source[COUNT], out[COUNT];
static int rank, size;

static void all_reduce(void) { MPI_Allreduce(source, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

static void ping_pong(void) {
  for (int turn = 0; turn < 2; turn++) {
    if (rank == turn) MPI_Send(source, COUNT, MPI_FLOAT, 1 - turn, 0, MPI_COMM_WORLD);
    else if (rank == 1 - turn) MPI_Recv(out, COUNT, MPI_FLOAT, turn, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

// Seconds of a call, on the slowest rank.
static double run(void (*call)(void), int calls) {
  double slowest;
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < calls; i++) call();
  double own = (MPI_Wtime() - start) / calls;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static void check(float expected) {
  for (int i = 0; i < COUNT; i++)
    if (out[i] != expected) {
      fprintf(stderr, "rank %d: element %d is %g, not %g\n", rank, i, out[i], expected);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static int ascending(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

static double measure(void (*call)(void), float expected, double seconds) {
  double times[REPEATS], first;
  call();
  check(expected);
  first = run(call, 3);
  double wanted = seconds / REPEATS / (first > 1e-7 ? first : 1e-7);
  int calls = wanted < 2 ? 2 : wanted > CALLS_MAX ? CALLS_MAX : (int)wanted;
  for (int i = 0; i < REPEATS; i++) times[i] = run(call, calls);
  check(expected);
  qsort(times, REPEATS, sizeof *times, ascending);
  return times[REPEATS / 2] * 1e6;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < COUNT; i++) source[i] = (float)(rank + 1);
  double seconds = atof(argv[1]), sum = measure(all_reduce, (float)(size * (size + 1) / 2), seconds);
  for (int i = 0; i < COUNT; i++) out[i] = 0;
  double message = measure(ping_pong, rank < 2 ? (float)(2 - rank) : 0, seconds) / 2;
  if (rank == 0) printf("TIMES {\"all_reduce, 64 B\": %.9f, \"send and receive, 64 B\": %.9f}\n", sum, message);
  MPI_Finalize();
  return 0;
}
