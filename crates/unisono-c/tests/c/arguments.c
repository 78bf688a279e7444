/* Arguments that cannot be used: each is a status with a text that names it, and the communicator works afterwards. */

#include "check.h"

static unisono_comm *world;
static float buffer[8];

static unisono_call_t good(void) {
  unisono_call_t call = UNISONO_CALL(UNISONO_OPERATION_ALL_REDUCE);
  call.dtype = UNISONO_DTYPE_F32;
  call.op = UNISONO_OP_SUM;
  call.flags = UNISONO_IN_PLACE;
  call.output = buffer;
  call.count = 8;
  return call;
}

/* The call is refused with this text, and the next one works. */
static void refuses(const unisono_call_t *call, const char *part, int line) {
  unisono_call_t next = good();
  unisono_status status = unisono_call(world, call);
  if (status != UNISONO_STATUS_INVALID_ARGUMENT || !last_says(part) || !unisono_last_error()->is_usable) {
    fprintf(stderr, "line %d: status %d, not %s: %s\n", line, status, part, unisono_last_error()->text);
    exit(1);
  }
  CHECK(strcmp(unisono_last_error()->kind, "InvalidArgument") == 0);
  OK(unisono_call(world, &next));
}

#define REFUSES(change, part)          \
  do {                                 \
    unisono_call_t call = good();      \
    change;                            \
    refuses(&call, part, __LINE__);    \
  } while (0)

static void numbers(void) {
  REFUSES(call.operation = 0, "invalid operation: 0 is the number of none");
  REFUSES(call.operation = 99, "invalid operation: 99");
  REFUSES(call.dtype = 0, "invalid dtype: 0");
  REFUSES(call.dtype = 4711, "invalid dtype: 4711");
  REFUSES(call.dtype = UNISONO_DTYPE_OPAQUE, "invalid element_bytes: 0, but an opaque element has 1 to 65535");
  REFUSES(call.element_bytes = 2, "an element of f32 has 4");
  REFUSES(call.op = 77, "invalid op: 77");
  REFUSES(call.op = UNISONO_OP_NONE, "all_reduce needs one");
  REFUSES(call.op = UNISONO_OP_BIT_OR, "bit_or is not defined on f32");
  REFUSES(call.op = UNISONO_OP_USER, "invalid user_op: null");
  REFUSES(call.factor = 2.0, "only pre_mul_sum has one");
  REFUSES(call.root = 1, "all_reduce has none");
  REFUSES(call.peer = 1, "all_reduce has none");
  REFUSES(call.tag = 1, "invalid tag");
  REFUSES(call.reserved = 1, "invalid reserved");
  REFUSES(call.flags |= 1u << 31, "is no flag here");
  REFUSES(call.flags |= UNISONO_PROFILED | UNISONO_NOT_PROFILED, "always and never");
  REFUSES(call.division = 9, "invalid division: 9");
  REFUSES(call.division = UNISONO_DIVISION_SHARES, "there is no list");
  REFUSES(call.timeout_s = -1.0, "invalid timeout_s: -1");
  REFUSES(call.count = (uint64_t)1 << 62, "exceed the address space");
  REFUSES(call.count = UINT64_MAX, "exceed the address space");
  REFUSES(call.label = "a label of more than thirty-two bytes", "invalid label");
  REFUSES(call.label = "\xff\xfe", "invalid label: not UTF-8");
  REFUSES((call.operation = UNISONO_OPERATION_BROADCAST, call.op = 0, call.root = 4), "the group has ranks 0 to 3");
  REFUSES((call.operation = UNISONO_OPERATION_BROADCAST, call.op = 0, call.root = -1), "invalid root: -1");
  REFUSES((call.operation = UNISONO_OPERATION_SEND, call.op = 0, call.peer = 4, call.flags = 0), "invalid peer: 4");
  REFUSES((call.operation = UNISONO_OPERATION_SEND, call.op = 0, call.peer = UNISONO_ANY, call.flags = 0),
          "a send needs one receiver");
  REFUSES((call.operation = UNISONO_OPERATION_RECV, call.op = 0, call.tag = -7, call.flags = 0), "invalid tag: -7");
}

