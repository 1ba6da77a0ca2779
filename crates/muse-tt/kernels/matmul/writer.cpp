// Distributes the panels of x to all cores, then writes the core's part of the product from c_16:
// see reader.cpp for the buffers and cores.
//
// A core with space for a panel increments the semaphore READY (0) of the first core. When all
// have, the first core multicasts the panel and then the semaphore SENT (1) to the rectangle of all
// cores, itself included, because not every simulator can exclude the sender.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

constexpr uint32_t depth = get_compile_time_arg_val(0);
constexpr uint32_t steps = get_compile_time_arg_val(1);
constexpr uint32_t height = get_compile_time_arg_val(2);
constexpr uint32_t across = get_compile_time_arg_val(3);
constexpr uint32_t x_bytes = get_tile_size(0);

using Semaphore = volatile tt_l1_ptr uint32_t*;

struct Cores {
    uint32_t left, top, right, bottom;  // network coordinates
    uint32_t others;                    // cores other than the first

    uint64_t all(uint32_t address) const {
        return get_noc_multicast_addr(left, top, right, bottom, address);
    }
    uint64_t first(uint32_t address) const { return get_noc_addr(left, top, address); }
};

template <class Matrix>
void read_panel(const Matrix& x, uint32_t page, uint32_t rows, uint32_t to) {
    for (uint32_t row = 0; row < rows; ++row) {
        for (uint32_t k = 0; k < depth; ++k) {
            noc_async_read_page(page + k, x, to);
            to += x_bytes;
        }
        page += steps * depth;
    }
    noc_async_read_barrier();
}

void send_panel(const Cores& cores, uint32_t panel, uint32_t bytes) {
    const uint32_t ready = get_semaphore(0);
    const uint32_t sent = get_semaphore(1);
    noc_semaphore_wait(reinterpret_cast<Semaphore>(ready), cores.others);
    noc_semaphore_set(reinterpret_cast<Semaphore>(ready), 0);
    noc_async_write_multicast_loopback_src(panel, cores.all(panel), bytes, cores.others + 1);
    // Both multicasts use the same channel to the same cores, so that they arrive in order: the
    // panel must have been sent, but no acknowledgement of its arrival is needed.
    noc_async_writes_flushed();
    noc_semaphore_set(reinterpret_cast<Semaphore>(sent), 1);
    noc_semaphore_set_multicast_loopback_src(sent, cores.all(sent), cores.others + 1);
    noc_async_writes_flushed();
}

void await_panel(const Cores& cores) {
    const Semaphore sent = reinterpret_cast<Semaphore>(get_semaphore(1));
    noc_semaphore_set(sent, 0);
    noc_semaphore_inc(cores.first(get_semaphore(0)), 1);
    noc_semaphore_wait(sent, 1);
}

}  // namespace

void kernel_main() {
    const uint32_t x_address = get_common_arg_val<uint32_t>(0);
    const uint32_t out_address = get_common_arg_val<uint32_t>(1);
    const uint32_t first = get_arg_val<uint32_t>(0);
    const uint32_t columns = get_arg_val<uint32_t>(1);
    const uint32_t down = get_arg_val<uint32_t>(2);
    const bool is_sender = get_arg_val<uint32_t>(3) != 0;
    const Cores cores{
        get_arg_val<uint32_t>(4), get_arg_val<uint32_t>(5), get_arg_val<uint32_t>(6),
        get_arg_val<uint32_t>(7), get_arg_val<uint32_t>(8)};
    constexpr uint32_t out_bytes = get_tile_size(16);
    constexpr auto x_args = TensorAccessorArgs<4>();
    constexpr auto out_args = TensorAccessorArgs<x_args.next_compile_time_args_offset()>();
    const auto x = TensorAccessor(x_args, x_address, x_bytes);
    const auto out = TensorAccessor(out_args, out_address, out_bytes);
    for (uint32_t top = 0; top < down; top += height) {
        const uint32_t rows = down - top < height ? down - top : height;
        for (uint32_t step = 0; step < steps; ++step) {
            cb_reserve_back(0, height * depth);
            if (is_sender) {
                const uint32_t panel = get_write_ptr(0);
                read_panel(x, (top * steps + step) * depth, rows, panel);
                if (cores.others != 0) send_panel(cores, panel, rows * depth * x_bytes);
            } else {
                await_panel(cores);
            }
            cb_push_back(0, height * depth);
        }
        for (uint32_t row = top; row < top + rows; ++row) {
            for (uint32_t column = first; column < first + columns; ++column) {
                cb_wait_front(16, 1);
                noc_async_write_page(row * across + column, out, get_read_ptr(16));
                noc_async_write_barrier();
                cb_pop_front(16, 1);
            }
        }
    }
    noc_async_atomic_barrier();
}
