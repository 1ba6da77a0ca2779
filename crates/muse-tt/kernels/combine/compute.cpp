// Merges the partial results of KV splits, rescaled to their common maximum, in f32: see reader.cpp
// for the buffers and cores.
#include <cstdint>

#include "api/compute/binary_max_min.h"
#include "api/compute/cb_api.h"
#include "api/compute/common.h"
#include "api/compute/eltwise_binary_sfpu.h"
#include "api/compute/eltwise_unary/binop_with_scalar.h"
#include "api/compute/eltwise_unary/eltwise_unary.h"
#include "api/compute/eltwise_unary/exp.h"
#include "api/compute/tile_move_copy.h"

namespace {

constexpr uint32_t SPLIT_SUMS = 0;
constexpr uint32_t SPLIT_MAXIMUM = 1;
constexpr uint32_t MAXIMUM = 2;
constexpr uint32_t RESCALE = 3;
constexpr uint32_t SUMS = 4;
constexpr uint32_t SEGMENT = 5;
constexpr uint32_t OUT = 16;

constexpr uint32_t TILES = get_compile_time_arg_val(0);
constexpr uint32_t HEADS = get_compile_time_arg_val(1);
constexpr uint32_t SEGMENT_TILES = get_compile_time_arg_val(2);

void copy(uint32_t from, uint32_t to, uint32_t count) {
    for (uint32_t tile = 0; tile < count; ++tile) {
        tile_regs_acquire();
        copy_tile(from, tile, 0);
        pack_first(to);
    }
}

// Updates the maximum, and computes the factors of the merged sums and of the split's.
void compute_rescale(uint32_t scale) {
    tile_regs_acquire();
    copy_tile(MAXIMUM, 0, 0);
    copy_tile(SPLIT_MAXIMUM, 0, 1);
    binary_max_tile_init();
    binary_max_tile(0, 1, 2);
    sub_binary_tile_init();
    sub_binary_tile(0, 2, 0);
    sub_binary_tile(1, 2, 1);
    binop_with_scalar_tile_init();
    mul_unary_tile(0, scale);
    mul_unary_tile(1, scale);
    exp_tile_init();
    exp_tile(0);
    exp_tile(1);
    begin_packing();
    pack_to(RESCALE, 0, 1);
    pack_to(RESCALE, 1, 1);
    pack_to(MAXIMUM, 2, 1);
    tile_regs_release();
    cb_pop_front(MAXIMUM, 1);
}

// Adds the sums of a split to the merged ones.
void add_sums() {
    cb_wait_front(RESCALE, 2);
    cb_wait_front(SUMS, TILES + 1);
    for (uint32_t tile = 0; tile <= TILES; ++tile) {
        tile_regs_acquire();
        copy_tile(SUMS, tile, 0);
        copy_tile(RESCALE, 0, 1);
        copy_tile(SPLIT_SUMS, tile, 2);
        copy_tile(RESCALE, 1, 3);
        mul_binary_tile_init();
        mul_binary_tile(0, 1, 0);
        mul_binary_tile(2, 3, 2);
        add_binary_tile_init();
        add_binary_tile(0, 2, 0);
        pack_first(SUMS);
    }
    cb_pop_front(RESCALE, 2);
    cb_pop_front(SUMS, TILES + 1);
}

}  // namespace

void kernel_main() {
    const uint32_t count = get_arg_val<uint32_t>(0);
    const uint32_t scale = get_arg_val<uint32_t>(1);
    unary_op_init_common(SPLIT_SUMS, OUT);
    copy_tile_to_dst_init_short(SPLIT_SUMS);
    for (uint32_t unit = 0; unit < count; ++unit) {
        cb_wait_front(SEGMENT, SEGMENT_TILES);
        const uint32_t splits = read_tile_value(SEGMENT, 0, SPLITS);
        const bool first = read_tile_value(SEGMENT, 0, SPLIT) == 0;
        cb_pop_front(SEGMENT, SEGMENT_TILES);
        if (splits < 2 || !first) continue;
        for (uint32_t head = 0; head < HEADS; ++head) {
            for (uint32_t split = 0; split < splits; ++split) {
                cb_wait_front(SPLIT_SUMS, TILES + 1);
                cb_wait_front(SPLIT_MAXIMUM, 1);
                if (split == 0) {
                    copy(SPLIT_MAXIMUM, MAXIMUM, 1);
                    copy(SPLIT_SUMS, SUMS, TILES + 1);
                } else {
                    cb_wait_front(MAXIMUM, 1);
                    compute_rescale(scale);
                    add_sums();
                }
                cb_pop_front(SPLIT_SUMS, TILES + 1);
                cb_pop_front(SPLIT_MAXIMUM, 1);
            }
            cb_wait_front(MAXIMUM, 1);
            divide(SUMS, TILES, OUT);
            cb_pop_front(MAXIMUM, 1);
        }
    }
}
