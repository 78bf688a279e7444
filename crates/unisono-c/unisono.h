/* The C ABI of unisono: collective communication between the ranks of a job. Made by cbindgen from crates/unisono-c;
   docs/c.md begins with a program. Link with -lunisono_c.

   Every function may be called on any thread, unless its comment says otherwise. A function that gives a unisono_status
   has checked its pointers: null, misaligned, a structure of a wrong size, an unknown number and a text that is not
   UTF-8 are UNISONO_STATUS_INVALID_ARGUMENT. Memory that is freed or too short cannot be noticed. */


#ifndef UNISONO_H
#define UNISONO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// The version of the ABI that this header describes. A structure may grow at its end without a new one, and functions
// may be added.
#define UNISONO_ABI_VERSION 1

// For `peer` and `tag` of a receive or a probe: any rank, any tag.
#define UNISONO_ANY -1

// For `peer`: nobody, as beyond the edge of a grid. The call succeeds at once and moves nothing.
#define UNISONO_NOBODY -2

// Flag of a call: the output is input and output, and `input` is null. A broadcast is always so.
#define UNISONO_IN_PLACE 1

// Flag of a call or a group: the order of the reduction depends on nothing but the number of ranks.
#define UNISONO_FIXED_ORDER 2

// Flag of a call: it waits for the calls of other threads, where it would else be refused.
#define UNISONO_QUEUED 4

// Flag of a call: it runs although UNISONO_SKIP switches its operation off.
#define UNISONO_NEEDED 8

// Flag of a call: where a vendor's library refuses memory of the host, TCP makes the call.
#define UNISONO_HOST_BY_COMPANION 16

// Flag of a call: the communication log records it whenever the log is on.
#define UNISONO_PROFILED 32

// Flag of a call: the communication log never records it.
#define UNISONO_NOT_PROFILED 64

// Flag of a group: TCP does its collectives, also where a vendor's library does the collectives of its world.
#define UNISONO_COMPANION 128

// Flag of a world: one more world beside the open worlds of this process. All ranks make it.
#define UNISONO_ANOTHER_WORLD 256

// Flag of a world: the world that this process has, if it is open.
#define UNISONO_ADOPT_WORLD 512

// The result of a unisono_get_function that has no value yet. It is asked again.
#define UNISONO_NO_VALUE 1

// The result of a function. 0 is success, a number above 0 the kind of an error, the same in every version
// (docs/errors.md); unisono_last_error() has the text.
enum unisono_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A bug of the library: a panic was caught. Nothing is known about the call.
  UNISONO_STATUS_INTERNAL = -2,
  // No error: the call has not ended within the time given, and goes on.
  UNISONO_STATUS_PENDING = -1,
  // Success.
  UNISONO_STATUS_OK = 0,
  // Ranks made different calls.
  UNISONO_STATUS_MISMATCH = 1,
  // Ranks died or went silent.
  UNISONO_STATUS_PEER_LOST = 2,
  // The deadline passed.
  UNISONO_STATUS_TIMEOUT = 3,
  // The work was cancelled.
  UNISONO_STATUS_CANCELLED = 4,
  // A user function panicked.
  UNISONO_STATUS_PANICKED = 5,
  // The communicator was closed.
  UNISONO_STATUS_CLOSED = 6,
  // A connection was refused in the handshake.
  UNISONO_STATUS_REFUSED = 7,
  // The operating system refused something.
  UNISONO_STATUS_SYSTEM = 8,
  // The other ranks took this one for dead.
  UNISONO_STATUS_EVICTED = 9,
  // Bytes were changed on their way.
  UNISONO_STATUS_CORRUPTED = 10,
  // A rank revoked the communicator; `root_status` of the error is the cause.
  UNISONO_STATUS_REVOKED = 11,
  // An argument is not valid. Nothing was sent.
  UNISONO_STATUS_INVALID_ARGUMENT = 12,
  // The backend cannot do this call. Nothing was sent.
  UNISONO_STATUS_UNSUPPORTED = 13,
  // Two threads issued calls at once. Nothing was sent.
  UNISONO_STATUS_CONCURRENT_USE = 14,
  // Too many silent ranks may go on without this one.
  UNISONO_STATUS_NO_QUORUM = 15,
  // A receive was too small for its message, which is gone.
  UNISONO_STATUS_TRUNCATED = 16,
  // Not all ranks of the job arrived.
  UNISONO_STATUS_RENDEZVOUS = 17,
  // A setting that cannot be used.
  UNISONO_STATUS_CONFIGURATION = 18,
  // A communicator of the parent process was used in a forked child.
  UNISONO_STATUS_FORKED = 19,
  // A rank aborted the communicator.
  UNISONO_STATUS_ABORTED = 20,
  // An algorithm does not fit the call.
  UNISONO_STATUS_ALGORITHM_REFUSED = 21,
  // A NaN, an infinity or too large a number in a compressed call.
  UNISONO_STATUS_NON_FINITE = 22,
  // A vendor's library is not there.
  UNISONO_STATUS_LIBRARY_MISSING = 23,
  // A function of a vendor's library failed.
  UNISONO_STATUS_VENDOR = 24,
  // The deadline of a call of the key-value store passed.
  UNISONO_STATUS_STORE_TIMEOUT = 25,
  // The key-value store has no room.
  UNISONO_STATUS_STORE_FULL = 26,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum unisono_status unisono_status;
#else
typedef int32_t unisono_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The operation of a call. `p` is the number of ranks, `count` the count of the call.
enum unisono_operation
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Output on every rank: the reduction of all inputs. Input and output have `count` elements.
  UNISONO_OPERATION_ALL_REDUCE = 1,
  // Output on rank r: share r of the reduction of all inputs. Input p x `count` elements, output `count`.
  UNISONO_OPERATION_REDUCE_SCATTER = 2,
  // Output on every rank: all inputs in rank order. Input `count` elements, output p x `count`.
  UNISONO_OPERATION_ALL_GATHER = 3,
  // Output on rank r: part r of each rank's input, in rank order. Input and output p x `count` elements.
  UNISONO_OPERATION_ALL_TO_ALL = 4,
  // The output of every rank becomes the root's. It has `count` elements, and there is no input.
  UNISONO_OPERATION_BROADCAST = 5,
  // Output at the root: the reduction of all inputs. Both have `count` elements.
  UNISONO_OPERATION_REDUCE = 6,
  // Output at the root: all inputs in rank order. Input `count` elements, output p x `count`.
  UNISONO_OPERATION_GATHER = 7,
  // Output on rank r: share r of the root's input. Input p x `count` elements, output `count`.
  UNISONO_OPERATION_SCATTER = 8,
  // No rank leaves before every rank has entered. It has no data: count 0, element type 0.
  UNISONO_OPERATION_BARRIER = 9,
  // Sends the input, `count` elements, to `peer` with `tag`.
  UNISONO_OPERATION_SEND = 10,
  // Receives a message of at most `count` elements into the output, from `peer` with `tag`.
  UNISONO_OPERATION_RECV = 11,
  // Output on rank r: the reduction of the inputs of ranks 0 to r.
  UNISONO_OPERATION_SCAN = 12,
  // Output on rank r: the reduction of the inputs of the ranks before r. Rank 0 has no output.
  UNISONO_OPERATION_EXSCAN = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum unisono_operation unisono_operation;
