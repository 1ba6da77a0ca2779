// Stand-in for a header that no package has: a declaration; no included header creates such an
// object.
#pragma once

namespace ttsl {
template <class T>
class Indestructible;
}
