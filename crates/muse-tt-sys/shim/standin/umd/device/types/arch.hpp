// Stand-in: the chips, numbered as the library's own bindings say.
#pragma once

namespace tt {
enum class ARCH { WORMHOLE_B0 = 2, BLACKHOLE = 3, QUASAR = 4, Invalid = 255 };
}
