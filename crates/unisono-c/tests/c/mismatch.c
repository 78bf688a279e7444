/* Ranks that make different calls: every rank gets both, with their lines in this file. */

#include "check.h"

int main(void) {
  unisono_comm *world = join();
  float values[10] = {0};
  unisono_status status;
  int first_line = 0, second_line = 0;
  if (unisono_rank(world) == 1) {
    second_line = __LINE__ + 1;
    status = unisono_broadcast(world, values, 10, UNISONO_DTYPE_F32, 0);
  } else {
    first_line = __LINE__ + 1;
    status = unisono_all_reduce(world, values, 10, UNISONO_DTYPE_F32, UNISONO_OP_SUM);
  }
  const unisono_error_t *error = unisono_last_error();
  CHECK(status == UNISONO_STATUS_MISMATCH && error->status == status && error->root_status == status);
  CHECK(error->call_count == 2 && error->rank_count == 2 && !error->is_usable);
  int broadcasts = 0;
  for (size_t index = 0; index < 2; index++) {
    const unisono_error_call_t *call = &error->calls[index];
    CHECK(call->file != NULL && strstr(call->file, "mismatch.c") != NULL);
    CHECK(call->rank == error->ranks[index] && strstr(call->text, call->operation) != NULL);
    if (strcmp(call->operation, "broadcast") == 0) {
      broadcasts++;
      CHECK(call->rank == 1 && (second_line == 0 || (int)call->line == second_line));
    } else {
      CHECK(strcmp(call->operation, "all_reduce") == 0 && (first_line == 0 || (int)call->line == first_line));
    }
  }
  CHECK(broadcasts == 1 && strstr(error->text, "mismatch.c:") != NULL);
  CHECK(unisono_close(world) == UNISONO_STATUS_MISMATCH);
  OK(unisono_comm_free(world));
  return 0;
}
