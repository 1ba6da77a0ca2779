// out = x · w: x [M, K] and w [K, N] in tiles, for the few rows of decoding and packed verify.
//
//   DRAM x ──▶ c_0 (a row of K tiles, BF16) ──────┐
//   DRAM w ──▶ c_1 (K tiles at a time, of any ────┴─▶ sum over K in f32 ──▶ c_16 ──▶ DRAM out
//              format, twice BLOCK tiles of room)
//
// Cores: any number, each a run of columns of w. A core reads its columns of w once for every row
// of tiles of x, and x once. This kernel fills c_0 and c_1.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    const uint32_t x_address = get_arg_val<uint32_t>(0);
    const uint32_t w_address = get_arg_val<uint32_t>(1);
    const uint32_t first = get_arg_val<uint32_t>(2);
    const uint32_t columns = get_arg_val<uint32_t>(3);
    constexpr uint32_t deep = get_compile_time_arg_val(0);
    constexpr uint32_t across = get_compile_time_arg_val(1);
    constexpr uint32_t down = get_compile_time_arg_val(2);
    constexpr uint32_t block = get_compile_time_arg_val(3);
    constexpr uint32_t x_bytes = get_tile_size(0);
    constexpr uint32_t w_bytes = get_tile_size(1);
    constexpr auto x_args = TensorAccessorArgs<4>();
    constexpr auto w_args = TensorAccessorArgs<x_args.next_compile_time_args_offset()>();
    const auto x = TensorAccessor(x_args, x_address, x_bytes);
    const auto w = TensorAccessor(w_args, w_address, w_bytes);
    for (uint32_t row = 0; row < down; ++row) {
        cb_reserve_back(0, deep);
        uint32_t to = get_write_ptr(0);
        for (uint32_t k = 0; k < deep; ++k) {
            noc_async_read_page(row * deep + k, x, to);
            to += x_bytes;
        }
        noc_async_read_barrier();
        cb_push_back(0, deep);
        for (uint32_t column = first; column < first + columns; ++column) {
            for (uint32_t k = 0; k < deep; k += block) {
                cb_reserve_back(1, block);
                uint32_t at = get_write_ptr(1);
                for (uint32_t i = k; i < k + block; ++i) {
                    noc_async_read_page(i * across + column, w, at);
                    at += w_bytes;
                }
                noc_async_read_barrier();
                cb_push_back(1, block);
            }
        }
    }
}
