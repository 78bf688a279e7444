/* Every operation with several element types, beside values that are computed here. */

#include "check.h"

#define SHARE 5
#define RANKS_MAX 8

static const int32_t dtypes[] = {
    UNISONO_DTYPE_F64, UNISONO_DTYPE_F32, UNISONO_DTYPE_BF16, UNISONO_DTYPE_I8,  UNISONO_DTYPE_I16, UNISONO_DTYPE_I32,
    UNISONO_DTYPE_I64, UNISONO_DTYPE_U8,  UNISONO_DTYPE_U16,  UNISONO_DTYPE_U32, UNISONO_DTYPE_U64,
};

typedef union {
  double f64;
  float f32;
  int64_t i64;
  int32_t i32;
  int16_t i16;
  int8_t i8;
  unsigned char bytes[8];
} element;

static size_t size_of(int32_t dtype) {
  switch (dtype) {
    case UNISONO_DTYPE_F64:
    case UNISONO_DTYPE_I64:
    case UNISONO_DTYPE_U64:
      return 8;
    case UNISONO_DTYPE_F32:
    case UNISONO_DTYPE_I32:
    case UNISONO_DTYPE_U32:
      return 4;
    case UNISONO_DTYPE_BF16:
    case UNISONO_DTYPE_I16:
    case UNISONO_DTYPE_U16:
      return 2;
    default:
      return 1;
  }
}

/* Small whole numbers, which every type holds exactly. */
static void put(int32_t dtype, void *buffer, size_t index, int value) {
  element one;
  size_t bytes = size_of(dtype);
  memset(&one, 0, sizeof one);
  if (dtype == UNISONO_DTYPE_F64) {
    one.f64 = value;
  } else if (dtype == UNISONO_DTYPE_F32 || dtype == UNISONO_DTYPE_BF16) {
    one.f32 = (float)value;
  } else {
    one.i64 = value;
  }
  /* The upper half of a little-endian float. */
  memcpy((char *)buffer + index * bytes, one.bytes + (dtype == UNISONO_DTYPE_BF16 ? 2 : 0), bytes);
}

static int get(int32_t dtype, const void *buffer, size_t index) {
  element one;
  size_t bytes = size_of(dtype);
  memset(&one, 0, sizeof one);
  memcpy(one.bytes + (dtype == UNISONO_DTYPE_BF16 ? 2 : 0), (const char *)buffer + index * bytes, bytes);
  if (dtype == UNISONO_DTYPE_F64) {
    return (int)one.f64;
  }
  return dtype == UNISONO_DTYPE_F32 || dtype == UNISONO_DTYPE_BF16 ? (int)one.f32 : (int)one.i64;
}

/* The element of a rank. */
static int value(int rank, size_t index) { return rank + 1 + (int)(index % 3); }

static int reduced(int32_t op, int left, int right) {
  switch (op) {
    case UNISONO_OP_PROD:
      return left * right;
    case UNISONO_OP_MIN:
      return left < right ? left : right;
    case UNISONO_OP_MAX:
      return left > right ? left : right;
    case UNISONO_OP_BIT_AND:
      return left & right;
    case UNISONO_OP_BIT_OR:
      return left | right;
    case UNISONO_OP_BIT_XOR:
      return left ^ right;
    default:
      return left + right;
  }
}

static int expected(int32_t op, int from, int to, size_t index) {
  int result = value(from, index);
  for (int rank = from + 1; rank < to; rank++) {
    result = reduced(op, result, value(rank, index));
  }
  return op == UNISONO_OP_AVG ? result / (to - from) : result;
}

static unisono_comm *world;
static int rank, size;

static void fill(int32_t dtype, void *buffer, size_t count) {
  for (size_t index = 0; index < count; index++) {
    put(dtype, buffer, index, value(rank, index));
  }
}

static double input[RANKS_MAX * SHARE], output[RANKS_MAX * SHARE];

