/* A rank dies within the job: the others name it, agree, and go on without it. */

#include <signal.h>
#include <unistd.h>

#include "check.h"

int main(void) {
  unisono_comm *world = join(), *survivors = NULL;
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
  CHECK(last_common_call >= 1 && last_common_call < 3 && unisono_size(survivors) == 3);
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