static void pointers(void) {
  uint64_t counts[] = {1, 2, 3};
  unisono_piece_t pieces[] = {{buffer, 4}, {buffer + 2, 4}};
  REFUSES(call.output = NULL, "invalid output: null, but there are 8 elements of f32");
  REFUSES(call.output = (char *)buffer + 1, "no multiple of 4, as f32 needs");
  REFUSES(call.input = buffer + 4, "the call is in place");
  REFUSES((call.flags = 0, call.input = buffer + 4), "UNISONO_IN_PLACE");
  REFUSES((call.outputs = pieces, call.output_count = 2), "beside a list of pieces");
  REFUSES((call.output = NULL, call.outputs = pieces, call.output_count = 2), "two pieces of it overlap");
  REFUSES((call.output = NULL, call.outputs = pieces, call.output_count = 1), "4 elements, but all_reduce");
  REFUSES((call.output = NULL, call.outputs = NULL, call.output_count = 2), "invalid outputs: null");
  REFUSES((call.counts = counts, call.counts_length = 3, call.count = 0), "no form");
  REFUSES((call.counts = counts, call.counts_length = 3), "by the counts all_reduce has");
  REFUSES((call.operation = UNISONO_OPERATION_ALL_GATHER, call.op = 0, call.counts = counts, call.counts_length = 3,
           call.count = 0),
          "3 counts for 4 ranks");
  REFUSES((call.operation = UNISONO_OPERATION_ALL_TO_ALL, call.op = 0, call.counts = counts, call.counts_length = 3),
          "all_to_all has counts and receive_counts");
  REFUSES(call.outcome = (unisono_outcome_t *)((char *)buffer + 4 + ((uintptr_t)buffer % 8)), "invalid outcome");
}

static void never(void *context) { *(int *)context += 1; }

/* A field that another function honours is refused, never ignored. */
static void fields(void) {
  int released = 0;
  unisono_outcome_t outcome;
  unisono_work *work = NULL;
  unisono_call_t call = good();
  const unisono_call_t *calls[] = {&call};
  REFUSES((call.release = never, call.release_context = &released), "unisono_start() alone has one");
  CHECK(released == 0);
  call.outcome = &outcome;
  CHECK(unisono_call_group(world, calls, 1) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("only receives"));
  CHECK(unisono_start(world, &call, &work) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("invalid outcome"));
  OK(unisono_call(world, &call));
  CHECK(work == NULL && outcome.bytes == sizeof buffer && outcome.source == -1 && outcome.is_skipped == 0);
}

static void structures(void) {
  unisono_call_t call = good();
  unisono_call_t next = good();
  REFUSES(call.struct_size = 0, "invalid struct_size: 0, but it has at least");
  REFUSES(call.struct_size = sizeof call - 8, "invalid struct_size");
  /* A later version: zero behind the known fields is taken, anything else cannot be honoured. */
  struct {
    unisono_call_t known;
    uint64_t later;
  } grown = {next, 0};
  grown.known.struct_size = sizeof grown;
  OK(unisono_call(world, &grown.known));
  grown.later = 1;
  refuses(&grown.known, "a later field of call is set", __LINE__);
  CHECK(unisono_call(world, NULL) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("invalid call: null"));
  CHECK(unisono_call(NULL, &call) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("invalid comm: null"));
  CHECK(unisono_call(world, (const unisono_call_t *)((const char *)&call + 1)) == UNISONO_STATUS_INVALID_ARGUMENT);
  CHECK(last_says("no multiple of 8"));
  CHECK(unisono_rank(NULL) == -1 && unisono_size(NULL) == -1);
  CHECK(unisono_start(world, &call, NULL) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("invalid work: null"));
  CHECK(unisono_work_wait(NULL, 0.0, NULL) == UNISONO_STATUS_INVALID_ARGUMENT);
  CHECK(unisono_work_on_done(NULL, NULL, NULL) == UNISONO_STATUS_INVALID_ARGUMENT);
  CHECK(unisono_store_of(world, NULL, NULL) == UNISONO_STATUS_INVALID_ARGUMENT);
  OK(unisono_comm_free(NULL));
  OK(unisono_work_free(NULL));
  OK(unisono_prepared_free(NULL));
  OK(unisono_message_free(NULL));
  OK(unisono_state_free(NULL));
  OK(unisono_store_free(NULL));
  OK(unisono_bytes_free(NULL));
}

