// Elementwise operations of one or two matrices in tiles.
//
//   DRAM a ──▶ c_0 ─┐
//                   ├─▶ compute ──▶ c_16 ──▶ DRAM out
//   DRAM b ──▶ c_1 ─┘                        c_0, c_1, c_16: 2 tiles each
//
// Cores: any number, each with a run of tiles of its own. This kernel fills c_0 and c_1.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    const uint32_t a_address = get_common_arg_val<uint32_t>(0);
    const uint32_t first = get_arg_val<uint32_t>(0);
    const uint32_t count = get_arg_val<uint32_t>(1);
    constexpr uint32_t a_bytes = get_tile_size(0);
    constexpr auto a_args = TensorAccessorArgs<0>();
    const auto a = TensorAccessor(a_args, a_address, a_bytes);
#ifdef MUSE_BINARY
    constexpr uint32_t b_bytes = get_tile_size(1);
    constexpr auto b_args = TensorAccessorArgs<a_args.next_compile_time_args_offset()>();
    const auto b = TensorAccessor(b_args, get_common_arg_val<uint32_t>(1), b_bytes);
#endif
    for (uint32_t tile = first; tile < first + count; ++tile) {
        cb_reserve_back(0, 1);
        noc_async_read_page(tile, a, get_write_ptr(0));
#ifdef MUSE_BINARY
        cb_reserve_back(1, 1);
        noc_async_read_page(tile, b, get_write_ptr(1));
#endif
        noc_async_read_barrier();
        cb_push_back(0, 1);
#ifdef MUSE_BINARY
        cb_push_back(1, 1);
#endif
    }
}
