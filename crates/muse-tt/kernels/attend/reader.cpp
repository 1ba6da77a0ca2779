// Attention of query rows over the KV blocks of their sequences, with an online softmax. A segment
// is the part of one sequence in one row of tiles: its rows, the range of keys that each row sees,
// counted from the first key of the listed KV blocks, and those KV blocks. Only these blocks are
// read, so that rows of several sequences may share tiles; rows of other sequences are computed too
// but not written.
//
//   DRAM segments ──▶ c_5 (a segment) ──▶ how many KV blocks there are
//   DRAM q ─────────▶ c_0 (the heads of a unit) ──┐
//   DRAM K ─────────▶ c_1 (2 KV blocks) ──────────┼─▶ q · Kᵀ + mask ──▶ c_6, c_13 (2 tiles, F32)
//   masks ──────────▶ c_3 (2 of 2 tiles) ─────────┤      ──▶ maximum with that of earlier blocks
//   constants ──────▶ c_4 (4 tiles) ──────────────┘          ──▶ c_8 (one per head), c_7 (current)
//                                     ──▶ exp(scale · (c_13 - maximum)) ──▶ c_9 (2 tiles)
//                                     ──▶ exp(scale · (earlier maximum - maximum)) ─▶ c_10 (F32)
//   DRAM V ─────────▶ c_2 (2 KV blocks) ──▶ c_11 · c_10 + c_9 · [V, ones] ──▶ c_11 (F32; of a head,
//                                              weighted sums and, last, the sum of the weights)
//                                     ──▶ sums / sum of weights ──▶ c_16 ──▶ DRAM out
//                                                                  (c_12: the writer's segment)
//
// The KV splits of long segments write sums, sums of weights and maxima instead: c_17 (F32) ──▶ DRAM
// partials, which ../combine merges.
//
// Cores: any number, each with a run of units: a segment and some query heads of one K/V head. A
// unit reads its q once and its KV blocks once. This kernel fills c_0 to c_5.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

constexpr uint32_t SIDE = 32;
constexpr uint32_t TILE = 2048;
constexpr uint32_t FACE = 256;  // values
// Behind the header of a segment: the visible keys of each row, begin and end, and the KV blocks.
constexpr uint32_t VISIBLE_KEYS = 16;
constexpr uint32_t BLOCK_LIST = VISIBLE_KEYS + 2 * SIDE;
// BF16 values, and two of them in a word.
constexpr uint32_t ONE = 0x3f80;
constexpr uint32_t MINUS_ONE = 0xbf80;
constexpr uint32_t MASKED = 0xf180;  // -2^100: far below any score, so that exp() of it is 0
constexpr uint32_t TWO_ONES = 0x3f803f80;

constexpr uint32_t TILES = get_compile_time_arg_val(0);     // of a head
constexpr uint32_t HEADS = get_compile_time_arg_val(1);     // of a unit
constexpr uint32_t UNITS = get_compile_time_arg_val(2);     // of a segment
constexpr uint32_t KV_HEADS = get_compile_time_arg_val(3);
constexpr uint32_t SEGMENT_BYTES = get_compile_time_arg_val(4);
constexpr uint32_t KV_BLOCK_SIZE = 2 * SIDE;  // positions
constexpr uint32_t BLOCK_TILES = 2 * TILES;   // of K or V of a head
constexpr uint32_t SEGMENT_TILES = (SEGMENT_BYTES + TILE - 1) / TILE;

using Words = volatile tt_l1_ptr uint32_t*;
using Values = volatile tt_l1_ptr uint16_t*;

void fill(uint32_t tile, uint32_t word) {
    for (uint32_t i = 0; i < TILE / 4; ++i) reinterpret_cast<Words>(tile)[i] = word;
}

// Tiles: the identity, ones in the first column, minus ones in the first column, all ones.
void fill_constants() {
    cb_reserve_back(4, 4);
    const uint32_t at = get_write_ptr(4);
    for (uint32_t tile = 0; tile < 3; ++tile) fill(at + tile * TILE, 0);
    fill(at + 3 * TILE, TWO_ONES);
    for (uint32_t i = 0; i < SIDE; ++i) {
        const uint32_t row = (i >> 4) * 2 * FACE + (i & 15) * 16;
        reinterpret_cast<Values>(at)[row + (i >> 4) * FACE + (i & 15)] = ONE;
        reinterpret_cast<Values>(at + TILE)[row] = ONE;
        reinterpret_cast<Values>(at + 2 * TILE)[row] = MINUS_ONE;
    }
    cb_push_back(4, 4);
}

// Writes the mask of one KV block, which begins at key `first`: [keys, queries], transposed like K.
struct Mask {
    Words visible;
    uint32_t clear;  // bit i: slot i of the circular buffer holds a mask that is all zero

