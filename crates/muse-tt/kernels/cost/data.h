// Counts the bytes that a data movement kernel transfers. It is placed before the kernel's source
// and renames the transfer functions and kernel_main; the host appends a kernel_main that calls it
// and then store(). Words in the memory of the core: 0 bytes read from DRAM, 1 bytes written to
// DRAM, 2 bytes sent or fetched between cores (a multicast counts once for each core that it
// reaches), 3 the number 1 for a kernel that ran. Semaphore updates are not counted.
#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace muse_cost {

uint32_t read = 0;
uint32_t written = 0;
uint32_t core_to_core = 0;

inline bool in_dram(uint64_t address, uint8_t noc) {
    for (uint32_t bank = 0; bank < NUM_DRAM_BANKS; ++bank) {
        if (static_cast<uint32_t>(address >> NOC_ADDR_COORD_SHIFT) == dram_bank_to_noc_xy[noc][bank]) return true;
    }
    return false;
}

template <uint32_t max_burst = NOC_MAX_BURST_SIZE + 1>
void async_read(uint64_t from, uint32_t to, uint32_t bytes, uint8_t noc = noc_index) {
    (in_dram(from, noc) ? read : core_to_core) += bytes;
    ::noc_async_read<max_burst>(from, to, bytes, noc);
}

template <class Pages>
void async_read_page(uint32_t page, const Pages& pages, uint32_t to, uint32_t offset = 0) {
    async_read(pages.get_noc_addr(page, offset), to, pages.get_aligned_page_size());
}

template <uint32_t max_burst = NOC_MAX_BURST_SIZE + 1>
void async_write(uint32_t from, uint64_t to, uint32_t bytes, uint8_t noc = noc_index) {
    (in_dram(to, noc) ? written : core_to_core) += bytes;
    ::noc_async_write<max_burst>(from, to, bytes, noc);
}

template <class Pages>
void async_write_page(uint32_t page, const Pages& pages, uint32_t from, uint32_t bytes = 0, uint32_t offset = 0) {
    async_write(from, pages.get_noc_addr(page, offset), bytes != 0 ? bytes : pages.get_aligned_page_size());
}

template <class... More>
void multicast(uint32_t from, uint64_t to, uint32_t bytes, uint32_t cores, More... more) {
    core_to_core += bytes * cores;
    ::noc_async_write_multicast(from, to, bytes, cores, more...);
}

template <class... More>
void multicast_with_self(uint32_t from, uint64_t to, uint32_t bytes, uint32_t cores, More... more) {
    core_to_core += bytes * cores;
    ::noc_async_write_multicast_loopback_src(from, to, bytes, cores, more...);
}

inline void store(uint32_t at) {
    volatile tt_l1_ptr uint32_t* counts = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(at);
    counts[0] = counts[0] + read;
    counts[1] = counts[1] + written;
    counts[2] = counts[2] + core_to_core;
    counts[3] = 1;
}

}  // namespace muse_cost

#define noc_async_read muse_cost::async_read
#define noc_async_read_page muse_cost::async_read_page
#define noc_async_write muse_cost::async_write
#define noc_async_write_page muse_cost::async_write_page
#define noc_async_write_multicast muse_cost::multicast
#define noc_async_write_multicast_loopback_src muse_cost::multicast_with_self
#define kernel_main muse_cost_main
// Other transfer functions would not be counted, so that their use is an error.
#pragma GCC poison noc_async_read_tile noc_async_read_shard noc_async_read_one_packet
#pragma GCC poison noc_async_read_set_state noc_async_read_one_packet_set_state
#pragma GCC poison noc_async_write_tile noc_async_write_shard noc_async_write_one_packet
#pragma GCC poison noc_async_write_one_packet_set_state noc_async_write_multicast_one_packet
#pragma GCC poison noc_inline_dw_write noc_inline_mcast_dw_write
