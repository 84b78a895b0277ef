// Element types, vector accesses and the arithmetic of one sample.
//
// 16-bit types are handled as bits and converted by single PTX instructions, so no CUDA header is needed.
#pragma once

#include "problem.h"

namespace orinport {
namespace dcnv4 {

using u32 = unsigned int;

#ifndef ORINPORT_EMULATE
__device__ __forceinline__ float half_low(u32 word) {
    float result;
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, a;}" : "=f"(result) : "r"(word));
    return result;
}
__device__ __forceinline__ float half_high(u32 word) {
    float result;
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, b;}" : "=f"(result) : "r"(word));
    return result;
}
__device__ __forceinline__ u32 pack_half(float low, float high) {
    u32 result;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}
__device__ __forceinline__ u32 pack_bfloat(float low, float high) {
    u32 result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}
__device__ __forceinline__ u32 half2_fma(u32 a, u32 b, u32 c) {
    u32 result;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}
__device__ __forceinline__ u32 half2_mul(u32 a, u32 b) {
    u32 result;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}
/// Start copying 16 bytes into shared memory, or write zeros if `valid` is false.
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid) {
    const u32 address = static_cast<u32>(__cvta_generic_to_shared(shared));
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(bytes) : "memory");
}
/// The address in shared memory by which barriers are called.
using SharedAddress = u32;
__device__ __forceinline__ SharedAddress shared_address(void* shared) {
    return static_cast<u32>(__cvta_generic_to_shared(shared));
}
/// A barrier in shared memory that `count` arrivals complete; its phases have parity 0, 1, 0, ...
__device__ __forceinline__ void barrier_init(SharedAddress address, u32 count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(SharedAddress address) {
    asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}" ::"r"(address) : "memory");
}
/// Arrive as soon as all copies that this thread has started are complete.
__device__ __forceinline__ void copy_async_arrive(SharedAddress address) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address) : "memory");
}
/// Wait until the phase with this parity is complete.
__device__ __forceinline__ void barrier_wait(SharedAddress address, u32 parity) {
    u32 complete = 0;
    while (!complete) {
#if __CUDA_ARCH__ >= 900
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(complete)
                     : "r"(address), "r"(parity)
                     : "memory");
#else
        asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(complete)
                     : "r"(address), "r"(parity)
                     : "memory");
#endif
    }
}
/// A number that the compiler cannot see through.
__device__ __forceinline__ u32 opaque(u32 number) {
    asm volatile("" : "+r"(number));
    return number;
}
__device__ __forceinline__ const char* opaque(const char* pointer) {
    asm volatile("" : "+l"(pointer));
    return pointer;
}
/// The next kernel of the stream may be launched beside this one if it says that it waits.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Wait until the previous kernel of the stream is complete, in a launch that may overlap it. Loads come after this by
/// being volatile: the compiler keeps their order.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void copy_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif

/// `number`, but not before `loaded` has been read; `zero` is 0, which the compiler must not know.
///
/// The compiler would otherwise spread loads over the arithmetic to save registers, and the latency of each would count.
__device__ __forceinline__ float after(float number, u32 loaded, int zero) {
    return __uint_as_float(__float_as_uint(number) | (loaded & static_cast<u32>(zero)));
}