static void reductions(int32_t dtype, int32_t op) {
  size_t all = (size_t)size * SHARE;
  fill(dtype, input, all);
  OK(unisono_all_reduce(world, input, all, dtype, op));
  for (size_t index = 0; index < all; index++) {
    CHECK(get(dtype, input, index) == expected(op, 0, size, index));
  }
  fill(dtype, input, all);
  OK(unisono_reduce_scatter(world, input, output, SHARE, dtype, op));
  for (size_t index = 0; index < SHARE; index++) {
    CHECK(get(dtype, output, index) == expected(op, 0, size, (size_t)rank * SHARE + index));
  }
  /* Only the root has an output. */
  OK(unisono_reduce(world, input, rank == 1 ? (void *)output : NULL, all, dtype, op, 1));
  for (size_t index = 0; index < all && rank == 1; index++) {
    CHECK(get(dtype, output, index) == expected(op, 0, size, index));
  }
  if (op == UNISONO_OP_AVG) {
    return;
  }
  unisono_call_t scan = UNISONO_CALL(UNISONO_OPERATION_SCAN);
  scan.dtype = dtype;
  scan.op = op;
  scan.count = all;
  scan.input = input;
  scan.output = output;
  OK(unisono_call(world, &scan));
  for (size_t index = 0; index < all; index++) {
    CHECK(get(dtype, output, index) == expected(op, 0, rank + 1, index));
  }
  scan.operation = UNISONO_OPERATION_EXSCAN;
  OK(unisono_call(world, &scan));
  for (size_t index = 0; index < all && rank > 0; index++) {
    CHECK(get(dtype, output, index) == expected(op, 0, rank, index));
  }
}

static void moves(int32_t dtype) {
  size_t all = (size_t)size * SHARE;
  fill(dtype, input, all);
  OK(unisono_all_gather(world, input, output, SHARE, dtype));
  for (int from = 0; from < size; from++) {
    for (size_t index = 0; index < SHARE; index++) {
      CHECK(get(dtype, output, (size_t)from * SHARE + index) == value(from, index));
    }
  }
  OK(unisono_all_to_all(world, input, output, SHARE, dtype));
  for (int from = 0; from < size; from++) {
    for (size_t index = 0; index < SHARE; index++) {
      int sent = value(from, (size_t)rank * SHARE + index);
      CHECK(get(dtype, output, (size_t)from * SHARE + index) == sent);
    }
  }
  OK(unisono_gather(world, input, output, SHARE, dtype, 2));
  for (int from = 0; from < size && rank == 2; from++) {
    CHECK(get(dtype, output, (size_t)from * SHARE) == value(from, 0));
  }
  OK(unisono_scatter(world, input, output, SHARE, dtype, 2));
  for (size_t index = 0; index < SHARE; index++) {
    CHECK(get(dtype, output, index) == value(2, (size_t)rank * SHARE + index));
  }
  OK(unisono_broadcast(world, input, all, dtype, 3));
  for (size_t index = 0; index < all; index++) {
    CHECK(get(dtype, input, index) == value(3, index));
  }
}

/* Shares that differ by rank: rank r has r + 1 elements. */
static void uneven(int32_t dtype) {
  uint64_t counts[RANKS_MAX], own[RANKS_MAX], total = 0;
  for (int to = 0; to < size; to++) {
    counts[to] = (uint64_t)to + 1;
    own[to] = (uint64_t)rank + 1;
    total += counts[to];
  }
  fill(dtype, input, RANKS_MAX * SHARE);
  unisono_call_t call = UNISONO_CALL(UNISONO_OPERATION_ALL_GATHER);
  call.dtype = dtype;
  call.input = input;
  call.output = output;
  call.counts = counts;
  call.counts_length = (size_t)size;
  OK(unisono_call(world, &call));
  size_t at = 0;
  for (int from = 0; from < size; from++) {
    for (size_t index = 0; index <= (size_t)from; index++) {
      CHECK(get(dtype, output, at++) == value(from, index));
    }
  }
  CHECK(at == total);
  /* This rank sends to + 1 elements to each rank, and gets rank + 1 of each. */
  call.operation = UNISONO_OPERATION_ALL_TO_ALL;
  call.receive_counts = own;
  call.receive_counts_length = (size_t)size;
  OK(unisono_call(world, &call));
  size_t start = 0;
  for (int before = 0; before < rank; before++) {
    start += (size_t)before + 1;
  }
  at = 0;
  for (int from = 0; from < size; from++) {
    for (size_t index = 0; index <= (size_t)rank; index++) {
      CHECK(get(dtype, output, at++) == value(from, start + index));
    }
  }
}

