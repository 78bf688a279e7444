/* What all programs of these tests need: checks that say their line, and a world. */

#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unisono.h"

/* Ends the program unless the condition holds. */
#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      const unisono_error_t *last = unisono_last_error();                                   \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition,        \
              last == NULL ? "none" : last->text);                                          \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

/* Ends the program unless the call succeeds. */
#define OK(call) CHECK((call) == UNISONO_STATUS_OK)

/* The text of the last error has this part. */
static inline int last_says(const char *part) {
  const unisono_error_t *last = unisono_last_error();
  return last != NULL && strstr(last->text, part) != NULL;
}

/* Joins by the environment. */
static inline unisono_comm *join(void) {
  unisono_comm *world = NULL;
  OK(unisono_init(NULL, &world));
  CHECK(world != NULL);
  return world;
}

/* Leaves. */
static inline void leave(unisono_comm *world) {
  OK(unisono_close(world));
  OK(unisono_comm_free(world));
}

#endif