struct F32 {
    static constexpr int kBytes = 4;
    static __device__ __forceinline__ float get(const u32* words, int i) { return __uint_as_float(words[i]); }
    static __device__ __forceinline__ u32 pack(const float* sums, int word) { return __float_as_uint(sums[word]); }
};
struct F16 {
    static constexpr int kBytes = 2;
    static __device__ __forceinline__ float get(const u32* words, int i) {
        return i & 1 ? half_high(words[i >> 1]) : half_low(words[i >> 1]);
    }
    static __device__ __forceinline__ u32 pack(const float* sums, int word) {
        return pack_half(sums[2 * word], sums[2 * word + 1]);
    }
};
struct BF16 {
    static constexpr int kBytes = 2;
    static __device__ __forceinline__ float get(const u32* words, int i) {
        return __uint_as_float(i & 1 ? words[i >> 1] & 0xffff0000u : words[i >> 1] << 16);
    }
    static __device__ __forceinline__ u32 pack(const float* sums, int word) {
        return pack_bfloat(sums[2 * word], sums[2 * word + 1]);
    }
};
struct I8 {
    static constexpr int kBytes = 1;
    // The byte plus 128 becomes the mantissa of 2^23, which is cheaper than a conversion.
    static __device__ __forceinline__ float get(const u32* words, int i) {
        return __uint_as_float(__byte_perm(words[i >> 2] ^ 0x80808080u, 0x4b000000u, 0x7650 + (i & 3))) - 8388736.0f;
    }
    static __device__ __forceinline__ u32 pack(const float* sums, int word) {
        u32 result = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int level = __float2int_rn(fminf(fmaxf(sums[4 * word + i], -128.0f), 127.0f));
            result |= static_cast<u32>(level & 0xff) << (8 * i);
        }
        return result;
    }
};

/// BYTES of consecutive channels in registers; fewer than 4 bytes lie in the low end of one word.
template <int BYTES>
struct Vector {
    static constexpr int kWords = BYTES < 4 ? 1 : BYTES / 4;
    u32 words[kWords];
};

#ifdef ORINPORT_EMULATE
template <int BYTES>
Vector<BYTES> load_global(const char* from) {
    if (reinterpret_cast<uintptr_t>(from) % (BYTES < 16 ? BYTES : 16)) std::abort();  // a GPU would fault
    Vector<BYTES> result{};
    if (emulation::may_read(from, BYTES)) std::memcpy(&result, from, BYTES);
    return result;
}
#endif

/// `valid ? *from : 0`. The reads of several calls stay in their order and ahead of what uses them.
template <int BYTES>
__device__ __forceinline__ Vector<BYTES> load_if(const char* from, bool valid) {
    Vector<BYTES> result;
#ifdef ORINPORT_EMULATE
    std::memset(&result, 0, sizeof(result));
    if (valid) result = load_global<BYTES>(from);
#else
    if constexpr (BYTES >= 16) {
#pragma unroll
        for (int i = 0; i < BYTES / 16; ++i) {
            u32* w = result.words + 4 * i;
            asm volatile(
                "{.reg .pred p; setp.ne.u32 p, %5, 0; mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;"
                " @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];}"
                : "=&r"(w[0]), "=&r"(w[1]), "=&r"(w[2]), "=&r"(w[3])
                : "l"(from + 16 * i), "r"(static_cast<u32>(valid))
                : "memory");
        }
    } else if constexpr (BYTES == 8) {
        asm volatile(
            "{.reg .pred p; setp.ne.u32 p, %3, 0; mov.u32 %0, 0; mov.u32 %1, 0; @p ld.global.v2.u32 {%0, %1}, [%2];}"
            : "=&r"(result.words[0]), "=&r"(result.words[1])
            : "l"(from), "r"(static_cast<u32>(valid))
                : "memory");
    } else if constexpr (BYTES == 4) {
        asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; mov.u32 %0, 0; @p ld.global.u32 %0, [%1];}"
                     : "=&r"(result.words[0])
                     : "l"(from), "r"(static_cast<u32>(valid))
                : "memory");
    } else if constexpr (BYTES == 2) {
        asm volatile(
            "{.reg .pred p; .reg .b16 h; setp.ne.u32 p, %2, 0; mov.b16 h, 0; @p ld.global.u16 h, [%1]; cvt.u32.u16 %0, h;}"
            : "=r"(result.words[0])
            : "l"(from), "r"(static_cast<u32>(valid))
            : "memory");
    } else {
        asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; mov.u32 %0, 0; @p ld.global.u8 %0, [%1];}"
                     : "=r"(result.words[0])
                     : "l"(from), "r"(static_cast<u32>(valid))
                     : "memory");
    }
