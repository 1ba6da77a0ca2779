// Stand-in for a header that no package has: a vector with inline storage, in the layout of the
// library: pointer to the elements, size, capacity, inline storage.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <new>
#include <utility>

namespace ttsl {
template <class T, std::size_t Inline = 8>
class SmallVector {
public:
    using value_type = T;
    using size_type = std::size_t;
    using iterator = T*;
    using const_iterator = const T*;

    SmallVector() noexcept : data_(inline_storage()) {}
    explicit SmallVector(std::size_t count, const T& value = T()) : SmallVector() {
        reserve(count);
        while (size_ < count) push_back(value);
    }
    SmallVector(std::initializer_list<T> values) : SmallVector(values.begin(), values.end()) {}
    template <class It>
        requires(!std::is_integral_v<It>)
    SmallVector(It first, It last) : SmallVector() {
        for (; first != last; ++first) push_back(*first);
    }
    SmallVector(const SmallVector& other) : SmallVector(other.begin(), other.end()) {}
    SmallVector(SmallVector&& other) : SmallVector() { take(other); }
    SmallVector& operator=(SmallVector other) {
        release();
        take(other);
        return *this;
    }
    ~SmallVector() { release(); }

    T* begin() noexcept { return data_; }
    T* end() noexcept { return data_ + size_; }
    const T* begin() const noexcept { return data_; }
    const T* end() const noexcept { return data_ + size_; }
    const T* cbegin() const noexcept { return begin(); }
    const T* cend() const noexcept { return end(); }
    T* data() noexcept { return data_; }
    const T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    T& back() { return data_[size_ - 1]; }
    const T& back() const { return data_[size_ - 1]; }
    void push_back(const T& value) { emplace_back(value); }
    void push_back(T&& value) { emplace_back(std::move(value)); }
    template <class... Args>
    T& emplace_back(Args&&... args) {
        if (size_ == capacity_) {
            // The argument may be an element of this vector.
            T value(std::forward<Args>(args)...);
            reserve(2 * std::size_t{capacity_});
            return *std::construct_at(data_ + size_++, std::move(value));
        }
        return *std::construct_at(data_ + size_++, std::forward<Args>(args)...);
    }
    void reserve(std::size_t count) {
        if (count <= capacity_) return;
        T* fresh = static_cast<T*>(std::malloc(count * sizeof(T)));
        if (fresh == nullptr) throw std::bad_alloc();
        std::uninitialized_move(begin(), end(), fresh);
        const std::uint32_t size = size_;
        release();
        data_ = fresh;
        size_ = size;
        capacity_ = static_cast<std::uint32_t>(count);
    }
    void clear() {
        std::destroy(begin(), end());
        size_ = 0;
    }
    friend bool operator==(const SmallVector& a, const SmallVector& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end());
    }

private:
    T* inline_storage() noexcept { return reinterpret_cast<T*>(inline_); }
    void release() {
        clear();
        if (data_ != inline_storage()) std::free(data_);
        data_ = inline_storage();
        capacity_ = Inline;
    }
    void take(SmallVector& other) {
        if (other.data_ != other.inline_storage()) {
            data_ = std::exchange(other.data_, other.inline_storage());
            size_ = std::exchange(other.size_, 0);
            capacity_ = std::exchange(other.capacity_, static_cast<std::uint32_t>(Inline));
            return;
        }
        std::uninitialized_move(other.begin(), other.end(), data_);
        size_ = other.size_;
        other.clear();
    }

    T* data_;
    std::uint32_t size_ = 0;
    std::uint32_t capacity_ = Inline;
    alignas(T) unsigned char inline_[Inline * sizeof(T)];
};
}  // namespace ttsl
