// RMS norm of rows of tiles: out = x / sqrt(mean(x²) + eps) · weight.
//
//   DRAM x ───────▶ c_0 (a row of tiles) ──┬─▶ x², tiles added up ──▶ c_2 (1 tile, f32) ─┐
//   ones ─────────▶ c_3 (1 tile, BF16) ────┼─────────────────────────────────────────────┴─▶ their
//                                          │     product: the row's sum in every column ──▶ rsqrt
//                                          │     ──▶ c_4 (1 tile, f32)
//   DRAM weight ──▶ c_1 (a row of tiles) ──┴─▶ x · c_4 ──▶ c_5 (f32) · weight ──▶ c_16 ──▶ DRAM
//
// Cores: any number, each a run of tile rows. This kernel fills c_0, c_1 and c_3; the weight is
// read once a core.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

constexpr uint32_t TWO_ONES = 0x3f803f80;  // 1.0 in BF16, twice

void fill_ones() {
    cb_reserve_back(3, 1);
    volatile tt_l1_ptr uint32_t* words = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_write_ptr(3));
    for (uint32_t i = 0; i < 512; ++i) words[i] = TWO_ONES;
    cb_push_back(3, 1);
}

template <class Source>
void read_row(uint32_t buffer, const Source& source, uint32_t first, uint32_t across, uint32_t bytes) {
    cb_reserve_back(buffer, across);
    uint32_t to = get_write_ptr(buffer);
    for (uint32_t tile = first; tile < first + across; ++tile) {
        noc_async_read_page(tile, source, to);
        to += bytes;
    }
    noc_async_read_barrier();
    cb_push_back(buffer, across);
}

}  // namespace

void kernel_main() {
    const uint32_t x_address = get_arg_val<uint32_t>(0);
    const uint32_t weight_address = get_arg_val<uint32_t>(1);
    const uint32_t first = get_arg_val<uint32_t>(2);
    const uint32_t rows = get_arg_val<uint32_t>(3);
    constexpr uint32_t across = get_compile_time_arg_val(0);
    constexpr uint32_t x_bytes = get_tile_size(0);
    constexpr auto x_args = TensorAccessorArgs<1>();
    const auto x = TensorAccessor(x_args, x_address, x_bytes);
    fill_ones();
#ifdef MUSE_WEIGHTED
    constexpr uint32_t weight_bytes = get_tile_size(1);
    constexpr auto weight_args = TensorAccessorArgs<x_args.next_compile_time_args_offset()>();
    const auto weight = TensorAccessor(weight_args, weight_address, weight_bytes);
    read_row(1, weight, 0, across, weight_bytes);
#endif
    for (uint32_t row = first; row < first + rows; ++row) {
        read_row(0, x, row * across, across, x_bytes);
    }
}