#endif
    return result;
}

template <class T, int BYTES>
__device__ __forceinline__ void store_global(char* to, const float* sums) {
    if constexpr (BYTES >= 16) {
#pragma unroll
        for (int i = 0; i < BYTES / 16; ++i) {
            uint4 part;
            part.x = T::pack(sums, 4 * i);
            part.y = T::pack(sums, 4 * i + 1);
            part.z = T::pack(sums, 4 * i + 2);
            part.w = T::pack(sums, 4 * i + 3);
            reinterpret_cast<uint4*>(to)[i] = part;
        }
    } else if constexpr (BYTES == 8) {
        uint2 part;
        part.x = T::pack(sums, 0);
        part.y = T::pack(sums, 1);
        *reinterpret_cast<uint2*>(to) = part;
    } else if constexpr (BYTES == 4) {
        *reinterpret_cast<u32*>(to) = T::pack(sums, 0);
    } else {
        float padded[4] = {sums[0], 0.0f, 0.0f, 0.0f};
        const u32 word = T::pack(padded, 0);
        if constexpr (BYTES == 2) {
            *reinterpret_cast<unsigned short*>(to) = static_cast<unsigned short>(word);
        } else {
            *reinterpret_cast<unsigned char*>(to) = static_cast<unsigned char>(word);
        }
    }
}

/// One number of type T, of 2 or 4 bytes, at any aligned address; read in the order of the calls.
template <class T>
__device__ __forceinline__ float load_number(const char* from) {
    Vector<T::kBytes> number;
#ifdef ORINPORT_EMULATE
    number = load_global<T::kBytes>(from);
#else
    if constexpr (T::kBytes == 4) {
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(number.words[0]) : "l"(from) : "memory");
    } else {
        unsigned short half;
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(half) : "l"(from) : "memory");
        number.words[0] = half;
    }
#endif
    return T::get(number.words, 0);
}

/// A word of lane `source` of the SHARE lanes that this one belongs to.
template <int SHARE>
__device__ __forceinline__ u32 of_lane(u32 word, int source) {
    if constexpr (SHARE == 1) return word;
    return static_cast<u32>(__shfl_sync(0xffffffffu, static_cast<int>(word), source, SHARE));
}
/// The bits that are set in any of the SHARE lanes that this one belongs to.
template <int SHARE>
__device__ __forceinline__ u32 any_lane(u32 bits) {
    int all = static_cast<int>(bits);
#pragma unroll
    for (int mask = 1; mask < SHARE; mask *= 2) all |= __shfl_xor_sync(0xffffffffu, all, mask);
    return static_cast<u32>(all);
}

/// Integer part of base + coordinate, and fraction. The whole number `base` stays apart, so that rounding does not grow
/// with the size of the image.
///
/// Adding 1.5*2^23 with rounding towards minus infinity leaves the floor in the low bits, for |coordinate| < 2^22; all
/// other coordinates, infinities and NaN give an integer far outside of any image, and a fraction within [0, 1].
struct Place {
    u32 index;
    float fraction;
};

constexpr float kFloorShift = 12582912.0f;
constexpr int kFloorBits = 0x4b400000;

__device__ __forceinline__ Place locate(float coordinate, int base) {
    const float shifted = __fadd_rd(coordinate, kFloorShift);
    Place place;
    place.index = __float_as_uint(shifted) + static_cast<u32>(base - kFloorBits);  // may wrap around
    place.fraction = __saturatef(coordinate - (shifted - kFloorShift));
    return place;
}

