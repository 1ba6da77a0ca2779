// Scores, online softmax and weighted sums: see reader.cpp for the buffers and cores. All sums are
// in f32, also those of a head that are kept from one KV block to the next.
#include <cstdint>

#include "api/compute/binary_max_min.h"
#include "api/compute/cb_api.h"
#include "api/compute/common.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/eltwise_binary_sfpu.h"
#include "api/compute/eltwise_unary/binop_with_scalar.h"
#include "api/compute/eltwise_unary/exp.h"
#include "api/compute/matmul.h"
#include "api/compute/reconfig_data_format.h"
#include "api/compute/reduce.h"
#include "api/compute/tile_move_copy.h"

namespace {

constexpr uint32_t Q = 0;
constexpr uint32_t K = 1;
constexpr uint32_t V = 2;
constexpr uint32_t MASK = 3;
constexpr uint32_t CONSTANTS = 4;
constexpr uint32_t SEGMENT = 5;
constexpr uint32_t SCORES = 6;
constexpr uint32_t MAXIMUM = 7;
constexpr uint32_t MAXIMA_OF_HEADS = 8;
constexpr uint32_t WEIGHTS = 9;
constexpr uint32_t RESCALE = 10;
constexpr uint32_t SUMS = 11;
constexpr uint32_t F32_SCORES = 13;
constexpr uint32_t OUT = 16;
constexpr uint32_t PARTIALS = 17;

// Tiles of CONSTANTS. A product with one of the two columns broadcasts the first column of a tile.
constexpr uint32_t IDENTITY = 0;
constexpr uint32_t PLUS_COLUMN = 1;
constexpr uint32_t MINUS_COLUMN = 2;
constexpr uint32_t ONES = 3;

constexpr uint32_t TILES = get_compile_time_arg_val(0);
constexpr uint32_t HEADS = get_compile_time_arg_val(1);
constexpr uint32_t SEGMENT_TILES = get_compile_time_arg_val(2);

// Computes the scores of a head for one KV block, masked, into registers 0 and 1.
void scores(uint32_t head) {
    for (uint32_t half = 0; half < 2; ++half) {
        for (uint32_t tile = 0; tile < TILES; ++tile) {
            matmul_tiles(Q, K, head * TILES + tile, half * TILES + tile, half);
        }
        matmul_tiles(CONSTANTS, MASK, IDENTITY, half, half);
    }
}

// Updates the maximum score of every row, in the first column, with the scores of a KV block.
void update_maximum(uint32_t head, bool first) {
    matmul_init(Q, K, 1);
    tile_regs_acquire();
    scores(head);
    begin_packing();
    pack_to(SCORES, 0, 2);
    pack_to(F32_SCORES, 0, 2);
    tile_regs_release();

    cb_wait_front(SCORES, 2);
    reduce_init<PoolType::MAX, ReduceDim::REDUCE_ROW>(SCORES, CONSTANTS, MAXIMUM);
    tile_regs_acquire();
    reduce_tile<PoolType::MAX, ReduceDim::REDUCE_ROW>(SCORES, CONSTANTS, 0, ONES, 0);
    reduce_tile<PoolType::MAX, ReduceDim::REDUCE_ROW>(SCORES, CONSTANTS, 1, ONES, 0);
    if (!first) {
        cb_wait_front(MAXIMA_OF_HEADS, 1);
        copy_tile_to_dst_init_short(MAXIMA_OF_HEADS);
        copy_tile(MAXIMA_OF_HEADS, 0, 1);
        binary_max_tile_init();
        binary_max_tile(0, 1, 0);
    }
    begin_packing();
    pack_to(MAXIMUM, 0, 1);
    pack_to(MAXIMA_OF_HEADS, 0, 1);
    reduce_uninit();
    tile_regs_release();
    cb_pop_front(SCORES, 2);
}

// Computes the softmax weights of a KV block and the factor that rescales the sums of earlier ones.
void compute_weights(uint32_t scale, bool first) {
    cb_wait_front(MAXIMUM, 1);
    cb_wait_front(F32_SCORES, 2);
    tile_regs_acquire();
    copy_tile_to_dst_init_short_with_dt(Q, F32_SCORES);
    copy_tile(F32_SCORES, 0, 0);
    copy_tile(F32_SCORES, 1, 1);
    reconfig_data_format_srca(F32_SCORES, CONSTANTS);
    matmul_init(MAXIMUM, CONSTANTS, 1);
    matmul_tiles(MAXIMUM, CONSTANTS, 0, MINUS_COLUMN, 0);
    matmul_tiles(MAXIMUM, CONSTANTS, 0, MINUS_COLUMN, 1);
    if (!first) {
        matmul_tiles(MAXIMUM, CONSTANTS, 0, MINUS_COLUMN, 2);
        matmul_tiles(MAXIMA_OF_HEADS, CONSTANTS, 0, PLUS_COLUMN, 2);
    }
    const uint32_t tiles = first ? 2 : 3;
    binop_with_scalar_tile_init();
    for (uint32_t tile = 0; tile < tiles; ++tile) mul_unary_tile(tile, scale);
    exp_tile_init();
    for (uint32_t tile = 0; tile < tiles; ++tile) exp_tile(tile);
    begin_packing();
    pack_to(WEIGHTS, 0, 2);
    if (!first) pack_to(RESCALE, 2, 1);
    tile_regs_release();
    cb_pop_front(F32_SCORES, 2);
    cb_pop_front(MAXIMUM, 1);
    if (!first) cb_pop_front(MAXIMA_OF_HEADS, 1);
}

// Adds the weighted values of a KV block to the sums of a head; the last tile sums the weights.
void add_values(bool first) {
    cb_wait_front(WEIGHTS, 2);
    if (!first) {
        cb_wait_front(RESCALE, 1);
        cb_wait_front(SUMS, TILES + 1);
    }
    for (uint32_t tile = 0; tile <= TILES; ++tile) {
        matmul_init(WEIGHTS, V, 0);
        tile_regs_acquire();
        for (uint32_t half = 0; half < 2; ++half) {
            if (tile < TILES) {
                matmul_tiles(WEIGHTS, V, half, half * TILES + tile, 0);
            } else {
                matmul_tiles(WEIGHTS, CONSTANTS, half, ONES, 0);
            }
        }
        if (!first) {
            copy_tile_to_dst_init_short_with_dt(V, SUMS);
            copy_tile(SUMS, tile, 1);
            copy_tile(RESCALE, 0, 2);
            mul_binary_tile_init();
            mul_binary_tile(1, 2, 1);
            add_binary_tile_init();
            add_binary_tile(0, 1, 0);
            reconfig_data_format_srca(SUMS, V);
        }
        pack_first(SUMS);
    }
    cb_pop_front(WEIGHTS, 2);
    if (!first) {
        cb_pop_front(RESCALE, 1);
        cb_pop_front(SUMS, TILES + 1);
    }
}

// Writes the weighted sums of a head, divided by the sum of its weights.
void write_result() {
    copy_tile_to_dst_init_short_with_dt(V, SUMS);
    divide(SUMS, TILES, OUT);
    reconfig_data_format_srca(SUMS, V);
}

// Writes the partial results of a head: sums, sum of the weights, and the maxima in all columns.
void write_partials() {
    cb_wait_front(SUMS, TILES + 1);
    copy_tile_to_dst_init_short_with_dt(V, SUMS);
    for (uint32_t tile = 0; tile <= TILES; ++tile) {
        tile_regs_acquire();
        copy_tile(SUMS, tile, 0);
        pack_first(PARTIALS);
    }
    reconfig_data_format_srca(SUMS, V);
    cb_pop_front(SUMS, TILES + 1);
    matmul_init(MAXIMA_OF_HEADS, CONSTANTS, 1);
    tile_regs_acquire();
    matmul_tiles(MAXIMA_OF_HEADS, CONSTANTS, 0, PLUS_COLUMN, 0);
    pack_first(PARTIALS);
}

}  // namespace

