// Counts the products of tiles that a kernel computes: stands before its source as data.h does. Of
// the three processors that run it, the one that computes keeps the count: 0, 0, 0, 1, products.
#include <cstdint>

#include "api/compute/common.h"
#include "api/compute/matmul.h"

namespace muse_cost {

uint32_t products = 0;

ALWI void matmul(uint32_t left, uint32_t right, uint32_t left_tile, uint32_t right_tile, uint32_t to) {
    ++products;
    ::ckernel::matmul_tiles(left, right, left_tile, right_tile, to);
}

inline void keep([[maybe_unused]] uint32_t at) {
#ifdef TRISC_MATH
    volatile uint32_t* counts = reinterpret_cast<volatile uint32_t*>(at);
    counts[3] = 1;
    counts[4] = counts[4] + products;
#endif
}

}  // namespace muse_cost

#define matmul_tiles muse_cost::matmul
#define kernel_main muse_cost_main
#pragma GCC poison matmul_block
