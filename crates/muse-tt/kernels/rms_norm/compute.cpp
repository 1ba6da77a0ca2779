// Computes the norm, with sums in f32: see reader.cpp for the buffers and cores.
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
constexpr uint32_t OWN_FACTOR = 7;
#else
constexpr uint32_t OWN_SQUARES = SQUARES;
constexpr uint32_t OWN_FACTOR = FACTOR;
#endif

constexpr uint32_t GROUPS = get_compile_time_arg_val(0);      // of a row
constexpr uint32_t GROUP_SIZE = get_compile_time_arg_val(1);  // tiles

// Squares the tiles of a group and adds them up.
void sum_squares(uint32_t first, uint32_t count) {
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
    pack_first(OWN_SQUARES);
}

// Computes 1 / sqrt(mean + eps) of every row, the same in all of its columns.
void compute_factor(uint32_t inverse_width, uint32_t eps) {
    cb_wait_front(SQUARES, GROUPS);
    reconfig_data_format(ONES, SQUARES);
    matmul_init(SQUARES, ONES);
    tile_regs_acquire();
    for (uint32_t group = 0; group < GROUPS; ++group) matmul_tiles(SQUARES, ONES, group, 0, 0);
    binop_with_scalar_tile_init();
    mul_unary_tile(0, inverse_width);
    add_unary_tile(0, eps);
    rsqrt_tile_init();
    rsqrt_tile(0);
    pack_first(OWN_FACTOR);
    cb_pop_front(SQUARES, GROUPS);
}

}  // namespace

void kernel_main() {
    const uint32_t rows = get_arg_val<uint32_t>(0);
    const uint32_t tiles = get_arg_val<uint32_t>(1);
    const bool is_first = get_arg_val<uint32_t>(2) != 0;
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
        for (uint32_t tile = 0; tile < tiles; tile += GROUP_SIZE) {
            sum_squares(tile, tiles - tile < GROUP_SIZE ? tiles - tile : GROUP_SIZE);
        }
        if (is_first) compute_factor(inverse_width, eps);
        cb_wait_front(FACTOR, 1);
#ifdef MUSE_WEIGHTED
        cb_wait_front(WEIGHT, tiles);
#endif
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            reconfig_data_format(X, FACTOR);
            mul_tiles_init(X, FACTOR);
            tile_regs_acquire();
            mul_tiles(X, FACTOR, tile, 0, 0);
            pack_first(normed);
#ifdef MUSE_WEIGHTED
            cb_wait_front(NORMED, 1);
            reconfig_data_format(NORMED, WEIGHT);
            mul_bcast_rows_init_short(NORMED, WEIGHT);
            tile_regs_acquire();
            mul_tiles_bcast_rows(NORMED, WEIGHT, 0, tile, 0);
            pack_first(OUT);
            cb_pop_front(NORMED, 1);
#endif
        }
        cb_pop_front(FACTOR, 1);
        cb_pop_front(X, tiles);
    }
}
