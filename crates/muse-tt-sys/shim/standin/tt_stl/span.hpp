// Stand-in for a header that no package has: the library passes std::span.
#pragma once
#include <span>
#include <vector>

namespace ttsl {
template <class T, std::size_t Extent = std::dynamic_extent>
using Span = std::span<T, Extent>;

template <class T>
Span<T> make_span(std::vector<T>& values) {
    return {values.data(), values.size()};
}
template <class T>
Span<const T> make_const_span(const std::vector<T>& values) {
    return {values.data(), values.size()};
}
}  // namespace ttsl
