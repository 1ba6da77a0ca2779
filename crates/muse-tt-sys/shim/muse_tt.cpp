// The functions of muse_tt.h on top of Tenstorrent's C++ host library. Each does one thing and
// turns exceptions into a status and a message.
#include "muse_tt.h"

#include <tt-metalium/host_api.hpp>
#include <tt-metalium/mesh_command_queue.hpp>
#include <tt-metalium/mesh_workload.hpp>
#include <tt-metalium/tensor_accessor_args.hpp>

#include <cstring>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

namespace metal = tt::tt_metal;
namespace mesh = tt::tt_metal::distributed;

struct mtt_device {
    std::shared_ptr<mesh::MeshDevice> device;
};
struct mtt_buffer {
    std::shared_ptr<mesh::MeshBuffer> buffer;
};
struct mtt_program {
    metal::Program program;
};
struct mtt_workload {
    mesh::MeshWorkload workload;
};

namespace {

// The command queue of all calls, which keeps their order.
constexpr uint8_t QUEUE = 0;

thread_local std::string last_message;

mtt_status failed(const char* what) noexcept {
    try {
        last_message = what;
    } catch (...) {
        // Without memory for the message only the status remains.
        last_message.clear();
    }
    const bool exhausted = last_message.find("Out of Memory") != std::string::npos;
    return exhausted ? MTT_EXHAUSTED : MTT_FAILED;
}

template <class Action>
mtt_status guard(Action&& act) noexcept {
    try {
        act();
        return MTT_OK;
    } catch (const std::exception& error) {
        return failed(error.what());
    } catch (...) {
        return failed("an exception of an unknown type");
    }
}

metal::CoreRangeSet ranges(const mtt_cores* cores, size_t count) {
    std::set<metal::CoreRange> all;
    for (const mtt_cores* at = cores; at != cores + count; ++at) {
        all.insert(metal::CoreRange({at->left, at->top}, {at->right, at->bottom}));
    }
    return metal::CoreRangeSet(all);
}

tt::DataFormat format_of(mtt_format format) {
    switch (format) {
        case MTT_F32: return tt::DataFormat::Float32;
        case MTT_BF16: return tt::DataFormat::Float16_b;
        case MTT_BFP8: return tt::DataFormat::Bfp8_b;
        case MTT_BFP4: return tt::DataFormat::Bfp4_b;
        default: throw std::invalid_argument("unknown format of a circular buffer");
    }
}

metal::MathFidelity fidelity_of(uint32_t fidelity) {
    switch (fidelity) {
        case 0: return metal::MathFidelity::LoFi;
        case 1: return metal::MathFidelity::HiFi2;
        case 2: return metal::MathFidelity::HiFi3;
        default: return metal::MathFidelity::HiFi4;
    }
}

std::variant<metal::DataMovementConfig, metal::ComputeConfig> config_of(const mtt_kernel& kernel) {
    std::vector<uint32_t> args(kernel.args, kernel.args + kernel.arg_count);
    std::map<std::string, std::string> defines;
    for (size_t i = 0; i < kernel.define_count; ++i) {
        defines.emplace(kernel.defines[i].name, kernel.defines[i].value);
    }
    if (kernel.processor == MTT_COMPUTE) {
        std::vector<metal::UnpackToDestMode> unpack(
            NUM_CIRCULAR_BUFFERS, metal::UnpackToDestMode::Default);
        for (size_t i = 0; i < 32; ++i) {
            if (kernel.unpack_to_f32 >> i & 1) unpack[i] = metal::UnpackToDestMode::UnpackToDestFp32;
        }
        return metal::ComputeConfig{
            .math_fidelity = fidelity_of(kernel.fidelity),
            .fp32_dest_acc_en = kernel.f32_accumulate != 0,
            .unpack_to_dest_mode = std::move(unpack),
            .compile_args = std::move(args),
            .defines = std::move(defines)};
    }
    const bool reads = kernel.processor == MTT_READER;
    return metal::DataMovementConfig{
        .processor = reads ? metal::DataMovementProcessor::RISCV_1 : metal::DataMovementProcessor::RISCV_0,
        .noc = reads ? metal::NOC::RISCV_1_default : metal::NOC::RISCV_0_default,
        .compile_args = std::move(args),
        .defines = std::move(defines)};
}

metal::Program& program_of(mtt_workload* workload) {
    return workload->workload.get_programs().begin()->second;
}

mesh::MeshCommandQueue& queue_of(mtt_device* device) {
    return device->device->mesh_command_queue(QUEUE);
}

const char* message() { return last_message.c_str(); }

mtt_status device_open(uint32_t id, uint64_t trace_bytes, mtt_device** out) {
    return guard([&] {
        auto device = mesh::MeshDevice::create_unit_mesh(
            static_cast<int>(id), DEFAULT_L1_SMALL_SIZE, trace_bytes);
        *out = new mtt_device{std::move(device)};
    });
}

mtt_status device_close(mtt_device* device) {
    std::unique_ptr<mtt_device> owned(device);
    return guard([&] { owned->device->close(); });
}

mtt_status device_grid(mtt_device* device, uint32_t* columns, uint32_t* rows) {
    return guard([&] {
        const auto grid = device->device->compute_with_storage_grid_size();
        *columns = static_cast<uint32_t>(grid.x);
        *rows = static_cast<uint32_t>(grid.y);
    });
}

mtt_status device_network(
    mtt_device* device, uint32_t column, uint32_t row, uint32_t* x, uint32_t* y) {
    return guard([&] {
        const auto at = device->device->worker_core_from_logical_core({column, row});
        *x = static_cast<uint32_t>(at.x);
        *y = static_cast<uint32_t>(at.y);
    });
}

mtt_status buffer_new(
    mtt_device* device, mtt_memory memory, uint64_t bytes, uint32_t page_bytes, mtt_buffer** out) {
    return guard([&] {
        const mesh::DeviceLocalBufferConfig local{
            .page_size = page_bytes,
            .buffer_type = memory == MTT_L1 ? metal::BufferType::L1 : metal::BufferType::DRAM};
        const mesh::ReplicatedBufferConfig whole{.size = bytes};
        *out = new mtt_buffer{mesh::MeshBuffer::create(whole, local, device->device.get())};
    });
}

void buffer_free(mtt_buffer* buffer) {
    guard([&] { delete buffer; });
}

uint64_t buffer_address(const mtt_buffer* buffer) { return buffer->buffer->address(); }

// A transfer of a range of a buffer. The mesh has one device, so that the buffer has one shard.
std::vector<mesh::ShardDataTransfer> range_transfer(uint64_t at, uint64_t bytes, void* host) {
    mesh::ShardDataTransfer transfer(mesh::MeshCoordinate(0, 0));
    transfer.region(metal::BufferRegion(at, bytes)).host_data(host);
    return {transfer};
}

// Whether the queue can transfer a range. In slow dispatch mode the host library ignores the offset
// of a range, so that whole buffers must be transferred.
bool can_transfer_ranges(const mesh::MeshCommandQueue& queue) {
    const std::string_view kind = typeid(queue).name();
    return kind.find("SDMeshCommandQueue") == std::string_view::npos;
}

std::vector<uint8_t> read_all(mtt_buffer* buffer, mesh::MeshCommandQueue& queue) {
    std::vector<uint8_t> all(buffer->buffer->size());
    queue.enqueue_read_mesh_buffer(all.data(), buffer->buffer, true);
    return all;
}

mtt_status buffer_write(mtt_buffer* buffer, uint64_t at, const void* from, uint64_t bytes) {
    return guard([&] {
        auto& queue = buffer->buffer->device()->mesh_command_queue(QUEUE);
        if (bytes == buffer->buffer->size()) {
            queue.enqueue_write_mesh_buffer(buffer->buffer, from, true);
        } else if (can_transfer_ranges(queue)) {
            // The host library does not write to the source.
            auto* host = const_cast<void*>(from);
            queue.enqueue_write_shards(buffer->buffer, range_transfer(at, bytes, host), true);
        } else {
            auto all = read_all(buffer, queue);
            std::memcpy(all.data() + at, from, bytes);
            queue.enqueue_write_mesh_buffer(buffer->buffer, all.data(), true);
        }
    });
}

mtt_status buffer_read(mtt_buffer* buffer, uint64_t at, void* to, uint64_t bytes) {
    return guard([&] {
        auto& queue = buffer->buffer->device()->mesh_command_queue(QUEUE);
        if (bytes == buffer->buffer->size()) {
            queue.enqueue_read_mesh_buffer(to, buffer->buffer, true);
        } else if (can_transfer_ranges(queue)) {
            queue.enqueue_read_shards(range_transfer(at, bytes, to), buffer->buffer, true);
        } else {
            std::memcpy(to, read_all(buffer, queue).data() + at, bytes);
        }
    });
}

mtt_status accessor(mtt_memory memory, uint32_t* args, size_t* count) {
    return guard([&] {
        const auto all = memory == MTT_L1
                             ? metal::TensorAccessorArgs::create_l1_interleaved().get_compile_time_args()
                             : metal::TensorAccessorArgs::create_dram_interleaved().get_compile_time_args();
        if (all.size() > *count) throw std::length_error("too little space for the arguments of an accessor");
        std::copy(all.begin(), all.end(), args);
        *count = all.size();
    });
}

mtt_status program_new(mtt_program** out) {
    return guard([&] { *out = new mtt_program{metal::CreateProgram()}; });
}

void program_free(mtt_program* program) {
    guard([&] { delete program; });
}

mtt_status circular_buffer(
    mtt_program* program, const mtt_cores* cores, size_t core_count, uint32_t index,
    mtt_format format, uint32_t page_bytes, uint32_t pages) {
    return guard([&] {
        const auto at = static_cast<uint8_t>(index);
        metal::CircularBufferConfig config(page_bytes * pages, {{at, format_of(format)}});
        config.set_page_size(at, page_bytes);
        metal::CreateCircularBuffer(program->program, ranges(cores, core_count), config);
    });
}

mtt_status semaphore(
    mtt_program* program, const mtt_cores* cores, size_t core_count, uint32_t initial,
    uint32_t* id) {
    return guard([&] {
        *id = metal::CreateSemaphore(program->program, ranges(cores, core_count), initial);
    });
}

mtt_status kernel(
    mtt_program* program, const mtt_cores* cores, size_t core_count, const mtt_kernel* kernel,
    uint32_t* id) {
    return guard([&] {
        *id = metal::CreateKernelFromString(
            program->program, kernel->source, ranges(cores, core_count), config_of(*kernel));
    });
}

mtt_status runtime_args(
    mtt_program* program, uint32_t kernel, uint32_t column, uint32_t row, const uint32_t* args,
    size_t count) {
    return guard([&] {
        const ttsl::Span<const uint32_t> all(args, count);
        metal::SetRuntimeArgs(program->program, kernel, metal::CoreCoord(column, row), all);
    });
}

mtt_status common_args(
    mtt_program* program, uint32_t kernel, const uint32_t* args, size_t count) {
    return guard([&] {
        const ttsl::Span<const uint32_t> all(args, count);
        metal::SetCommonRuntimeArgs(program->program, kernel, all);
    });
}

mtt_status workload_new(mtt_program* program, mtt_workload** out) {
    std::unique_ptr<mtt_program> owned(program);
    return guard([&] {
        auto workload = std::make_unique<mtt_workload>();
        const mesh::MeshCoordinate only(0, 0);
        workload->workload.add_program({only, only}, std::move(owned->program));
        *out = workload.release();
    });
}

void workload_free(mtt_workload* workload) {
    guard([&] { delete workload; });
}

void replace(metal::RuntimeArgsData& old, const uint32_t* args, size_t count) {
    if (count != old.size()) {
        throw std::invalid_argument("the number of arguments of a kernel cannot change");
    }
    std::copy(args, args + count, old.data());
}

mtt_status workload_runtime_args(
    mtt_workload* workload, uint32_t kernel, uint32_t column, uint32_t row, const uint32_t* args,
    size_t count) {
    return guard([&] {
        const metal::CoreCoord at(column, row);
        replace(metal::GetRuntimeArgs(program_of(workload), kernel, at), args, count);
    });
}

mtt_status workload_common_args(
    mtt_workload* workload, uint32_t kernel, const uint32_t* args, size_t count) {
    return guard([&] {
        replace(metal::GetCommonRuntimeArgs(program_of(workload), kernel), args, count);
    });
}

mtt_status workload_run(mtt_device* device, mtt_workload* workload, uint32_t wait) {
    return guard([&] {
        mesh::EnqueueMeshWorkload(queue_of(device), workload->workload, wait != 0);
    });
}

mtt_status trace_begin(mtt_device* device, uint32_t* id) {
    return guard([&] { *id = *device->device->begin_mesh_trace(QUEUE); });
}

mtt_status trace_end(mtt_device* device, uint32_t id) {
    return guard([&] { device->device->end_mesh_trace(QUEUE, mesh::MeshTraceId(id)); });
}

mtt_status trace_replay(mtt_device* device, uint32_t id, uint32_t wait) {
    return guard([&] {
        device->device->replay_mesh_trace(QUEUE, mesh::MeshTraceId(id), wait != 0);
    });
}

mtt_status trace_release(mtt_device* device, uint32_t id) {
    return guard([&] { device->device->release_mesh_trace(mesh::MeshTraceId(id)); });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const mtt_api* muse_tt_api(void) {
    static const mtt_api api = {
        .abi = MTT_ABI,
        .bytes = sizeof(mtt_api),
        .library = MTT_LIBRARY,
        .message = message,
        .device_open = device_open,
        .device_close = device_close,
        .device_grid = device_grid,
        .device_network = device_network,
        .buffer_new = buffer_new,
        .buffer_free = buffer_free,
        .buffer_address = buffer_address,
        .buffer_write = buffer_write,
        .buffer_read = buffer_read,
        .accessor = accessor,
        .program_new = program_new,
        .program_free = program_free,
        .circular_buffer = circular_buffer,
        .semaphore = semaphore,
        .kernel = kernel,
        .runtime_args = runtime_args,
        .common_args = common_args,
        .workload_new = workload_new,
        .workload_free = workload_free,
        .workload_runtime_args = workload_runtime_args,
        .workload_common_args = workload_common_args,
        .workload_run = workload_run,
        .trace_begin = trace_begin,
        .trace_end = trace_end,
        .trace_replay = trace_replay,
        .trace_release = trace_release,
    };
    return &api;
}
