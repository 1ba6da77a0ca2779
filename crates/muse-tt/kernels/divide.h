// The last step of online softmax: weighted sums divided by the sum of the weights.
#include <cstdint>

#include "api/compute/eltwise_binary_sfpu.h"
#include "api/compute/eltwise_unary/recip.h"
#include "api/compute/tile_move_copy.h"

namespace {

// Packs `count` tiles of `sums`, each divided by the tile behind them, into `to`. The unpacker must
// be set up for `sums`.
void divide(uint32_t sums, uint32_t count, uint32_t to) {
    cb_wait_front(sums, count + 1);
    for (uint32_t tile = 0; tile < count; ++tile) {
        tile_regs_acquire();
        copy_tile(sums, tile, 0);
        copy_tile(sums, count, 1);
        recip_tile_init();
        recip_tile(1);
        mul_binary_tile_init();
        mul_binary_tile(0, 1, 0);
        pack_first(to);
    }
    cb_pop_front(sums, count + 1);
}

}  // namespace