#else
typedef int32_t unisono_operation;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The type of one element.
enum unisono_dtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // IEEE 754 binary64: double.
  UNISONO_DTYPE_F64 = 1,
  // IEEE 754 binary32: float.
  UNISONO_DTYPE_F32 = 2,
  // IEEE 754 binary16.
  UNISONO_DTYPE_F16 = 3,
  // The upper half of a float.
  UNISONO_DTYPE_BF16 = 4,
  // Signed, 8 bits.
  UNISONO_DTYPE_I8 = 5,
  // Signed, 16 bits.
  UNISONO_DTYPE_I16 = 6,
  // Signed, 32 bits.
  UNISONO_DTYPE_I32 = 7,
  // Signed, 64 bits.
  UNISONO_DTYPE_I64 = 8,
  // Unsigned, 8 bits.
  UNISONO_DTYPE_U8 = 9,
  // Unsigned, 16 bits.
  UNISONO_DTYPE_U16 = 10,
  // Unsigned, 32 bits.
  UNISONO_DTYPE_U32 = 11,
  // Unsigned, 64 bits.
  UNISONO_DTYPE_U64 = 12,
  // One byte, 0 is false.
  UNISONO_DTYPE_BOOL = 13,
  // One byte: sign, 4 bits of exponent, 3 of fraction; no infinity.
  UNISONO_DTYPE_F8E4M3 = 14,
  // One byte: sign, 5 bits of exponent, 2 of fraction.
  UNISONO_DTYPE_F8E5M2 = 15,
  // Two floats: real and imaginary part.
  UNISONO_DTYPE_COMPLEX64 = 16,
  // Two doubles: real and imaginary part.
  UNISONO_DTYPE_COMPLEX128 = 17,
  // `element_bytes` bytes that only the caller can interpret. A function of the caller's reduces them.
  UNISONO_DTYPE_OPAQUE = 255,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum unisono_dtype unisono_dtype;
#else
typedef int32_t unisono_dtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The operator of a call that reduces; 0 in other calls.
enum unisono_op
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // No operator.
  UNISONO_OP_NONE = 0,
  // The sum. Integers wrap.
  UNISONO_OP_SUM = 1,
  // The product.
  UNISONO_OP_PROD = 2,
  // The smallest; a NaN anywhere gives NaN.
  UNISONO_OP_MIN = 3,
  // The largest; a NaN anywhere gives NaN.
  UNISONO_OP_MAX = 4,
  // The sum divided by the number of ranks.
  UNISONO_OP_AVG = 5,
  // Bitwise and.
  UNISONO_OP_BIT_AND = 6,
  // Bitwise or.
  UNISONO_OP_BIT_OR = 7,
  // Bitwise exclusive or.
  UNISONO_OP_BIT_XOR = 8,
  // The sum of the inputs, each multiplied by `factor` of its rank.
  UNISONO_OP_PRE_MUL_SUM = 9,
  // The function of `user_op`.
  UNISONO_OP_USER = 10,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum unisono_op unisono_op;
#else
typedef int32_t unisono_op;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The meaning of the lists of a call.
enum unisono_division
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // One buffer in pieces, cut anywhere. Other ranks need not know.
  UNISONO_DIVISION_ANYWHERE = 0,
  // One buffer, with a piece for each rank's share. Other ranks need not know.
  UNISONO_DIVISION_SHARES = 1,
  // Several buffers that one call handles together. Their lengths are the same on every rank.
  UNISONO_DIVISION_COALESCED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum unisono_division unisono_division;
#else
typedef int32_t unisono_division;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The way of a compressed call's elements.
enum unisono_route
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The cheaper way by the prices of the network.
  UNISONO_ROUTE_CHEAPER = 0,
  // Every rank encodes its vector and sends each owner its share.
  UNISONO_ROUTE_DIRECT = 1,
  // The ranks of a host sum first, without loss.
  UNISONO_ROUTE_TWO_LEVELS = 2,
  // Codes are added on their way.
  UNISONO_ROUTE_SUMMED_CODES = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum unisono_route unisono_route;
#else
typedef int32_t unisono_route;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A communicator: a world or a group, with its world. Any thread may use it, several at once; a call while another
// thread is in a call is refused unless it has the flag UNISONO_QUEUED. A world says goodbye to the other ranks when
// its last communicator, group and store is freed, or the process ends.
typedef struct unisono_comm unisono_comm;

// A message that a probe has found. Nobody else receives it.
typedef struct unisono_message unisono_message;

// A call whose arguments are checked and whose plan is made.
typedef struct unisono_prepared unisono_prepared;

// The state of compressed calls: their codec and the errors that they still owe. One call at a time uses it.
typedef struct unisono_state unisono_state;

// A key-value store that the ranks of a communicator share. Rank 0 of the communicator holds it in memory; its library
// answers, also while its program does something else. Any thread may use it. A call that returns has had its effect
// exactly once. A key has at most 1,024 bytes, a value 16 KiB.
typedef struct unisono_store unisono_store;

// An asynchronous call.
typedef struct unisono_work unisono_work;

// One call that an error names.
typedef struct unisono_error_call_t {
  // The rank that made it, as a rank of the job.
  uint32_t rank;
  // The line that made it, from 1; 0 if it is not known.
  uint32_t line;
  // The number of the call on its communicator, from 0.
  uint64_t number;
  // The file of the line; null if it is not known.
  const char *file;
  // The operation, such as "all_reduce".
  const char *operation;
  // The whole call as text.
  const char *text;
} unisono_error_call_t;

