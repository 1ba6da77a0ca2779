// Copies single rows of BF16 tiles. A row of a tile lies in two faces, 16 values in each.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

constexpr uint32_t SIDE = 32;
constexpr uint32_t FACE_ROW_BYTES = 32;
constexpr uint32_t FACE_BYTES = 512;

// Byte offset in the tile of the left half of a row.
inline uint32_t row_offset(uint32_t row) {
    return (row >> 4) * 2 * FACE_BYTES + (row & 15) * FACE_ROW_BYTES;
}

// Writes row `row` of a tile in this core's memory to row `to` of tile `page` in DRAM.
template <class Tiles>
inline void write_tile_row(
    uint32_t tile, uint32_t row, const Tiles& tiles, uint32_t page, uint32_t to) {
    const uint64_t left = tiles.get_noc_addr(page, row_offset(to));
    noc_async_write(tile + row_offset(row), left, FACE_ROW_BYTES);
    noc_async_write(tile + row_offset(row) + FACE_BYTES, left + FACE_BYTES, FACE_ROW_BYTES);
}

}  // namespace
