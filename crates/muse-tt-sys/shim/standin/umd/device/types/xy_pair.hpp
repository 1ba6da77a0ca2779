// Stand-in for a header that no package has: coordinates on the grid, two words of the machine.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace tt {
struct xy_pair {
    constexpr xy_pair() = default;
    constexpr xy_pair(std::size_t x, std::size_t y) : x(x), y(y) {}
    constexpr bool operator==(const xy_pair&) const = default;
    constexpr auto operator<=>(const xy_pair&) const = default;
    std::string str() const;

    std::size_t x = 0;
    std::size_t y = 0;
};
}  // namespace tt

using tt_xy_pair = tt::xy_pair;

template <>
struct std::hash<tt::xy_pair> {
    std::size_t operator()(const tt::xy_pair& at) const noexcept { return at.x * 65599 + at.y; }
};
