/* smddp.h: collectives among the processes of a job, for programs in C and for bindings of other languages.
 *
 * A job is a number of processes, its *ranks*, that a launcher has started (smddprun, mpirun, torchrun,
 * srun). Each calls smddp_init, then collectives, then smddp_shutdown. The settings are variables of the
 * environment.
 *
 * Threads. Each function says which threads may call it. "Any thread" means also several at once.
 *
 * Errors. Functions that return smddp_result return SMDDP_SUCCESS, or say with smddp_last_error what went
 * wrong. A request may also fail after it was submitted; then its callback, smddp_run or smddp_wait has the
 * error. There are two kinds of failures:
 *   - The ranks disagree in a request, or smddp_fail was called. Then everything that is pending in that
 *     communicator fails on all ranks with the reason. The next requests of all ranks meet again.
 *   - A rank has died, or has called smddp_abort. Then the job is over: all requests fail from then on, and
 *     smddp_abort_text says why.
 *
 * Collective functions. A function that says *collective* must be called by all ranks that it names. It waits
 * for them, but not for ever: a rank that dies or stalls is an error on the others.
 *
 * Order. The n-th request of a communicator on one rank meets the n-th one on each other rank. So all ranks
 * must submit the requests of a communicator in the same order, and threads that submit to one communicator
 * must agree on an order. Communicators do not depend on each other. The requests of one group
 * (smddp_draw_ticket) may be submitted in any order.
 *
 * Forks. In a forked child all collectives fail. It may allocate and free memory.
 */
#ifndef SMDDP_H_
#define SMDDP_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a program that was compiled with an earlier header would no longer work. New functions, and
 * new fields at the end of smddp_request, do not change it. */
#define SMDDP_API_VERSION 1

/* The SMDDP_API_VERSION of the library. Any thread, also before smddp_init. */
int smddp_api_version(void);

/* The version of the release, such as "1.2.0". It is never freed. Any thread, also before smddp_init. */
const char* smddp_version(void);

/* ---- Errors ---- */

typedef enum smddp_result {
  SMDDP_SUCCESS = 0,
  SMDDP_INVALID_ARGUMENT = 1, /* the arguments can never work */
  SMDDP_FAILED_PRECONDITION =
      2,                /* not now: not initialized, shut down, a forked child, something is pending */
  SMDDP_INTERNAL = 3,   /* a rank has died, the ranks disagree, or the system has refused something */
  SMDDP_CORRUPT = 4,    /* the memory that the ranks share is damaged: the job is over */
  SMDDP_DEVICE_LOST = 5 /* a GPU of this rank is of no more use to this process: the job is over */
} smddp_result;

/* The text of the last error of this thread, in UTF-8; "" if there was none. It names the rank, the request,
 * the likely cause and the remedy. It is valid until the next call in this thread fails. */
const char* smddp_last_error(void);

/* ---- Start and stop ---- */

/* Joins the job. Collective of all ranks.
 * `nccl_library` is the path of NCCL, if SMDDP_NCCL_LIBRARY does not say one; NULL: the one that the system
 * finds. `prefix` is a folder whose lib/ may have an MPI library, for ranks on several hosts; NULL: none.
 * Errors: SMDDP_INVALID_ARGUMENT for a variable of the environment, SMDDP_FAILED_PRECONDITION when this
 * process is in a job already, SMDDP_INTERNAL when the ranks do not come together. Not while another thread
 * is in smddp_init or smddp_shutdown. */
smddp_result smddp_init(const char* nccl_library, const char* prefix);

/* Leaves the job; nothing happens outside of one. It waits for the pending requests at which all ranks have
 * arrived. A request that still waits for a rank fails on all ranks, and is an error here. On one host it
 * does not wait for the other ranks; the ranks of several hosts end together. Memory of smddp_allocate stays
 * valid. A process that ends without it is a failure to the other ranks. Not while another thread is in
 * smddp_init or smddp_shutdown; not in a callback. */
smddp_result smddp_shutdown(void);

/* 1 between smddp_init and smddp_shutdown, else 0. Any thread. */
int smddp_is_initialized(void);

/* This process's index among the ranks, from 0, and their number; the same among the ranks of this host. -1
 * outside of a job. Any thread. */