static void worlds(void) {
  unisono_comm *second = NULL;
  unisono_init_t init;
  unisono_setting_t setting = {"UNISONO_CALL_TIMEOUT", "20"};
  memset(&init, 0, sizeof init);
  CHECK(unisono_init(&init, &second) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("struct_size"));
  init.struct_size = sizeof init;
  CHECK(unisono_init(&init, NULL) == UNISONO_STATUS_INVALID_ARGUMENT);
  CHECK(unisono_init(&init, &second) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("second_init"));
  CHECK(!last_says(".rs:"));
  init.file = __FILE__;
  init.line = 4711;
  CHECK(unisono_init(&init, &second) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("arguments.c:4711"));
  init.settings = &setting;
  init.setting_count = 1;
  CHECK(unisono_init(&init, &second) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("is no setting"));
  setting.name = "UNISONO_CALL_TIMEOUT_S";
  setting.value = "soon";
  CHECK(unisono_init(&init, &second) == UNISONO_STATUS_CONFIGURATION && last_says("UNISONO_CALL_TIMEOUT_S=soon"));
  init.setting_count = 0;
  init.rank = 3;
  CHECK(unisono_init(&init, &second) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("without the number of ranks"));
  init.size = 2;
  CHECK(unisono_init(&init, &second) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("3 is not in 0..2"));
  init.rank = 0;
  init.address = "udp://nowhere";
  CHECK(unisono_init(&init, &second) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("init_method"));
  init.flags = UNISONO_QUEUED;
  CHECK(unisono_init(&init, &second) == UNISONO_STATUS_INVALID_ARGUMENT && last_says("is no flag here"));
  memset(&init, 0, sizeof init);
  init.struct_size = sizeof init;
  init.flags = UNISONO_ADOPT_WORLD;
  OK(unisono_init(&init, &second));
  CHECK(unisono_rank(second) == unisono_rank(world));
  OK(unisono_comm_free(second));
  /* One world more, which all ranks make. */
  init.flags = UNISONO_ANOTHER_WORLD;
  OK(unisono_init(&init, &second));
  OK(unisono_barrier(second));
  leave(second);
}

int main(void) {
  unisono_call_t call = good();
  CHECK(unisono_last_error() == NULL);
  world = join();
  numbers();
  pointers();
  fields();
  structures();
  worlds();
  /* The line of the caller, and none. */
  call.op = UNISONO_OP_BIT_OR;
  refuses(&call, "all_reduce(8 x f32, bit_or, in place) at ", __LINE__);
  CHECK(last_says("arguments.c:9"));
  call.file = NULL;
  refuses(&call, "all_reduce(8 x f32, bit_or, in place)", __LINE__);
  CHECK(!last_says(" at "));
  OK(unisono_supports(world, &(unisono_call_t){.struct_size = sizeof call, .operation = UNISONO_OPERATION_BARRIER}));
  CHECK(unisono_supports(world, &call) == UNISONO_STATUS_INVALID_ARGUMENT);
  OK(unisono_barrier(world));
  OK(unisono_close(world));
  call = good();
  CHECK(unisono_call(world, &call) == UNISONO_STATUS_CLOSED && last_says("arguments.c:9"));
  OK(unisono_comm_free(world));
  return 0;
}
