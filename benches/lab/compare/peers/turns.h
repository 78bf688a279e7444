// turns.h: how a rank of a peer takes its turns: commands in, one measured point out. For C and C++.
//
// A rank stays up for a whole session of the comparison and sleeps in read() between its turns. `folder` holds
//   command.R   a pipe per rank: "id op bytes block_us budget_us\n" is one turn, its end is the end of the rank
//   reply       a pipe: "ready ..." once, then one line per turn, written by rank 0, or by any rank that fails
//   pid.R       the rank's process, so that it can be stopped between turns
//   shared      64 KiB of zeros that all ranks map. It lines them up before a block, agrees on the number of calls
//               and collects times: always outside of what is timed.
//
// A turn: fill the buffers, call once, check every element of the result; then warm up, calibrate, and run blocks of
// `calls` back-to-back calls. A block's time is (last rank's end - first rank's start) / calls on CLOCK_MONOTONIC.
// Roots rotate, so that a block is a chain of calls in which nobody can run ahead. The timed calls move zeros, which
// stay zeros however often they are summed up.
#ifndef TURNS_H
#define TURNS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SHARED_BYTES 65536
#define RANKS_MAX 64
#define BLOCKS_MIN 3
#define BLOCKS_MAX 40
#define CALLS_MAX 20000
// Below this time a single call says too little about the next ones.
#define SHORT_CALL_S 2e-3
#define CALIBRATION_CALLS 8
// Values repeat after a prime number of elements, so that a shift by any block length shows.
#define PATTERN_PERIOD 61

enum operation { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST, REDUCE, BARRIER, SEND_RECV, OPERATIONS };
static const char *const OPERATION_NAMES[OPERATIONS] = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "barrier", "send_recv"};

struct shared {
  volatile uint32_t arrived, generation;
  volatile long calls, blocks;
  volatile double start[RANKS_MAX], end[RANKS_MAX], mark[RANKS_MAX];
};

// One call's arguments. `elements` is the whole buffer of the operation; `a` is the input, or both in place; `b` the
// output, and where a message is received.
struct call {
  enum operation operation;
  int rank, ranks;
  size_t elements;
  float *a, *b;
};
typedef void (*call_function)(const struct call *call, int root);

struct rank {
  int rank, ranks, reply;
  FILE *commands;
  struct shared *shared;
  call_function call_once;
  // Where the result of a reduce is: 0 in `a`, the call was in place; 1 in `b`.
  int reduces_into_b;
  float *a, *b;
  size_t capacity;
  long call_index;
};

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void reply(struct rank *rank, const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
  line[length] = '\n';
  // Shorter than PIPE_BUF, so lines of several ranks never mix.
  if (write(rank->reply, line, (size_t)length + 1) < 0) exit(4);
}

static void line_up(struct rank *rank) {
  struct shared *s = rank->shared;
  uint32_t generation = s->generation;
  if (__sync_add_and_fetch(&s->arrived, 1) == (uint32_t)rank->ranks) {
    s->arrived = 0;
    __sync_synchronize();
    s->generation = generation + 1;
  } else {
    while (s->generation == generation) sched_yield();
  }
  __sync_synchronize();
}

static FILE *open_in(const char *folder, const char *name, int number, const char *mode) {
  char path[512];
  snprintf(path, sizeof path, number < 0 ? "%s/%s" : "%s/%s.%d", folder, name, number);
  FILE *file = fopen(path, mode);
  if (!file) {
    perror(path);
    exit(2);
  }
  return file;
}

static void open_rank(struct rank *rank, const char *folder, const char *version) {
  FILE *pid = open_in(folder, "pid", rank->rank, "w");
  fprintf(pid, "%d\n", (int)getpid());
  fclose(pid);
  FILE *shared = open_in(folder, "shared", -1, "r+");
  void *memory = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(shared), 0);
  if (memory == MAP_FAILED || rank->ranks > RANKS_MAX) {
    perror("shared");
    exit(2);
  }
  rank->shared = (struct shared *)memory;
  rank->reply = fileno(open_in(folder, "reply", -1, "w"));
  rank->commands = open_in(folder, "command", rank->rank, "r");
  line_up(rank);
  if (rank->rank == 0) reply(rank, "ready %s", version);
}

// Both buffers are page-aligned, touched, and kept for later turns.
static void reserve(struct rank *rank, size_t bytes) {
  if (bytes < 4096) bytes = 4096;
  if (bytes <= rank->capacity) return;
  free(rank->a);
  free(rank->b);
  void *a = NULL, *b = NULL;
  if (posix_memalign(&a, 4096, bytes) || posix_memalign(&b, 4096, bytes)) exit(3);
  memset(a, 0, bytes);
  memset(b, 0, bytes);
  rank->a = (float *)a;
  rank->b = (float *)b;
  rank->capacity = bytes;
}

// Element i of rank r's input is (r + 1) * (i % PATTERN_PERIOD + 1): every sum of ranks is exact in f32.
static void fill(float *into, size_t elements, float scale) {
  unsigned value = 1;
  for (size_t i = 0; i < elements; i++) {
    into[i] = scale * (float)value;
    value = value == PATTERN_PERIOD ? 1 : value + 1;
  }
}

static int equals(const float *found, size_t elements, float scale, size_t first) {
  unsigned value = (unsigned)(first % PATTERN_PERIOD) + 1;
  for (size_t i = 0; i < elements; i++) {
    if (found[i] != scale * (float)value) return 0;
    value = value == PATTERN_PERIOD ? 1 : value + 1;
  }
  return 1;
}

