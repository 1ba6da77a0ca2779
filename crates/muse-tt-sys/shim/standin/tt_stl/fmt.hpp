// Stand-in: how the library prints its types is not used here.
#pragma once
#include <fmt/base.h>
