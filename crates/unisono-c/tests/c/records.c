/* Compressed calls with states, the communication log and the flight record. */

#include <math.h>

#include "check.h"

static unisono_comm *world;
static int rank, size;

static void close_to(const float *values, int count, float wanted) {
  for (int index = 0; index < count; index++) {
    CHECK(fabsf(values[index] - wanted) < 0.05f);
  }
}

static void compressed(void) {
  enum { ELEMENTS = 1000 };
  static float values[ELEMENTS], share[ELEMENTS / 4], all[ELEMENTS];
  uint64_t whole = ELEMENTS, shares[] = {ELEMENTS / 4, ELEMENTS / 4, ELEMENTS / 4, ELEMENTS / 4};
  unisono_state *state = NULL, *later = NULL;
  unisono_bytes_t bytes = {NULL, 0};
  unisono_state_t fields;
  memset(&fields, 0, sizeof fields);
  fields.struct_size = sizeof fields;
  fields.codec = "int8";
  fields.operation = UNISONO_OPERATION_ALL_REDUCE;
  fields.dtype = UNISONO_DTYPE_F32;
  fields.lengths = &whole;
  fields.length_count = 1;
  OK(unisono_state_new(world, &fields, &state));
  unisono_call_t call = UNISONO_CALL(UNISONO_OPERATION_ALL_REDUCE);
  call.dtype = UNISONO_DTYPE_F32;
  call.op = UNISONO_OP_AVG;
  call.flags = UNISONO_IN_PLACE;
  call.output = values;
  call.count = ELEMENTS;
  call.state = state;
  for (int round = 0; round < 2; round++) {
    for (int index = 0; index < ELEMENTS; index++) {
      values[index] = (float)rank;
    }
    OK(unisono_call(world, &call));
    close_to(values, ELEMENTS, 1.5f);
  }
  /* With a handle: another call queues behind it. */
  for (int index = 0; index < ELEMENTS; index++) {
    values[index] = (float)rank;
  }
  unisono_work *work = NULL;
  unisono_outcome_t outcome;
  OK(unisono_start(world, &call, &work));
  int one = 1;
  unisono_call_t next = UNISONO_CALL(UNISONO_OPERATION_ALL_REDUCE);
  next.dtype = UNISONO_DTYPE_I32;
  next.op = UNISONO_OP_SUM;
  next.flags = UNISONO_IN_PLACE | UNISONO_QUEUED;
  next.output = &one;
  next.count = 1;
  OK(unisono_call(world, &next));
  OK(unisono_work_wait(work, -1.0, &outcome));
  OK(unisono_work_free(work));
  CHECK(one == size && outcome.bytes == sizeof values);
  close_to(values, ELEMENTS, 1.5f);
  call.count = 999;
  OK(unisono_start(world, &call, &work));
  CHECK(unisono_work_wait(work, -1.0, NULL) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("records.c:"));
  OK(unisono_work_free(work));
  CHECK(unisono_call(world, &call) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("is for 1000 elements"));
  CHECK(last_says("records.c:"));
  call.count = ELEMENTS;
  call.op = UNISONO_OP_MAX;
  CHECK(unisono_call(world, &call) == UNISONO_STATUS_UNSUPPORTED);
  OK(unisono_state_export(state, &bytes));
  OK(unisono_state_import(world, &fields, bytes.data, bytes.length, &later));
  OK(unisono_bytes_free(&bytes));
  OK(unisono_state_reset(later));
  OK(unisono_state_free(later));
  OK(unisono_state_free(state));

  fields.operation = UNISONO_OPERATION_REDUCE_SCATTER;
  OK(unisono_state_new(world, &fields, &state));
  call = UNISONO_CALL(UNISONO_OPERATION_REDUCE_SCATTER);
  call.dtype = UNISONO_DTYPE_F32;
  call.op = UNISONO_OP_SUM;
  call.count = ELEMENTS / 4;
  call.input = values;
  call.output = share;
  call.state = state;
  for (int index = 0; index < ELEMENTS; index++) {
    values[index] = 1.0f;
  }
  OK(unisono_call(world, &call));
  close_to(share, ELEMENTS / 4, (float)size);
  OK(unisono_state_free(state));

  fields.operation = UNISONO_OPERATION_ALL_GATHER;
  fields.lengths = shares;
  fields.length_count = 4;
  OK(unisono_state_new(world, &fields, &state));
  call = UNISONO_CALL(UNISONO_OPERATION_ALL_GATHER);
  call.dtype = UNISONO_DTYPE_F32;
  call.count = ELEMENTS / 4;
  call.input = share;
  call.output = all;
  call.state = state;
  OK(unisono_call(world, &call));
  close_to(all, ELEMENTS, (float)size);
  OK(unisono_state_free(state));
  fields.codec = "int9";
  CHECK(unisono_state_new(world, &fields, &state) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("int9"));
}

int main(int count, char **words) {
  char path[512];
  unisono_bytes_t json = {NULL, 0};
  float values[4] = {0};
  world = join();
  rank = unisono_rank(world);
  size = unisono_size(world);
  CHECK(size == 4);
  compressed();
  OK(unisono_log_start(world));
  OK(unisono_all_reduce(world, values, 4, UNISONO_DTYPE_F32, UNISONO_OP_SUM));
  OK(unisono_log_stop(world));
  OK(unisono_log_json(world, &json));
  CHECK(json.data[0] == '{' && strlen((char *)json.data) == json.length);
  CHECK(strstr((char *)json.data, "\"operation\":\"all_reduce\"") != NULL);
  OK(unisono_bytes_free(&json));
  OK(unisono_log_reset(world));
  OK(unisono_flight_json(world, &json));
  CHECK(strstr((char *)json.data, "records.c") != NULL && strstr((char *)json.data, "all_reduce") != NULL);
  CHECK(strstr((char *)json.data, ".rs\"") == NULL);
  OK(unisono_bytes_free(&json));
  CHECK(count == 2);
  OK(unisono_flight_dump(world, words[1]));
  snprintf(path, sizeof path, "%s/rank-%d.json", words[1], rank);
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL && fgetc(file) == '{');
  fclose(file);
  leave(world);
  return 0;
}
