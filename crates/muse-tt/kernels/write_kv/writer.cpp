// Stores rows of K and V in their pages. A slot is a page's number times 64 and the row in it; rows
// whose slot is all ones are nobody's and go nowhere.
//
//   DRAM slots ──▶ c_2 (a page of numbers) ─┐
//   DRAM k ──────▶ c_0 (1 tile) ────────────┼─▶ DRAM pages of K [page, head, 64, head_dim]
//   DRAM v ──────▶ c_1 (1 tile) ────────────┴─▶ DRAM pages of V, the same
//
// Cores: any number, each a run of tiles of k and those of v. This one kernel does it all: bytes
// move, none change. A tile whose rows are half a page in order is written whole.

namespace {

constexpr uint32_t NOWHERE = 0xffffffff;
constexpr uint32_t ACROSS = get_compile_time_arg_val(0);
constexpr uint32_t TILES = get_compile_time_arg_val(1);  // of a head
constexpr uint32_t HEADS = ACROSS / TILES;

// The tile that holds a slot, `tile` being the one of the row's K or V.
uint32_t tile_of(uint32_t slot, uint32_t head, uint32_t tile) {
    return (((slot >> 6) * HEADS + head) * 2 + (slot >> 5 & 1)) * TILES + tile;
}

bool is_half_page(Words slots) {
    if (slots[0] & (SIDE - 1)) return false;
    for (uint32_t row = 1; row < SIDE; ++row) {
        if (slots[row] != slots[0] + row) return false;
    }
    return true;
}

template <class Pages>
void store(uint32_t from, const Pages& pages, Words slots, bool whole, uint32_t head, uint32_t tile) {
    if (whole) {
        noc_async_write_page(tile_of(slots[0], head, tile), pages, from);
        return;
    }
    for (uint32_t row = 0; row < SIDE; ++row) {
        const uint32_t slot = slots[row];
        if (slot == NOWHERE) continue;
        write_line(from, row, pages, tile_of(slot, head, tile), slot & (SIDE - 1));
    }
}

}  // namespace

void kernel_main() {
    const uint32_t k_address = get_common_arg_val<uint32_t>(0);
    const uint32_t v_address = get_common_arg_val<uint32_t>(1);
    const uint32_t slots_address = get_common_arg_val<uint32_t>(2);
    const uint32_t k_pages_address = get_common_arg_val<uint32_t>(3);
    const uint32_t v_pages_address = get_common_arg_val<uint32_t>(4);
    const uint32_t first = get_arg_val<uint32_t>(0);
    const uint32_t count = get_arg_val<uint32_t>(1);
    constexpr uint32_t slots_bytes = get_compile_time_arg_val(2);
    constexpr uint32_t bytes = get_tile_size(0);
    constexpr auto k_args = TensorAccessorArgs<3>();
    constexpr auto v_args = TensorAccessorArgs<k_args.next_compile_time_args_offset()>();
    constexpr auto slot_args = TensorAccessorArgs<v_args.next_compile_time_args_offset()>();
    constexpr auto k_page_args = TensorAccessorArgs<slot_args.next_compile_time_args_offset()>();
    constexpr auto v_page_args = TensorAccessorArgs<k_page_args.next_compile_time_args_offset()>();
    const auto k = TensorAccessor(k_args, k_address, bytes);
    const auto v = TensorAccessor(v_args, v_address, bytes);
    const auto k_pages = TensorAccessor(k_page_args, k_pages_address, bytes);
    const auto v_pages = TensorAccessor(v_page_args, v_pages_address, bytes);
    const uint32_t k_tile = get_write_ptr(0);
    const uint32_t v_tile = get_write_ptr(1);
    const Words slots = read_numbers(slot_args, slots_address, slots_bytes, 2);
    TilePlace at(first, ACROSS);
    for (uint32_t unit = first; unit < first + count; ++unit, at.next()) {
        noc_async_read_page(unit, k, k_tile);
        noc_async_read_page(unit, v, v_tile);
        noc_async_read_barrier();
        const Words rows = slots + at.down * SIDE;
        const bool whole = is_half_page(rows);
        const uint32_t head = at.right / TILES;
        store(k_tile, k_pages, rows, whole, head, at.right - head * TILES);
        store(v_tile, v_pages, rows, whole, head, at.right - head * TILES);
        noc_async_write_barrier();
    }
}
