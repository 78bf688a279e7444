/* The common calls, in one line each. A macro adds the line of the program, which errors of all ranks show; the
   functions ending in _at take a line, for bindings. */

#ifndef UNISONO_WRAPPERS_H
#define UNISONO_WRAPPERS_H

// A call of this operation, with its size, at this line; everything else is 0.
static inline unisono_call_t unisono_call_of(int32_t operation, const char *file, uint32_t line) {
  unisono_call_t call;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.operation = operation;
  call.file = file;
  call.line = line;
  return call;
}

// A call of this operation, with its size and the line of the program.
#define UNISONO_CALL(operation) unisono_call_of(operation, __FILE__, __LINE__)

static inline unisono_status unisono_barrier_at(const unisono_comm *comm, const char *file, uint32_t line) {
  unisono_call_t call = unisono_call_of(UNISONO_OPERATION_BARRIER, file, line);
  return unisono_call(comm, &call);
}

static inline unisono_status unisono_all_reduce_at(const unisono_comm *comm, void *buffer, uint64_t count, int32_t dtype,
                                                   int32_t op, const char *file, uint32_t line) {
  unisono_call_t call = unisono_call_of(UNISONO_OPERATION_ALL_REDUCE, file, line);
  call.output = buffer;
  call.count = count;
  call.dtype = dtype;
  call.op = op;
  call.flags = UNISONO_IN_PLACE;
  return unisono_call(comm, &call);
}

static inline unisono_status unisono_broadcast_at(const unisono_comm *comm, void *buffer, uint64_t count, int32_t dtype,
                                                  int32_t root, const char *file, uint32_t line) {
  unisono_call_t call = unisono_call_of(UNISONO_OPERATION_BROADCAST, file, line);
  call.output = buffer;
  call.count = count;
  call.dtype = dtype;
  call.root = root;
  return unisono_call(comm, &call);
}

static inline unisono_status unisono_reduce_at(const unisono_comm *comm, const void *input, void *output, uint64_t count,
                                               int32_t dtype, int32_t op, int32_t root, const char *file, uint32_t line) {
  unisono_call_t call = unisono_call_of(UNISONO_OPERATION_REDUCE, file, line);
  call.input = input;
  call.output = output;
  call.count = count;
  call.dtype = dtype;
  call.op = op;
  call.root = root;
  return unisono_call(comm, &call);
}

static inline unisono_status unisono_reduce_scatter_at(const unisono_comm *comm, const void *input, void *output,
                                                       uint64_t share, int32_t dtype, int32_t op, const char *file,
                                                       uint32_t line) {
  unisono_call_t call = unisono_call_of(UNISONO_OPERATION_REDUCE_SCATTER, file, line);
  call.input = input;
  call.output = output;
  call.count = share;
  call.dtype = dtype;
  call.op = op;
  return unisono_call(comm, &call);
}

// all_gather and all_to_all.
static inline unisono_status unisono_exchange_at(const unisono_comm *comm, int32_t operation, const void *input,
                                                 void *output, uint64_t share, int32_t dtype, const char *file,
                                                 uint32_t line) {
  unisono_call_t call = unisono_call_of(operation, file, line);
  call.input = input;
  call.output = output;
  call.count = share;
  call.dtype = dtype;
  return unisono_call(comm, &call);
}

// gather and scatter.
static inline unisono_status unisono_rooted_at(const unisono_comm *comm, int32_t operation, const void *input,
                                               void *output, uint64_t share, int32_t dtype, int32_t root,
                                               const char *file, uint32_t line) {
  unisono_call_t call = unisono_call_of(operation, file, line);
  call.input = input;
  call.output = output;
  call.count = share;
  call.dtype = dtype;
  call.root = root;
  return unisono_call(comm, &call);
}

// send and recv.
static inline unisono_status unisono_message_at(const unisono_comm *comm, int32_t operation, const void *input,
                                                void *output, uint64_t count, int32_t dtype, int32_t peer, int64_t tag,
                                                unisono_outcome_t *outcome, const char *file, uint32_t line) {
  unisono_call_t call = unisono_call_of(operation, file, line);
  call.input = input;
  call.output = output;
  call.count = count;
  call.dtype = dtype;
  call.peer = peer;
  call.tag = tag;
  call.outcome = outcome;
  return unisono_call(comm, &call);
}

// Waits until all ranks have come.
#define unisono_barrier(comm) unisono_barrier_at(comm, __FILE__, __LINE__)

// The buffer of every rank becomes the reduction of all.
#define unisono_all_reduce(comm, buffer, count, dtype, op) \
  unisono_all_reduce_at(comm, buffer, count, dtype, op, __FILE__, __LINE__)

// The buffer of every rank becomes the root's.
#define unisono_broadcast(comm, buffer, count, dtype, root) \
  unisono_broadcast_at(comm, buffer, count, dtype, root, __FILE__, __LINE__)

// The output of the root becomes the reduction of all inputs.
#define unisono_reduce(comm, input, output, count, dtype, op, root) \
  unisono_reduce_at(comm, input, output, count, dtype, op, root, __FILE__, __LINE__)

// The output of rank r becomes share r of the reduction of all inputs.
#define unisono_reduce_scatter(comm, input, output, share, dtype, op) \
  unisono_reduce_scatter_at(comm, input, output, share, dtype, op, __FILE__, __LINE__)

// The output of every rank becomes all inputs in rank order.
#define unisono_all_gather(comm, input, output, share, dtype) \
  unisono_exchange_at(comm, UNISONO_OPERATION_ALL_GATHER, input, output, share, dtype, __FILE__, __LINE__)

// The output of rank r becomes part r of all inputs, in rank order.
#define unisono_all_to_all(comm, input, output, part, dtype) \
  unisono_exchange_at(comm, UNISONO_OPERATION_ALL_TO_ALL, input, output, part, dtype, __FILE__, __LINE__)

// The output of the root becomes all inputs in rank order.
#define unisono_gather(comm, input, output, share, dtype, root) \
  unisono_rooted_at(comm, UNISONO_OPERATION_GATHER, input, output, share, dtype, root, __FILE__, __LINE__)

// The output of rank r becomes share r of the root's input.
#define unisono_scatter(comm, input, output, share, dtype, root) \
  unisono_rooted_at(comm, UNISONO_OPERATION_SCATTER, input, output, share, dtype, root, __FILE__, __LINE__)

// Sends a message.
#define unisono_send(comm, message, count, dtype, peer, tag) \
  unisono_message_at(comm, UNISONO_OPERATION_SEND, message, NULL, count, dtype, peer, tag, NULL, __FILE__, __LINE__)

// Receives a message of at most `count` elements; `outcome` says from whom, or is null.
#define unisono_recv(comm, buffer, count, dtype, peer, tag, outcome) \
  unisono_message_at(comm, UNISONO_OPERATION_RECV, NULL, buffer, count, dtype, peer, tag, outcome, __FILE__, __LINE__)

#endif  /* UNISONO_WRAPPERS_H */
