// Stand-in for a header that no package has: a value with a type of its own, as large as the value.
#pragma once
#include <compare>
#include <cstddef>
#include <functional>
#include <utility>

namespace ttsl {
template <class T, class Tag>
class StrongType {
public:
    using value_type = T;
    constexpr StrongType() = default;
    constexpr explicit StrongType(T value) : value_(std::move(value)) {}
    constexpr const T& operator*() const noexcept { return value_; }
    constexpr const T& get() const noexcept { return value_; }
    constexpr auto operator<=>(const StrongType&) const = default;

private:
    T value_{};
};
}  // namespace ttsl

template <class T, class Tag>
struct std::hash<ttsl::StrongType<T, Tag>> {
    std::size_t operator()(const ttsl::StrongType<T, Tag>& value) const noexcept {
        return std::hash<T>{}(*value);
    }
};