// Whether every element on this rank is what the operation with root 0 must give.
static int is_right(const struct rank *rank, const struct call *call) {
  size_t all = call->elements, share = all / (size_t)call->ranks;
  float sum = (float)(call->ranks * (call->ranks + 1) / 2);
  int right = 1;
  switch (call->operation) {
    case ALL_REDUCE: return equals(call->a, all, sum, 0);
    case REDUCE_SCATTER: return equals(call->b, share, sum, share * (size_t)call->rank);
    case ALL_GATHER:
      for (int r = 0; r < call->ranks; r++) right &= equals(call->b + share * (size_t)r, share, (float)(r + 1), 0);
      return right;
    case ALL_TO_ALL:
      for (int r = 0; r < call->ranks; r++)
        right &= equals(call->b + share * (size_t)r, share, (float)(r + 1), share * (size_t)call->rank);
      return right;
    case BROADCAST: return equals(call->a, all, 1, 0);
    case REDUCE: return call->rank != 0 || equals(rank->reduces_into_b ? call->b : call->a, all, sum, 0);
    case SEND_RECV: return call->rank > 1 || equals(call->b, all, 1, 0);
    case BARRIER:
      for (int r = 0; r < call->ranks; r++) right &= rank->shared->mark[r] == 1;
      return right;
    case OPERATIONS: break;
  }
  return 0;
}

static int checked(struct rank *rank, const struct call *call) {
  fill(call->a, call->elements, (float)(call->rank + 1));
  memset(call->b, 0, call->elements * 4);
  rank->shared->mark[rank->rank] = 0;
  line_up(rank);
  // A barrier must let nobody out before all have come in.
  usleep(call->operation == BARRIER && call->rank == call->ranks - 1 ? 2000 : 0);
  rank->shared->mark[rank->rank] = 1;
  rank->call_once(call, 0);
  int right = is_right(rank, call);
  line_up(rank);
  rank->shared->mark[rank->rank] = right;
  line_up(rank);
  for (int r = 0; r < rank->ranks; r++) right &= rank->shared->mark[r] == 1;
  memset(call->a, 0, call->elements * 4);
  memset(call->b, 0, call->elements * 4);
  return right;
}

static double block(struct rank *rank, const struct call *call, long calls) {
  struct shared *s = rank->shared;
  line_up(rank);
  double start = now_s();
  for (long i = 0; i < calls; i++) rank->call_once(call, (int)((rank->call_index + i) % rank->ranks));
  double end = now_s();
  rank->call_index += calls;
  s->start[rank->rank] = start;
  s->end[rank->rank] = end;
  line_up(rank);
  for (int r = 0; r < rank->ranks; r++) {
    if (s->start[r] < start) start = s->start[r];
    if (s->end[r] > end) end = s->end[r];
  }
  line_up(rank);
  return (end - start) / (double)calls;
}

static int by_time(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static void agree_on_blocks(struct rank *rank, double call_s, double block_s, double budget_s) {
  if (rank->rank == 0) {
    double calls = block_s / (call_s > 1e-8 ? call_s : 1e-8);
    calls = calls < 1 ? 1 : calls > CALLS_MAX ? CALLS_MAX : calls;
    double blocks = budget_s / ((double)(long)calls * call_s);
    rank->shared->calls = (long)calls;
    rank->shared->blocks = blocks < BLOCKS_MIN ? BLOCKS_MIN : blocks > BLOCKS_MAX ? BLOCKS_MAX : (long)blocks;
  }
  line_up(rank);
}

static void take_turn(struct rank *rank, long id, enum operation operation, size_t bytes, double block_s, double budget_s) {
  reserve(rank, bytes);
  struct call call = {operation, rank->rank, rank->ranks, bytes / 4, rank->a, rank->b};
  int right = checked(rank, &call);
  block(rank, &call, 1);
  double call_s = block(rank, &call, 1);
  if (call_s < SHORT_CALL_S) call_s = block(rank, &call, CALIBRATION_CALLS);
  agree_on_blocks(rank, call_s, block_s, budget_s);
  long calls = rank->shared->calls, blocks = rank->shared->blocks;
  double times[BLOCKS_MAX];
  for (long i = 0; i < blocks; i++) times[i] = block(rank, &call, calls);
  qsort(times, (size_t)blocks, sizeof *times, by_time);
  double median = (times[blocks / 2] + times[(blocks - 1) / 2]) / 2;
  // A message's time is half of its round trip.
  double share = operation == SEND_RECV ? 0.5e6 : 1e6;
  if (rank->rank == 0)
    reply(rank, "%ld %.4f %.4f %ld %ld %d", id, median * share, times[0] * share, blocks, calls, right);
}

// Serves turns until the pipe of commands ends.
static void take_turns(struct rank *rank) {
  char line[256], name[32];
  long id, block_us, budget_us;
  size_t bytes;
  while (fgets(line, sizeof line, rank->commands)) {
    if (sscanf(line, "%ld %31s %zu %ld %ld", &id, name, &bytes, &block_us, &budget_us) != 5) exit(5);
    int operation = 0;
    while (operation < OPERATIONS && strcmp(OPERATION_NAMES[operation], name)) operation++;
    if (operation == OPERATIONS) {
      if (rank->rank == 0) reply(rank, "%ld error unknown operation %s", id, name);
      continue;
    }
    take_turn(rank, id, (enum operation)operation, bytes, 1e-6 * (double)block_us, 1e-6 * (double)budget_us);
  }
}
#endif