// An error. Everything in it is the library's, and valid until a function of the library fails again on the same
// thread, or the thread ends.
typedef struct unisono_error_t {
  // The kind.
  unisono_status status;
  // The kind of the innermost cause: of UNISONO_STATUS_REVOKED the error that revoked the communicator, else the
  // same as `status`.
  unisono_status root_status;
  // Whether the communicator is as usable as before the call. After any other error of a call it is revoked.
  bool is_usable;
  // The name of the kind, such as "PeerLost".
  const char *kind;
  // The whole error as text.
  const char *text;
  // The ranks of the job that the cause names: lost ranks, awaited ranks, both of a mismatch, the rank that has
  // aborted. Null if there are none.
  const uint32_t *ranks;
  // The number of ranks.
  size_t rank_count;
  // The calls that the cause names: both of a mismatch, else at most one. Null if there are none.
  const struct unisono_error_call_t *calls;
  // The number of calls.
  size_t call_count;
} unisono_error_t;

// Bytes that the library gives. The caller frees them with unisono_bytes_free().
typedef struct unisono_bytes_t {
  // The bytes; behind the last one is a NUL, so that a text can be printed. Never null, but after it was freed.
  uint8_t *data;
  // The number of bytes, without the NUL.
  size_t length;
} unisono_bytes_t;

// A setting by the name of its environment variable; docs/settings.md lists them.
typedef struct unisono_setting_t {
  // The name, such as "UNISONO_CALL_TIMEOUT_S".
  const char *name;
  // The value. It wins over the environment.
  const char *value;
} unisono_setting_t;

// Sets a value of the program's store, in place of an earlier one. 0 for success, else a number of the program's own,
// which the error shows.
typedef int32_t (*unisono_set_function)(void *context, const char *key, const uint8_t *value, size_t length);

// Gets a value of the program's store: at most `room` bytes at `value`, and their number. It may wait for one, at most
// `timeout_s`. 0 for a value, UNISONO_NO_VALUE for none yet, else a number of the program's own.
typedef int32_t (*unisono_get_function)(void *context,
                                        const char *key,
                                        double timeout_s,
                                        uint8_t *value,
                                        size_t room,
                                        size_t *length);

// The way in which this process joins its job. Everything 0 but `struct_size`: as the environment says, which every
// launcher sets (unisono run, torchrun, mpirun, srun); with none around it, a world of one.
typedef struct unisono_init_t {
  // sizeof(unisono_init_t).
  size_t struct_size;
  // Flags: UNISONO_ANOTHER_WORLD or UNISONO_ADOPT_WORLD. Without them a second world is refused while one is open.
  uint32_t flags;
  // This rank, from 0, if `size` is not 0.
  uint32_t rank;
  // The number of ranks; 0: the environment says it.
  uint32_t size;
  // The line of the caller, which errors show; __LINE__.
  uint32_t line;
  // The file of the line, __FILE__; or null.
  const char *file;
  // The meeting place, the same on all ranks: "tcp://host:port", of rank 0, which binds the port above; or
  // "file:///path", a file that all ranks see. Null: the environment says it.
  const char *address;
  // The file of the job's secret, of 32 bytes and mode 0600; or null. Ranks on several hosts need it with "tcp://".
  const char *secret_file;
  // Settings that win over the environment.
  const struct unisono_setting_t *settings;
  // The number of settings.
  size_t setting_count;
  // With `meeting_get`: the ranks meet through a store of the program, in place of `address`. Both are called on the
  // thread that joins, and only until it has joined. A process that can read the store can join the job, unless
  // there is a secret file.
  unisono_set_function meeting_set;
  // See `meeting_set`.
  unisono_get_function meeting_get;
  // The first argument of both.
  void *meeting_context;
} unisono_init_t;

// Facts of a communicator.
typedef struct unisono_comm_info_t {
  // This process's rank, from 0.
  uint32_t rank;
  // The number of ranks.
  uint32_t size;
  // This process's rank in the job.
  uint32_t job_rank;
  // Its place among the ranks of the communicator on its host, from 0.
  uint32_t local_rank;
  // The number of ranks of the communicator on its host.
  uint32_t local_size;
  // The number of hosts.
  uint32_t host_count;
  // The number of failures that it has survived.
  uint32_t epoch;
  // 0.
  uint32_t reserved;
  // Its number, the same on all ranks; 0 for all ranks of the job.
  uint64_t id;
} unisono_comm_info_t;

// Options of a new group, which all its ranks give alike. An option that is 0 comes from the communicator from which
// the group is made.
typedef struct unisono_group_t {
  // sizeof(unisono_group_t).
  size_t struct_size;
  // The deadline of its calls in seconds.
  double timeout_s;
  // The label of its calls that have none, of at most 32 bytes; or null.
  const char *label;
  // The algorithm of its collectives that have one of this name; or null.
  const char *algorithm;
  // Flags: UNISONO_FIXED_ORDER, UNISONO_COMPANION.
  uint32_t flags;
  // 0.
  uint32_t reserved;
  // The time in seconds for which a thread that waits in one of its calls polls before it sleeps.
  double spin_s;
} unisono_group_t;

// A function that reduces: `out[i] = f(left[i], right[i])` for `bytes` bytes of whole elements. `left` comes from
// lower ranks. `out` overlaps neither. The function may be called on any thread of the library, on several at once,
// with parts of a buffer in any order. It must not throw, and may not wait for a call of the communicator.
typedef void (*unisono_user_function)(void *context, const void *left, const void *right, void *out, size_t bytes);

// An operator of the program's own, which is associative.
typedef struct unisono_user_op_t {
  // sizeof(unisono_user_op_t).
  size_t struct_size;
  // Its name, of at most 32 bytes. Ranks compare it.
  const char *name;
  // The function, which all ranks have alike.
  unisono_user_function function;
  // The first argument of the function. It stays valid until the call has ended.
  void *context;
  // Whether f(a, b) = f(b, a); 0 if not, then only algorithms run that keep the order of the ranks.
  uint32_t is_commutative;
  // 0.
  uint32_t reserved;
} unisono_user_op_t;

// A piece of memory in a list.
typedef struct unisono_piece_t {
  // Its start; null if it has no elements. The library does not write a piece of an input.
  void *data;
  // The number of its elements.
  uint64_t count;
} unisono_piece_t;

