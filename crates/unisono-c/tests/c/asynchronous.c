/* Calls with handles: waits, callbacks, release, plans, and the handle of a call that goes on. */

#include <pthread.h>
#include <unistd.h>

#include "check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static int released, done, done_status = -9;
static uint64_t done_bytes;
static unisono_comm *world;
static int rank, size;

static void on_release(void *context) {
  free(context);
  pthread_mutex_lock(&lock);
  released++;
  pthread_cond_broadcast(&told);
  pthread_mutex_unlock(&lock);
}

/* Waits for another call, as torch's nested futures do. */
static void on_done(void *context, unisono_status status, const unisono_outcome_t *outcome) {
  int one = 1;
  OK(unisono_all_reduce((unisono_comm *)context, &one, 1, UNISONO_DTYPE_I32, UNISONO_OP_SUM));
  CHECK(one == size);
  pthread_mutex_lock(&lock);
  done++;
  done_status = status;
  done_bytes = outcome->bytes;
  pthread_cond_broadcast(&told);
  pthread_mutex_unlock(&lock);
}

static void on_refused(void *context, unisono_status status, const unisono_outcome_t *outcome) {
  CHECK(status == UNISONO_STATUS_INVALID_ARGUMENT && outcome == NULL && last_says("closed") == 0);
  *(int *)context = status;
}

static void await(int *count, int least) {
  pthread_mutex_lock(&lock);
  while (*count < least) {
    pthread_cond_wait(&told, &lock);
  }
  pthread_mutex_unlock(&lock);
}

static unisono_call_t sum_of(float *buffer, uint64_t count) {
  unisono_call_t call = UNISONO_CALL(UNISONO_OPERATION_ALL_REDUCE);
  call.dtype = UNISONO_DTYPE_F32;
  call.op = UNISONO_OP_SUM;
  call.flags = UNISONO_IN_PLACE;
  call.output = buffer;
  call.count = count;
  return call;
}

static void waits(void) {
  enum { WORKS = 8 };
  float buffers[WORKS][16];
  unisono_work *works[WORKS];
  size_t index = 99;
  unisono_outcome_t outcome;
  for (int one = 0; one < WORKS; one++) {
    for (int at = 0; at < 16; at++) {
      buffers[one][at] = (float)(one + rank);
    }
    unisono_call_t call = sum_of(buffers[one], 16);
    OK(unisono_start(world, &call, &works[one]));
  }
  OK(unisono_work_wait_any(works, WORKS, 60.0, &index));
  CHECK(index < WORKS);
  OK(unisono_work_wait_all(works, WORKS, -1.0));
  for (int one = 0; one < WORKS; one++) {
    OK(unisono_work_test(works[one]));
    OK(unisono_work_wait(works[one], 0.0, &outcome));
    CHECK(outcome.bytes == 64 && (int)buffers[one][15] == size * one + size * (size - 1) / 2);
    OK(unisono_work_free(works[one]));
  }
}

static void callbacks(void) {
  float *buffer = malloc(4 * sizeof(float));
  unisono_comm *copy = NULL;
  unisono_work *work = NULL;
  CHECK(buffer != NULL);
  for (int at = 0; at < 4; at++) {
    buffer[at] = 1.0f;
  }
  OK(unisono_duplicate(world, &copy));
  unisono_call_t call = sum_of(buffer, 4);
  call.release = on_release;
  call.release_context = buffer;
  OK(unisono_start(world, &call, &work));
  OK(unisono_work_on_done(work, on_done, copy));
  /* The call goes on without its handle, and says when the memory is free. */
  OK(unisono_work_free(work));
  await(&released, 1);
  await(&done, 1);
  CHECK(done_status == UNISONO_STATUS_OK && done_bytes == 16);
  leave(copy);
}

