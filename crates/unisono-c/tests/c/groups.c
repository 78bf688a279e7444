/* Groups: by their members, by a list, by colours; a thousand of them leave no descriptor and no memory behind. */

#include <dirent.h>
#include <unistd.h>

#include "check.h"

static unisono_comm *world;
static int rank, size;

static int sum(unisono_comm *comm) {
  int one = 1;
  OK(unisono_all_reduce(comm, &one, 1, UNISONO_DTYPE_I32, UNISONO_OP_SUM));
  return one;
}

static int descriptors(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  CHECK(folder != NULL);
  while (readdir(folder) != NULL) {
    count++;
  }
  closedir(folder);
  return count;
}

/* Kilobytes of memory in use. */
static long resident(void) {
  long pages = 0, all = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file != NULL && fscanf(file, "%ld %ld", &all, &pages) == 2);
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void kinds(void) {
  unisono_comm *group = NULL;
  unisono_comm_info_t info;
  uint32_t odd[] = {3, 1}, jobs[2], hosts[2];
  unisono_group_t options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.timeout_s = 60.0;
  options.label = "odd ranks";
  options.spin_s = 0.001;
  if (rank % 2 == 1) {
    OK(unisono_make_group(world, "odd", odd, 2, &options, &group));
    OK(unisono_comm_info(group, &info));
    CHECK(info.size == 2 && info.rank == (rank == 3 ? 0u : 1u) && (int)info.job_rank == rank && info.host_count == 1);
    OK(unisono_comm_ranks(group, jobs, hosts, 2));
    CHECK(jobs[0] == 3 && jobs[1] == 1 && hosts[0] == hosts[1]);
    CHECK(sum(group) == 2);
    leave(group);
  } else {
    CHECK(unisono_make_group(world, "odd", odd, 2, NULL, &group) == UNISONO_STATUS_INVALID_ARGUMENT);
    CHECK(unisono_comm_ranks(world, jobs, NULL, 2) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("has 4"));
  }
  uint32_t low[] = {0, 1, 2};
  OK(unisono_subgroup(world, low, 3, NULL, &group));
  CHECK((group == NULL) == (rank == 3) && (rank == 3 || sum(group) == 3));
  OK(unisono_comm_free(group));
  OK(unisono_split(world, rank == 0 ? -1 : rank % 2, -rank, __FILE__, __LINE__, &group));
  CHECK((group == NULL) == (rank == 0) && (rank == 0 || sum(group) == (rank == 2 ? 1 : 2)));
  if (rank == 3) {
    CHECK(unisono_rank(group) == 0);
  }
  OK(unisono_comm_free(group));
}

/* Makes groups, calls, and frees them. */
static void cycle(int from, int to) {
  for (int index = from; index < to; index++) {
    char key[32];
    uint32_t ranks[2];
    unisono_comm *group = NULL;
    snprintf(key, sizeof key, "pair %d of %d", index, rank / 2);
    ranks[0] = (uint32_t)(rank / 2 * 2);
    ranks[1] = ranks[0] + 1;
    OK(unisono_make_group(world, key, ranks, 2, NULL, &group));
    CHECK(sum(group) == 2);
    leave(group);
  }
}

int main(int count, char **words) {
  world = join();
  rank = unisono_rank(world);
  size = unisono_size(world);
  CHECK(size == 4 && count == 3);
  int groups = atoi(words[1]);
  long grown_max_kb = atol(words[2]);
  kinds();
  cycle(0, 100);
  OK(unisono_barrier(world));
  int descriptors_before = descriptors();
  long resident_before = resident();
  cycle(100, 100 + groups);
  OK(unisono_barrier(world));
  int more = descriptors() - descriptors_before;
  long grown_kb = resident() - resident_before;
  /* The other member may still be in its goodbye of the last groups. */
  fprintf(stderr, "rank %d: %d descriptors more, %ld KiB more after %d groups\n", rank, more, grown_kb, groups);
  CHECK(more <= 8 && more >= -8);
  CHECK(grown_kb < grown_max_kb);
  leave(world);
  return 0;
}