// The outcome of a call.
typedef struct unisono_outcome_t {
  // The rank of the communicator that sent the message; -1 in calls but recv, and from nobody.
  int64_t source;
  // Bytes received (recv), or bytes of this rank's buffer.
  uint64_t bytes;
  // The name of the algorithm that ran; valid for ever.
  const char *algorithm;
  // The tag of the message (recv).
  uint32_t tag;
  // 1 if the operation is switched off (UNISONO_SKIP), and the buffers are untouched; else 0.
  uint32_t is_skipped;
  // 0.
  uint64_t reserved[4];
} unisono_outcome_t;

// A function that is told once that the library no longer uses a call's memory.
typedef void (*unisono_release_function)(void *context);

// A call. Set everything to zero first, then `struct_size`, then the fields of the operation: a field that an
// operation does not have stays 0. unisono_call_of() in this header does the first two. Counts are in elements. The
// structure and its lists are read before the function returns; the memory of data is used until the call has ended.
typedef struct unisono_call_t {
  // sizeof(unisono_call_t).
  size_t struct_size;
  // A unisono_operation.
  int32_t operation;
  // A unisono_dtype; 0 in a barrier.
  int32_t dtype;
  // Bytes of an element of UNISONO_DTYPE_OPAQUE, 1 to 65535; else 0.
  uint32_t element_bytes;
  // A unisono_op, in calls that reduce.
  int32_t op;
  // The factor of UNISONO_OP_PRE_MUL_SUM.
  double factor;
  // The operator of UNISONO_OP_USER.
  const struct unisono_user_op_t *user_op;
  // The number of elements, as the operation says. With `counts` it is 0: they say it.
  uint64_t count;
  // The root, a rank of the communicator, in broadcast, reduce, gather and scatter.
  int32_t root;
  // The other side of send and recv: a rank of the communicator, UNISONO_NOBODY, or UNISONO_ANY in recv.
  int32_t peer;
  // The tag of send and recv, 0 to 2^32 - 1, or UNISONO_ANY in recv.
  int64_t tag;
  // Flags: UNISONO_IN_PLACE, UNISONO_FIXED_ORDER, UNISONO_QUEUED, UNISONO_NEEDED, UNISONO_HOST_BY_COMPANION,
  // UNISONO_PROFILED, UNISONO_NOT_PROFILED.
  uint32_t flags;
  // The line of the caller, which errors of all ranks show; __LINE__.
  uint32_t line;
  // The file of the line; __FILE__. Null: errors show no line. The library keeps a copy of each name for ever.
  const char *file;
  // The data that is read, aligned as its elements are. Where this rank has no input, it is not looked at.
  const void *input;
  // The data that is written. Where this rank has no output, it is not looked at. It may not overlap the input.
  void *output;
  // In place of `input`: a list of pieces.
  const struct unisono_piece_t *inputs;
  // The number of pieces.
  size_t input_count;
  // In place of `output`: a list of pieces.
  const struct unisono_piece_t *outputs;
  // The number of pieces.
  size_t output_count;
  // A unisono_division: the meaning of the lists.
  int32_t division;
  // 0.
  int32_t reserved;
  // Shares that differ by rank: of reduce_scatter, all_gather, gather and scatter the elements of each rank, the
  // same list on all ranks; of all_to_all the elements that this rank sends to each. Null for equal shares.
  const uint64_t *counts;
  // The length of `counts`: the number of ranks.
  size_t counts_length;
  // The elements that this rank receives from each rank, in all_to_all with `counts`.
  const uint64_t *receive_counts;
  // The length of `receive_counts`.
  size_t receive_counts_length;
  // The deadline in seconds from the start; 0 for the communicator's. INFINITY for none.
  double timeout_s;
  // A label of at most 32 bytes, which ranks compare; or null.
  const char *label;
  // The algorithm by name, or null. The library keeps a copy of each name for ever.
  const char *algorithm;
  // The name of the call in the communication log, of at most 32 bytes; or null.
  const char *log_name;
  // A plan of unisono_prepare() with the same arguments, or null. The call has the options of the plan.
  const struct unisono_prepared *prepared;
  // The state of a compressed call, or null for an exact one. The call is all_reduce, reduce_scatter or all_gather,
  // and the state was made for it.
  const struct unisono_state *state;
  // The place for the outcome of a call that blocks, or null.
  struct unisono_outcome_t *outcome;
  // For unisono_start(): told once when the memory is no longer used, on any thread; or null. The memory may be
  // freed there. It is told of a call that is refused too, unless the structure itself cannot be read.
  unisono_release_function release;
  // The argument of `release`.
  void *release_context;
} unisono_call_t;

// A function that is called at the end of a call. `outcome` is null after an error, of which unisono_last_error() has
// the rest; both are valid until the function returns. It runs on a thread of the library, or at once on the thread
// that has registered it when the call has ended. It may make calls and wait for them. It must not throw.
typedef void (*unisono_done_function)(void *context, unisono_status status, const struct unisono_outcome_t *outcome);

// Facts of a found message.
typedef struct unisono_message_info_t {
  // The rank that has sent it; -1 for nobody.
  int64_t source;
  // Its length in bytes.
  uint64_t bytes;
  // Its length in elements.
  uint64_t count;
  // Its tag.
  uint32_t tag;
  // The unisono_dtype of its elements.
  int32_t dtype;
  // Bytes of an element.
  uint32_t element_bytes;
  // 0.
  uint32_t reserved;
} unisono_message_info_t;

// The state of compressed calls that is to be made.
typedef struct unisono_state_t {
  // sizeof(unisono_state_t).
  size_t struct_size;
  // The codec: "sign", "sign-rms", "int8", "int4" or "bf16" (docs/compression.md).
  const char *codec;
  // The calls: UNISONO_OPERATION_ALL_REDUCE, UNISONO_OPERATION_REDUCE_SCATTER or UNISONO_OPERATION_ALL_GATHER.
  int32_t operation;
  // The elements: UNISONO_DTYPE_F32, UNISONO_DTYPE_F16 or UNISONO_DTYPE_BF16.
  int32_t dtype;
  // In elements: of all_reduce one number, the whole vector; of reduce_scatter the length of each vector; of
  // all_gather the share of each rank.
  const uint64_t *lengths;
  // The length of `lengths`.
  size_t length_count;
  // A unisono_route, the same on all ranks.
  int32_t route;
  // 1: the first call measures whether compression pays, on all ranks, and calls are exact where it does not.
  uint32_t or_exact;
} unisono_state_t;

