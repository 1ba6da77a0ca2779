// A page of numbers that say what a kernel is to do, and tiles that are gone through row by row.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

using Words = volatile tt_l1_ptr uint32_t*;

// Reads the first page of a buffer into a circular buffer, where it stays.
template <class Args>
inline Words read_numbers(const Args& args, uint32_t address, uint32_t bytes, uint32_t buffer) {
    const uint32_t to = get_write_ptr(buffer);
    noc_async_read_page(0, TensorAccessor(args, address, bytes), to);
    noc_async_read_barrier();
    return reinterpret_cast<Words>(to);
}

// Where tile `number` of a matrix lies that is `across` tiles wide.
struct TilePlace {
    uint32_t across;
    uint32_t down;
    uint32_t right;

    TilePlace(uint32_t number, uint32_t across)
        : across(across), down(number / across), right(number - number / across * across) {}

    void next() {
        if (++right == across) {
            right = 0;
            ++down;
        }
    }
};

}  // namespace
