// Indices into the header of a segment, as src/segments.rs writes it.
#include <cstdint>

namespace {

[[maybe_unused]] constexpr uint32_t TILE_ROW = 0;
[[maybe_unused]] constexpr uint32_t FIRST_ROW = 1;
[[maybe_unused]] constexpr uint32_t ROWS = 2;
[[maybe_unused]] constexpr uint32_t KV_BLOCKS = 3;
[[maybe_unused]] constexpr uint32_t SPLITS = 4;
[[maybe_unused]] constexpr uint32_t SPLIT = 5;

// A unit of work: a segment and one of the equal parts of its query heads.
struct Unit {
    uint32_t segment;
    uint32_t part;

    void next(uint32_t parts) {
        if (++part == parts) {
            part = 0;
            ++segment;
        }
    }
};

}  // namespace