/* Lists: several buffers as one call, and a piece for each rank. */
static void lists(void) {
  float first[3], second[2];
  for (size_t index = 0; index < 3; index++) {
    first[index] = (float)value(rank, index);
    second[index % 2] = (float)rank;
  }
  unisono_piece_t both[2] = {{first, 3}, {second, 2}};
  unisono_call_t call = UNISONO_CALL(UNISONO_OPERATION_ALL_REDUCE);
  call.dtype = UNISONO_DTYPE_F32;
  call.op = UNISONO_OP_SUM;
  call.count = 5;
  call.flags = UNISONO_IN_PLACE;
  call.outputs = both;
  call.output_count = 2;
  call.division = UNISONO_DIVISION_COALESCED;
  OK(unisono_call(world, &call));
  CHECK((int)first[2] == expected(UNISONO_OP_SUM, 0, size, 2) && (int)second[1] == size * (size - 1) / 2);

  int32_t own = rank, apart[RANKS_MAX][2];
  unisono_piece_t pieces[RANKS_MAX];
  memset(apart, 0, sizeof apart);
  for (int from = 0; from < size; from++) {
    pieces[from].data = &apart[from][1];
    pieces[from].count = 1;
  }
  call = UNISONO_CALL(UNISONO_OPERATION_ALL_GATHER);
  call.dtype = UNISONO_DTYPE_I32;
  call.count = 1;
  call.input = &own;
  call.outputs = pieces;
  call.output_count = (size_t)size;
  call.division = UNISONO_DIVISION_SHARES;
  OK(unisono_call(world, &call));
  CHECK(apart[2][1] == 2 && apart[2][0] == 0 && apart[3][1] == 3);
}

static void messages(int32_t dtype) {
  unisono_outcome_t outcome;
  int right = (rank + 1) % size, left = (rank + size - 1) % size;
  fill(dtype, input, SHARE);
  /* Both at once: two neighbours may not wait for each other. */
  unisono_call_t send = UNISONO_CALL(UNISONO_OPERATION_SEND), recv = UNISONO_CALL(UNISONO_OPERATION_RECV);
  send.dtype = recv.dtype = dtype;
  send.count = SHARE;
  recv.count = SHARE + 2;
  send.input = input;
  recv.output = output;
  send.peer = right;
  recv.peer = left;
  send.tag = recv.tag = 7;
  recv.outcome = &outcome;
  const unisono_call_t *both[] = {&recv, &send};
  OK(unisono_call_group(world, both, 2));
  CHECK(outcome.source == left && outcome.tag == 7 && outcome.bytes == SHARE * size_of(dtype));
  CHECK(get(dtype, output, 1) == value(left, 1));
  /* Nobody, any rank, any tag; a probe tells the length. */
  OK(unisono_recv(world, output, SHARE, dtype, UNISONO_NOBODY, 0, &outcome));
  CHECK(outcome.source == -1 && outcome.bytes == 0);
  if (rank > 0) {
    OK(unisono_send(world, input, SHARE, dtype, 0, rank));
  } else {
    for (int one = 1; one < size; one++) {
      unisono_message *message = NULL;
      unisono_message_info_t info;
      OK(unisono_probe(world, UNISONO_ANY, UNISONO_ANY, 1, __FILE__, __LINE__, &message));
      OK(unisono_message_info(message, &info));
      CHECK(info.source == (int64_t)info.tag && info.dtype == dtype && info.count == SHARE);
      CHECK(unisono_message_receive(message, output, 1, &outcome) == UNISONO_STATUS_TRUNCATED);
      OK(unisono_message_receive(message, output, sizeof output, &outcome));
      CHECK(outcome.bytes == info.bytes && get(dtype, output, 1) == value((int)info.source, 1));
      CHECK(unisono_message_receive(message, output, sizeof output, NULL) == UNISONO_STATUS_INVALID_ARGUMENT);
      OK(unisono_message_free(message));
    }
    unisono_message *none = NULL;
    CHECK(unisono_probe(world, UNISONO_ANY, UNISONO_ANY, 0, NULL, 0, &none) == UNISONO_STATUS_PENDING);
    CHECK(none == NULL);
  }
}

