// Writes a core's columns of the product from c_16: see reader.cpp for the buffers and cores.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    const uint32_t out_address = get_arg_val<uint32_t>(0);
    const uint32_t first = get_arg_val<uint32_t>(1);
    const uint32_t columns = get_arg_val<uint32_t>(2);
    constexpr uint32_t across = get_compile_time_arg_val(0);
    constexpr uint32_t down = get_compile_time_arg_val(1);
    constexpr uint32_t bytes = get_tile_size(16);
    constexpr auto args = TensorAccessorArgs<2>();
    const auto out = TensorAccessor(args, out_address, bytes);
    for (uint32_t row = 0; row < down; ++row) {
        for (uint32_t column = first; column < first + columns; ++column) {
            cb_wait_front(16, 1);
            noc_async_write_page(row * across + column, out, get_read_ptr(16));
            noc_async_write_barrier();
            cb_pop_front(16, 1);
        }
    }
}
