// Stand-in for a header that no package has: the formatters of the library are not used here.
#pragma once
#include <fmt/base.h>
