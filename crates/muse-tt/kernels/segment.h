// Where the numbers of a segment stand, as the host writes them (src/segments.rs).
#include <cstdint>

namespace {

[[maybe_unused]] constexpr uint32_t FIRST = 1;
[[maybe_unused]] constexpr uint32_t ROWS = 2;
[[maybe_unused]] constexpr uint32_t PAGES = 3;
[[maybe_unused]] constexpr uint32_t PIECES = 4;
[[maybe_unused]] constexpr uint32_t PIECE = 5;

// A unit of work: a segment, and the part of its heads.
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