int smddp_rank(void);
int smddp_size(void);
int smddp_local_rank(void);
int smddp_local_size(void);

/* ---- Communicators ---- */

/* A group of ranks with an order of requests of its own. The number is the same on all ranks that know the
 * group, and is not given again. */
typedef uint32_t smddp_communicator;

/* The communicator of all ranks. It always exists. */
#define SMDDP_WORLD ((smddp_communicator)0)

/* Makes a communicator of `num_ranks` ranks of the job, in any order, each once, and sets *communicator.
 * Collective of all ranks of the job, members or not, with the same ranks. Errors: SMDDP_INVALID_ARGUMENT
 * (ranks), SMDDP_INTERNAL (the ranks disagree, or there is no room for one more). Any thread, not in a
 * callback. */
smddp_result smddp_create_communicator(const int* ranks, int num_ranks, smddp_communicator* communicator);

/* Makes a communicator as smddp_create_communicator does, by its members alone. Collective of `ranks`, with
 * the same ranks and the same `key` on each: a number below 8388608 that no other communicator of the job has
 * had, such as one that counts up in a store of the program's. Ranks that make several with each other make
 * them in the same order, or in threads of their own. Errors: SMDDP_INVALID_ARGUMENT (ranks, or this rank is
 * none of them; the key is too large, or was used on this rank), SMDDP_INTERNAL (the ranks disagree; where
 * the ranks of a host do, or it has no room for one more, the job is over). Any thread, not in a callback. */
smddp_result smddp_create_communicator_among(const int* ranks, int num_ranks, uint64_t key,
                                             smddp_communicator* communicator);

/* Ends a communicator in which nothing is pending. Collective of those who have made it: all ranks of the
 * job, or its members. Errors: SMDDP_INVALID_ARGUMENT (SMDDP_WORLD, or there is none of this number),
 * SMDDP_FAILED_PRECONDITION (something is pending on this rank). Any thread, not in a callback. */
smddp_result smddp_remove_communicator(smddp_communicator communicator);

/* This process's index among the members, which are ordered by their ranks in the job: -1 if it is none. The
 * number of members: 0 if there is no such communicator. Any thread. */
int smddp_communicator_rank(smddp_communicator communicator);
int smddp_communicator_size(smddp_communicator communicator);

/* Takes this rank out of a communicator until all members have left, for ranks whose data ends early:
 * requests of the others do not wait for it, nor include it. It waits until this rank's own requests there
 * have ended. Any thread, not in a callback. */
smddp_result smddp_leave(smddp_communicator communicator);

/* Waits until all members have left; then all are back. Sets *last to the rank of the job that was the last
 * to leave. Errors: SMDDP_FAILED_PRECONDITION (this rank has not left), SMDDP_INTERNAL (the job is over). Any
 * thread, not in a callback. */
smddp_result smddp_return(smddp_communicator communicator, int* last);

/* ---- Memory ---- */

/* Returns at least `bytes` bytes, aligned to 256 bytes, in this rank's *arena*, which the ranks of a host
 * share: requests on it are done without copies. Where there is no arena (one rank, a forked child, outside
 * of a job) or no room in it, the memory is private, and requests on it work all the same. NULL: the system
 * has no memory. The content is undefined. The caller frees it with smddp_free. Any thread. */
void* smddp_allocate(size_t bytes);

/* Frees what smddp_allocate has returned; also after smddp_shutdown. NULL is allowed. It must be no part of a
 * request that is under way. Any thread. */
void smddp_free(void* data);

/* 1 if the address lies in an arena of this process, else 0. Any thread. */
int smddp_is_in_arena(const void* data);

/* ---- Requests ---- */

typedef enum smddp_collective {
  /* Every output is the reduction of all inputs. */
  SMDDP_ALLREDUCE = 0,
  /* Every output is the root's input. */
  SMDDP_BROADCAST = 1,
  /* No data: it ends when all have called it. */
  SMDDP_BARRIER = 2,
  /* Every output is all inputs, one after the other. Their numbers of rows may differ. */
  SMDDP_ALLGATHER = 3,
  /* The reduction of all inputs is cut by rows, as evenly as can be: of 7 rows, the first of 3 members gets
   * 3, and the others get 2. */
  SMDDP_REDUCE_SCATTER = 4,
  /* The member of index i gets splits[i] rows of each input. */
  SMDDP_ALLTOALL = 5
} smddp_collective;