/// Sums of one thread's channels over samples. EXACT: weights and sums in fp32.
template <class T, int BYTES, bool FAST>
struct Sums {
    static constexpr int kChannels = BYTES / T::kBytes;
    struct Weights {
        float corner[4];
    };
    float total[kChannels];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < kChannels; ++i) total[i] = 0.0f;
    }
    static __device__ __forceinline__ Weights weigh(float modulation, float fx, float fy) {
        Weights w;
        const float lower = modulation * fy;
        const float upper = modulation - lower;
        w.corner[1] = upper * fx;
        w.corner[0] = upper - w.corner[1];
        w.corner[3] = lower * fx;
        w.corner[2] = lower - w.corner[3];
        return w;
    }
    /// The weights of lane `source` of SHARE.
    template <int SHARE>
    static __device__ __forceinline__ Weights of_lane(const Weights& own, int source) {
        Weights w;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            w.corner[i] = __uint_as_float(dcnv4::of_lane<SHARE>(__float_as_uint(own.corner[i]), source));
        }
        return w;
    }
    __device__ __forceinline__ void add(const Weights& w, const u32* v00, const u32* v01, const u32* v10,
                                        const u32* v11, int first, int channels) {
#pragma unroll
        for (int i = 0; i < channels; ++i) {
            float sum = fmaf(w.corner[0], T::get(v00, i), total[first + i]);
            sum = fmaf(w.corner[1], T::get(v01, i), sum);
            sum = fmaf(w.corner[2], T::get(v10, i), sum);
            total[first + i] = fmaf(w.corner[3], T::get(v11, i), sum);
        }
    }
};

/// FAST, fp16 only: the four corners of a sample are combined in fp16 pairs, samples are summed in fp32.
template <int BYTES>
struct Sums<F16, BYTES, true> {
    static constexpr int kChannels = BYTES / 2;
    struct Weights {
        u32 upper, lower;  // weights of the left and the right corner
        float modulation;
    };
    float total[kChannels];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < kChannels; ++i) total[i] = 0.0f;
    }
    static __device__ __forceinline__ Weights weigh(float modulation, float fx, float fy) {
        Weights w;
        const float upper = 1.0f - fy;
        const float upper_right = upper * fx;
        const float lower_right = fy * fx;
        w.upper = pack_half(upper - upper_right, upper_right);
        w.lower = pack_half(fy - lower_right, lower_right);
        w.modulation = modulation;
        return w;
    }
    template <int SHARE>
    static __device__ __forceinline__ Weights of_lane(const Weights& own, int source) {
        Weights w;
        w.upper = dcnv4::of_lane<SHARE>(own.upper, source);
        w.lower = dcnv4::of_lane<SHARE>(own.lower, source);
        w.modulation = __uint_as_float(dcnv4::of_lane<SHARE>(__float_as_uint(own.modulation), source));
        return w;
    }
    __device__ __forceinline__ void add(const Weights& w, const u32* v00, const u32* v01, const u32* v10,
                                        const u32* v11, int first, int channels) {
        const u32 w00 = __byte_perm(w.upper, 0u, 0x1010), w01 = __byte_perm(w.upper, 0u, 0x3232);
        const u32 w10 = __byte_perm(w.lower, 0u, 0x1010), w11 = __byte_perm(w.lower, 0u, 0x3232);
#pragma unroll
        for (int i = 0; i < channels / 2; ++i) {
            u32 sample = half2_mul(w00, v00[i]);
            sample = half2_fma(w01, v01[i], sample);
            sample = half2_fma(w10, v10[i], sample);
            sample = half2_fma(w11, v11[i], sample);
            total[first + 2 * i] = fmaf(w.modulation, half_low(sample), total[first + 2 * i]);
            total[first + 2 * i + 1] = fmaf(w.modulation, half_high(sample), total[first + 2 * i + 1]);
        }
        if (channels == 1) {
            u32 sample = half2_mul(w00, v00[0]);
            sample = half2_fma(w01, v01[0], sample);
            sample = half2_fma(w10, v10[0], sample);
            sample = half2_fma(w11, v11[0], sample);
            total[first] = fmaf(w.modulation, half_low(sample), total[first]);
        }
    }
};

