// First step of argmax: the largest logit of each row among the columns of a core, and its column;
// the smallest column wins a tie.
//
//   DRAM logits ──▶ c_0 (2 tiles: one is scanned while the next one is read)
//                     └─▶ c_1 (key and column of the largest, per row) ──▶ DRAM partials, one page
//                                                                         per core
//
// Cores: any number, each with a run of columns of tiles. This kernel is the whole program;
// combine.cpp takes the best of all cores. The padding of the last tile is skipped. A key is an
// integer made from the bits of a value so that keys order as values do: both zeros have the key 0,
// and NaN has MIN_KEY, so that it is never selected.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

constexpr uint32_t SIDE = 32;
constexpr uint32_t FACE = 16;
constexpr int32_t MIN_KEY = -0x7fffffff - 1;

#ifdef MUSE_F32
using Value = uint32_t;
constexpr uint32_t SIGN_BIT = 0x80000000;
constexpr uint32_t INFINITY_BITS = 0x7f800000;
#else
using Value = uint16_t;
constexpr uint32_t SIGN_BIT = 0x8000;
constexpr uint32_t INFINITY_BITS = 0x7f80;
#endif

struct Best {
    int32_t key;
    uint32_t column;
};

int32_t key_of(uint32_t bits) {
    const uint32_t magnitude = bits & (SIGN_BIT - 1);
    if (magnitude > INFINITY_BITS) return MIN_KEY;
    return bits & SIGN_BIT ? -static_cast<int32_t>(magnitude) : static_cast<int32_t>(magnitude);
}

// Updates `best` with the first `columns` columns of the first `rows` rows of a tile.
void scan(uint32_t tile, uint32_t rows, uint32_t first_column, uint32_t columns, volatile Best* best) {
    for (uint32_t row = 0; row < rows; ++row) {
        Best found{best[row].key, best[row].column};
        for (uint32_t column = 0; column < columns; ++column) {
            const uint32_t face = (row >> 4) * 2 + (column >> 4);
            const uint32_t at = (face * FACE + (row & 15)) * FACE + (column & 15);
            const int32_t key = key_of(reinterpret_cast<volatile tt_l1_ptr Value*>(tile)[at]);
            if (key > found.key) found = {key, first_column + column};
        }
        best[row].key = found.key;
        best[row].column = found.column;
    }
}

}  // namespace

void kernel_main() {
    const uint32_t logits_address = get_common_arg_val<uint32_t>(0);
    const uint32_t partials_address = get_common_arg_val<uint32_t>(1);
    const uint32_t rows = get_arg_val<uint32_t>(0);
    const uint32_t first = get_arg_val<uint32_t>(1);
    const uint32_t count = get_arg_val<uint32_t>(2);
    const uint32_t core = get_arg_val<uint32_t>(3);
    constexpr uint32_t across = get_compile_time_arg_val(0);
    constexpr uint32_t width = get_compile_time_arg_val(1);
    constexpr uint32_t partial_bytes = get_compile_time_arg_val(2);
    constexpr uint32_t bytes = get_tile_size(0);
    constexpr auto logit_args = TensorAccessorArgs<3>();
    constexpr auto partial_args = TensorAccessorArgs<logit_args.next_compile_time_args_offset()>();
    const auto logits = TensorAccessor(logit_args, logits_address, bytes);
    const auto partials = TensorAccessor(partial_args, partials_address, partial_bytes);
    const uint32_t tiles = get_write_ptr(0);
    auto best = reinterpret_cast<volatile tt_l1_ptr Best*>(get_write_ptr(1));
    for (uint32_t row = 0; row < rows; ++row) {
        best[row].key = MIN_KEY;
        best[row].column = first * SIDE;
    }
    uint32_t slot = 0;
    for (uint32_t top = 0, down = 0; top < rows; top += SIDE, ++down) {
        noc_async_read_page(down * across + first, logits, tiles + slot * bytes);
        for (uint32_t column = first; column < first + count; ++column) {
            noc_async_read_barrier();
            const uint32_t tile = tiles + slot * bytes;
            slot ^= 1;
            if (column + 1 < first + count) {
                noc_async_read_page(down * across + column + 1, logits, tiles + slot * bytes);
            }
            const uint32_t columns_left = width - column * SIDE;
            const uint32_t rows_left = rows - top;
            scan(tile, rows_left < SIDE ? rows_left : SIDE, column * SIDE,
                 columns_left < SIDE ? columns_left : SIDE, best + top);
        }
    }
    noc_async_write_page(core, partials, get_write_ptr(1));
    noc_async_write_barrier();
}
