// Gathers rows of a table of BF16 rows into tiles; rows that nobody asked for are zero.
//
//   DRAM ids ────▶ c_2 (a page of numbers) ─┐
//   DRAM table ──▶ c_0 (32 pieces of 64 ────┴─▶ c_1 (1 tile, laid out in faces) ──▶ DRAM out
//                  bytes)
//
// Cores: any number, each a run of tiles. This one kernel does it all: bytes move, none change.

namespace {

constexpr uint32_t PIECE = 64;        // 32 values of a row
constexpr uint32_t TILE_WORDS = 512;  // of four bytes
constexpr uint32_t LINE_WORDS = 8;    // a row of a face

// Lays 32 pieces, one a row, out as the four faces of a tile.
void lay_out(Words pieces, Words tile, uint32_t rows) {
    for (uint32_t i = 0; i < TILE_WORDS; ++i) tile[i] = 0;
    for (uint32_t row = 0; row < rows; ++row) {
        const uint32_t line = (row & 16) * 2 * LINE_WORDS + (row & 15) * LINE_WORDS;
        for (uint32_t i = 0; i < LINE_WORDS; ++i) {
            tile[line + i] = pieces[row * 16 + i];
            tile[line + 16 * LINE_WORDS + i] = pieces[row * 16 + 8 + i];
        }
    }
}

}  // namespace

void kernel_main() {
    const uint32_t table_address = get_common_arg_val<uint32_t>(0);
    const uint32_t ids_address = get_common_arg_val<uint32_t>(1);
    const uint32_t out_address = get_common_arg_val<uint32_t>(2);
    const uint32_t rows = get_arg_val<uint32_t>(0);
    const uint32_t first = get_arg_val<uint32_t>(1);
    const uint32_t count = get_arg_val<uint32_t>(2);
    constexpr uint32_t across = get_compile_time_arg_val(0);
    constexpr uint32_t ids_bytes = get_compile_time_arg_val(1);
    constexpr auto table_args = TensorAccessorArgs<2>();
    constexpr auto ids_args = TensorAccessorArgs<table_args.next_compile_time_args_offset()>();
    constexpr auto out_args = TensorAccessorArgs<ids_args.next_compile_time_args_offset()>();
    const auto table = TensorAccessor(table_args, table_address, across * PIECE);
    const auto out = TensorAccessor(out_args, out_address, TILE_WORDS * 4);
    const uint32_t pieces = get_write_ptr(0);
    const uint32_t tile = get_write_ptr(1);
    const Words number = read_numbers(ids_args, ids_address, ids_bytes, 2);
    TilePlace at(first, across);
    for (uint32_t i = 0; i < count; ++i, at.next()) {
        const uint32_t top = at.down * 32;
        const uint32_t asked = rows > top ? (rows - top < 32 ? rows - top : 32) : 0;
        for (uint32_t row = 0; row < asked; ++row) {
            noc_async_read(table.get_noc_addr(number[top + row], at.right * PIECE), pieces + row * PIECE, PIECE);
        }
        noc_async_read_barrier();
        lay_out(reinterpret_cast<Words>(pieces), reinterpret_cast<Words>(tile), asked);
        noc_async_write_page(first + i, out, tile);
        noc_async_write_barrier();
    }
}
