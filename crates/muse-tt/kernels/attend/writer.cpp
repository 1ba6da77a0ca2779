// Writes the results of a segment, only the rows that belong to it, from c_16, or the partial
// results of a KV split from c_17: see reader.cpp for the buffers and cores. With MUSE_COMBINE, it
// writes the results that ../combine made of all splits.

namespace {

constexpr uint32_t TILES = get_compile_time_arg_val(0);  // of a unit
constexpr uint32_t UNITS = get_compile_time_arg_val(1);
constexpr uint32_t SEGMENT_BYTES = get_compile_time_arg_val(2);
constexpr uint32_t PARTIAL_TILES = get_compile_time_arg_val(3);  // of a unit
constexpr uint32_t HEADER_BYTES = 64;

using Words = volatile tt_l1_ptr uint32_t*;

template <class Tiles>
void write_rows(uint32_t first, Words header, const Tiles& out) {
    for (uint32_t tile = first; tile < first + TILES; ++tile) {
        cb_wait_front(16, 1);
        if (header[ROWS] == SIDE) {
            noc_async_write_page(tile, out, get_read_ptr(16));
        } else {
            const uint32_t first_row = header[FIRST_ROW];
            for (uint32_t row = first_row; row < first_row + header[ROWS]; ++row) {
                write_tile_row(get_read_ptr(16), row, out, tile, row);
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
    const uint32_t partials_address = get_common_arg_val<uint32_t>(2);
    const auto partials = TensorAccessor(partial_args, partials_address, get_tile_size(17));
#endif
    Words header = reinterpret_cast<Words>(get_write_ptr(12));
    for (uint32_t i = 0; i < count; ++i, unit.next(UNITS)) {
        noc_async_read(segments.get_noc_addr(unit.segment), get_write_ptr(12), HEADER_BYTES);
        noc_async_read_barrier();
        const uint32_t first = (header[TILE_ROW] * UNITS + unit.part) * TILES;
#ifdef MUSE_COMBINE
        if (header[SPLITS] > 1 && header[SPLIT] == 0) write_rows(first, header, out);
#else
        if (header[KV_BLOCKS] > 0 && header[SPLITS] == 1) write_rows(first, header, out);
        if (header[SPLITS] > 1) {
            for (uint32_t tile = 0; tile < PARTIAL_TILES; ++tile) {
                cb_wait_front(17, 1);
                const uint32_t to = (unit.segment * UNITS + unit.part) * PARTIAL_TILES + tile;
                noc_async_write_page(to, partials, get_read_ptr(17));
                noc_async_write_barrier();
                cb_pop_front(17, 1);
            }
        }
#endif
    }
}