    bool hides_any(uint32_t first) const {
        for (uint32_t row = 0; row < SIDE; ++row) {
            if (visible[2 * row] > first) return true;
            if (visible[2 * row + 1] < first + KV_BLOCK_SIZE) return true;
        }
        return false;
    }

    void write(uint32_t to, uint32_t slot, uint32_t first) {
        const bool some = hides_any(first);
        if (!some && (clear >> slot & 1)) return;
        clear = some ? clear & ~(1u << slot) : clear | 1u << slot;
        fill(to, 0);
        fill(to + TILE, 0);
        for (uint32_t row = 0; some && row < SIDE; ++row) {
            hide(to, row, 0, in_block(visible[2 * row], first));
            hide(to, row, in_block(visible[2 * row + 1], first), KV_BLOCK_SIZE);
        }
    }

    // The index of a key in the KV block, clamped to the block.
    static uint32_t in_block(uint32_t key, uint32_t first) {
        if (key <= first) return 0;
        return key - first < KV_BLOCK_SIZE ? key - first : KV_BLOCK_SIZE;
    }

    static void hide(uint32_t to, uint32_t row, uint32_t begin, uint32_t end) {
        Values column = reinterpret_cast<Values>(to) + (row >> 4) * FACE + (row & 15);
        for (uint32_t key = begin; key < end; ++key) {
            column[(key >> 4) * 2 * FACE + (key & 15) * 16] = MASKED;
        }
    }
};

template <class Tiles>
void read_tiles(const Tiles& tiles, uint32_t first, uint32_t count, uint32_t to) {
    for (uint32_t tile = 0; tile < count; ++tile) {
        noc_async_read_page(first + tile, tiles, to + tile * TILE);
    }
}

}  // namespace

void kernel_main() {
    const uint32_t q_address = get_common_arg_val<uint32_t>(0);
    const uint32_t k_address = get_common_arg_val<uint32_t>(1);
    const uint32_t v_address = get_common_arg_val<uint32_t>(2);
    const uint32_t segments_address = get_common_arg_val<uint32_t>(3);
    Unit unit{get_arg_val<uint32_t>(0), get_arg_val<uint32_t>(1)};
    const uint32_t count = get_arg_val<uint32_t>(2);
    constexpr auto q_args = TensorAccessorArgs<5>();
    constexpr auto k_args = TensorAccessorArgs<q_args.next_compile_time_args_offset()>();
    constexpr auto v_args = TensorAccessorArgs<k_args.next_compile_time_args_offset()>();
    constexpr auto segment_args = TensorAccessorArgs<v_args.next_compile_time_args_offset()>();
    const auto q = TensorAccessor(q_args, q_address, TILE);
    const auto k = TensorAccessor(k_args, k_address, TILE);
    const auto v = TensorAccessor(v_args, v_address, TILE);
    const auto segments = TensorAccessor(segment_args, segments_address, SEGMENT_BYTES);
    fill_constants();
    Mask mask{nullptr, 0};
    uint32_t slot = 0;
    for (uint32_t i = 0; i < count; ++i, unit.next(UNITS)) {
        cb_reserve_back(5, SEGMENT_TILES);
        noc_async_read_page(unit.segment, segments, get_write_ptr(5));
        noc_async_read_barrier();
        Words segment = reinterpret_cast<Words>(get_write_ptr(5));
        const uint32_t kv_blocks = segment[KV_BLOCKS];
        cb_push_back(5, SEGMENT_TILES);
        if (kv_blocks > 0) {
            cb_reserve_back(0, HEADS * TILES);
            const uint32_t first = (segment[TILE_ROW] * UNITS + unit.part) * HEADS * TILES;
            read_tiles(q, first, HEADS * TILES, get_write_ptr(0));
            noc_async_read_barrier();
            cb_push_back(0, HEADS * TILES);
        }
        mask.visible = segment + VISIBLE_KEYS;
        const uint32_t head = unit.part / (UNITS / KV_HEADS);
        for (uint32_t block = 0; block < kv_blocks; ++block) {
            const uint32_t first = (segment[BLOCK_LIST + block] * KV_HEADS + head) * BLOCK_TILES;
            cb_reserve_back(1, BLOCK_TILES);
            read_tiles(k, first, BLOCK_TILES, get_write_ptr(1));
            cb_reserve_back(2, BLOCK_TILES);
            read_tiles(v, first, BLOCK_TILES, get_write_ptr(2));
            cb_reserve_back(3, 2);
            mask.write(get_write_ptr(3), slot, block * KV_BLOCK_SIZE);
            slot ^= 1;
            noc_async_read_barrier();
            cb_push_back(1, BLOCK_TILES);
            cb_push_back(2, BLOCK_TILES);
            cb_push_back(3, 2);
        }
    }
}
