// Stand-in: the name alone; nothing that the shim includes makes one.
#pragma once

namespace ttsl {
template <class T>
class Indestructible;
}