/* A receive that waits: not ended, refused to be freed, then ended by its message. */
static void pending(void) {
  double message = rank, room = -1.0;
  unisono_work *work = NULL;
  unisono_outcome_t outcome;
  int right = (rank + 1) % size, left = (rank + size - 1) % size;
  unisono_call_t recv = UNISONO_CALL(UNISONO_OPERATION_RECV);
  recv.dtype = UNISONO_DTYPE_F64;
  recv.count = 1;
  recv.peer = left;
  recv.tag = 3;
  recv.output = &room;
  OK(unisono_start(world, &recv, &work));
  CHECK(unisono_work_test(work) == UNISONO_STATUS_PENDING);
  CHECK(unisono_work_wait(work, 0.01, &outcome) == UNISONO_STATUS_PENDING);
  CHECK(unisono_work_free(work) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("`release`"));
  OK(unisono_barrier(world));
  OK(unisono_send(world, &message, 1, UNISONO_DTYPE_F64, right, 3));
  OK(unisono_work_wait(work, -1.0, &outcome));
  CHECK(room == left && outcome.source == left);
  OK(unisono_work_free(work));
}

/* The memory of a refused call is released too. */
static void refused(void) {
  float *buffer = malloc(4 * sizeof(float));
  unisono_work *work = NULL;
  int status = 0;
  CHECK(buffer != NULL);
  unisono_call_t call = sum_of(buffer, 4);
  call.op = UNISONO_OP_BIT_AND;
  call.release = on_release;
  call.release_context = buffer;
  int before = released;
  CHECK(unisono_start(world, &call, &work) == UNISONO_STATUS_INVALID_ARGUMENT && work == NULL);
  CHECK(last_says("bit_and is not defined on f32") && last_says("asynchronous.c:"));
  await(&released, before + 1);
  /* Lengths are compared with the list when the call is issued: the handle has the error. */
  float values[4] = {0};
  unisono_piece_t piece = {values, 3};
  call = sum_of(NULL, 4);
  call.outputs = &piece;
  call.output_count = 1;
  OK(unisono_start(world, &call, &work));
  OK(unisono_work_on_done(work, on_refused, &status));
  CHECK(unisono_work_wait(work, -1.0, NULL) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("3 elements"));
  CHECK(status == UNISONO_STATUS_INVALID_ARGUMENT && unisono_last_error()->is_usable);
  OK(unisono_work_free(work));
}

static void plans(void) {
  float buffer[64];
  unisono_prepared *plan = NULL;
  unisono_call_t call = sum_of(buffer, 64);
  OK(unisono_prepare(world, &call, &plan));
  call.prepared = plan;
  for (int round = 0; round < 3; round++) {
    for (int at = 0; at < 64; at++) {
      buffer[at] = (float)round;
    }
    OK(unisono_call(world, &call));
    CHECK((int)buffer[63] == round * size);
  }
  call.count = 32;
  CHECK(unisono_call(world, &call) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("is a plan of"));
  OK(unisono_prepared_free(plan));
}

/* Threads of one process, whose calls queue. */
static void *queued(void *context) {
  unisono_comm *comm = context;
  int one = 1;
  unisono_call_t call = UNISONO_CALL(UNISONO_OPERATION_ALL_REDUCE);
  call.dtype = UNISONO_DTYPE_I32;
  call.op = UNISONO_OP_SUM;
  call.flags = UNISONO_IN_PLACE | UNISONO_QUEUED;
  call.output = &one;
  call.count = 1;
  OK(unisono_call(comm, &call));
  CHECK(one == size);
  return NULL;
}

int main(void) {
  world = join();
  rank = unisono_rank(world);
  size = unisono_size(world);
  waits();
  callbacks();
  pending();
  refused();
  plans();
  pthread_t threads[4];
  for (int one = 0; one < 4; one++) {
    CHECK(pthread_create(&threads[one], NULL, queued, world) == 0);
  }
  for (int one = 0; one < 4; one++) {
    pthread_join(threads[one], NULL);
  }
  OK(unisono_barrier(world));
  leave(world);
  return 0;
}