/// Eight bytes; not before what is volatile and stands above.
__device__ __forceinline__ void load_piece(const char* from, u32& first, u32& second) {
#ifdef ORINPORT_EMULATE
    const Vector<8> piece = load_global<8>(from);
    first = piece.words[0];
    second = piece.words[1];
#else
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "l"(from));
#endif
}

/// Two bytes in the low half of a word; not before what is volatile and stands above.
__device__ __forceinline__ u32 load_half(const char* from) {
#ifdef ORINPORT_EMULATE
    return load_global<2>(from).words[0];
#else
    u32 half;
    asm volatile("ld.global.u16 %0, [%1];" : "=r"(half) : "l"(from));
    return half;
#endif
}

/// Of one column of a 3x3 kernel, in pieces of 8 bytes: six numbers of 2 bytes from `offset` on, three from `modulations` on. A
/// piece is read only if it holds one of them.
__device__ __forceinline__ void load_column(const char* offset, const char* modulations, u32* places, u32* factors) {
    const u32 shift = static_cast<u32>(reinterpret_cast<unsigned long long>(offset)) & 7u;
    const u32 turn = static_cast<u32>(reinterpret_cast<unsigned long long>(modulations)) & 7u;
    u32 w[6], m[4];
    load_piece(offset - shift, w[0], w[1]);
    load_piece(modulations - turn, m[0], m[1]);
    load_piece(offset - shift + 8, w[2], w[3]);
    const Vector<8> last = load_if<8>(offset - shift + 16, shift == 6u);
    const Vector<8> more = load_if<8>(modulations - turn + 8, turn >= 4u);
    w[4] = last.words[0];
    m[2] = more.words[0];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = shift & 4u ? w[i + 1] : w[i];
#pragma unroll
    for (int i = 0; i < 2; ++i) m[i] = turn & 4u ? m[i + 1] : m[i];
    const u32 selector = shift & 2u ? 0x5432u : 0x3210u, other = turn & 2u ? 0x5432u : 0x3210u;
#pragma unroll
    for (int i = 0; i < 3; ++i) places[i] = __byte_perm(w[i], w[i + 1], selector);
    factors[0] = __byte_perm(m[0], m[1], other);
    factors[1] = __byte_perm(m[1], m[1], other);
}

/// A tap of a 3x3 kernel: its place in the kernel and its three numbers.
struct Tap {
    float column, row, dx, dy, modulation;
};

/// The 27 numbers of one group of a 3x3 kernel, fetched in pieces of 8 bytes; rows start at multiples of 8 bytes.
template <class O>
struct NineTaps {
    static constexpr bool kPairs = O::kBytes == 2;
    static constexpr int kPieces = kPairs ? 8 : 14;
    u32 words[2 * kPieces];

    /// Bytes from the piece that holds the first number to that number.
    static __device__ __forceinline__ u32 shift_of(const char* from) {
        return static_cast<u32>(reinterpret_cast<unsigned long long>(from)) & 7u;
    }
    /// `from` points to the first number. A piece is read only if it holds a number of the group.
    __device__ __forceinline__ void load(const char* from) { load(from - shift_of(from), shift_of(from)); }
    __device__ __forceinline__ void load(const char* first_piece, u32 shift) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            if (kPairs && i == 7 && shift < 4u) {
                words[14] = words[15] = 0u;
                continue;
            }
            load_piece(first_piece + 8 * i, words[2 * i], words[2 * i + 1]);
        }
    }
    /// Undo the misalignment of the group that starts at `from`.
    __device__ __forceinline__ void align(const char* from) { align(shift_of(from)); }
    __device__ __forceinline__ void align(u32 shift) {
        const bool odd_word = shift & 4u;
#pragma unroll
        for (int i = 0; i + 1 < 2 * kPieces; ++i) words[i] = odd_word ? words[i + 1] : words[i];
        if constexpr (kPairs) {
            const u32 selector = shift & 2u ? 0x5432u : 0x3210u;
#pragma unroll
            for (int i = 0; i < 14; ++i) words[i] = __byte_perm(words[i], words[i + 1], selector);
        }
    }
    /// Read the group whose first number is at `from`, in shared memory; of 4 bytes each.
    __device__ __forceinline__ void read_shared(const char* from) {
        static_assert(!kPairs, "pairs lie at odd addresses");
#pragma unroll
        for (int i = 0; i < 27; ++i) words[i] = reinterpret_cast<const u32*>(from)[i];
        words[27] = 0u;
    }
    __device__ __forceinline__ float dx(int tap) const { return O::get(words, 2 * tap); }
    __device__ __forceinline__ float dy(int tap) const { return O::get(words, 2 * tap + 1); }
    __device__ __forceinline__ float modulation(int tap) const { return O::get(words, 18 + tap); }
};

