// Writes a run of tiles from c_16, in order. Shared by all programs whose results are a run of
// tiles.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    const uint32_t out_address = get_common_arg_val<uint32_t>(0);
    const uint32_t first = get_arg_val<uint32_t>(0);
    const uint32_t count = get_arg_val<uint32_t>(1);
    constexpr uint32_t bytes = get_tile_size(16);
    constexpr auto args = TensorAccessorArgs<0>();
    const auto out = TensorAccessor(args, out_address, bytes);
    for (uint32_t tile = first; tile < first + count; ++tile) {
        cb_wait_front(16, 1);
        noc_async_write_page(tile, out, get_read_ptr(16));
        noc_async_write_barrier();
        cb_pop_front(16, 1);
    }
}
