// Writes the rows of a segment from c_16, and no others, or what a piece hands over from c_17: see
// reader.cpp for the buffers and cores. With MUSE_COMBINE, the rows of all pieces together.

namespace {

constexpr uint32_t TILES = get_compile_time_arg_val(0);  // of a unit
constexpr uint32_t UNITS = get_compile_time_arg_val(1);
constexpr uint32_t SEGMENT_BYTES = get_compile_time_arg_val(2);
constexpr uint32_t PARTIALS = get_compile_time_arg_val(3);  // of a unit
// Bytes that hold the numbers of a segment.
constexpr uint32_t HEAD_BYTES = 64;

using Words = volatile tt_l1_ptr uint32_t*;

template <class Tiles>
void write_rows(uint32_t first, Words numbers, const Tiles& out) {
    for (uint32_t tile = first; tile < first + TILES; ++tile) {
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
}

}  // namespace

void kernel_main() {
    const uint32_t out_address = get_common_arg_val<uint32_t>(0);
    const uint32_t segments_address = get_common_arg_val<uint32_t>(1);
    Unit unit{get_arg_val<uint32_t>(0), get_arg_val<uint32_t>(1)};
    const uint32_t count = get_arg_val<uint32_t>(2);
    constexpr auto out_args = TensorAccessorArgs<4>();
    constexpr auto segment_args = TensorAccessorArgs<out_args.next_compile_time_args_offset()>();
    const auto out = TensorAccessor(out_args, out_address, get_tile_size(16));
    const auto segments = TensorAccessor(segment_args, segments_address, SEGMENT_BYTES);
#ifndef MUSE_COMBINE
    constexpr auto partial_args = TensorAccessorArgs<segment_args.next_compile_time_args_offset()>();
    const auto partials = TensorAccessor(partial_args, get_common_arg_val<uint32_t>(2), get_tile_size(17));
#endif
    Words numbers = reinterpret_cast<Words>(get_write_ptr(12));
    for (uint32_t i = 0; i < count; ++i, unit.next(UNITS)) {
        noc_async_read(segments.get_noc_addr(unit.segment), get_write_ptr(12), HEAD_BYTES);
        noc_async_read_barrier();
        const uint32_t first = (numbers[0] * UNITS + unit.part) * TILES;
#ifdef MUSE_COMBINE
        if (numbers[PIECES] > 1 && numbers[PIECE] == 0) write_rows(first, numbers, out);
#else
        if (numbers[PAGES] > 0 && numbers[PIECES] == 1) write_rows(first, numbers, out);
        if (numbers[PIECES] > 1) {
            for (uint32_t tile = 0; tile < PARTIALS; ++tile) {
                cb_wait_front(17, 1);
                const uint32_t to = (unit.segment * UNITS + unit.part) * PARTIALS + tile;
                noc_async_write_page(to, partials, get_read_ptr(17));
                noc_async_write_barrier();
                cb_pop_front(17, 1);
            }
        }
#endif
    }
}
