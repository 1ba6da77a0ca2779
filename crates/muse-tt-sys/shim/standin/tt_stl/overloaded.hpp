// Stand-in for a header that no package has: several lambdas as one visitor.
#pragma once

namespace ttsl {
template <class... Ts>
struct overloaded : Ts... {
    using Ts::operator()...;
};
}  // namespace ttsl
