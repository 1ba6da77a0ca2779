// Rows of BF16 tiles that are moved alone: 16 values in each of two faces.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

constexpr uint32_t SIDE = 32;
constexpr uint32_t LINE_BYTES = 32;
constexpr uint32_t FACE_BYTES = 512;

// Where the left half of a row begins in its tile.
inline uint32_t line(uint32_t row) { return (row >> 4) * 2 * FACE_BYTES + (row & 15) * LINE_BYTES; }

// Writes row `row` of a tile in this core's memory to row `to` of tile `page`.
template <class Tiles>
inline void write_line(uint32_t tile, uint32_t row, const Tiles& tiles, uint32_t page, uint32_t to) {
    const uint64_t left = tiles.get_noc_addr(page, line(to));
    noc_async_write(tile + line(row), left, LINE_BYTES);
    noc_async_write(tile + line(row) + FACE_BYTES, left + FACE_BYTES, LINE_BYTES);
}

}  // namespace
