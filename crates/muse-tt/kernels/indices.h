// A page of indices that stays in the memory of a core, and coordinates of tiles in row-major
// order.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

using Words = volatile tt_l1_ptr uint32_t*;

// Reads the first page of a DRAM buffer into a circular buffer, which is never popped.
template <class Args>
inline Words read_indices(const Args& args, uint32_t address, uint32_t bytes, uint32_t buffer) {
    const uint32_t to = get_write_ptr(buffer);
    noc_async_read_page(0, TensorAccessor(args, address, bytes), to);
    noc_async_read_barrier();
    return reinterpret_cast<Words>(to);
}

// Row and column of tile `number` of a matrix that is `across` tiles wide.
struct TileCoordinates {
    uint32_t across;
    uint32_t down;
    uint32_t right;

    TileCoordinates(uint32_t number, uint32_t across)
        : across(across), down(number / across), right(number - number / across * across) {}

    void next() {
        if (++right == across) {
            right = 0;
            ++down;
        }
    }
};

}  // namespace
