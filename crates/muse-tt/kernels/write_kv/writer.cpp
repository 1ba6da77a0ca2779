// Writes rows of K and V into their KV blocks. The slot of a row is the index of its KV block times
// 64 plus its position in the block. Padding rows have a slot of all ones and are not written.
//
//   DRAM slots ──▶ c_2 (one page) ─┐
//   DRAM k ──────▶ c_0 (1 tile) ───┼─▶ DRAM K cache [blocks, kv_heads, 64, head_dim]
//   DRAM v ──────▶ c_1 (1 tile) ───┴─▶ DRAM V cache, the same
//
// Cores: any number, each with a run of tiles of k and the same ones of v. This kernel is the whole
// program: it moves bytes and computes nothing. A tile whose rows are one half of a KV block, in
// order, is written as a whole.

namespace {

constexpr uint32_t NO_SLOT = 0xffffffff;
constexpr uint32_t ACROSS = get_compile_time_arg_val(0);
constexpr uint32_t TILES = get_compile_time_arg_val(1);  // of a head
constexpr uint32_t HEADS = ACROSS / TILES;

// The tile of the cache that holds a slot; `tile` is the tile of the head.
uint32_t tile_of(uint32_t slot, uint32_t head, uint32_t tile) {
    return (((slot >> 6) * HEADS + head) * 2 + (slot >> 5 & 1)) * TILES + tile;
}

bool is_half_block(Words slots) {
    if (slots[0] & (SIDE - 1)) return false;
    for (uint32_t row = 1; row < SIDE; ++row) {
        if (slots[row] != slots[0] + row) return false;
    }
    return true;
}

template <class Cache>
void store(
    uint32_t from, const Cache& cache, Words slots, bool as_tile, uint32_t head, uint32_t tile) {
    if (as_tile) {
        noc_async_write_page(tile_of(slots[0], head, tile), cache, from);
        return;
    }
    for (uint32_t row = 0; row < SIDE; ++row) {
        const uint32_t slot = slots[row];
        if (slot == NO_SLOT) continue;
        write_tile_row(from, row, cache, tile_of(slot, head, tile), slot & (SIDE - 1));
    }
}

}  // namespace

void kernel_main() {
    const uint32_t k_address = get_common_arg_val<uint32_t>(0);
    const uint32_t v_address = get_common_arg_val<uint32_t>(1);
    const uint32_t slots_address = get_common_arg_val<uint32_t>(2);
    const uint32_t k_cache_address = get_common_arg_val<uint32_t>(3);
    const uint32_t v_cache_address = get_common_arg_val<uint32_t>(4);
    const uint32_t first = get_arg_val<uint32_t>(0);
    const uint32_t count = get_arg_val<uint32_t>(1);
    constexpr uint32_t slots_bytes = get_compile_time_arg_val(2);
    constexpr uint32_t bytes = get_tile_size(0);
    constexpr auto k_args = TensorAccessorArgs<3>();
    constexpr auto v_args = TensorAccessorArgs<k_args.next_compile_time_args_offset()>();
    constexpr auto slot_args = TensorAccessorArgs<v_args.next_compile_time_args_offset()>();
    constexpr auto k_cache_args = TensorAccessorArgs<slot_args.next_compile_time_args_offset()>();
    constexpr auto v_cache_args = TensorAccessorArgs<k_cache_args.next_compile_time_args_offset()>();
    const auto k = TensorAccessor(k_args, k_address, bytes);
    const auto v = TensorAccessor(v_args, v_address, bytes);
    const auto k_cache = TensorAccessor(k_cache_args, k_cache_address, bytes);
    const auto v_cache = TensorAccessor(v_cache_args, v_cache_address, bytes);
    const uint32_t k_tile = get_write_ptr(0);
    const uint32_t v_tile = get_write_ptr(1);
    const Words slots = read_indices(slot_args, slots_address, slots_bytes, 2);
    TileCoordinates at(first, ACROSS);
    for (uint32_t unit = first; unit < first + count; ++unit, at.next()) {
        noc_async_read_page(unit, k, k_tile);
        noc_async_read_page(unit, v, v_tile);
        noc_async_read_barrier();
        const Words rows = slots + at.down * SIDE;
        const bool as_tile = is_half_block(rows);
        const uint32_t head = at.right / TILES;
        store(k_tile, k_cache, rows, as_tile, head, at.right - head * TILES);
        store(v_tile, v_cache, rows, as_tile, head, at.right - head * TILES);
        noc_async_write_barrier();
    }
}
