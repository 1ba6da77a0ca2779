// The sums of the product: see reader.cpp for the buffers and cores.
#include <cstdint>

#include "api/compute/common.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/matmul.h"
#include "api/compute/tile_move_copy.h"

void kernel_main() {
    const uint32_t columns = get_arg_val<uint32_t>(0);
    constexpr uint32_t deep = get_compile_time_arg_val(0);
    constexpr uint32_t down = get_compile_time_arg_val(1);
    constexpr uint32_t block = get_compile_time_arg_val(2);
    compute_kernel_hw_startup<SrcOrder::Reverse>(0, 1, 16);
    matmul_init(0, 1);
    for (uint32_t row = 0; row < down; ++row) {
        cb_wait_front(0, deep);
        for (uint32_t column = 0; column < columns; ++column) {
            tile_regs_acquire();
            for (uint32_t k = 0; k < deep; k += block) {
                cb_wait_front(1, block);
                for (uint32_t i = 0; i < block; ++i) matmul_tiles(0, 1, k + i, i, 0);
                cb_pop_front(1, block);
            }
            tile_regs_commit();
            tile_regs_wait();
            cb_reserve_back(16, 1);
            pack_tile(0, 16);
            cb_push_back(16, 1);
            tile_regs_release();
        }
        cb_pop_front(0, deep);
    }
}
