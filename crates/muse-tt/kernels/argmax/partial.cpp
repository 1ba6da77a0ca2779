// The largest of each row among a core's columns, and its column; of equal ones the first.
//
//   DRAM scores ──▶ c_0 (2 tiles: one is looked at while the next one comes)
//                     └─▶ c_1 (a value's key and its column, a row) ──▶ DRAM partials, a page a core
//
// Cores: any number, each a run of columns of tiles. This one kernel does it all; combine.cpp takes
// the best of all cores. What fills the last tile up is not looked at. A key is the bits of a value
// as a number that is ordered as the values are; both zeros are 0, and what is no number is never
// chosen.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

constexpr uint32_t SIDE = 32;
constexpr uint32_t FACE = 16;
constexpr int32_t LEAST = -0x7fffffff - 1;

#ifdef MUSE_WIDE
using Value = uint32_t;
constexpr uint32_t SIGN = 0x80000000;
constexpr uint32_t INFINITE = 0x7f800000;
#else
using Value = uint16_t;
constexpr uint32_t SIGN = 0x8000;
constexpr uint32_t INFINITE = 0x7f80;
#endif

struct Best {
    int32_t key;
    uint32_t column;
};

int32_t key_of(uint32_t bits) {
    const uint32_t size = bits & (SIGN - 1);
    if (size > INFINITE) return LEAST;
    return bits & SIGN ? -static_cast<int32_t>(size) : static_cast<int32_t>(size);
}

// Looks at `columns` columns of the first `rows` rows of a tile.
void look(uint32_t tile, uint32_t rows, uint32_t first_column, uint32_t columns, volatile Best* best) {
    for (uint32_t row = 0; row < rows; ++row) {
        Best seen{best[row].key, best[row].column};
        for (uint32_t column = 0; column < columns; ++column) {
            const uint32_t face = (row >> 4) * 2 + (column >> 4);
            const uint32_t at = (face * FACE + (row & 15)) * FACE + (column & 15);
            const int32_t key = key_of(reinterpret_cast<volatile tt_l1_ptr Value*>(tile)[at]);
            if (key > seen.key) seen = {key, first_column + column};
        }
        best[row].key = seen.key;
        best[row].column = seen.column;
    }
}

}  // namespace

void kernel_main() {
    const uint32_t scores_address = get_common_arg_val<uint32_t>(0);
    const uint32_t partials_address = get_common_arg_val<uint32_t>(1);
    const uint32_t rows = get_arg_val<uint32_t>(0);
    const uint32_t first = get_arg_val<uint32_t>(1);
    const uint32_t count = get_arg_val<uint32_t>(2);
    const uint32_t core = get_arg_val<uint32_t>(3);
    constexpr uint32_t across = get_compile_time_arg_val(0);
    constexpr uint32_t width = get_compile_time_arg_val(1);
    constexpr uint32_t partial_bytes = get_compile_time_arg_val(2);
    constexpr uint32_t bytes = get_tile_size(0);
    constexpr auto score_args = TensorAccessorArgs<3>();
    constexpr auto partial_args = TensorAccessorArgs<score_args.next_compile_time_args_offset()>();
    const auto scores = TensorAccessor(score_args, scores_address, bytes);
    const auto partials = TensorAccessor(partial_args, partials_address, partial_bytes);
    const uint32_t tiles = get_write_ptr(0);
    auto best = reinterpret_cast<volatile tt_l1_ptr Best*>(get_write_ptr(1));
    for (uint32_t row = 0; row < rows; ++row) {
        best[row].key = LEAST;
        best[row].column = first * SIDE;
    }
    uint32_t slot = 0;
    for (uint32_t top = 0, down = 0; top < rows; top += SIDE, ++down) {
        noc_async_read_page(down * across + first, scores, tiles + slot * bytes);
        for (uint32_t column = first; column < first + count; ++column) {
            noc_async_read_barrier();
            const uint32_t tile = tiles + slot * bytes;
            slot ^= 1;
            if (column + 1 < first + count) {
                noc_async_read_page(down * across + column + 1, scores, tiles + slot * bytes);
            }
            const uint32_t left = width - column * SIDE;
            const uint32_t below = rows - top;
            look(tile, below < SIDE ? below : SIDE, column * SIDE, left < SIDE ? left : SIDE, best + top);
        }
    }
    noc_async_write_page(core, partials, get_write_ptr(1));
    noc_async_write_barrier();
}
