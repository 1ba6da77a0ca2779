// Copies rows, chosen by their numbers, to consecutive rows of another matrix.
//
//   DRAM numbers ──▶ c_1 (a page of numbers) ─┐
//   DRAM from ─────▶ c_0 (1 tile) ────────────┴─▶ DRAM to, from row TOP and column of tiles LEFT on
//
// Cores: any number, each a run of columns of tiles. This one kernel does it all: bytes move, none
// change. A tile is read once for rows that follow each other in it.

namespace {

constexpr uint32_t FROM_ACROSS = get_compile_time_arg_val(0);
constexpr uint32_t TO_ACROSS = get_compile_time_arg_val(1);
constexpr uint32_t NONE = 0xffffffff;

}  // namespace

void kernel_main() {
    const uint32_t from_address = get_common_arg_val<uint32_t>(0);
    const uint32_t numbers_address = get_common_arg_val<uint32_t>(1);
    const uint32_t to_address = get_common_arg_val<uint32_t>(2);
    const uint32_t rows = get_arg_val<uint32_t>(0);
    const uint32_t top = get_arg_val<uint32_t>(1);
    const uint32_t left = get_arg_val<uint32_t>(2);
    const uint32_t first = get_arg_val<uint32_t>(3);
    const uint32_t count = get_arg_val<uint32_t>(4);
    constexpr uint32_t numbers_bytes = get_compile_time_arg_val(2);
    constexpr uint32_t bytes = get_tile_size(0);
    constexpr auto from_args = TensorAccessorArgs<3>();
    constexpr auto number_args = TensorAccessorArgs<from_args.next_compile_time_args_offset()>();
    constexpr auto to_args = TensorAccessorArgs<number_args.next_compile_time_args_offset()>();
    const auto from = TensorAccessor(from_args, from_address, bytes);
    const auto to = TensorAccessor(to_args, to_address, bytes);
    const uint32_t tile = get_write_ptr(0);
    const Words numbers = read_numbers(number_args, numbers_address, numbers_bytes, 1);
    for (uint32_t column = first; column < first + count; ++column) {
        uint32_t held = NONE;
        for (uint32_t i = 0; i < rows; ++i) {
            const uint32_t row = numbers[i];
            const uint32_t wanted = row / SIDE * FROM_ACROSS + column;
            if (wanted != held) {
                // What was written comes from the place that is read into.
                noc_async_write_barrier();
                noc_async_read_page(wanted, from, tile);
                noc_async_read_barrier();
                held = wanted;
            }
            const uint32_t at = top + i;
            write_line(tile, row % SIDE, to, at / SIDE * TO_ACROSS + left + column, at % SIDE);
        }
        noc_async_write_barrier();
    }
}