// Whether the call in which this thread waits must end: 0 if not. It may not call the library.
typedef int32_t (*unisono_interrupt_function)(void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the ABI that the library has. A program may compare it with UNISONO_ABI_VERSION of the header that it
// was compiled with.
uint32_t unisono_abi_version(void);

// The version of the library, such as "0.1.0"; valid for ever.
const char *unisono_version(void);

// The error of the last function of the library that has failed on this thread; null if none has. A function that
// succeeds leaves it. In a callback it is the error that the callback is told.
const struct unisono_error_t *unisono_last_error(void);

// Frees bytes that the library has given, and empties the structure. Null and an empty structure are left alone.
//
// Promised by the caller:
// `bytes` is null, or as the library has filled it or left it empty.
unisono_status unisono_bytes_free(struct unisono_bytes_t *bytes);

// Joins the job, and gives all its ranks as a communicator. Blocks until all ranks have come, at most for
// UNISONO_JOIN_TIMEOUT_S.
//
// @param init How, or null for the environment.
// @param world Where the communicator goes, which the caller frees with unisono_comm_free().
// @return UNISONO_STATUS_CONFIGURATION for a setting that cannot be obeyed, UNISONO_STATUS_RENDEZVOUS with the missing
// ranks, UNISONO_STATUS_REFUSED when this process does not belong to the job that it has found.
//
// Promised by the caller:
// The structure and its pointers are as their documentation says, and `world` is writable.
unisono_status unisono_init(const struct unisono_init_t *init, struct unisono_comm **world);

// This process's rank in the communicator, from 0; -1 after an error.
//
// Promised by the caller:
// The handle is not freed.
int32_t unisono_rank(const struct unisono_comm *comm);

// The number of ranks of the communicator; -1 after an error.
//
// Promised by the caller:
// The handle is not freed.
int32_t unisono_size(const struct unisono_comm *comm);

// Facts of a communicator.
//
// Promised by the caller:
// The handle is not freed, and `fields` is writable.
unisono_status unisono_comm_info(const struct unisono_comm *comm, struct unisono_comm_info_t *fields);

// The rank in the job and the host of each rank of a communicator.
//
// @param comm The communicator.
// @param job_ranks Room for `rank_count` ranks of the job, or null. Errors name these.
// @param hosts Room for `rank_count` numbers of hosts, or null.
// @param rank_count The number of ranks.
//
// Promised by the caller:
// The handle is not freed, and the lists are null or writable.
unisono_status unisono_comm_ranks(const struct unisono_comm *comm,
                                  uint32_t *job_ranks,
                                  uint32_t *hosts,
                                  size_t rank_count);

// A group of ranks of the job that only its members make: the others need not know of it. Sends nothing over TCP: the
// first call waits for members that have not come.
//
// @param comm The world, or any communicator of it.
// @param key A text that stands for one list of ranks as long as the job runs. Each time that all members have made a
// group of the key again, it is a new one.
// @param ranks Ranks of the job, with this one, in the order that they have in the group.
// @param rank_count Their number.
// @param options The options, or null.
// @param group Where the group goes, which the caller frees with unisono_comm_free().
//
// Promised by the caller:
// The handle is not freed, the texts, the list and the structure are as their documentation says, and `group` is
// writable.
unisono_status unisono_make_group(const struct unisono_comm *comm,
                                  const char *key,
                                  const uint32_t *ranks,
                                  size_t rank_count,
                                  const struct unisono_group_t *options,
                                  struct unisono_comm **group);

// A communicator of some ranks of this one. Every rank of it makes the call; nothing is sent. Members give the same
// list; the others give a list without themselves, which may be their own group's.
//
// @param comm The communicator.
// @param ranks Ranks of `comm`, in the order that they have in the group.
// @param rank_count Their number.
// @param options The options, or null.
// @param group Where the group goes; null where this rank is not in the list.
//
// Promised by the caller:
// As unisono_make_group().
unisono_status unisono_subgroup(const struct unisono_comm *comm,
                                const uint32_t *ranks,
                                size_t rank_count,
                                const struct unisono_group_t *options,
                                struct unisono_comm **group);

// The ranks that give the same colour, as a communicator: MPI_Comm_split. Every rank of the communicator makes the
// call, which is an all_gather.
//
// @param comm The communicator.
// @param colour The colour; a negative number for no group.
// @param key Ranks come in the order of their keys; equal keys in the order of ranks.
// @param file The file of the caller's line, or null.
// @param line The line.
// @param group Where the group goes; null for no group.
//
// Promised by the caller:
// The handle is not freed, `file` is null or a text, and `group` is writable.
unisono_status unisono_split(const struct unisono_comm *comm,
                             int32_t colour,
                             int64_t key,
                             const char *file,
                             uint32_t line,
                             struct unisono_comm **group);

// A second communicator of the same ranks, with an order of calls of its own. Every rank makes the call.
//
// @param comm The communicator.
// @param copy Where the copy goes, which the caller frees with unisono_comm_free().
//
// Promised by the caller:
// The handle is not freed, and `copy` is writable.
unisono_status unisono_duplicate(const struct unisono_comm *comm, struct unisono_comm **copy);

// Frees a handle; null is left alone. Calls that go on keep the communicator. The last handle of a world, its groups
// and its stores says goodbye to the other ranks; unisono_close() before it finds ranks that have made other calls.
//
// Promised by the caller:
// The handle is not used again.
unisono_status unisono_comm_free(struct unisono_comm *comm);

// Makes a call, and returns when it has ended. All ranks of the communicator make the same collectives in the same
// order. The calling thread does the work. Ranks that make different calls get UNISONO_STATUS_MISMATCH with both calls
// and their lines; the loss of a rank ends the call on all others, which name it.
//
// @param comm The communicator.
// @param call The call; it and its lists may go afterwards.
// @return UNISONO_STATUS_INVALID_ARGUMENT, UNISONO_STATUS_UNSUPPORTED, UNISONO_STATUS_CONCURRENT_USE,
// UNISONO_STATUS_TRUNCATED and UNISONO_STATUS_NON_FINITE leave the communicator as it was. After any other error it is
// revoked on all ranks: inputs are intact, outputs indeterminate; go on with unisono_shrink().
//
// Promised by the caller:
// The handle is not freed, and the structure and its pointers are as their documentation says.
unisono_status unisono_call(const struct unisono_comm *comm, const struct unisono_call_t *call);

// Starts a call, and returns at once; with UNISONO_QUEUED after the calls of other threads. The handle tells its end
// and its error, also the error of a call that is refused. Asynchronous and blocking calls follow one order of issue.
//
// The memory of the data stays the caller's. It must be valid, and the output untouched, until the call has ended:
// until unisono_work_test() or a wait says so, a callback of unisono_work_on_done() has begun, or `release` is called.
// Freeing the handle does not end the call. A compressed call has a thread of its own, and the function returns when
// the call has its turn; until it ends, other collectives of this rank need UNISONO_QUEUED.
//
// @param comm The communicator.
// @param call The call, without `outcome`; it and its lists may go afterwards, `user_op`'s context and the
// data when the call has ended.
// @param work Where the handle goes, which the caller frees with unisono_work_free().
// @return An error only where there is no handle: a pointer or a number in `call` cannot be used. Nothing was sent.
//
// Promised by the caller:
// As unisono_call(), until the call has ended.
unisono_status unisono_start(const struct unisono_comm *comm,
                             const struct unisono_call_t *call,
                             struct unisono_work **work);

// Makes several calls as one, as NCCL's group: sends and receives start together and come first, so they cannot
// deadlock in any order; collectives follow in their order, with no other thread's call between. Every rank groups the
// same collectives. Collectives on lists with UNISONO_DIVISION_COALESCED travel as one message per link; calls of this
// group travel one by one.
//
// @param comm The communicator.
// @param calls Pointers to the calls, none compressed. Their `outcome` is filled for receives only.
// @param call_count The number of calls.
// @return The first error. An argument that cannot be used refuses all calls before any starts.
//
// Promised by the caller:
// As unisono_call(), for all calls together: no output overlaps other memory of the group.
unisono_status unisono_call_group(const struct unisono_comm *comm,
                                  const struct unisono_call_t *const *calls,
                                  size_t call_count);

// Whether this rank can make such a call, without making it: sends nothing. Faults of buffers, of uneven counts and of
// the order of calls are not looked for.
//
// @return The error of the call.
//
// Promised by the caller:
// As unisono_call(); the data is not looked at.
unisono_status unisono_supports(const struct unisono_comm *comm, const struct unisono_call_t *call);

// Whether a call has ended, well or not. Does not block; may move the call.
//
// @return UNISONO_STATUS_OK when it has ended, UNISONO_STATUS_PENDING while it goes on.
//
// Promised by the caller:
// The handle is not freed.
unisono_status unisono_work_test(const struct unisono_work *work);

// Waits until a call has ended; the thread moves it meanwhile. Any number of threads may wait, each gets the result.
//
// @param work The handle.
// @param timeout_s The longest wait in seconds; 0 does not wait, a negative number waits without end. The call itself
// has its own deadline.
// @param outcome Where the outcome goes, or null.
// @return The status of the call, or UNISONO_STATUS_PENDING: then the call goes on.
//
// Promised by the caller:
// The handle is not freed; `outcome` is null or writable.
unisono_status unisono_work_wait(const struct unisono_work *work, double timeout_s, struct unisono_outcome_t *outcome);

// Waits until all calls have ended.
//
// @param works The handles.
// @param work_count Their number.
// @param timeout_s As in unisono_work_wait(), for all together.
// @return The first error in the order of the handles, once all have ended; UNISONO_STATUS_PENDING if one goes on.
//
// Promised by the caller:
// No handle is freed.
unisono_status unisono_work_wait_all(struct unisono_work *const *works, size_t work_count, double timeout_s);

// Waits until one of the calls has ended, and gives its index: the lowest, if several have. It takes no result:
// unisono_work_wait() does.
//
// @param works The handles.
// @param work_count Their number, above 0.
// @param timeout_s As in unisono_work_wait().
// @param index Where the index goes.
// @return UNISONO_STATUS_OK, or UNISONO_STATUS_PENDING if all go on.
//
// Promised by the caller:
// No handle is freed; `index` is writable.
unisono_status unisono_work_wait_any(struct unisono_work *const *works,
                                     size_t work_count,
                                     double timeout_s,
                                     size_t *index);

// Has a function called once at the end of a call. Any number of functions may be given. If the call has ended, the
// function runs at once, on this thread; else it runs on a thread of the library. In a world of one, the thread that
// ends the call runs it.
//
// @param work The handle, which may be freed before.
// @param function The function.
// @param context Its first argument.
//
// Promised by the caller:
// The handle is not freed, and the function may be called with its context on any thread.
unisono_status unisono_work_on_done(const struct unisono_work *work, unisono_done_function function, void *context);

// Cancels a call unless it has ended. The communicator is revoked on all ranks, since these cannot go on without this
// rank's part: all get UNISONO_STATUS_REVOKED with the cause UNISONO_STATUS_CANCELLED, or for a compressed call
// UNISONO_STATUS_ABORTED.
//
// Promised by the caller:
// The handle is not freed.
unisono_status unisono_work_cancel(const struct unisono_work *work);

// Frees a handle; null is left alone. A call that has not ended goes on. Then `release` of the call must tell the end
// of its memory's use: without it the handle of such a call is refused and stays.
//
// @return UNISONO_STATUS_INVALID_ARGUMENT for a call that goes on and has no `release`.
//
// Promised by the caller:
// The handle is not used again, unless it was refused.
unisono_status unisono_work_free(struct unisono_work *work);

// Prepares calls of one shape (MPI's persistent collectives): a call whose `prepared` is the plan, with the same
// arguments, looks nothing up. Other ranks need not prepare theirs. Sends nothing.
//
// @param comm The communicator, which the plan belongs to.
// @param call The call; its data is not looked at. Equal counts only.
// @param prepared Where the plan goes, which the caller frees with unisono_prepared_free().
// @return The errors of the call.
//
// Promised by the caller:
// The handle is not freed, and the structure and its pointers are as their documentation says.
unisono_status unisono_prepare(const struct unisono_comm *comm,
                               const struct unisono_call_t *call,
                               struct unisono_prepared **prepared);

// Frees a plan; null is left alone. Calls that run with it go on.
//
// Promised by the caller:
// The handle is not used again.
unisono_status unisono_prepared_free(struct unisono_prepared *prepared);

// Waits for a message, or looks for one, and gives it without receiving it, so that its length is known. Of several
// messages the oldest is found.
//
// @param comm The communicator.
// @param from The sender's rank, UNISONO_ANY or UNISONO_NOBODY.
// @param with_tag The tag, or UNISONO_ANY.
// @param waits 0 to look only: then UNISONO_STATUS_PENDING says that there is none.
// @param file The file of the caller's line, or null.
// @param line The line.
// @param message Where the message goes, which the caller frees with unisono_message_free().
//
// Promised by the caller:
// The handle is not freed; `file` is null or a text; `message` is writable.
unisono_status unisono_probe(const struct unisono_comm *comm,
                             int32_t from,
                             int64_t with_tag,
                             uint32_t waits,
                             const char *file,
                             uint32_t line,
                             struct unisono_message **message);

// Facts of a found message that is not received yet.
//
// Promised by the caller:
// The handle is not freed, and `fields` is writable.
unisono_status unisono_message_info(const struct unisono_message *message, struct unisono_message_info_t *fields);

// Receives a found message, once.
//
// @param message The message, which is freed apart.
// @param data Where its bytes go, aligned as its elements are. It is used until the function returns.
// @param room_bytes The room there, which may be more than the message.
// @param outcome Where the outcome goes, or null.
// @return UNISONO_STATUS_TRUNCATED when the room is too small: the message can still be received.
//
// Promised by the caller:
// The handle is not freed, and `data` has so many writable bytes.
unisono_status unisono_message_receive(const struct unisono_message *message,
                                       void *data,
                                       uint64_t room_bytes,
                                       struct unisono_outcome_t *outcome);

// Frees a message; null is left alone. A message that was not received goes back to its place, and another receive or
// probe gets it.
//
// Promised by the caller:
// The handle is not used again.
unisono_status unisono_message_free(struct unisono_message *message);

// Makes a state for compressed calls of this communicator. Sends nothing. Its residuals take the memory of one or two
// vectors of floats.
//
// @param comm The communicator.
// @param fields The codec, the calls and their lengths; the same on all ranks.
// @param state Where the state goes, which the caller frees with unisono_state_free().
//
// Promised by the caller:
// The handle is not freed, and the structure and its pointers are as their documentation says.
unisono_status unisono_state_new(const struct unisono_comm *comm,
                                 const struct unisono_state_t *fields,
                                 struct unisono_state **state);

// Forgets everything that a state owes, as at the start of a training.
//
// Promised by the caller:
// The handle is not freed.
unisono_status unisono_state_reset(const struct unisono_state *state);

// The state of all_reduce as bytes, for a checkpoint of this rank.
//
// @param state The state.
// @param bytes Where the bytes go; freed with unisono_bytes_free().
//
// Promised by the caller:
// The handle is not freed, and `bytes` is writable.
unisono_status unisono_state_export(const struct unisono_state *state, struct unisono_bytes_t *bytes);

// The state that unisono_state_export() wrote on the same rank of as many ranks.
//
// @param comm The communicator.
// @param fields As when the state was made; `lengths`, `route` and `or_exact` are in the bytes, and 0 here.
// @param data The bytes.
// @param length Their number.
// @param state Where the state goes.
//
// Promised by the caller:
// As unisono_state_new(); `data` has so many readable bytes.
unisono_status unisono_state_import(const struct unisono_comm *comm,
                                    const struct unisono_state_t *fields,
                                    const void *data,
                                    size_t length,
                                    struct unisono_state **state);

// Takes a state to the communicator of the survivors, with the results of unisono_shrink(). Collective over the
// survivors.
//
// @param state The state.
// @param survivors The communicator of the survivors.
// @param new_ranks The new rank of each old rank; -1 for lost ones.
// @param rank_count The number of old ranks.
// @param last_common_call As unisono_shrink() gave it.
// @param went_back 1 if this rank had ended a call that another survivor had not: take its result back too. Or null.
//
// Promised by the caller:
// The handles are not freed, the list is readable, and `went_back` is null or writable.
unisono_status unisono_state_rebind(const struct unisono_state *state,
                                    const struct unisono_comm *survivors,
                                    const int32_t *new_ranks,
                                    size_t rank_count,
                                    uint64_t last_common_call,
                                    uint32_t *went_back);

// Frees a state; null is left alone.
//
// Promised by the caller:
// The handle is not used again.
unisono_status unisono_state_free(struct unisono_state *state);

// After a failure: agrees with the other survivors on who is left, and gives the communicator in which they go on.
// Collective over the survivors; it copes with ranks that fail meanwhile.
//
// @param comm The communicator that has failed.
// @param survivors Where the new communicator goes, which the caller frees with unisono_comm_free().
// @param new_ranks Room for the new rank of each old rank, -1 for lost ones; or null.
// @param rank_count The number of old ranks, if `new_ranks` is not null.
// @param last_common_call Where the number of collectives goes that every survivor has completed; or null.
// @return UNISONO_STATUS_EVICTED when the others have taken this rank for dead, UNISONO_STATUS_NO_QUORUM,
// UNISONO_STATUS_TIMEOUT with the living ranks that have not called it: then call it again.
//
// Promised by the caller:
// The handle is not freed, and the other pointers are as their documentation says.
unisono_status unisono_shrink(const struct unisono_comm *comm,
                              struct unisono_comm **survivors,
                              int32_t *new_ranks,
                              size_t rank_count,
                              uint64_t *last_common_call);

// The logical AND of the survivors' flags, the same on all. It works while ranks fail, and after a failure.
//
// @param comm The communicator.
// @param flag 0 or not 0.
// @param agreed Where 0 or 1 goes.
//
// Promised by the caller:
// The handle is not freed, and `agreed` is writable.
unisono_status unisono_agree(const struct unisono_comm *comm, int32_t flag, int32_t *agreed);

// Ends every call on every rank with UNISONO_STATUS_ABORTED. Any thread may call it at any time.
//
// Promised by the caller:
// The handle is not freed.
unisono_status unisono_abort(const struct unisono_comm *comm);

// Waits until all ranks have called it. Its timeout names exactly the ranks that have not come, and revokes nothing.
//
// @param comm The communicator.
// @param timeout_s The longest wait in seconds, of this rank.
// @return UNISONO_STATUS_TIMEOUT with the missing ranks.
//
// Promised by the caller:
// The handle is not freed.
unisono_status unisono_monitored_barrier(const struct unisono_comm *comm, double timeout_s);

// Tells the other ranks that this one makes no more calls: later ones give UNISONO_STATUS_CLOSED. May be called again.
// The handle stays, to be freed.
//
// @return The first cause if the communicator was revoked and this rank has not gone on with unisono_shrink();
// UNISONO_STATUS_MISMATCH when ranks close after different calls.
//
// Promised by the caller:
// The handle is not freed.
unisono_status unisono_close(const struct unisono_comm *comm);

// Has this thread ask a function whether its wait must end, about every 50 ms while it waits in a call or joins a job.
// Then the call ends with UNISONO_STATUS_ABORTED on all ranks, as by unisono_abort(). A call that does not wait asks
// nothing.
//
// @param function The function, in place of an earlier one; null to ask no more.
// @param context Its argument, for as long as the thread may ask.
//
// Promised by the caller:
// The function may be called with its context on this thread.
unisono_status unisono_interrupt_check(unisono_interrupt_function function, void *context);

// Switches the communication log of this rank on: it records the calls of all communicators of the world.
//
// Promised by the caller:
// The handle is not freed.
unisono_status unisono_log_start(const struct unisono_comm *comm);

// Switches the communication log off. Its records stay.
//
// Promised by the caller:
// The handle is not freed.
unisono_status unisono_log_stop(const struct unisono_comm *comm);

// Forgets the records of the communication log.
//
// Promised by the caller:
// The handle is not freed.
unisono_status unisono_log_reset(const struct unisono_comm *comm);

// The communication log as JSON: a row for each kind of call (docs/logging.md).
//
// @param comm The world, or any communicator of it.
// @param json Where the text goes; freed with unisono_bytes_free().
//
// Promised by the caller:
// The handle is not freed, and `json` is writable.
unisono_status unisono_log_json(const struct unisono_comm *comm, struct unisono_bytes_t *json);

// The flight record as JSON: the last calls of this rank in all communicators, as `unisono doctor --flight` reads it.
//
// @param comm The world, or any communicator of it.
// @param json Where the text goes; freed with unisono_bytes_free().
// @return UNISONO_STATUS_UNSUPPORTED in a world of one, which keeps none.
//
// Promised by the caller:
// The handle is not freed, and `json` is writable.
unisono_status unisono_flight_json(const struct unisono_comm *comm, struct unisono_bytes_t *json);

// Writes the flight record to its file in a folder, `rank-N.json`.
//
// @param comm The world, or any communicator of it.
// @param folder The folder, which is made if need be.
//
// Promised by the caller:
// The handle is not freed, and `folder` is a text.
unisono_status unisono_flight_dump(const struct unisono_comm *comm, const char *folder);

// The store of a communicator. Makes no message.
//
// @param comm The communicator.
// @param prefix A text before every key, or empty.
// @param store Where the store goes, which the caller frees with unisono_store_free().
//
// Promised by the caller:
// The handle is not freed, `prefix` is a text, and `store` is writable.
unisono_status unisono_store_of(const struct unisono_comm *comm, const char *prefix, struct unisono_store **store);

// Sets a value, in place of an earlier one, and ends the waits for the key.
//
// @param store The store.
// @param key The key.
// @param value The value.
// @param length Its length in bytes.
//
// Promised by the caller:
// The handle is not freed, `key` is a text, and `value` has so many readable bytes.
unisono_status unisono_store_set(const struct unisono_store *store, const char *key, const void *value, size_t length);

// The value of a key, for which it waits.
//
// @param store The store.
// @param key The key.
// @param timeout_s The longest wait in seconds; 0 for the communicator's deadline.
// @param value Where the value goes; freed with unisono_bytes_free().
// @return UNISONO_STATUS_STORE_TIMEOUT when the key has not come.
//
// Promised by the caller:
// The handle is not freed, `key` is a text, and `value` is writable.
unisono_status unisono_store_get(const struct unisono_store *store,
                                 const char *key,
                                 double timeout_s,
                                 struct unisono_bytes_t *value);

// The value of a key, if it is there now.
//
// @param store The store.
// @param key The key.
// @param value Where the value goes; its `data` is null if there is none. Freed with unisono_bytes_free().
//
// Promised by the caller:
// As unisono_store_get().
unisono_status unisono_store_try_get(const struct unisono_store *store, const char *key, struct unisono_bytes_t *value);

// Waits until each of these keys has been there.
//
// @param store The store.
// @param keys The keys.
// @param key_count Their number.
// @param timeout_s The longest wait in seconds, in all; 0 for the communicator's deadline.
//
// Promised by the caller:
// The handle is not freed, and the keys are texts.
unisono_status unisono_store_wait(const struct unisono_store *store,
                                  const char *const *keys,
                                  size_t key_count,
                                  double timeout_s);

// Adds to a number, and gives the sum. A missing key counts as 0. The value is the number in decimal digits.
//
// @param store The store.
// @param key The key.
// @param number The number.
// @param sum Where the sum goes, or null.
//
// Promised by the caller:
// The handle is not freed, `key` is a text, and `sum` is null or writable.
unisono_status unisono_store_add(const struct unisono_store *store, const char *key, int64_t number, int64_t *sum);

// Sets `desired` if the value is `expected`; a missing key counts as an empty value.
//
// @param store The store.
// @param key The key.
// @param expected The value that is expected.
// @param expected_length Its length.
// @param desired The new value.
// @param desired_length Its length.
// @param value Where the value goes that is there then; freed with unisono_bytes_free().
//
// Promised by the caller:
// The handle is not freed, `key` is a text, the values are readable, and `value` is writable.
unisono_status unisono_store_compare_and_set(const struct unisono_store *store,
                                             const char *key,
                                             const void *expected,
                                             size_t expected_length,
                                             const void *desired,
                                             size_t desired_length,
                                             struct unisono_bytes_t *value);

// Takes a key out.
//
// @param store The store.
// @param key The key.
// @param was_there Where 1 goes if it was there, else 0; or null.
//
// Promised by the caller:
// The handle is not freed, `key` is a text, and `was_there` is null or writable.
unisono_status unisono_store_delete(const struct unisono_store *store, const char *key, int32_t *was_there);

// The number of keys that begin with the prefix of this handle.
//
// @param store The store.
// @param count Where the number goes.
//
// Promised by the caller:
// The handle is not freed, and `count` is writable.
unisono_status unisono_store_count(const struct unisono_store *store, uint64_t *count);

// Frees a store; null is left alone. The keys stay.
//
// Promised by the caller:
// The handle is not used again.
unisono_status unisono_store_free(struct unisono_store *store);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNISONO_H */

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
