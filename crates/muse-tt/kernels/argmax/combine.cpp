// Second step of argmax: for every row, the best of what the cores of partial.cpp found. Cores have
// runs of columns in ascending order, so that the first core wins a tie with the smallest column.
//
//   DRAM partials ──▶ c_0 (all pages) ──▶ c_1 (one column index per row) ──▶ DRAM columns
//
// Cores: one. This kernel is the whole program.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    const uint32_t partials_address = get_common_arg_val<uint32_t>(0);
    const uint32_t columns_address = get_common_arg_val<uint32_t>(1);
    const uint32_t rows = get_arg_val<uint32_t>(0);
    constexpr uint32_t cores = get_compile_time_arg_val(0);
    constexpr uint32_t partial_bytes = get_compile_time_arg_val(1);
    constexpr uint32_t column_bytes = get_compile_time_arg_val(2);
    constexpr auto partial_args = TensorAccessorArgs<3>();
    constexpr auto column_args = TensorAccessorArgs<partial_args.next_compile_time_args_offset()>();
    const auto partials = TensorAccessor(partial_args, partials_address, partial_bytes);
    const auto columns = TensorAccessor(column_args, columns_address, column_bytes);
    const uint32_t partial_base = get_write_ptr(0);
    for (uint32_t core = 0; core < cores; ++core) {
        noc_async_read_page(core, partials, partial_base + core * partial_bytes);
    }
    noc_async_read_barrier();
    auto out = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_write_ptr(1));
    for (uint32_t row = 0; row < rows; ++row) {
        auto best = reinterpret_cast<volatile tt_l1_ptr int32_t*>(partial_base) + 2 * row;
        int32_t key = best[0];
        uint32_t column = best[1];
        for (uint32_t core = 1; core < cores; ++core) {
            best += partial_bytes / 4;
            if (best[0] > key) {
                key = best[0];
                column = best[1];
            }
        }
        out[row] = column;
    }
    noc_async_write_page(0, columns, get_write_ptr(1));
    noc_async_write_barrier();
}