void kernel_main() {
    const uint32_t count = get_arg_val<uint32_t>(0);
    const uint32_t scale = get_arg_val<uint32_t>(1);
    compute_kernel_hw_startup<SrcOrder::Reverse>(Q, K, OUT);
    cb_wait_front(CONSTANTS, 4);
    for (uint32_t unit = 0; unit < count; ++unit) {
        cb_wait_front(SEGMENT, SEGMENT_TILES);
        const uint32_t kv_blocks = read_tile_value(SEGMENT, 0, KV_BLOCKS);
        const bool is_split = read_tile_value(SEGMENT, 0, SPLITS) != 1;
        cb_pop_front(SEGMENT, SEGMENT_TILES);
        if (kv_blocks == 0) continue;
        cb_wait_front(Q, HEADS * TILES);
        for (uint32_t block = 0; block < kv_blocks; ++block) {
            cb_wait_front(K, 2 * TILES);
            cb_wait_front(V, 2 * TILES);
            cb_wait_front(MASK, 2);
            for (uint32_t head = 0; head < HEADS; ++head) {
                update_maximum(head, block == 0);
                compute_weights(scale, block == 0);
                add_values(block == 0);
            }
            cb_pop_front(K, 2 * TILES);
            cb_pop_front(V, 2 * TILES);
            cb_pop_front(MASK, 2);
        }
        for (uint32_t head = 0; head < HEADS; ++head) {
            cb_wait_front(MAXIMA_OF_HEADS, 1);
            if (is_split) {
                write_partials();
            } else {
                write_result();
            }
            cb_pop_front(MAXIMA_OF_HEADS, 1);
        }
        cb_pop_front(Q, HEADS * TILES);
    }
}
