// What muse asks of Tenstorrent's Metal host library, as C: opaque handles and one table of
// functions. Exceptions stop behind it. The bindings in src/generated/ffi.rs are made from this file.
#ifndef MUSE_TT_H
#define MUSE_TT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Grows with every change of this file.
#define MTT_ABI 3u

// An open device: one chip, with all of its worker cores.
typedef struct mtt_device mtt_device;
// Bytes on a device, in pages dealt out to its banks in turn.
typedef struct mtt_buffer mtt_buffer;
// Kernels, circular buffers and semaphores of some cores, until it becomes a workload.
typedef struct mtt_program mtt_program;
// A program that can run, and keeps what was compiled and uploaded for it.
typedef struct mtt_workload mtt_workload;

// How a call ended; anything but MTT_OK leaves a message behind.
typedef uint32_t mtt_status;
#define MTT_OK 0u
// The host library refused or failed.
#define MTT_FAILED 1u
// There is not enough memory on the device.
#define MTT_EXHAUSTED 2u

// Where a buffer lies.
typedef uint32_t mtt_memory;
#define MTT_DRAM 0u
#define MTT_L1 1u

// What the pages of a circular buffer hold; numbers of this header, not of the library.
typedef uint32_t mtt_format;
#define MTT_F32 0u
#define MTT_BF16 1u
#define MTT_BFP8 2u
#define MTT_BFP4 3u

// Which processor of a core runs a kernel.
typedef uint32_t mtt_processor;
// Moves data, by its own network; reads by custom.
#define MTT_READER 0u
// Moves data, by the other network; writes by custom.
#define MTT_WRITER 1u
// Unpacks, computes, packs.
#define MTT_COMPUTE 2u

// A rectangle of worker cores, both corners included.
typedef struct mtt_cores {
    uint32_t left;
    uint32_t top;
    uint32_t right;
    uint32_t bottom;
} mtt_cores;

// A name and its value for the preprocessor.
typedef struct mtt_define {
    const char* name;
    const char* value;
} mtt_define;

// A kernel to compile.
typedef struct mtt_kernel {
    const char* source;
    mtt_processor processor;
    // 0 the fastest to 3 the most exact; for MTT_COMPUTE.
    uint32_t fidelity;
    // Whether sums are kept in f32; for MTT_COMPUTE.
    uint32_t wide_sums;
    // Bit i: circular buffer i is only copied to the registers, all bits of its F32 values; for
    // MTT_COMPUTE.
    uint32_t whole_values;
    uint32_t arg_count;
    const uint32_t* args;
    size_t define_count;
    const mtt_define* defines;
} mtt_kernel;

// The table. Handles that it gives are freed by it, buffers and workloads before their device.
typedef struct mtt_api {
    // MTT_ABI of the shim, and the table's bytes as the shim's compiler lays them out.
    uint32_t abi;
    uint32_t bytes;
    // The host library that the shim was compiled for.
    const char* library;

    // What the last call on this thread that failed had to say.
    const char* (*message)(void);

    // Opens a device, with room for traces.
    mtt_status (*device_open)(uint32_t id, uint64_t trace_bytes, mtt_device** out);
    mtt_status (*device_close)(mtt_device* device);
    // Columns and rows of worker cores.
    mtt_status (*device_grid)(mtt_device* device, uint32_t* columns, uint32_t* rows);
    // Where a worker core lies on the network, for multicasts.
    mtt_status (*device_network)(
        mtt_device* device, uint32_t column, uint32_t row, uint32_t* x, uint32_t* y);

    mtt_status (*buffer_new)(
        mtt_device* device, mtt_memory memory, uint64_t bytes, uint32_t page_bytes, mtt_buffer** out);
    void (*buffer_free)(mtt_buffer* buffer);
    // The address that kernels reach it by.
    uint64_t (*buffer_address)(const mtt_buffer* buffer);
    // Whole pages from byte `at` on; a write returns when the host's bytes may change again.
    mtt_status (*buffer_write)(mtt_buffer* buffer, uint64_t at, const void* from, uint64_t bytes);
    mtt_status (*buffer_read)(mtt_buffer* buffer, uint64_t at, void* to, uint64_t bytes);

    // Compile-time arguments that tell a kernel how a buffer in `memory` is dealt out; `count` is
    // the room, then how many there are.
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
    // Arguments of a kernel on one core, and on all of its cores.
    mtt_status (*runtime_args)(
        mtt_program* program, uint32_t kernel, uint32_t column, uint32_t row, const uint32_t* args,
        size_t count);
    mtt_status (*common_args)(
        mtt_program* program, uint32_t kernel, const uint32_t* args, size_t count);

    // Takes the program over, also when it fails.
    mtt_status (*workload_new)(mtt_program* program, mtt_workload** out);
    void (*workload_free)(mtt_workload* workload);
    // Changes arguments that the program had; as many as it had.
    mtt_status (*workload_runtime_args)(
        mtt_workload* workload, uint32_t kernel, uint32_t column, uint32_t row,
        const uint32_t* args, size_t count);
    mtt_status (*workload_common_args)(
        mtt_workload* workload, uint32_t kernel, const uint32_t* args, size_t count);
    // Starts it, and waits for its end when told.
    mtt_status (*workload_run)(mtt_device* device, mtt_workload* workload, uint32_t wait);

    // Records what runs between begin and end, to be run again by its number.
    mtt_status (*trace_begin)(mtt_device* device, uint32_t* id);
    mtt_status (*trace_end)(mtt_device* device, uint32_t id);
    mtt_status (*trace_replay)(mtt_device* device, uint32_t id, uint32_t wait);
    mtt_status (*trace_release)(mtt_device* device, uint32_t id);
} mtt_api;

// The table, which lives as long as the library is loaded.
const mtt_api* muse_tt_api(void);

#ifdef __cplusplus
}
#endif

#endif
