/* A world from rank, number of ranks and a meeting place, without the environment. */

#include "check.h"

int main(int count, char **words) {
  CHECK(count == 4);
  unisono_comm *world = NULL;
  unisono_setting_t settings[] = {{"UNISONO_JOIN_TIMEOUT_S", "60"}, {"UNISONO_CALL_TIMEOUT_S", "50"}};
  unisono_init_t init;
  memset(&init, 0, sizeof init);
  init.struct_size = sizeof init;
  init.address = words[1];
  init.rank = (uint32_t)atoi(words[2]);
  init.size = (uint32_t)atoi(words[3]);
  init.settings = settings;
  init.setting_count = 2;
  OK(unisono_init(&init, &world));
  int ones[2] = {1, unisono_rank(world)};
  OK(unisono_all_reduce(world, ones, 2, UNISONO_DTYPE_I32, UNISONO_OP_SUM));
  CHECK(ones[0] == unisono_size(world) && ones[1] == ones[0] * (ones[0] - 1) / 2);
  leave(world);
  return 0;
}
