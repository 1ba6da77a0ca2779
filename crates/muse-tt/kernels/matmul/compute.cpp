// Computes the product: see reader.cpp for the buffers and cores.
#include <cstdint>

#include "api/compute/common.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/matmul.h"
#include "api/compute/pack.h"
#include "api/compute/reconfig_data_format.h"
#include "api/compute/tile_move_copy.h"

namespace {

constexpr uint32_t X = 0;
constexpr uint32_t W = 1;
constexpr uint32_t OUT = 16;
constexpr uint32_t SUMS = 24;
constexpr uint32_t REGISTERS = 4;  // f32 tiles of one half; the packer reads the other half

constexpr uint32_t depth = get_compile_time_arg_val(0);
constexpr uint32_t steps = get_compile_time_arg_val(1);
constexpr uint32_t height = get_compile_time_arg_val(2);
constexpr uint32_t width = get_compile_time_arg_val(3);

// Adds the product of a panel of x and a page of w to the sums of a column.
void add_page(uint32_t rows, uint32_t sums) {
    cb_wait_front(W, depth);
    for (uint32_t row = 0; row < rows; row += REGISTERS) {
        const uint32_t count = rows - row < REGISTERS ? rows - row : REGISTERS;
        tile_regs_acquire();
        for (uint32_t i = 0; i < count; ++i) {
            for (uint32_t k = 0; k < depth; ++k) matmul_tiles(X, W, (row + i) * depth + k, k, i);
        }
        begin_packing();
        for (uint32_t i = 0; i < count; ++i) pack_tile<true>(i, SUMS, sums + row + i);
        tile_regs_release();
    }
    cb_pop_front(W, depth);
}

// Writes the sums to OUT, row by row.
void write_sums(uint32_t rows, uint32_t columns) {
    cb_wait_front(SUMS, height * width);
    reconfig_data_format_srca(W, SUMS);
    copy_tile_to_dst_init_short(SUMS);
    for (uint32_t row = 0; row < rows; ++row) {
        for (uint32_t column = 0; column < columns; ++column) {
            tile_regs_acquire();
            copy_tile(SUMS, column * height + row, 0);
            pack_first(OUT);
        }
    }
    cb_pop_front(SUMS, height * width);
}

}  // namespace

void kernel_main() {
    const uint32_t columns = get_arg_val<uint32_t>(0);
    const uint32_t down = get_arg_val<uint32_t>(1);
    compute_kernel_hw_startup<SrcOrder::Reverse>(X, W, SUMS);
    for (uint32_t top = 0; top < down; top += height) {
        const uint32_t rows = down - top < height ? down - top : height;
        reconfig_data_format_srca(SUMS, W);
        matmul_init(X, W);
        pack_reconfig_data_format(OUT, SUMS);
        cb_reserve_back(SUMS, height * width);
        for (uint32_t step = 0; step < steps; ++step) {
            pack_reconfig_l1_acc(step != 0);
            cb_wait_front(X, height * depth);
            for (uint32_t column = 0; column < columns; ++column) add_page(rows, column * height);
            cb_pop_front(X, height * depth);
        }
        pack_reconfig_l1_acc(0);
        cb_push_back(SUMS, height * width);
        write_sums(rows, columns);
    }
}
