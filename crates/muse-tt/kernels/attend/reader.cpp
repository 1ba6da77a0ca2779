// Attention of rows of queries over pages of K and V, with a running softmax. A segment is what one
// sequence has in a row of tiles: its rows, which keys each of them sees, counted from the first key
// of the pages that are listed, and those pages. Nothing else is read, so that rows of several
// sequences may share their tiles; the rows of others are computed along and not written.
//
//   DRAM segments ──▶ c_5 (numbers of a segment) ──▶ how many pages there are
//   DRAM q ─────────▶ c_0 (the heads of a unit) ──┐
//   DRAM K pages ───▶ c_1 (64 keys, twice) ───────┼─▶ q · Kᵀ + mask ──▶ c_6, c_13 (2 tiles, F32)
//   seen keys ──────▶ c_3 (2 tiles, twice) ───────┤      ──▶ its largest, and those before ──▶ c_8
//   constants ──────▶ c_4 (4 tiles) ──────────────┘          (a head's), c_7 (this one alone)
//                                     ──▶ exp(scale · (c_13 - largest)) ──▶ c_9 (2 tiles)
//                                     ──▶ exp(scale · (largest before - largest)) ─▶ c_10 (F32)
//   DRAM V pages ───▶ c_2 (64 keys, twice) ─▶ c_11 · c_10 + c_9 · [V, ones] ──▶ c_11 (F32, a head's
//                                              sums and, last, the total of the weights)
//                                     ──▶ sums / total ──▶ c_16 ──▶ DRAM out (c_12: its segment)
//
// Segments that are pieces of longer ones hand their sums, totals and largest scores over instead:
// c_17 (F32) ──▶ DRAM partials, which ../combine puts together.
//
// Cores: any number, each a run of units: a segment and some query heads of one K/V head. A unit
// reads its q once and its pages once. This kernel fills c_0 to c_5.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

constexpr uint32_t SIDE = 32;
constexpr uint32_t TILE = 2048;
constexpr uint32_t FACE = 256;  // values
// Numbers of a segment, behind those of its head.
constexpr uint32_t SEEN = 16;
constexpr uint32_t LIST = SEEN + 2 * SIDE;
// BF16, and twice in a word.
constexpr uint32_t ONE = 0x3f80;
constexpr uint32_t MINUS_ONE = 0xbf80;
constexpr uint32_t HIDDEN = 0xf180;  // -2^100: exp() of it is 0, and no score comes near
constexpr uint32_t TWO_ONES = 0x3f803f80;

constexpr uint32_t TILES = get_compile_time_arg_val(0);     // of a head
constexpr uint32_t HEADS = get_compile_time_arg_val(1);     // of a unit
constexpr uint32_t UNITS = get_compile_time_arg_val(2);     // of a segment
constexpr uint32_t KV_HEADS = get_compile_time_arg_val(3);
constexpr uint32_t SEGMENT_BYTES = get_compile_time_arg_val(4);
constexpr uint32_t PAGE_TILES = 2 * TILES;
constexpr uint32_t SEGMENT_TILES = (SEGMENT_BYTES + TILE - 1) / TILE;

using Words = volatile tt_l1_ptr uint32_t*;
using Values = volatile tt_l1_ptr uint16_t*;

void fill(uint32_t tile, uint32_t word) {
    for (uint32_t i = 0; i < TILE / 4; ++i) reinterpret_cast<Words>(tile)[i] = word;
}

// Identity, a first column of ones, one of minus ones, ones.
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

// The mask of one page, which begins at key `first`: [keys, queries], as K is multiplied.
struct Mask {
    Words seen;
    uint32_t clear;  // bit i: nothing is hidden in the i-th place of the buffer as it is

    bool hides(uint32_t first) const {
        for (uint32_t row = 0; row < SIDE; ++row) {
            if (seen[2 * row] > first || seen[2 * row + 1] < first + 2 * SIDE) return true;
        }
        return false;
    }

    void write(uint32_t to, uint32_t place, uint32_t first) {
        const bool some = hides(first);
        if (!some && (clear >> place & 1)) return;
        clear = some ? clear & ~(1u << place) : clear | 1u << place;
        fill(to, 0);
        fill(to + TILE, 0);
        for (uint32_t row = 0; some && row < SIDE; ++row) {
            hide(to, row, 0, in_page(seen[2 * row], first));
            hide(to, row, in_page(seen[2 * row + 1], first), 2 * SIDE);
        }
    }

    static uint32_t in_page(uint32_t key, uint32_t first) {
        if (key <= first) return 0;
        return key - first < 2 * SIDE ? key - first : 2 * SIDE;
    }

    static void hide(uint32_t to, uint32_t row, uint32_t begin, uint32_t end) {
        Values column = reinterpret_cast<Values>(to) + (row >> 4) * FACE + (row & 15);
        for (uint32_t key = begin; key < end; ++key) {
            column[(key >> 4) * 2 * FACE + (key & 15) * 16] = HIDDEN;
        }
    }
};

template <class Tiles>
void read_tiles(const Tiles& tiles, uint32_t first, uint32_t count, uint32_t to) {
    for (uint32_t tile = 0; tile < count; ++tile) noc_async_read_page(first + tile, tiles, to + tile * TILE);
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
    uint32_t place = 0;
    for (uint32_t i = 0; i < count; ++i, unit.next(UNITS)) {
        cb_reserve_back(5, SEGMENT_TILES);
        noc_async_read_page(unit.segment, segments, get_write_ptr(5));
        noc_async_read_barrier();
        Words numbers = reinterpret_cast<Words>(get_write_ptr(5));
        const uint32_t pages = numbers[PAGES];
        cb_push_back(5, SEGMENT_TILES);
        if (pages > 0) {
            cb_reserve_back(0, HEADS * TILES);
            read_tiles(q, (numbers[0] * UNITS + unit.part) * HEADS * TILES, HEADS * TILES, get_write_ptr(0));
            noc_async_read_barrier();
            cb_push_back(0, HEADS * TILES);
        }
        mask.seen = numbers + SEEN;
        const uint32_t head = unit.part / (UNITS / KV_HEADS);
        for (uint32_t page = 0; page < pages; ++page) {
            const uint32_t first = (numbers[LIST + page] * KV_HEADS + head) * PAGE_TILES;
            cb_reserve_back(1, PAGE_TILES);
            read_tiles(k, first, PAGE_TILES, get_write_ptr(1));
            cb_reserve_back(2, PAGE_TILES);
            read_tiles(v, first, PAGE_TILES, get_write_ptr(2));
            cb_reserve_back(3, 2);
            mask.write(get_write_ptr(3), place, page * 2 * SIDE);
            place ^= 1;
            noc_async_read_barrier();
            cb_push_back(1, PAGE_TILES);
            cb_push_back(2, PAGE_TILES);
            cb_push_back(3, 2);
        }
    }
}
