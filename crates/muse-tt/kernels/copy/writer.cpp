// Gathers rows by index and writes them to consecutive rows of another matrix.
//
//   DRAM indices ──▶ c_1 (one page) ─┐
//   DRAM from ─────▶ c_0 (1 tile) ───┴─▶ DRAM to, from row `top` and column of tiles `left` on
//
// Cores: any number, each with a run of columns of tiles. This kernel is the whole program: it
// moves bytes and computes nothing. Consecutive rows of the same tile read it once.

namespace {

constexpr uint32_t FROM_ACROSS = get_compile_time_arg_val(0);
constexpr uint32_t TO_ACROSS = get_compile_time_arg_val(1);
constexpr uint32_t NO_TILE = 0xffffffff;

}  // namespace

void kernel_main() {
    const uint32_t from_address = get_common_arg_val<uint32_t>(0);
    const uint32_t indices_address = get_common_arg_val<uint32_t>(1);
    const uint32_t to_address = get_common_arg_val<uint32_t>(2);
    const uint32_t rows = get_arg_val<uint32_t>(0);
    const uint32_t top = get_arg_val<uint32_t>(1);
    const uint32_t left = get_arg_val<uint32_t>(2);
    const uint32_t first = get_arg_val<uint32_t>(3);
    const uint32_t count = get_arg_val<uint32_t>(4);
    constexpr uint32_t indices_bytes = get_compile_time_arg_val(2);
    constexpr uint32_t bytes = get_tile_size(0);
    constexpr auto from_args = TensorAccessorArgs<3>();
    constexpr auto index_args = TensorAccessorArgs<from_args.next_compile_time_args_offset()>();
    constexpr auto to_args = TensorAccessorArgs<index_args.next_compile_time_args_offset()>();
    const auto from = TensorAccessor(from_args, from_address, bytes);
    const auto to = TensorAccessor(to_args, to_address, bytes);
    const uint32_t tile = get_write_ptr(0);
    const Words indices = read_indices(index_args, indices_address, indices_bytes, 1);
    for (uint32_t column = first; column < first + count; ++column) {
        uint32_t held = NO_TILE;
        for (uint32_t i = 0; i < rows; ++i) {
            const uint32_t row = indices[i];
            const uint32_t source = row / SIDE * FROM_ACROSS + column;
            if (source != held) {
                // Earlier writes may still read from the tile that is overwritten here.
                noc_async_write_barrier();
                noc_async_read_page(source, from, tile);
                noc_async_read_barrier();
                held = source;
            }
            const uint32_t target = top + i;
            write_tile_row(
                tile, row % SIDE, to, target / SIDE * TO_ACROSS + left + column, target % SIDE);
        }
        noc_async_write_barrier();
    }
}