typedef enum smddp_dtype {
  SMDDP_FLOAT16 = 0,
  SMDDP_BFLOAT16 = 1,
  SMDDP_FLOAT32 = 2,
  SMDDP_FLOAT64 = 3,
  SMDDP_INT32 = 4,
  SMDDP_INT64 = 5,
  SMDDP_UINT8 = 6,
  /* One byte. SMDDP_MIN is the logical and, SMDDP_MAX the logical or; there are no other operations. */
  SMDDP_BOOL = 7,
  SMDDP_INT8 = 8,
  SMDDP_INT16 = 9,
  SMDDP_UINT16 = 10,
  SMDDP_UINT32 = 11,
  SMDDP_UINT64 = 12,
  /* Without SMDDP_MIN and SMDDP_MAX. */
  SMDDP_COMPLEX64 = 13,
  SMDDP_COMPLEX128 = 14
} smddp_dtype;

typedef enum smddp_op {
  SMDDP_SUM = 0,
  SMDDP_AVERAGE = 1,
  SMDDP_MIN = 2,
  SMDDP_MAX = 3,
  SMDDP_PRODUCT = 4
} smddp_op;

/* How SMDDP_FLOAT32 may travel between GPUs and between hosts, in a reduction. */
typedef enum smddp_compression {
  SMDDP_UNCOMPRESSED = 0,
  SMDDP_AS_FLOAT16 = 1,
  SMDDP_AS_BFLOAT16 = 2
} smddp_compression;

typedef enum smddp_memory {
  SMDDP_HOST = 0, /* the CPU may read and write it */
  SMDDP_CUDA = 1  /* of an NVIDIA GPU */
} smddp_memory;

/* Where a tensor lies. */
typedef struct smddp_buffer {
  void* data;       /* of an input, it is only read; may be NULL when there are no bytes */
  uint64_t bytes;   /* the room at `data` */
  int32_t memory;   /* an smddp_memory */
  int32_t reserved; /* 0 */
  /* SMDDP_CUDA: a CUstream or cudaStream_t; NULL is the default stream of the calling thread's context. The
   * request begins with the buffer behind all that is on the stream when it is submitted. When the request
   * has ended, its results are in the memory, and nothing of it uses the buffer. */
  void* stream;
} smddp_buffer;

/* Allocates the output of SMDDP_ALLGATHER, SMDDP_REDUCE_SCATTER or SMDDP_ALLTOALL when all ranks have
 * arrived. `rows` has the rows that come from each member, in the order of their indices
 * (SMDDP_REDUCE_SCATTER: one number, the rows of this rank's part); their sum is the output's first
 * dimension. Returns the output's address in memory of the kind of `output`; NULL fails the request on all
 * ranks, unless there are no bytes. Called at most once, before the end of the request, by a thread of the
 * library or the one that submits: it must return quickly, and call no function of this header but
 * smddp_allocate. */
typedef void* (*smddp_allocate_output)(void* context, const int64_t* rows, int num_rows);

/* One tensor's part in a collective of a communicator's members, on this rank. Begin with smddp_request_init,
 * which sets all that is not said otherwise to 0. The members must agree in all but addresses, the rooms of
 * buffers, `label`, and what is said to differ.
 *
 * The library reads the arrays and texts until smddp_submit, smddp_run or smddp_start returns. The memory of
 * the buffers and of `rows` is its own until the request has ended. */
