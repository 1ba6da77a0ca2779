// Computes the operation in f32: see reader.cpp for the buffers and cores.
//
//   MUSE_ADD       a + b
//   MUSE_GATE      a · sigmoid(b)
//   MUSE_SILU_MUL  silu(a) · b
//   MUSE_SCALE     a · FACTOR
//   MUSE_SOFTCAP   SOFTCAP · tanh(a · FACTOR), FACTOR being scale / SOFTCAP
#include <cstdint>

#include "api/compute/common.h"
#include "api/compute/compute_kernel_api.h"
#include "api/compute/eltwise_binary.h"
#include "api/compute/eltwise_binary_sfpu.h"
#include "api/compute/eltwise_unary/binop_with_scalar.h"
#include "api/compute/eltwise_unary/eltwise_unary.h"
#include "api/compute/tile_move_copy.h"

void kernel_main() {
    const uint32_t count = get_arg_val<uint32_t>(0);
    [[maybe_unused]] const uint32_t factor = get_arg_val<uint32_t>(1);
    [[maybe_unused]] const uint32_t softcap = get_arg_val<uint32_t>(2);
    unary_op_init_common(0, 16);
    for (uint32_t tile = 0; tile < count; ++tile) {
        tile_regs_acquire();
        cb_wait_front(0, 1);
        copy_tile_to_dst_init_short(0);
        copy_tile(0, 0, 0);
        cb_pop_front(0, 1);
#ifdef MUSE_BINARY
        cb_wait_front(1, 1);
        copy_tile_to_dst_init_short(1);
        copy_tile(1, 0, 1);
        cb_pop_front(1, 1);
#endif
#if defined(MUSE_ADD)
        add_binary_tile_init();
        add_binary_tile(0, 1, 0);
#elif defined(MUSE_GATE)
        sigmoid_tile_init();
        sigmoid_tile(1);
        mul_binary_tile_init();
        mul_binary_tile(0, 1, 0);
#elif defined(MUSE_SILU_MUL)
        silu_tile_init();
        silu_tile(0);
        mul_binary_tile_init();
        mul_binary_tile(0, 1, 0);
#elif defined(MUSE_SCALE) || defined(MUSE_SOFTCAP)
        binop_with_scalar_tile_init();
        mul_unary_tile(0, factor);
#if defined(MUSE_SOFTCAP)
        tanh_tile_init();
        tanh_tile(0);
        binop_with_scalar_tile_init();
        mul_unary_tile(0, softcap);
#endif
#else
#error "define one of the operations"
#endif
        pack_first(16);
    }
}
