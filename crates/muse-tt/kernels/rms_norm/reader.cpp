// RMS norm of rows of tiles: out = x / sqrt(mean(x²) + eps) · weight.
//
//   DRAM x ──────▶ c_0 (a row of tiles) ──▶ x², the tiles of each group added ──▶ c_2 (F32) ────┐
//   ones ────────▶ c_3 (1 tile) ────────────────────────────────────────────────────────────────┴─▶
//                    products of both, added: sums of rows in all columns ──▶ rsqrt ──▶ c_4 (F32)
//   DRAM weight ─▶ c_1 (a row of tiles)        x · c_4 ──▶ c_5 (F32) · weight ──▶ c_16 ──▶ DRAM
//
// Cores: any number, each with a run of rows, or (MUSE_SHARED) a run of groups of one row, whose
// tiles c_0 and c_1 then hold. Cores that share a row exchange sums and factor through its first
// core:
//
//   c_6 (sums of own groups) ──▶ c_2 of the first core ──▶ its c_7 (the factor) ──▶ c_4 of each core
//
// A core increments the semaphore SUMS of the first core when its sums have arrived there, and the
// first core increments FACTOR of each core when the factor has. This kernel fills c_0, c_1, c_3
// and the buffers that other cores write to, c_2 and c_4. Each core reads the weight once.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

constexpr uint32_t TWO_ONES = 0x3f803f80;  // 1.0 in BF16, twice
[[maybe_unused]] constexpr uint32_t GROUPS = get_compile_time_arg_val(0);  // of a row
[[maybe_unused]] constexpr uint32_t CORES = get_compile_time_arg_val(1);   // of a row

void fill_ones() {
    cb_reserve_back(3, 1);
    auto words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_write_ptr(3));
    for (uint32_t i = 0; i < 512; ++i) words[i] = TWO_ONES;
    cb_push_back(3, 1);
}

template <class Source>
void read_row(
    uint32_t buffer, const Source& source, uint32_t first, uint32_t tiles, uint32_t bytes) {
    cb_reserve_back(buffer, tiles);
    uint32_t to = get_write_ptr(buffer);
    for (uint32_t tile = first; tile < first + tiles; ++tile) {
        noc_async_read_page(tile, source, to);
        to += bytes;
    }
    noc_async_read_barrier();
    cb_push_back(buffer, tiles);
}

#ifdef MUSE_SHARED
constexpr uint32_t SUMS = 0;
constexpr uint32_t FACTOR = 1;
constexpr uint32_t TILE = 4096;       // bytes of F32
constexpr uint32_t ROW_CORES = 6;     // index of the first argument with network coordinates: a pair
                                      // for each core of the row, or for the first one alone

using Semaphore = volatile tt_l1_ptr uint32_t*;

// The network address of `address` in the memory of a core of the row.
uint64_t on_core(uint32_t core, uint32_t address) {
    const uint32_t x = get_arg_val<uint32_t>(ROW_CORES + 2 * core);
    const uint32_t y = get_arg_val<uint32_t>(ROW_CORES + 2 * core + 1);
    return get_noc_addr(x, y, address);
}

void await(uint32_t semaphore, uint32_t count) {
    const Semaphore word = reinterpret_cast<Semaphore>(get_semaphore(semaphore));
    noc_semaphore_wait(word, count);
    noc_semaphore_set(word, 0);
}

void send_sums(uint32_t first_group, uint32_t groups) {
    cb_wait_front(6, groups);
    const uint64_t to = on_core(0, get_write_ptr(2) + first_group * TILE);
    noc_async_write(get_read_ptr(6), to, groups * TILE);
    // Semaphore increments may overtake writes: the sums must have arrived first.
    noc_async_write_barrier();
    noc_semaphore_inc(on_core(0, get_semaphore(SUMS)), 1);
    cb_pop_front(6, groups);
}

void send_factor() {
    cb_reserve_back(2, GROUPS);
    await(SUMS, CORES);
    cb_push_back(2, GROUPS);
    cb_wait_front(7, 1);
    for (uint32_t core = 0; core < CORES; ++core) {
        noc_async_write(get_read_ptr(7), on_core(core, get_write_ptr(4)), TILE);
    }
    noc_async_write_barrier();
    for (uint32_t core = 0; core < CORES; ++core) {
        noc_semaphore_inc(on_core(core, get_semaphore(FACTOR)), 1);
    }
    cb_pop_front(7, 1);
}

void receive_factor() {
    cb_reserve_back(4, 1);
    await(FACTOR, 1);
    cb_push_back(4, 1);
}
#endif

}  // namespace

void kernel_main() {
    const uint32_t x_address = get_common_arg_val<uint32_t>(0);
    uint32_t first = get_arg_val<uint32_t>(0);
    [[maybe_unused]] const uint32_t first_in_row = get_arg_val<uint32_t>(1);
    const uint32_t tiles = get_arg_val<uint32_t>(2);
    const uint32_t rows = get_arg_val<uint32_t>(3);
    constexpr uint32_t x_bytes = get_tile_size(0);
    constexpr auto x_args = TensorAccessorArgs<2>();
    const auto x = TensorAccessor(x_args, x_address, x_bytes);
    fill_ones();
#ifdef MUSE_WEIGHTED
    constexpr uint32_t weight_bytes = get_tile_size(1);
    constexpr auto weight_args = TensorAccessorArgs<x_args.next_compile_time_args_offset()>();
    const auto weight = TensorAccessor(weight_args, get_common_arg_val<uint32_t>(1), weight_bytes);
#endif
    for (uint32_t row = 0; row < rows; ++row) {
        read_row(0, x, first, tiles, x_bytes);
        first += tiles;
#ifdef MUSE_WEIGHTED
        // Behind the first row of x, because the weight is needed only after the sums of the row.
        if (row == 0) read_row(1, weight, first_in_row, tiles, weight_bytes);
#endif
    }
#ifdef MUSE_SHARED
    send_sums(get_arg_val<uint32_t>(4), get_arg_val<uint32_t>(5));
    if (first_in_row == 0) send_factor();
    receive_factor();
    noc_async_atomic_barrier();
#endif
}