typedef struct smddp_request {
  size_t struct_size; /* set by smddp_request_init */
  smddp_communicator communicator;
  int32_t collective;  /* an smddp_collective */
  int32_t dtype;       /* an smddp_dtype; SMDDP_BARRIER has none */
  int32_t op;          /* reductions: an smddp_op */
  int32_t root;        /* SMDDP_BROADCAST: its rank in the job, which is not its index in the communicator */
  int32_t compression; /* reductions: an smddp_compression */
  double prescale;  /* reductions of float and complex types: each input is multiplied by it; 1 by default */
  double postscale; /* the same for the result; 1 by default */

  /* The dimensions of the input, in elements. The first one is its *rows*, and may differ in SMDDP_ALLGATHER
   * and SMDDP_ALLTOALL. SMDDP_BARRIER has none. Without dimensions it is a single element. */
  const int64_t* shape;
  int32_t num_dims;

  /* SMDDP_ALLTOALL: the rows for each member, in the order of their indices. Their sum is shape[0]. They
   * differ as the caller likes. num_splits is the number of members. */
  int32_t num_splits;
  const int64_t* splits;

  /* SMDDP_ALLREDUCE and SMDDP_BROADCAST work in place where both are the same memory, or input.data is NULL.
   * Else input and output do not overlap. An output that has no room for the result is an error. */
  smddp_buffer input;
  smddp_buffer output;

  /* NULL, or where the rows from each member are written; see smddp_allocate_output. */
  int64_t* rows;

  /* NULL, or what is asked for the output, in place of output.data and output.bytes. */
  smddp_allocate_output allocate;
  void* allocate_context;

  /* For a request in a group; see smddp_draw_ticket. With a group_size of 0 it is in none. */
  uint64_t ticket;
  uint32_t group_index; /* below group_size */
  uint32_t group_size;  /* the number of requests in the group */

  /* For messages. NULL is allowed. */
  const char* label;

  /* NULL, or the tensor's name. Requests of different names are an error, which shows both. */
  const char* name;

  /* Seconds. If the request has waited so long for other ranks, the job ends with an error that names them. 0
   * is SMDDP_STALL_TIMEOUT, for which ranks count as late only while they make no progress. The members need
   * not agree in it. It has no effect if SMDDP_STALL_WARNING and SMDDP_STALL_TIMEOUT are both 0. */
  double timeout;
} smddp_request;

/* Sets the defaults; `struct_size` is sizeof(smddp_request). The program and the library may have headers
 * with different numbers of fields: the library takes a request that has fewer. Any thread, also before
 * smddp_init. */
void smddp_request_init(smddp_request* request, size_t struct_size);

/* Called once when a request has ended. `result` is SMDDP_SUCCESS when the output holds the result here and
 * on every other rank will; else the output is undefined, and `error` is the text, which is valid during the
 * call. A thread of the library calls it, or the one that is in smddp_submit, smddp_run or smddp_wait. It
 * holds up the callbacks of other requests: it must return quickly, must not wait for a
 * request, and may submit others. */
typedef void (*smddp_done)(void* context, smddp_result result, const char* error);

/* Submits a request, and does not wait for it. If this returns SMDDP_SUCCESS, `done` is called once with
 * `context`, perhaps before this returns, and has all errors that are found from then on. Else it is not
 * called, and the other ranks know nothing of the request: see smddp_fail. Errors: SMDDP_FAILED_PRECONDITION
 * (not initialized), SMDDP_INVALID_ARGUMENT (a number that names nothing, a size below 0, a buffer that is
 * too small), SMDDP_INTERNAL and SMDDP_DEVICE_LOST (the stream). Any thread. */
smddp_result smddp_submit(const smddp_request* request, smddp_done done, void* context);

/* Submits a request and waits for its end: the fastest way for a request that is alone, since this thread
 * does the work. Errors: those of smddp_submit, and those of the request. Any thread, not in a callback. */
smddp_result smddp_run(const smddp_request* request);

/* Requests that were started. */
typedef struct smddp_operation smddp_operation;

/* Submits `count` requests of one communicator, in this order, without callbacks, and sets *operation, which
 * smddp_release frees. Errors: those of smddp_submit, and SMDDP_INVALID_ARGUMENT for different communicators;
 * then none is submitted, and there is no operation. Any thread. */
smddp_result smddp_start(const smddp_request* const* requests, size_t count, smddp_operation** operation);

/* 1 if all requests of the operation have ended, else 0. Does not wait. Any thread. */
int smddp_test(smddp_operation* operation);

/* Waits for the end of all requests of the operation, and returns SMDDP_SUCCESS or the first error; any
 * number of times, from any thread, not in a callback. This thread does the requests' work meanwhile. */
smddp_result smddp_wait(smddp_operation* operation);

