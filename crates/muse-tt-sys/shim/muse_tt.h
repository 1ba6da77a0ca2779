// The part of Tenstorrent's Metal host library that muse uses, as a C ABI: opaque handles and one
// vtable. No exception crosses it. The bindings in src/generated/ffi.rs are generated from this
// file.
#ifndef MUSE_TT_H
#define MUSE_TT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Incremented with every change of this file.
#define MTT_ABI 4u

// An open device: one chip with all of its worker cores.
typedef struct mtt_device mtt_device;
// A buffer on a device, whose pages are distributed over its banks in turn.
typedef struct mtt_buffer mtt_buffer;
// Kernels, circular buffers and semaphores of some cores, under construction.
typedef struct mtt_program mtt_program;
// A complete program, which can run. It keeps its compiled kernels and what was uploaded for them.
typedef struct mtt_workload mtt_workload;

// The result of a call. Every status but MTT_OK comes with a message.
typedef uint32_t mtt_status;
#define MTT_OK 0u
// The host library refused the call or failed.
#define MTT_FAILED 1u
// The device has not enough memory.
#define MTT_EXHAUSTED 2u

// The memory that a buffer is in.
typedef uint32_t mtt_memory;
#define MTT_DRAM 0u
#define MTT_L1 1u

// The format of the pages of a circular buffer. The values are those of this header, not of the
// host library.
typedef uint32_t mtt_format;
#define MTT_F32 0u
#define MTT_BF16 1u
#define MTT_BFP8 2u
#define MTT_BFP4 3u

// Which processor of a core runs a kernel.
typedef uint32_t mtt_processor;
// Data movement on the first network, by convention reads.
#define MTT_READER 0u
// Data movement on the second network, by convention writes.
#define MTT_WRITER 1u
// Unpacks, computes and packs.
#define MTT_COMPUTE 2u

// A rectangle of worker cores, both corners included.
typedef struct mtt_cores {
    uint32_t left;
    uint32_t top;
    uint32_t right;
    uint32_t bottom;
} mtt_cores;

// A preprocessor macro and its value.
typedef struct mtt_define {
    const char* name;
    const char* value;
} mtt_define;

// A kernel to compile.
typedef struct mtt_kernel {
    const char* source;
    mtt_processor processor;
    // For MTT_COMPUTE: math fidelity, from 0 (fastest) to 3 (most exact).
    uint32_t fidelity;
    // For MTT_COMPUTE: whether the destination registers, and so the sums, are f32.
    uint32_t f32_accumulate;
    // For MTT_COMPUTE, bit i: the F32 values of circular buffer i are copied to the destination
    // registers with all of their bits; it is no operand of products.
    uint32_t unpack_to_f32;
    // Compile-time arguments.
    uint32_t arg_count;
    const uint32_t* args;
    size_t define_count;
    const mtt_define* defines;
} mtt_kernel;

// The vtable. Its handles are freed with it, buffers and workloads before their device.
typedef struct mtt_api {
    // MTT_ABI of the shim, and the size of this struct as the shim's compiler lays it out.
    uint32_t abi;
    uint32_t bytes;
    // The host library that the shim was compiled for.
    const char* library;

    // The message of the last call of this thread that failed.
    const char* (*message)(void);

    // Opens a device with memory reserved for traces.
    mtt_status (*device_open)(uint32_t id, uint64_t trace_bytes, mtt_device** out);
    mtt_status (*device_close)(mtt_device* device);
    // Columns and rows of worker cores.
    mtt_status (*device_grid)(mtt_device* device, uint32_t* columns, uint32_t* rows);
    // Network coordinates of a worker core, for transfers between cores.
    mtt_status (*device_network)(
        mtt_device* device, uint32_t column, uint32_t row, uint32_t* x, uint32_t* y);

    mtt_status (*buffer_new)(
        mtt_device* device, mtt_memory memory, uint64_t bytes, uint32_t page_bytes, mtt_buffer** out);
    void (*buffer_free)(mtt_buffer* buffer);
    // The address that kernels use.
    uint64_t (*buffer_address)(const mtt_buffer* buffer);
    // Transfers whole pages from byte `at` of the buffer on. A write returns when the bytes of the
    // host may be changed again.
    mtt_status (*buffer_write)(mtt_buffer* buffer, uint64_t at, const void* from, uint64_t bytes);
    mtt_status (*buffer_read)(mtt_buffer* buffer, uint64_t at, void* to, uint64_t bytes);

    // Compile-time arguments that describe to a kernel how a buffer in `memory` is distributed.
    // `count` is the capacity of `args` and becomes the number of arguments.
    mtt_status (*accessor)(mtt_memory memory, uint32_t* args, size_t* count);

    mtt_status (*program_new)(mtt_program** out);
    void (*program_free)(mtt_program* program);
    mtt_status (*circular_buffer)(
        mtt_program* program, const mtt_cores* cores, size_t core_count, uint32_t index,
        mtt_format format, uint32_t page_bytes, uint32_t pages);
    mtt_status (*semaphore)(
        mtt_program* program, const mtt_cores* cores, size_t core_count, uint32_t initial,
        uint32_t* id);
    mtt_status (*kernel)(
        mtt_program* program, const mtt_cores* cores, size_t core_count, const mtt_kernel* kernel,
        uint32_t* id);
    // Sets the runtime arguments of a kernel on one core, and its common arguments for all cores.
    mtt_status (*runtime_args)(
        mtt_program* program, uint32_t kernel, uint32_t column, uint32_t row, const uint32_t* args,
        size_t count);
    mtt_status (*common_args)(
        mtt_program* program, uint32_t kernel, const uint32_t* args, size_t count);

    // Takes ownership of the program, also when it fails.
    mtt_status (*workload_new)(mtt_program* program, mtt_workload** out);
    void (*workload_free)(mtt_workload* workload);
    // Replaces arguments that were set in the program by as many others.
    mtt_status (*workload_runtime_args)(
        mtt_workload* workload, uint32_t kernel, uint32_t column, uint32_t row,
        const uint32_t* args, size_t count);
    mtt_status (*workload_common_args)(
        mtt_workload* workload, uint32_t kernel, const uint32_t* args, size_t count);
    // Compiles what is not compiled yet and enqueues the workload. Waits for its end if `wait` is
    // not 0.
    mtt_status (*workload_run)(mtt_device* device, mtt_workload* workload, uint32_t wait);

    // Records the workloads that are run between begin and end, to be replayed by the id.
    mtt_status (*trace_begin)(mtt_device* device, uint32_t* id);
    mtt_status (*trace_end)(mtt_device* device, uint32_t id);
    mtt_status (*trace_replay)(mtt_device* device, uint32_t id, uint32_t wait);
    mtt_status (*trace_release)(mtt_device* device, uint32_t id);
} mtt_api;

// The vtable, valid as long as the library is loaded.
const mtt_api* muse_tt_api(void);

#ifdef __cplusplus
}
#endif

#endif
