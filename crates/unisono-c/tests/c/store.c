/* Ranks that meet through a store of their own, files in a folder; then the store of the world. */

#include <unistd.h>

#include "check.h"

typedef struct {
  const char *folder;
  int sets, gets;
} program_store;

static void path_of(const program_store *store, const char *key, char *path, size_t room) {
  snprintf(path, room, "%s/%s", store->folder, key);
  for (char *at = path + strlen(store->folder) + 1; *at != '\0'; at++) {
    *at = *at == '/' ? '_' : *at;
  }
}

static int32_t set(void *context, const char *key, const uint8_t *value, size_t length) {
  program_store *store = context;
  char path[512], partial[520];
  store->sets++;
  path_of(store, key, path, sizeof path);
  snprintf(partial, sizeof partial, "%s.part", path);
  FILE *file = fopen(partial, "wb");
  if (file == NULL || fwrite(value, 1, length, file) != length || fclose(file) != 0) {
    return -5;
  }
  return rename(partial, path) == 0 ? 0 : -6;
}

static int32_t get(void *context, const char *key, double timeout_s, uint8_t *value, size_t room, size_t *length) {
  program_store *store = context;
  char path[512];
  store->gets++;
  path_of(store, key, path, sizeof path);
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    usleep(timeout_s > 0.005 ? 5000 : 0);
    return UNISONO_NO_VALUE;
  }
  *length = fread(value, 1, room, file);
  fclose(file);
  return 0;
}

static int32_t broken(void *context, const char *key, const uint8_t *value, size_t length) {
  (void)context, (void)key, (void)value, (void)length;
  return 4711;
}

static void shared(unisono_comm *world) {
  unisono_store *store = NULL;
  unisono_bytes_t value = {NULL, 0};
  int64_t sum = 0;
  uint64_t count = 0;
  int32_t was_there = 0;
  int rank = unisono_rank(world), size = unisono_size(world);
  OK(unisono_store_of(world, "epoch 7/", &store));
  if (rank == 0) {
    OK(unisono_store_set(store, "rate", "0.1", 3));
  }
  OK(unisono_store_get(store, "rate", 60.0, &value));
  CHECK(value.length == 3 && strcmp((char *)value.data, "0.1") == 0);
  OK(unisono_bytes_free(&value));
  CHECK(value.data == NULL);
  OK(unisono_bytes_free(&value));
  OK(unisono_store_add(store, "arrived", 1, &sum));
  if (sum == size) {
    OK(unisono_store_set(store, "gate", "", 0));
  }
  const char *keys[] = {"rate", "gate"};
  OK(unisono_store_wait(store, keys, 2, 0.0));
  OK(unisono_store_compare_and_set(store, "leader", NULL, 0, &rank, sizeof rank, &value));
  CHECK(value.length == sizeof rank);
  OK(unisono_bytes_free(&value));
  OK(unisono_store_try_get(store, "nothing", &value));
  CHECK(value.data == NULL);
  CHECK(unisono_store_get(store, "nothing", 0.01, &value) == UNISONO_STATUS_STORE_TIMEOUT && last_says("nothing"));
  OK(unisono_store_count(store, &count));
  CHECK(count == 4);
  OK(unisono_barrier(world));
  if (rank == 1) {
    OK(unisono_store_delete(store, "gate", &was_there));
    CHECK(was_there == 1);
  }
  OK(unisono_barrier(world));
  OK(unisono_store_free(store));
}

int main(int count, char **words) {
  CHECK(count == 4);
  program_store own = {words[1], 0, 0};
  unisono_comm *world = NULL;
  unisono_setting_t settings[] = {{"UNISONO_JOIN_TIMEOUT_S", "60"}};
  unisono_init_t init;
  memset(&init, 0, sizeof init);
  init.struct_size = sizeof init;
  init.rank = (uint32_t)atoi(words[2]);
  init.size = (uint32_t)atoi(words[3]);
  init.settings = settings;
  init.setting_count = 1;
  init.meeting_context = &own;
  init.meeting_set = broken;
  CHECK(unisono_init(&init, &world) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("has both functions"));
  init.meeting_get = get;
  if (init.rank == 0) {
    CHECK(unisono_init(&init, &world) != UNISONO_STATUS_OK && last_says("4711"));
  }
  init.meeting_set = set;
  OK(unisono_init(&init, &world));
  CHECK(unisono_rank(world) == atoi(words[2]) && unisono_size(world) == atoi(words[3]));
  CHECK(init.rank == 0 ? own.sets > 0 : own.gets > 0);
  shared(world);
  leave(world);
  return 0;
}