typedef struct {
  float loss;
  uint32_t rank;
} best;

static void lower(void *context, const void *left, const void *right, void *out, size_t bytes) {
  const best *lefts = left, *rights = right;
  best *outs = out;
  ++*(int *)context;
  for (size_t index = 0; index < bytes / sizeof(best); index++) {
    outs[index] = rights[index].loss < lefts[index].loss ? rights[index] : lefts[index];
  }
}

static void operators(void) {
  int calls = 0;
  unisono_user_op_t user = {sizeof user, "best", lower, &calls, 0, 0};
  best own = {rank == 2 ? 0.25f : 0.5f, (uint32_t)rank};
  unisono_call_t call = UNISONO_CALL(UNISONO_OPERATION_ALL_REDUCE);
  call.dtype = UNISONO_DTYPE_OPAQUE;
  call.element_bytes = sizeof own;
  call.op = UNISONO_OP_USER;
  call.user_op = &user;
  call.count = 1;
  call.output = &own;
  call.flags = UNISONO_IN_PLACE;
  OK(unisono_call(world, &call));
  CHECK(own.rank == 2 && calls >= 0);
  double scaled = 2.0;
  call = UNISONO_CALL(UNISONO_OPERATION_ALL_REDUCE);
  call.dtype = UNISONO_DTYPE_F64;
  call.op = UNISONO_OP_PRE_MUL_SUM;
  call.factor = rank + 1.0;
  call.count = 1;
  call.output = &scaled;
  call.flags = UNISONO_IN_PLACE | UNISONO_FIXED_ORDER;
  unisono_outcome_t outcome;
  call.outcome = &outcome;
  call.timeout_s = 100.0;
  call.label = "scaled";
  OK(unisono_call(world, &call));
  CHECK(scaled == 2.0 * (size * (size + 1) / 2) && outcome.bytes == 8 && strlen(outcome.algorithm) > 0);
  float pair[2] = {1.0f, (float)rank};
  OK(unisono_all_reduce(world, pair, 1, UNISONO_DTYPE_COMPLEX64, UNISONO_OP_SUM));
  CHECK((int)pair[0] == size && (int)pair[1] == size * (size - 1) / 2);
  unsigned char truth = rank == 1;
  OK(unisono_all_reduce(world, &truth, 1, UNISONO_DTYPE_BOOL, UNISONO_OP_BIT_OR));
  CHECK(truth == 1);
}

int main(void) {
  world = join();
  rank = unisono_rank(world);
  size = unisono_size(world);
  CHECK(size == 4 && unisono_abi_version() == UNISONO_ABI_VERSION && strlen(unisono_version()) > 0);
  for (size_t index = 0; index < sizeof dtypes / sizeof *dtypes; index++) {
    int32_t dtype = dtypes[index];
    int is_float = dtype == UNISONO_DTYPE_F64 || dtype == UNISONO_DTYPE_F32 || dtype == UNISONO_DTYPE_BF16;
    int32_t last = is_float ? UNISONO_OP_MAX : UNISONO_OP_BIT_XOR;
    for (int32_t op = UNISONO_OP_SUM; op <= last; op++) {
      /* A product of five in i8 would wrap, and a mean of floats is no whole number. */
      if ((op == UNISONO_OP_PROD && size_of(dtype) < 4) || (op == UNISONO_OP_AVG && is_float)) {
        continue;
      }
      reductions(dtype, op);
    }
    moves(dtype);
    uneven(dtype);
    messages(dtype);
  }
  lists();
  operators();
  OK(unisono_barrier(world));
  leave(world);
  return 0;
}
