// Stand-in for a header that no package has: the checks of the library's inline functions, which
// throw.
#pragma once
#include <stdexcept>

#define TT_THROW(...) throw std::runtime_error("Tenstorrent's host library: " #__VA_ARGS__)
#define TT_FATAL(condition, ...)                                                       \
    do {                                                                               \
        if (!(condition)) throw std::runtime_error("Tenstorrent's host library requires " #condition); \
    } while (false)
#define TT_ASSERT(...) static_cast<void>(0)
