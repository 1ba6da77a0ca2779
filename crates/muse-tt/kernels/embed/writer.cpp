// Gathers rows of a row-major BF16 table into tiles. Rows of the output without an id become zero.
//
//   DRAM ids ────▶ c_2 (one page) ─────────┐
//   DRAM table ──▶ c_0 (32 rows of a tile, ┴─▶ c_1 (1 tile, laid out in faces) ──▶ DRAM out
//                  64 bytes each)
//
// Cores: any number, each with a run of tiles. This kernel is the whole program: it moves bytes and
// computes nothing.

namespace {

constexpr uint32_t TILE_ROW = 64;         // bytes: 32 values
constexpr uint32_t TILE_WORDS = 512;      // of four bytes
constexpr uint32_t FACE_ROW_WORDS = 8;    // 16 values

// Lays `rows` rows of 32 values out as the four faces of a tile; the other rows become zero.
void lay_out(Words row_major, Words tile, uint32_t rows) {
    for (uint32_t i = 0; i < TILE_WORDS; ++i) tile[i] = 0;
    for (uint32_t row = 0; row < rows; ++row) {
        const uint32_t left = (row & 16) * 2 * FACE_ROW_WORDS + (row & 15) * FACE_ROW_WORDS;
        for (uint32_t i = 0; i < FACE_ROW_WORDS; ++i) {
            tile[left + i] = row_major[row * 16 + i];
            tile[left + 16 * FACE_ROW_WORDS + i] = row_major[row * 16 + 8 + i];
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
    const auto table = TensorAccessor(table_args, table_address, across * TILE_ROW);
    const auto out = TensorAccessor(out_args, out_address, TILE_WORDS * 4);
    const uint32_t row_major = get_write_ptr(0);
    const uint32_t tile = get_write_ptr(1);
    const Words id = read_indices(ids_args, ids_address, ids_bytes, 2);
    TileCoordinates at(first, across);
    for (uint32_t i = 0; i < count; ++i, at.next()) {
        const uint32_t top = at.down * 32;
        const uint32_t gathered = rows > top ? (rows - top < 32 ? rows - top : 32) : 0;
        for (uint32_t row = 0; row < gathered; ++row) {
            const uint64_t from = table.get_noc_addr(id[top + row], at.right * TILE_ROW);
            noc_async_read(from, row_major + row * TILE_ROW, TILE_ROW);
        }
        noc_async_read_barrier();
        lay_out(reinterpret_cast<Words>(row_major), reinterpret_cast<Words>(tile), gathered);
        noc_async_write_page(first + i, out, tile);
        noc_async_write_barrier();
    }
}
