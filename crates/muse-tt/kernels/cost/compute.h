// Counts the tile products of a compute kernel. It is placed before the kernel's source, as data.h
// is before that of a data movement kernel. Of the three processors that run a compute kernel, the
// math processor stores the counts: words 3 (1 for a kernel that ran) and 4 (tile products).
#include <cstdint>

#include "api/compute/common.h"
#include "api/compute/matmul.h"

namespace muse_cost {

uint32_t products = 0;

ALWI void matmul(uint32_t left, uint32_t right, uint32_t left_tile, uint32_t right_tile, uint32_t to) {
    ++products;
    ::ckernel::matmul_tiles(left, right, left_tile, right_tile, to);
}

inline void store([[maybe_unused]] uint32_t at) {
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