/// The taps that one of SHARE lanes prepares: lane `part` has taps part, part + SHARE, ..., and all lanes the last one. `begin` is
/// called once with the address of the group's first number in any row.
///
/// All nine are read, in pieces of 8 bytes, and the lane's chosen from them; four lanes read 2-byte numbers one by one (ALONE).
template <class O, int SHARE, bool ALONE = SHARE == 4 && O::kBytes == 2>
struct OwnTaps {
    NineTaps<O> nine;
    u32 shift;

    __device__ __forceinline__ void begin(const char* from, int) { shift = NineTaps<O>::shift_of(from); }
    __device__ __forceinline__ void load(const char* from) { nine.load(from - shift, shift); }
    __device__ __forceinline__ void align() { nine.align(shift); }
    __device__ __forceinline__ void read_shared(const char* from) { nine.read_shared(from); }

    /// Tap first + part, part being below SHARE; behind the last tap its place, with a modulation that means nothing.
    __device__ __forceinline__ Tap tap_of(int first, int part) const {
        constexpr bool kPairs = NineTaps<O>::kPairs;
        constexpr int kWords = kPairs ? 1 : 2;
        const u32* words = nine.words;
        const auto factor_of = [words](int tap) { return words[kPairs ? 9 + tap / 2 : 18 + tap]; };
        Tap tap;
        tap.column = static_cast<float>(first / 3);
        tap.row = static_cast<float>(first % 3);
        u32 factor = factor_of(first), offset[kWords];
        int half = kPairs ? first % 2 : 0;
#pragma unroll
        for (int i = 0; i < kWords; ++i) offset[i] = words[kWords * first + i];
        if constexpr (SHARE > 1) {
#pragma unroll
            for (int s = 1; s < SHARE; ++s) {
                if (first + s > 8) break;
                const bool reached = part >= s;
                tap.column = reached ? static_cast<float>((first + s) / 3) : tap.column;
                tap.row = reached ? static_cast<float>((first + s) % 3) : tap.row;
                if (!kPairs || s % 2 == 0) factor = reached ? factor_of(first + s) : factor;
#pragma unroll
                for (int i = 0; i < kWords; ++i) offset[i] = reached ? words[kWords * (first + s) + i] : offset[i];
            }
            if (kPairs) factor = __byte_perm(factor, 0u, part & 1 ? 0x3232u : 0x1010u);
        }
        tap.dx = O::get(offset, 0);
        tap.dy = O::get(offset, 1);
        tap.modulation = O::get(&factor, half);
        return tap;
    }
};

template <class O, int SHARE>
struct OwnTaps<O, SHARE, true> {
    static_assert(9 % SHARE == 1, "the last tap is every lane's");
    static constexpr int kRounds = 9 / SHARE + 1;
    int own;  // bytes of a lane's offset from the first one
    u32 dx[kRounds], dy[kRounds], factor[kRounds];

