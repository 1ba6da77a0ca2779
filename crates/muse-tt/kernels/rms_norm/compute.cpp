// The arithmetic of the norm: see reader.cpp for the buffers and cores. Sums are kept in f32.
#include <cstdint>

#include "api/compute/bcast.h"
#include "api/compute/common.h"
#include "api/compute/compute_kernel_api.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/eltwise_binary.h"
#include "api/compute/eltwise_binary_sfpu.h"
#include "api/compute/eltwise_unary/binop_with_scalar.h"
#include "api/compute/eltwise_unary/rsqrt.h"
#include "api/compute/matmul.h"
#include "api/compute/reconfig_data_format.h"
#include "api/compute/tile_move_copy.h"

namespace {

constexpr uint32_t X = 0;
constexpr uint32_t WEIGHT = 1;
constexpr uint32_t SQUARES = 2;
constexpr uint32_t ONES = 3;
constexpr uint32_t FACTOR = 4;
constexpr uint32_t NORMED = 5;
constexpr uint32_t OUT = 16;
#ifdef MUSE_SHARED
constexpr uint32_t OWN_SQUARES = 6;
constexpr uint32_t FOUND = 7;
#else
constexpr uint32_t OWN_SQUARES = SQUARES;
constexpr uint32_t FOUND = FACTOR;
#endif

constexpr uint32_t BLOCKS = get_compile_time_arg_val(0);  // of a row
constexpr uint32_t BLOCK = get_compile_time_arg_val(1);   // tiles

// The squares of a block, its tiles added up.
void squares(uint32_t first, uint32_t count) {
    tile_regs_acquire();
    for (uint32_t tile = 0; tile < count; ++tile) {
        const uint32_t to = tile == 0 ? 0 : 1;
        copy_tile_to_dst_init_short(X);
        copy_tile(X, first + tile, to);
        square_tile_init();
        square_tile(to);
        if (tile != 0) {
            add_binary_tile_init();
            add_binary_tile(0, 1, 0);
        }
    }
    hand_on(OWN_SQUARES);
}

// One over the root of the mean, the same in every column of a row.
void factor(uint32_t inverse_width, uint32_t eps) {
    cb_wait_front(SQUARES, BLOCKS);
    reconfig_data_format(ONES, SQUARES);
    matmul_init(SQUARES, ONES);
    tile_regs_acquire();
    for (uint32_t block = 0; block < BLOCKS; ++block) matmul_tiles(SQUARES, ONES, block, 0, 0);
    binop_with_scalar_tile_init();
    mul_unary_tile(0, inverse_width);
    add_unary_tile(0, eps);
    rsqrt_tile_init();
    rsqrt_tile(0);
    hand_on(FOUND);
    cb_pop_front(SQUARES, BLOCKS);
}

}  // namespace

void kernel_main() {
    const uint32_t rows = get_arg_val<uint32_t>(0);
    const uint32_t tiles = get_arg_val<uint32_t>(1);
    const bool leads = get_arg_val<uint32_t>(2) != 0;
    const uint32_t inverse_width = get_arg_val<uint32_t>(3);
    const uint32_t eps = get_arg_val<uint32_t>(4);
    compute_kernel_hw_startup<SrcOrder::Reverse>(SQUARES, ONES, FACTOR);
    cb_wait_front(ONES, 1);
#ifdef MUSE_WEIGHTED
    constexpr uint32_t normed = NORMED;
#else
    constexpr uint32_t normed = OUT;
#endif
    for (uint32_t row = 0; row < rows; ++row) {
        cb_wait_front(X, tiles);
        reconfig_data_format_srca(X);
        for (uint32_t tile = 0; tile < tiles; tile += BLOCK) {
            squares(tile, tiles - tile < BLOCK ? tiles - tile : BLOCK);
        }
        if (leads) factor(inverse_width, eps);
        cb_wait_front(FACTOR, 1);
#ifdef MUSE_WEIGHTED
        cb_wait_front(WEIGHT, tiles);
#endif
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            reconfig_data_format(X, FACTOR);
            mul_tiles_init(X, FACTOR);
            tile_regs_acquire();
            mul_tiles(X, FACTOR, tile, 0, 0);
            hand_on(normed);
#ifdef MUSE_WEIGHTED
            cb_wait_front(NORMED, 1);
            reconfig_data_format(NORMED, WEIGHT);
            mul_bcast_rows_init_short(NORMED, WEIGHT);
            tile_regs_acquire();
            mul_tiles_bcast_rows(NORMED, WEIGHT, 0, tile, 0);
            hand_on(OUT);
            cb_pop_front(NORMED, 1);
#endif
        }
        cb_pop_front(FACTOR, 1);
        cb_pop_front(X, tiles);
    }
}
