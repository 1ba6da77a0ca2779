// Stand-in for a header that no package has: the architectures, numbered as in the library's
// bindings.
#pragma once

namespace tt {
enum class ARCH { WORMHOLE_B0 = 2, BLACKHOLE = 3, QUASAR = 4, Invalid = 255 };
}
