// Stand-in: fmt 11 splits what fmt 9 has in one header.
#pragma once
#include <fmt/format.h>