    __device__ __forceinline__ void begin(const char*, int part) { own = part * 2 * O::kBytes; }
    __device__ __forceinline__ void load(const char* from) {
        const char* offsets = from + own;
        const char* factors = from + own / 2;
#pragma unroll
        for (int i = 0; i + 1 < kRounds; ++i) {
            dx[i] = load_half(offsets + i * SHARE * 2 * O::kBytes);
            dy[i] = load_half(offsets + (i * SHARE * 2 + 1) * O::kBytes);
            factor[i] = load_half(factors + (18 + i * SHARE) * O::kBytes);
        }
        dx[kRounds - 1] = load_half(from + 16 * O::kBytes);
        dy[kRounds - 1] = load_half(from + 17 * O::kBytes);
        factor[kRounds - 1] = load_half(from + 26 * O::kBytes);
    }
    __device__ __forceinline__ void align() const {}
    __device__ __forceinline__ Tap tap_of(int first, int part) const {
        Tap tap;
        tap.column = static_cast<float>(first / 3);
        tap.row = static_cast<float>(first % 3);
#pragma unroll
        for (int s = 1; s < SHARE && first + s < 9; ++s) {
            tap.column = part >= s ? static_cast<float>((first + s) / 3) : tap.column;
            tap.row = part >= s ? static_cast<float>((first + s) % 3) : tap.row;
        }
        tap.dx = O::get(dx + first / SHARE, 0);
        tap.dy = O::get(dy + first / SHARE, 0);
        tap.modulation = O::get(factor + first / SHARE, 0);
        return tap;
    }
};

/// Where the taps lie before offsets are added, relative to an output pixel: left + column*step_x + scale*dx.
struct Grid {
    float left, top, scale, step_x, step_y;

    __device__ __forceinline__ explicit Grid(const Params& p) {
        scale = p.offset_scale;
        left = -scale * static_cast<float>((p.dilation_w * (p.kernel_w - 1)) >> 1);
        top = -scale * static_cast<float>((p.dilation_h * (p.kernel_h - 1)) >> 1);
        step_x = scale * static_cast<float>(p.dilation_w);
        step_y = scale * static_cast<float>(p.dilation_h);
    }
    __device__ __forceinline__ float x(float column, float dx) const { return fmaf(scale, dx, fmaf(column, step_x, left)); }
    __device__ __forceinline__ float y(float row, float dy) const { return fmaf(scale, dy, fmaf(row, step_y, top)); }
    __device__ __forceinline__ float x(int column, float dx) const { return x(static_cast<float>(column), dx); }
    __device__ __forceinline__ float y(int row, float dy) const { return y(static_cast<float>(row), dy); }
};

/// The column and row of value at the centre of the taps of an output column and row.
__device__ __forceinline__ int centre_x(const Params& p, int column) {
    return column * p.stride_w - p.pad_w + ((p.dilation_w * (p.kernel_w - 1)) >> 1);
}
__device__ __forceinline__ int centre_y(const Params& p, int row) {
    return row * p.stride_h - p.pad_h + ((p.dilation_h * (p.kernel_h - 1)) >> 1);
}

/// Call `visit(x, y, modulation)` for every tap of one group, in the order of the packing.
template <class O, class Visit>
__device__ __forceinline__ void visit_taps(const Params& p, const Grid& grid, const char* numbers, Visit visit) {
    const int centre_w = p.kernel_w / 2, centre_h = p.kernel_h / 2;
    const int taps = p.kernel_w * p.kernel_h - (p.remove_center ? 1 : 0);
    const char* offset = numbers;
    const char* modulation = numbers + 2 * taps * O::kBytes;
    for (int i = 0; i < p.kernel_w; ++i) {
        for (int j = 0; j < p.kernel_h; ++j) {
            if (p.remove_center && i == centre_w && j == centre_h) continue;
            const float x = grid.x(i, load_number<O>(offset));
            const float y = grid.y(j, load_number<O>(offset + O::kBytes));
            visit(x, y, load_number<O>(modulation));
            offset += 2 * O::kBytes;
            modulation += O::kBytes;
        }
    }
}

}  // namespace dcnv4
}  // namespace orinport
