// How results leave the registers.
#include <cstdint>

#include "api/compute/cb_api.h"
#include "api/compute/common.h"
#include "api/compute/reconfig_data_format.h"

namespace {

// Packs registers into a buffer and hands them on.
void pack_to(uint32_t buffer, uint32_t first, uint32_t count) {
    cb_reserve_back(buffer, count);
    pack_reconfig_data_format(buffer);
    for (uint32_t i = 0; i < count; ++i) pack_tile(first + i, buffer);
    cb_push_back(buffer, count);
}

void begin_packing() {
    tile_regs_commit();
    tile_regs_wait();
}

// Hands the first register on, and nothing else of what was computed.
[[maybe_unused]] void hand_on(uint32_t buffer) {
    begin_packing();
    pack_to(buffer, 0, 1);
    tile_regs_release();
}

}  // namespace
