// Packing results from the destination registers into circular buffers.
#include <cstdint>

#include "api/compute/cb_api.h"
#include "api/compute/common.h"
#include "api/compute/reconfig_data_format.h"

namespace {

// Packs `count` registers from `first` on and pushes them to the buffer.
void pack_to(uint32_t buffer, uint32_t first, uint32_t count) {
    cb_reserve_back(buffer, count);
    pack_reconfig_data_format(buffer);
    for (uint32_t i = 0; i < count; ++i) pack_tile(first + i, buffer);
    cb_push_back(buffer, count);
}

// Hands the registers over from the math processor to the packer.
void begin_packing() {
    tile_regs_commit();
    tile_regs_wait();
}

// Ends a computation: pushes register 0 to the buffer and releases all registers.
[[maybe_unused]] void pack_first(uint32_t buffer) {
    begin_packing();
    pack_to(buffer, 0, 1);
    tile_regs_release();
}

}  // namespace
