/* Calls that a program ends: a cancelled call, and a wait that a check ends. */

#include "check.h"

static int asked;

static int32_t must_end(void *context) {
  asked++;
  return *(int *)context != 0;
}

/* Rank 0 cancels its receive, for which no message comes: all ranks get the cause. */
static void cancelled(unisono_comm *world) {
  unisono_comm *copy = NULL;
  unisono_work *work = NULL;
  double room = 0.0;
  OK(unisono_duplicate(world, &copy));
  unisono_call_t recv = UNISONO_CALL(UNISONO_OPERATION_RECV);
  recv.dtype = UNISONO_DTYPE_F64;
  recv.count = 1;
  recv.peer = (unisono_rank(world) + 1) % unisono_size(world);
  recv.output = &room;
  OK(unisono_start(copy, &recv, &work));
  OK(unisono_barrier(world));
  if (unisono_rank(world) == 0) {
    OK(unisono_work_cancel(work));
  }
  CHECK(unisono_work_wait(work, 60.0, NULL) == UNISONO_STATUS_REVOKED);
  const unisono_error_t *error = unisono_last_error();
  CHECK(error->root_status == UNISONO_STATUS_CANCELLED && error->rank_count == 1 && error->ranks[0] == 0);
  CHECK(strstr(error->text, "ends.c:") != NULL);
  OK(unisono_work_free(work));
  OK(unisono_comm_free(copy));
}

/* Rank 0 waits for the others, which wait for its abort, until its check ends the wait. */
static void interrupted(unisono_comm *world) {
  unisono_comm *copy = NULL;
  int ends = 1;
  double room = 0.0;
  OK(unisono_duplicate(world, &copy));
  if (unisono_rank(world) == 0) {
    OK(unisono_interrupt_check(must_end, &ends));
  }
  CHECK(unisono_recv(copy, &room, 1, UNISONO_DTYPE_F64, (unisono_rank(world) + 1) % 4, 0, NULL) ==
        UNISONO_STATUS_ABORTED);
  CHECK(unisono_last_error()->ranks[0] == 0);
  CHECK((asked > 0) == (unisono_rank(world) == 0));
  OK(unisono_interrupt_check(NULL, NULL));
  OK(unisono_comm_free(copy));
}

int main(void) {
  unisono_comm *world = join();
  CHECK(unisono_size(world) == 4);
  cancelled(world);
  interrupted(world);
  OK(unisono_barrier(world));
  leave(world);
  return 0;
}
