// Stand-in for a header that no package has: an optional reference, as large as a pointer.
#pragma once
#include <optional>

namespace ttsl {
template <class T>
class optional_reference {
public:
    constexpr optional_reference() noexcept = default;
    constexpr optional_reference(std::nullopt_t) noexcept {}
    constexpr optional_reference(T& value) noexcept : value_(&value) {}
    constexpr bool has_value() const noexcept { return value_ != nullptr; }
    constexpr explicit operator bool() const noexcept { return has_value(); }
    constexpr T& value() const { return *value_; }
    constexpr T& operator*() const { return *value_; }
    constexpr T* operator->() const { return value_; }

private:
    T* value_ = nullptr;
};
}  // namespace ttsl
