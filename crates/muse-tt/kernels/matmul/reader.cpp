// out = x · w: x [M, K] in tiles, w [K, N] column of tiles by column of tiles.
//
//                     ┌ first core ┐
//   DRAM x ─────────▶ │ c_0 ─┬─────┼─▶ multicast ─▶ c_0 of every other core
//   (panels)          └──────┼─────┘
//                            │
//   DRAM w ──▶ c_1 ──────────┴─▶ sums over DEPTH, accumulated in f32 in c_24 ──▶ c_16 ──▶ DRAM out
//
//   c_0   2 panels of HEIGHT by DEPTH tiles of x     c_1   RING pages of DEPTH tiles of w
//   c_24  the core's part of out, HEIGHT by WIDTH    c_16  2 tiles
//
// Cores: a rectangle, each with a run of columns of tiles of w. The whole product is repeated for
// every HEIGHT rows of tiles of x (a round): in a round, w is read once, by the core that has the
// column, and x once, by the first core. A page of w holds DEPTH tiles of a column; consecutive
// pages lie in different banks.
//
// This kernel fills c_1. It requests a page before the previous one has arrived.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    const uint32_t w_address = get_common_arg_val<uint32_t>(0);
    const uint32_t first = get_arg_val<uint32_t>(0);
    const uint32_t columns = get_arg_val<uint32_t>(1);
    const uint32_t rounds = get_arg_val<uint32_t>(2);
    const uint32_t first_page = get_arg_val<uint32_t>(3);  // of the first column
    constexpr uint32_t depth = get_compile_time_arg_val(0);
    constexpr uint32_t steps = get_compile_time_arg_val(1);
    constexpr uint32_t stagger = get_compile_time_arg_val(2);  // pages from one column to the next
    constexpr uint32_t ring = get_compile_time_arg_val(3);  // pages of c_1
    constexpr uint32_t page = depth * get_tile_size(1);
    constexpr auto args = TensorAccessorArgs<4>();
    const auto w = TensorAccessor(args, w_address, page);
    const uint32_t base = get_write_ptr(1);
    uint32_t slot = 0;
    uint32_t tag = 1;
    uint32_t in_flight = 0;
    for (uint32_t round = 0; round < rounds; ++round) {
        for (uint32_t step = 0; step < steps; ++step) {
            // Columns are staggered, so that cores with neighbouring columns read different banks.
            uint32_t place = first_page + step;
            if (place >= steps) place -= steps;
            for (uint32_t column = 0; column < columns; ++column) {
                cb_reserve_back(1, (in_flight + 1) * depth);
                noc_async_read_set_trid(tag);
                noc_async_read_page((first + column) * steps + place, w, base + slot * page);
                slot = slot + 1 == ring ? 0 : slot + 1;
                tag = 3 - tag;
                if (in_flight != 0) {
                    noc_async_read_barrier_with_trid(tag);
                    cb_push_back(1, depth);
                }
                in_flight = 1;
                place = place + stagger == steps ? 0 : place + stagger;
            }
        }
    }
    if (in_flight != 0) {
        noc_async_read_barrier_with_trid(3 - tag);
        cb_push_back(1, depth);
    }
    noc_async_read_set_trid(0);
}
