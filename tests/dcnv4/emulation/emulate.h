// Runs CUDA kernels as C++ on a CPU: one block at a time, one coroutine a thread, switched at barriers and shuffles.
// Enough of CUDA for the kernels' sources to compile unchanged. Shared memory holds NaN before each block.
#pragma once

#include <ucontext.h>

#include <cfenv>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __global__ inline
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct float4 {
    float x, y, z, w;
};
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline dim3 threadIdx{0, 0, 0}, blockIdx{0, 0, 0}, blockDim, gridDim;

inline float __int_as_float(int bits) {
    float result;
    std::memcpy(&result, &bits, 4);
    return result;
}
inline int __float_as_int(float number) {
    int result;
    std::memcpy(&result, &number, 4);
    return result;
}
inline float __uint_as_float(unsigned bits) { return __int_as_float(static_cast<int>(bits)); }
inline unsigned __float_as_uint(float number) { return static_cast<unsigned>(__float_as_int(number)); }
inline float __saturatef(float number) { return number > 0.0f ? (number < 1.0f ? number : 1.0f) : 0.0f; }
inline int __float2int_rn(float number) { return static_cast<int>(std::nearbyint(number)); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline float __fadd_rd(float a, float b) {
    const double sum = static_cast<double>(a) + static_cast<double>(b);
    float rounded = static_cast<float>(sum);
    if (static_cast<double>(rounded) > sum) rounded = std::nextafterf(rounded, -INFINITY);
    return rounded;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const uint64_t bytes = (static_cast<uint64_t>(high) << 32) | low;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>((bytes >> (8 * ((selector >> (4 * i)) & 7))) & 0xff) << (8 * i);
    return result;
}
template <class A, class B>
auto min(A a, B b) -> decltype(a + b) {
    return a < b ? a : b;
}
template <class A, class B>
auto max(A a, B b) -> decltype(a + b) {
    return a > b ? a : b;
}
template <class T>
T atomicAdd(T* to, T number) {
    const T before = *to;
    *to += number;
    return before;
}
inline long long __double2ll_rn(double number) { return std::llrint(number); }

namespace emulation {
/// Global memory that a kernel may read; empty if that is not checked.
struct Range {
    const char *begin, *end;
};
inline std::vector<Range> readable;
inline bool read_outside;  // what a kernel reads elsewhere is not read, but noted here
inline bool may_read(const void* from, size_t bytes) {
    const char* first = static_cast<const char*>(from);
    bool inside = readable.empty();
    for (const Range& range : readable) inside |= first >= range.begin && first + bytes <= range.end;
    read_outside |= !inside;
    return inside;
}

/// Where all threads of a block, or of a warp, wait for each other.
struct Meeting {
    unsigned arrived = 0, generation = 0;
};
struct Block {
    ucontext_t scheduler;
    std::vector<ucontext_t> threads;
    std::vector<std::vector<char>> stacks;
    std::vector<char> finished;
    std::vector<float> exchange;
    std::function<void()> body;
    Meeting everyone;
    std::vector<Meeting> warps;
    unsigned current = 0;
};
inline Block block;

inline unsigned thread_number() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
inline void pause() { swapcontext(&block.threads[block.current], &block.scheduler); }
inline void enter() {
    block.body();
    block.finished[block.current] = 1;
}

inline void meet(Meeting& meeting) {
    const dim3 mine = threadIdx;
    const unsigned generation = meeting.generation;
    ++meeting.arrived;
    do pause();
    while (meeting.generation == generation);
    threadIdx = mine;
}
inline Meeting& own_warp() { return block.warps[block.current / 32]; }
/// Let threads [first, last) go on if all of them that still run have arrived.
inline void release(Meeting& meeting, unsigned first, unsigned last) {
    unsigned running = 0;
    for (unsigned i = first; i < last; ++i) running += !block.finished[i];
    if (meeting.arrived == 0 || meeting.arrived < running) return;
    meeting.arrived = 0;
    ++meeting.generation;
}

/// Run one block; threads advance from one wait to the next in turn.
inline void run_block(const std::function<void()>& body) {
    const unsigned count = blockDim.x * blockDim.y * blockDim.z;
    block.body = body;
    block.threads.resize(count);
    block.finished.assign(count, 0);
    block.exchange.assign(count + 32, 0.0f);
    block.everyone = {};
    block.warps.assign(count / 32 + 1, {});
    while (block.stacks.size() < count) block.stacks.emplace_back(64 * 1024);
    for (unsigned i = 0; i < count; ++i) {
        getcontext(&block.threads[i]);
        block.threads[i].uc_stack.ss_sp = block.stacks[i].data();
        block.threads[i].uc_stack.ss_size = block.stacks[i].size();
        block.threads[i].uc_link = &block.scheduler;
        makecontext(&block.threads[i], enter, 0);
    }
    unsigned rounds = 0;
    for (bool running = true; running;) {
        running = false;
        if (++rounds > 1000000) { std::fputs("the block does not end: a deadlock\n", stderr); std::abort(); }
        for (unsigned i = 0; i < count; ++i) {
            if (block.finished[i]) continue;
            running = true;
            block.current = i;
            threadIdx.x = i % blockDim.x;
            threadIdx.y = i / blockDim.x;
            threadIdx.z = 0;
            swapcontext(&block.scheduler, &block.threads[i]);
        }
        release(block.everyone, 0, count);
        for (unsigned i = 0; i < count; i += 32) release(block.warps[i / 32], i, std::min(i + 32, count));
    }
}
}  // namespace emulation

inline void __syncthreads() { emulation::meet(emulation::block.everyone); }
inline void __syncwarp() { emulation::meet(emulation::own_warp()); }
namespace emulation {
/// What lane `source` of the warp gives.
inline float exchange(float number, unsigned source) {
    const unsigned me = thread_number();
    block.exchange[me] = number;
    __syncwarp();
    const float other = block.exchange[(me & ~31u) + source];
    __syncwarp();
    return other;
}
}  // namespace emulation
inline int __shfl_sync(unsigned, int number, int lane, int width = 32) {
    const unsigned first = emulation::thread_number() & 31u & ~(static_cast<unsigned>(width) - 1u);
    return __float_as_int(emulation::exchange(__int_as_float(number), first + static_cast<unsigned>(lane)));
}
inline int __any_sync(unsigned, bool mine) {
    const unsigned me = emulation::thread_number(), first = me & ~31u;
    const unsigned count = std::min(32u, blockDim.x * blockDim.y * blockDim.z - first);
    bool any = false;
    for (unsigned i = 0; i < count; ++i) any |= emulation::exchange(mine ? 1.0f : 0.0f, i) != 0.0f;
    return any;
}
inline float __shfl_xor_sync(unsigned, float number, int mask) {
    return emulation::exchange(number, (emulation::thread_number() & 31u) ^ static_cast<unsigned>(mask));
}
inline int __shfl_xor_sync(unsigned every, int number, int mask) {
    return __float_as_int(__shfl_xor_sync(every, __int_as_float(number), mask));
}

namespace orinport {
namespace dcnv4 {

using u32 = unsigned int;

alignas(128) inline uint4 shared_memory[232448 / 16 + 1024];  // and a zone behind, which stays as it is

inline float half_low(u32 word) { return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(word))); }
inline float half_high(u32 word) { return half_low(word >> 16); }
inline u32 pack_half(float low, float high) {
    const auto bits = [](float f) { return static_cast<u32>(__builtin_bit_cast(uint16_t, static_cast<_Float16>(f))); };
    return bits(low) | bits(high) << 16;
}
inline u32 pack_bfloat(float low, float high) {
    const auto bits = [](float f) {
        const u32 word = __float_as_uint(f);
        if (f != f) return 0x7fffu;
        return (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    };
    return bits(low) | bits(high) << 16;
}
inline u32 half2_fma(u32 a, u32 b, u32 c) {
    // The product of two fp16 numbers is exact in fp64, and so is the sum up to one rounding far below fp16's.
    const auto fma16 = [](float x, float y, float z) {
        return static_cast<float>(static_cast<_Float16>(static_cast<double>(x) * y + z));
    };
    return pack_half(fma16(half_low(a), half_low(b), half_low(c)), fma16(half_high(a), half_high(b), half_high(c)));
}
inline u32 half2_mul(u32 a, u32 b) { return half2_fma(a, b, 0x80008000u); }
inline void copy_async(void* shared, const void* global, bool valid) {
    if (reinterpret_cast<uintptr_t>(global) % 16) std::abort();
    if (valid && emulation::may_read(global, 16)) {
        std::memcpy(shared, global, 16);
    } else {
        std::memset(shared, 0, 16);
    }
}
inline void copy_async_wait() {}
inline void let_next_start() {}
inline void wait_for_previous() {}
using SharedAddress = char*;
inline SharedAddress shared_address(char* shared) { return shared; }
inline SharedAddress opaque(SharedAddress address) { return address; }
struct Barrier {
    unsigned short pending, phase, count;
};
inline void barrier_init(SharedAddress barrier, u32 count) {
    const auto number = static_cast<unsigned short>(count);
    *reinterpret_cast<Barrier*>(barrier) = {number, 0, number};
}
inline void barrier_arrive(SharedAddress barrier) {
    auto* b = reinterpret_cast<Barrier*>(barrier);
    if (--b->pending == 0) {
        b->pending = b->count;
        ++b->phase;
    }
}
inline void copy_async_arrive(SharedAddress barrier) { barrier_arrive(barrier); }
inline void barrier_wait(SharedAddress barrier, u32 parity) {
    const dim3 mine = threadIdx;
    while ((reinterpret_cast<Barrier*>(barrier)->phase & 1u) == parity) emulation::pause();
    threadIdx = mine;
}
inline u32 opaque(u32 number) { return number; }
inline const char* opaque(const char* pointer) { return pointer; }

}  // namespace dcnv4
}  // namespace orinport
