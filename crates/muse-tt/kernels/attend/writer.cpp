// Writes the rows of a segment from c_16, and no others: see reader.cpp for the buffers and cores.

namespace {

constexpr uint32_t TILES = get_compile_time_arg_val(0);  // of a unit
constexpr uint32_t UNITS = get_compile_time_arg_val(1);
constexpr uint32_t SEGMENT_BYTES = get_compile_time_arg_val(2);
// Numbers of a segment, and the bytes that hold them.
constexpr uint32_t FIRST = 1;
constexpr uint32_t ROWS = 2;
constexpr uint32_t PAGES = 3;
constexpr uint32_t HEAD_BYTES = 64;

}  // namespace

void kernel_main() {
    const uint32_t out_address = get_arg_val<uint32_t>(0);
    const uint32_t segments_address = get_arg_val<uint32_t>(1);
    uint32_t segment = get_arg_val<uint32_t>(2);
    uint32_t part = get_arg_val<uint32_t>(3);
    const uint32_t count = get_arg_val<uint32_t>(4);
    constexpr uint32_t bytes = get_tile_size(16);
    constexpr auto out_args = TensorAccessorArgs<3>();
    constexpr auto segment_args = TensorAccessorArgs<out_args.next_compile_time_args_offset()>();
    const auto out = TensorAccessor(out_args, out_address, bytes);
    const auto segments = TensorAccessor(segment_args, segments_address, SEGMENT_BYTES);
    auto numbers = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_write_ptr(12));
    for (uint32_t unit = 0; unit < count; ++unit) {
        noc_async_read(segments.get_noc_addr(segment), get_write_ptr(12), HEAD_BYTES);
        noc_async_read_barrier();
        const uint32_t tiles = numbers[PAGES] == 0 ? 0 : TILES;
        const uint32_t first = (numbers[0] * UNITS + part) * TILES;
        for (uint32_t tile = first; tile < first + tiles; ++tile) {
            cb_wait_front(16, 1);
            if (numbers[ROWS] == SIDE) {
                noc_async_write_page(tile, out, get_read_ptr(16));
            } else {
                for (uint32_t row = numbers[FIRST]; row < numbers[FIRST] + numbers[ROWS]; ++row) {
                    write_line(get_read_ptr(16), row, out, tile, row);
                }
            }
            noc_async_write_barrier();
            cb_pop_front(16, 1);
        }
        if (++part == UNITS) {
            part = 0;
            ++segment;
        }
    }
}
