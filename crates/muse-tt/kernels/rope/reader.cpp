// Rotary position embedding: out = x · cos + swapped · sin, where `swapped` is the head with its
// halves exchanged; the sines of the left half are stored negated.
//
//   DRAM positions ──▶ c_4 (one page)
//   DRAM table ──────▶ c_2, c_3 (cosines and sines of 32 rows, F32, as wide as a head) ─┐
//   DRAM x ──────────▶ c_0 (tiles of 2 heads) ────────────────┬─────────────────────────┴─▶ c_16
//                            └─▶ c_1 (heads of 32: the tile ──┘                              │
//                                with its faces exchanged)                              DRAM out
//
// Cores: any number, each with a run of heads, in the order of their tiles. This kernel fills c_0
// to c_4; a core reads the table once for each row of tiles. A head is written after all of it was
// read, so that `out` may be `x`.

namespace {

constexpr uint32_t SIDE = 32;
constexpr uint32_t FACE_ROW = 64;    // bytes of 16 F32 values
constexpr uint32_t FACE = 1024;      // bytes in F32
constexpr uint32_t BF16_FACE = 512;  // bytes
constexpr uint32_t TILES = get_compile_time_arg_val(0);  // of a head
constexpr uint32_t WIDTH = TILES * SIDE * 4;             // bytes of a row of cosines

// Lays 32 rows of the table out as tiles, from byte `offset` of a row on: 0 for cosines, WIDTH for
// sines.
template <class Table>
void gather(uint32_t buffer, const Table& table, const Words positions, uint32_t offset) {
    cb_reserve_back(buffer, TILES);
    const uint32_t tiles = get_write_ptr(buffer);
    for (uint32_t row = 0; row < SIDE; ++row) {
        const uint32_t upper = tiles + (row >> 4) * 2 * FACE + (row & 15) * FACE_ROW;
        for (uint32_t part = 0; part < 2 * TILES; ++part) {
            const uint32_t to = upper + (part >> 1) * 4 * FACE + (part & 1) * FACE;
            const uint64_t from = table.get_noc_addr(positions[row], offset + part * FACE_ROW);
            noc_async_read(from, to, FACE_ROW);
        }
    }
    noc_async_read_barrier();
    cb_push_back(buffer, TILES);
}

#ifdef MUSE_ONE_TILE_HEADS
// Copies a head of one tile with its left and right faces exchanged.
void swap_halves(uint32_t from) {
    cb_reserve_back(1, 1);
    const uint32_t to = get_write_ptr(1);
    for (uint32_t face = 0; face < 4; ++face) {
        noc_async_read(get_noc_addr(from + (face ^ 1) * BF16_FACE), to + face * BF16_FACE, BF16_FACE);
    }
    noc_async_read_barrier();
    cb_push_back(1, 1);
}
#endif

}  // namespace

void kernel_main() {
    const uint32_t x_address = get_common_arg_val<uint32_t>(0);
    const uint32_t table_address = get_common_arg_val<uint32_t>(1);
    const uint32_t positions_address = get_common_arg_val<uint32_t>(2);
    const uint32_t first = get_arg_val<uint32_t>(0);
    const uint32_t count = get_arg_val<uint32_t>(1);
    uint32_t down = get_arg_val<uint32_t>(2);
    uint32_t head = get_arg_val<uint32_t>(3);
    constexpr uint32_t heads = get_compile_time_arg_val(1);
    constexpr uint32_t positions_bytes = get_compile_time_arg_val(2);
    constexpr uint32_t x_bytes = get_tile_size(0);
    constexpr auto x_args = TensorAccessorArgs<3>();
    constexpr auto table_args = TensorAccessorArgs<x_args.next_compile_time_args_offset()>();
    constexpr auto position_args = TensorAccessorArgs<table_args.next_compile_time_args_offset()>();
    const auto x = TensorAccessor(x_args, x_address, x_bytes);
    const auto table = TensorAccessor(table_args, table_address, 2 * WIDTH);
    const Words positions = read_indices(position_args, positions_address, positions_bytes, 4);
    for (uint32_t unit = first; unit < first + count; ++unit) {
        if (unit == first || head == 0) {
            gather(2, table, positions + down * SIDE, 0);
            gather(3, table, positions + down * SIDE, WIDTH);
        }
        cb_reserve_back(0, TILES);
        const uint32_t to = get_write_ptr(0);
        for (uint32_t tile = 0; tile < TILES; ++tile) {
            noc_async_read_page(unit * TILES + tile, x, to + tile * x_bytes);
        }
        noc_async_read_barrier();
        cb_push_back(0, TILES);
#ifdef MUSE_ONE_TILE_HEADS
        swap_halves(to);
#endif
        if (++head == heads) {
            head = 0;
            ++down;
        }
    }
}
