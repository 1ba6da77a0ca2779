// Stand-in for a header that no package has: an allocator with an alignment.
#pragma once
#include <cstddef>
#include <new>

namespace ttsl {
template <class T, std::size_t Alignment>
struct aligned_allocator {
    using value_type = T;
    template <class U>
    struct rebind {
        using other = aligned_allocator<U, Alignment>;
    };
    aligned_allocator() = default;
    template <class U>
    aligned_allocator(const aligned_allocator<U, Alignment>&) {}
    T* allocate(std::size_t count) {
        return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{Alignment}));
    }
    void deallocate(T* at, std::size_t) { ::operator delete(at, std::align_val_t{Alignment}); }
    bool operator==(const aligned_allocator&) const { return true; }
};
}  // namespace ttsl
