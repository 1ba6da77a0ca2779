// Merges the partial results of the KV splits of long segments.
//
//   DRAM segments ──▶ c_5 (a segment) ──▶ how many splits there are
//   DRAM partials ──▶ c_0 (sums of a split, last its sum of weights), c_1 (its maxima): F32, 2 splits
//                       ──▶ maximum so far ──▶ c_2 ──▶ exp(scale · (own maximum - maximum)) ──▶ c_3
//                           (of the merged sums and of the split) ──▶ rescaled sums, added ──▶ c_4
//                       ──▶ sums / sum of weights ──▶ c_16 ──▶ DRAM out (c_12: writer's segment)
//
// Cores: any number, each with a run of units: a segment and some of its query heads. There is
// nothing to do for segments without splits and for all splits but the first. This kernel fills
// c_0, c_1 and c_5.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace {

constexpr uint32_t TILES = get_compile_time_arg_val(0);  // of a head
constexpr uint32_t HEADS = get_compile_time_arg_val(1);  // of a unit
constexpr uint32_t UNITS = get_compile_time_arg_val(2);  // of a segment
constexpr uint32_t SEGMENT_BYTES = get_compile_time_arg_val(3);
constexpr uint32_t SEGMENT_TILES = (SEGMENT_BYTES + 2047) / 2048;
constexpr uint32_t BYTES = 4096;

}  // namespace

void kernel_main() {
    const uint32_t partials_address = get_common_arg_val<uint32_t>(0);
    const uint32_t segments_address = get_common_arg_val<uint32_t>(1);
    Unit unit{get_arg_val<uint32_t>(0), get_arg_val<uint32_t>(1)};
    const uint32_t count = get_arg_val<uint32_t>(2);
    constexpr auto partial_args = TensorAccessorArgs<4>();
    constexpr auto segment_args = TensorAccessorArgs<partial_args.next_compile_time_args_offset()>();
    const auto partials = TensorAccessor(partial_args, partials_address, BYTES);
    const auto segments = TensorAccessor(segment_args, segments_address, SEGMENT_BYTES);
    for (uint32_t i = 0; i < count; ++i, unit.next(UNITS)) {
        cb_reserve_back(5, SEGMENT_TILES);
        noc_async_read_page(unit.segment, segments, get_write_ptr(5));
        noc_async_read_barrier();
        auto header = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_write_ptr(5));
        const uint32_t splits = header[SPLIT] == 0 && header[SPLITS] > 1 ? header[SPLITS] : 0;
        cb_push_back(5, SEGMENT_TILES);
        for (uint32_t head = 0; head < HEADS; ++head) {
            for (uint32_t split = 0; split < splits; ++split) {
                const uint32_t first_head = ((unit.segment + split) * UNITS + unit.part) * HEADS;
                const uint32_t from = (first_head + head) * (TILES + 2);
                cb_reserve_back(0, TILES + 1);
                for (uint32_t tile = 0; tile <= TILES; ++tile) {
                    noc_async_read_page(from + tile, partials, get_write_ptr(0) + tile * BYTES);
                }
                cb_reserve_back(1, 1);
                noc_async_read_page(from + TILES + 1, partials, get_write_ptr(1));
                noc_async_read_barrier();
                cb_push_back(0, TILES + 1);
                cb_push_back(1, 1);
            }
        }
    }
}
