// Rotates in f32: see reader.cpp for the buffers and cores.
#include <cstdint>

#include "api/compute/common.h"
#include "api/compute/eltwise_binary_sfpu.h"
#include "api/compute/eltwise_unary/eltwise_unary.h"
#include "api/compute/tile_move_copy.h"

namespace {

constexpr uint32_t X = 0;
constexpr uint32_t ROTATED_HALF = 1;
constexpr uint32_t COS = 2;
constexpr uint32_t SIN = 3;
constexpr uint32_t OUT = 16;
constexpr uint32_t TILES = get_compile_time_arg_val(0);

// Computes tile `tile` of the rotated head.
void rotate(uint32_t tile) {
    tile_regs_acquire();
    copy_tile_to_dst_init_short_with_dt(SIN, X);
    copy_tile(X, tile, 0);
#ifdef MUSE_ONE_TILE_HEADS
    copy_tile(ROTATED_HALF, 0, 2);
#else
    copy_tile(X, tile < TILES / 2 ? tile + TILES / 2 : tile - TILES / 2, 2);
#endif
    copy_tile_to_dst_init_short_with_dt(X, COS);
    copy_tile(COS, tile, 1);
    copy_tile(SIN, tile, 3);
    mul_binary_tile_init();
    mul_binary_tile(0, 1, 0);
    mul_binary_tile(2, 3, 2);
    add_binary_tile_init();
    add_binary_tile(0, 2, 0);
    pack_first(OUT);
}

}  // namespace

void kernel_main() {
    const uint32_t count = get_arg_val<uint32_t>(0);
    uint32_t head = get_arg_val<uint32_t>(1);
    constexpr uint32_t heads = get_compile_time_arg_val(1);
    unary_op_init_common(X, OUT);
    for (uint32_t unit = 0; unit < count; ++unit) {
        if (unit == 0 || head == 0) {
            if (unit != 0) {
                cb_pop_front(COS, TILES);
                cb_pop_front(SIN, TILES);
            }
            cb_wait_front(COS, TILES);
            cb_wait_front(SIN, TILES);
        }
        cb_wait_front(X, TILES);
#ifdef MUSE_ONE_TILE_HEADS
        cb_wait_front(ROTATED_HALF, 1);
#endif
        for (uint32_t tile = 0; tile < TILES; ++tile) rotate(tile);
        cb_pop_front(X, TILES);
#ifdef MUSE_ONE_TILE_HEADS
        cb_pop_front(ROTATED_HALF, 1);
#endif
        if (++head == heads) head = 0;
    }
}
