// Timing of launches on device memory of our own, for the choice of a tactic. Host code.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>

#include "core/operation.h"
#include "core/params.h"

namespace orinport::plugin {

/// Memory, stream and events, freed when it goes. After the first error everything else does nothing.
class Bench {
public:
    Bench() noexcept {
        keep(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        keep(cudaEventCreate(&begin_));
        keep(cudaEventCreate(&end_));
    }
    Bench(Bench const&) = delete;
    Bench& operator=(Bench const&) = delete;
    ~Bench() noexcept {
        for (void* memory : memory_) cudaFree(memory);
        if (end_ != nullptr) cudaEventDestroy(end_);
        if (begin_ != nullptr) cudaEventDestroy(begin_);
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
        static_cast<void>(cudaGetLastError());  // nobody else should stumble over our errors
    }

    bool ok() const noexcept { return error_ == cudaSuccess; }
    cudaStream_t stream() const noexcept { return stream_; }

    /// Memory of `elements` numbers, spread over (-2, 2) like values and offsets are. At most three times.
    void* numbers(ElementType type, std::int64_t elements) noexcept {
        constexpr std::size_t kBLOCK = 1 << 16;
        static thread_local std::uint8_t block[kBLOCK];
        fill(type, block, kBLOCK);
        auto const size = static_cast<std::size_t>(elements) * static_cast<std::size_t>(elementBytes(type));
        void* memory = nullptr;
        if (ok()) keep(cudaMalloc(&memory, size));
        if (!ok()) return nullptr;
        memory_[used_++] = memory;
        for (std::size_t at = 0; at < size && ok(); at += kBLOCK) {
            std::size_t const part = size - at < kBLOCK ? size - at : kBLOCK;
            keep(cudaMemcpyAsync(static_cast<char*>(memory) + at, block, part, cudaMemcpyHostToDevice, stream_));
        }
        if (ok()) keep(cudaStreamSynchronize(stream_));
        return memory;
    }

    /// Microseconds of one call of `work`, the latency of its launch included; negative after an error.
    template <typename Work>
    float once(Work const& work) noexcept {
        return time(work);
    }

    /// Microseconds of one call of `work` among many in a graph; negative after an error.
    template <typename Work>
    float replayed(Work const& work) noexcept {
        constexpr int kCALLS = 16, kSAMPLES = 3;
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        if (ok()) keep(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
        if (!ok()) return -1.0F;
        for (int i = 0; i < kCALLS && ok(); ++i) keep(work());
        cudaError_t const captured = cudaStreamEndCapture(stream_, &graph);
        keep(captured);
        if (ok()) keep(instantiate(executable, graph));
        auto const launch = [&] { return cudaGraphLaunch(executable, stream_); };
        float best = time(launch);  // warms up
        for (int sample = 0; sample < kSAMPLES; ++sample) {
            float const again = time(launch);
            if (sample == 0 || again < best) best = again;
        }
        if (executable != nullptr) keep(cudaGraphExecDestroy(executable));
        if (graph != nullptr) keep(cudaGraphDestroy(graph));
        return ok() ? best / kCALLS : -1.0F;
    }

private:
    void keep(cudaError_t error) noexcept {
        if (error_ == cudaSuccess) error_ = error;
    }

    static cudaError_t instantiate(cudaGraphExec_t& executable, cudaGraph_t graph) noexcept {
#if CUDART_VERSION >= 12000
        return cudaGraphInstantiate(&executable, graph, 0);
#else
        return cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0);
#endif
    }

    template <typename Work>
    float time(Work const& work) noexcept {
        if (ok()) keep(cudaEventRecord(begin_, stream_));
        if (ok()) keep(work());
        if (ok()) keep(cudaEventRecord(end_, stream_));
        if (ok()) keep(cudaEventSynchronize(end_));
        float milliseconds = 0.0F;
        if (ok()) keep(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return ok() ? 1000.0F * milliseconds : -1.0F;
    }

    static void fill(ElementType type, std::uint8_t* block, std::size_t size) noexcept {
        std::uint32_t state = 1;
        int const bytes = elementBytes(type);
        for (std::size_t at = 0; at < size; at += static_cast<std::size_t>(bytes)) {
            state = state * 1664525U + 1013904223U;
            float const number = static_cast<float>(static_cast<std::int32_t>(state)) / 1073741824.0F;
            std::uint32_t bits = 0;
            std::memcpy(&bits, &number, sizeof bits);
            if (type == ElementType::BFloat16) bits >>= 16U;
            if (type == ElementType::Float16) bits = halfBits(bits);
            if (type == ElementType::Int8) bits = state >> 24U;
            std::memcpy(block + at, &bits, static_cast<std::size_t>(bytes));
        }
    }

    /// A float32 of magnitude in [2^-14, 2^15] as float16, cut; smaller ones as zero.
    static std::uint32_t halfBits(std::uint32_t bits) noexcept {
        std::uint32_t const exponent = bits >> 23U & 0xFFU;
        if (exponent < 113U) return 0;
        return (bits >> 16U & 0x8000U) | ((exponent - 112U) << 10U) | (bits >> 13U & 0x3FFU);
    }

    cudaError_t error_{cudaSuccess};
    cudaStream_t stream_{nullptr};
    cudaEvent_t begin_{nullptr}, end_{nullptr};
    void* memory_[3]{};
    int used_{0};
};

}  // namespace orinport::plugin