/* Frees the operation; NULL is allowed. Requests that have not ended go on, and use their buffers. Not while
 * another thread uses the operation. */
void smddp_release(smddp_operation* operation);

/* Draws the ticket of the next *group* of a communicator: the n-th group of one rank meets the n-th one of
 * the others, and in it the requests of equal group_index, in whichever order each rank submits them. Use it
 * for the gradients of a step: they are submitted as they come, small ones are reduced together, and large
 * ones overlap, which requests outside of groups hardly do. All requests of a group carry its ticket. Errors:
 * SMDDP_INVALID_ARGUMENT (not a member), SMDDP_INTERNAL (an earlier step has failed on another rank). The
 * callers' order is the order of the groups. Any thread. */
smddp_result smddp_draw_ticket(smddp_communicator communicator, uint64_t* ticket);

/* Tells the members that this rank cannot do its part, so that they do not wait for it: everything that is
 * pending in the communicator fails on all ranks, and the text names this rank and `reason`. Any thread. */
void smddp_fail(smddp_communicator communicator, const char* reason);

/* The same for a group of which this rank has drawn the ticket. It does nothing when the group has failed
 * already because of another rank, whose error this rank has then seen, or need not see. Any thread. */
void smddp_fail_group(smddp_communicator communicator, uint64_t ticket, const char* reason);

/* Ends the job for all ranks with `text`, which this process has written to its own log already. Nothing
 * happens outside of a job. Any thread. */
void smddp_abort(const char* text);

/* Writes why the job is over for all ranks, cut to fit `text_bytes` bytes with the 0 at the end; "" if it is
 * not over. Any thread. */
void smddp_abort_text(char* text, size_t text_bytes);

/* ---- Watching ---- */

/* Writes the cost of this rank's collectives as JSON; with `reset` it counts from 0 again. 262,144 bytes hold
 * the figures of the largest number of communicators. Errors: SMDDP_FAILED_PRECONDITION (not in a job, a
 * forked child), SMDDP_INTERNAL (`text_bytes` is too small). Any thread. */
smddp_result smddp_stats(int reset, char* text, size_t text_bytes);

/* Writes a timeline of this rank's collectives to a file, a Chrome trace, until smddp_stop_timeline or
 * smddp_shutdown. Errors: SMDDP_FAILED_PRECONDITION (not in a job, a forked child, one is being written),
 * SMDDP_INTERNAL (the file). Any thread. */
smddp_result smddp_start_timeline(const char* path);

/* Ends the timeline, if there is one. Errors: SMDDP_INTERNAL (a part of the file could not be written). Any
 * thread. */
smddp_result smddp_stop_timeline(void);

/* ---- For bindings of other languages ---- */

/* Takes over SIGINT: it withdraws all requests of this process that still wait for other ranks, which fail on
 * all ranks, and then calls the handler that was there before. smddp_stop_watching_interrupts puts that back.
 * For a language whose own handler runs only when the call of a function has returned. Errors: SMDDP_INTERNAL
 * (the system has no thread left); the job works without it, and the log says so. One thread at a time. */
smddp_result smddp_watch_interrupts(void);
void smddp_stop_watching_interrupts(void);

/* Says that the smddp_shutdown which follows comes from the end of the program, for what other ranks report.
 * Any thread. */
void smddp_note_script_end(void);

/* Writes a line for each of the CUDA driver, NCCL and MPI, cut to fit `text_bytes`: its name, "found" or
 * "missing", and its version and path or why there is none, with tabs between them. Arguments as for
 * smddp_init. Errors: SMDDP_INVALID_ARGUMENT (a variable of the environment). Not while another thread is in
 * smddp_init; also outside of a job. */
smddp_result smddp_find_libraries(const char* nccl_library, const char* prefix, char* text,
                                  size_t text_bytes);

/* Writes what a process manager for MPI must know, which rank 0 starts before smddp_init where MPI asks for
 * one, as lines: host, port, rank, size, seconds to wait, the run's id; "" if none is needed. Errors:
 * SMDDP_INVALID_ARGUMENT (a variable of the environment). Any thread, before smddp_init. */
smddp_result smddp_process_manager(char* text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* SMDDP_H_ */
