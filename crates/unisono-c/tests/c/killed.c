/* A rank dies within the job: the others name it, agree, and go on without it. */

#include <signal.h>
#include <unistd.h>

#include "check.h"

enum { ELEMENTS = 120 };

/* The mean of the vectors of all ranks, compressed. */
static void mean(unisono_comm *comm, unisono_state *state, float value) {
  float values[ELEMENTS];
  for (int index = 0; index < ELEMENTS; index++) {
    values[index] = value;
  }
  unisono_call_t call = UNISONO_CALL(UNISONO_OPERATION_ALL_REDUCE);
  call.dtype = UNISONO_DTYPE_F32;
  call.op = UNISONO_OP_AVG;
  call.flags = UNISONO_IN_PLACE;
  call.output = values;
  call.count = ELEMENTS;
  call.state = state;
  OK(unisono_call(comm, &call));
  CHECK(values[ELEMENTS - 1] > value - 0.1f && values[ELEMENTS - 1] < value + 0.1f);
}

int main(void) {
  unisono_comm *world = join(), *survivors = NULL;
  unisono_state *state = NULL;
  unisono_state_t fields;
  uint64_t length = ELEMENTS;
  uint32_t went_back = 99;
  memset(&fields, 0, sizeof fields);
  fields.struct_size = sizeof fields;
  fields.codec = "int8";
  fields.operation = UNISONO_OPERATION_ALL_REDUCE;
  fields.dtype = UNISONO_DTYPE_F32;
  fields.lengths = &length;
  fields.length_count = 1;
  fields.route = UNISONO_ROUTE_DIRECT;
  OK(unisono_state_new(world, &fields, &state));
  mean(world, state, 2.0f);
  OK(unisono_barrier(world));
  int one = 1, agreed = 0;
  int32_t new_ranks[4];
  uint64_t last_common_call = 99;
  OK(unisono_all_reduce(world, &one, 1, UNISONO_DTYPE_I32, UNISONO_OP_SUM));
  CHECK(one == 4);
  if (unisono_rank(world) == 2) {
    kill(getpid(), SIGKILL);
  }
  unisono_status status = UNISONO_STATUS_OK;
  while (status == UNISONO_STATUS_OK) {
    status = unisono_all_reduce(world, &one, 1, UNISONO_DTYPE_I32, UNISONO_OP_SUM);
  }
  const unisono_error_t *error = unisono_last_error();
  CHECK(status == UNISONO_STATUS_PEER_LOST && error->rank_count == 1 && error->ranks[0] == 2);
  CHECK(strstr(error->text, "lost rank 2") != NULL && !error->is_usable);
  OK(unisono_shrink(world, &survivors, new_ranks, 4, &last_common_call));
  CHECK(new_ranks[0] == 0 && new_ranks[1] == 1 && new_ranks[2] == -1 && new_ranks[3] == 2);
  CHECK(last_common_call >= 3 && last_common_call < 99 && unisono_size(survivors) == 3);
  /* The state goes along. */
  OK(unisono_state_rebind(state, survivors, new_ranks, 4, last_common_call, &went_back));
  CHECK(went_back == 0);
  mean(survivors, state, 3.0f);
  OK(unisono_state_free(state));
  OK(unisono_agree(survivors, 1, &agreed));
  CHECK(agreed == 1);
  one = 1;
  OK(unisono_all_reduce(survivors, &one, 1, UNISONO_DTYPE_I32, UNISONO_OP_SUM));
  CHECK(one == 3);
  OK(unisono_monitored_barrier(survivors, 60.0));
  /* An abort is told to all. */
  if (unisono_rank(survivors) == 0) {
    OK(unisono_abort(survivors));
  }
  while ((status = unisono_barrier(survivors)) == UNISONO_STATUS_OK) {
  }
  CHECK(status == UNISONO_STATUS_ABORTED && unisono_last_error()->ranks[0] == 0);
  OK(unisono_comm_free(survivors));
  OK(unisono_comm_free(world));
  return 0;
}
