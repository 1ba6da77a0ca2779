// Stand-in for a header of fmt 11: fmt 9 has the same in format.h.
#pragma once
#include <fmt/format.h>
