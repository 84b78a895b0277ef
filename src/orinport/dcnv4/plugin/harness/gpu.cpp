#include "harness/gpu.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>

#include "harness/cases.h"
#include "harness/say.h"

namespace harness {
namespace {

constexpr std::size_t kGUARD = 4096;       // bytes before and after every tensor
constexpr std::uint8_t kGUARD_BYTE = 0xFF;  // NaN in every float type, so a read beyond a tensor shows up too
constexpr std::uint8_t kPOISON = 0x7F;      // of the output before a run

void want(cudaError_t error, char const* what) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

class DeviceTensor {
public:
    explicit DeviceTensor(std::size_t size) : size_(size) {
        want(cudaMalloc(&base_, size + 2 * kGUARD), "cudaMalloc");
        want(cudaMemset(base_, kGUARD_BYTE, size + 2 * kGUARD), "cudaMemset");
    }
    DeviceTensor(DeviceTensor const&) = delete;
    DeviceTensor& operator=(DeviceTensor const&) = delete;
    ~DeviceTensor() { cudaFree(base_); }

    void* data() const { return static_cast<std::uint8_t*>(base_) + kGUARD; }
    void upload(Bytes const& bytes) const {
        want(cudaMemcpy(data(), bytes.data(), size_, cudaMemcpyHostToDevice), "upload");
    }
    void poison(cudaStream_t stream) const { want(cudaMemsetAsync(data(), kPOISON, size_, stream), "poison"); }
    Bytes download() const {
        Bytes bytes(size_);
        want(cudaMemcpy(bytes.data(), data(), size_, cudaMemcpyDeviceToHost), "download");
        return bytes;
    }
    bool guardsIntact() const {
        Bytes guards(2 * kGUARD);
        auto const* end = static_cast<std::uint8_t const*>(base_) + kGUARD + size_;
        want(cudaMemcpy(guards.data(), base_, kGUARD, cudaMemcpyDeviceToHost), "download");
        want(cudaMemcpy(guards.data() + kGUARD, end, kGUARD, cudaMemcpyDeviceToHost), "download");
        return std::all_of(guards.begin(), guards.end(), [](std::uint8_t byte) { return byte == kGUARD_BYTE; });
    }

private:
    void* base_{nullptr};
    std::size_t size_;
};

struct Stream {
    cudaStream_t handle{};
    Stream() { want(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "stream"); }
    Stream(Stream const&) = delete;
    Stream& operator=(Stream const&) = delete;
    ~Stream() { cudaStreamDestroy(handle); }
};

/// A case in device memory.
class Loaded {
public:
    explicit Loaded(Case const& source) : output_(outputBytes(source)) {
        for (CaseTensor const& input : source.inputs) {
            inputs_.push_back(std::make_unique<DeviceTensor>(input.data.size()));
            inputs_.back()->upload(input.data);
            descs_.push_back(input.desc);
            memory_.push_back(inputs_.back()->data());
        }
        outputDesc_.push_back(source.output);
        result_[0] = output_.data();
        // The streams of the runs do not wait for the default stream.
        want(cudaDeviceSynchronize(), "upload");
    }

    std::int32_t enqueue(Plugin& plugin, cudaStream_t stream) {
        return plugin.enqueue(descs_, outputDesc_, memory_.data(), result_, stream);
    }
    DeviceTensor const& output() const { return output_; }
    Descs const& descs() const { return descs_; }
    Descs const& outputDesc() const { return outputDesc_; }
    bool guardsIntact() const {
        return output_.guardsIntact() &&
               std::all_of(inputs_.begin(), inputs_.end(), [](auto const& input) { return input->guardsIntact(); });
    }

private:
    static std::size_t outputBytes(Case const& source) {
        return static_cast<std::size_t>(elements(source.output)) * elementSize(source.output.type);
    }

    std::vector<std::unique_ptr<DeviceTensor>> inputs_;
    DeviceTensor output_;
    Descs descs_, outputDesc_;
    std::vector<void const*> memory_;
    void* result_[1]{};
};

std::unique_ptr<Plugin> createFor(Case const& source, Descs const& inputs, Descs const& outputs) {
    auto const creator = findCreator(source.plugin);
    if (creator == nullptr) throw std::runtime_error("no creator of " + source.plugin);
    std::vector<std::int32_t> integers(source.fields.size());
    std::vector<float> reals(source.fields.size());
    std::vector<nvinfer1::PluginField> fields;
    for (std::size_t i = 0; i < source.fields.size(); ++i) {
        auto const& [name, value] = source.fields[i];
        bool const real = name == "offscale";
        if (real) {
            reals[i] = std::stof(value);
        } else {
            integers[i] = std::stoi(value);
        }
        void const* data = real ? static_cast<void const*>(&reals[i]) : &integers[i];
        auto const type = real ? nvinfer1::PluginFieldType::kFLOAT32 : nvinfer1::PluginFieldType::kINT32;
        fields.push_back({name.c_str(), data, type, 1});
    }
    nvinfer1::PluginFieldCollection const collection{static_cast<std::int32_t>(fields.size()), fields.data()};
    auto built = creator->create(&collection);
    if (built == nullptr || built->configure(inputs, outputs) != 0) return nullptr;
    // the way of an engine: built, serialized, read back
    return creator->deserialize(built->serialize());
}

/// The tactic in the serialized form: the one that a plugin without tactics found for itself.
int storedTactic(Plugin& plugin) {
    Bytes const bytes = plugin.serialize();
    return bytes.size() < 12 ? 0 : bytes[bytes.size() - 12] + 256 * bytes[bytes.size() - 11];
}

struct Error {
    double relative{0.0}, largest{0.0};
    bool within(Case const& source) const { return relative <= source.tolerance && largest <= source.maxError; }
};

Error compare(Case const& source, Bytes const& bytes) {
    auto const values = decode(source.output, bytes);
    Error error;
    double squares = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        double const difference = values[i] - source.reference[i];
        squares += difference * difference;
        norm += source.reference[i] * source.reference[i];
        error.largest = std::isnan(difference) ? INFINITY : std::max(error.largest, std::fabs(difference));
    }
    error.relative = std::isnan(squares) ? INFINITY : std::sqrt(squares / std::max(norm, 1e-300));
    return error;
}

class Runner {
public:
    Runner(Journal& journal, Case const& source) : journal_(journal), case_(source), first_(source), second_(source) {}

    int run() {
        auto const plugin = createFor(case_, first_.descs(), first_.outputDesc());
        if (plugin == nullptr) return fail("the plugin cannot be created");
        auto const shape = plugin->outputShape(shapes());
        if (!shape.has_value() || static_cast<std::size_t>(case_.output.dims.nbDims) != shape->size()) {
            return fail("no output shape");
        }
        for (std::size_t i = 0; i < shape->size(); ++i) {
            if ((*shape)[i] != case_.output.dims.d[i]) return fail("another output shape");
        }
        if (!supported(*plugin)) return fail("types are not offered");
        if (plugin->configure(first_.descs(), first_.outputDesc()) != 0) return fail("configure refuses");
        std::vector<std::int32_t> tactics = plugin->tactics();
        tactics.insert(tactics.begin(), 0);
        for (std::int32_t const tactic : tactics) runTactic(*plugin, tactic);
        runThreads(*plugin, tactics);
        return failures_;
    }

    /// How many were computed.
    int tactics() const { return static_cast<int>(results_.size()); }

private:
    int fail(std::string const& what) {
        for (auto const& message : journal_.take()) say("       %s\n", message.c_str());
        say("FAILED %s: %s\n", case_.name.c_str(), what.c_str());
        return ++failures_;
    }

    std::vector<Shape> shapes() const {
        std::vector<Shape> result;
        for (auto const& desc : first_.descs()) result.emplace_back(desc.dims.d, desc.dims.d + desc.dims.nbDims);
        return result;
    }

    bool supported(Plugin& plugin) const {
        Descs all = first_.descs();
        all.push_back(first_.outputDesc()[0]);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!plugin.supports(static_cast<std::int32_t>(i), all)) return false;
        }
        return true;
    }

    /// Eager run into poisoned memory.
    Bytes eager(Plugin& plugin, Loaded& loaded, cudaStream_t stream) const {
        loaded.output().poison(stream);
        if (loaded.enqueue(plugin, stream) != 0) throw std::runtime_error("enqueue fails");
        want(cudaStreamSynchronize(stream), "run");
        return loaded.output().download();
    }

    void runTactic(Plugin& plugin, std::int32_t tactic) {
        Stream const stream;
        std::string label = "tactic " + std::to_string(tactic);
        if (int const stored = storedTactic(plugin)) label += " (" + std::to_string(stored) + " in the engine)";
        if (plugin.setTactic(tactic) != 0) {
            fail(label + " is refused");
            return;
        }
        auto const context = plugin.attach(nullptr);
        if (context->setTactic(tactic) != 0) {
            fail(label + " is refused by a context");
            return;
        }
        Bytes result;
        try {
            result = eager(*context, first_, stream.handle);
        } catch (std::runtime_error const& error) {
            fail(label + ": " + error.what());
            return;
        }
        results_[tactic] = result;
        Error const error = compare(case_, result);
        if (!error.within(case_)) {
            char text[160];
            std::snprintf(text, sizeof text, ": error %.3g (at most %.3g), largest %.3g (at most %.3g)", error.relative,
                          case_.tolerance, error.largest, case_.maxError);
            fail(label + text);
            return;
        }
        if (!first_.guardsIntact()) {
            fail(label + " writes outside its tensors");
            return;
        }
        double const microseconds = replay(*context, stream.handle, label, result);
        say("ok     %s: %s: error %.2e, largest %.2e, %.2f us\n", case_.name.c_str(), label.c_str(), error.relative,
                    error.largest, microseconds);
    }

    /// Capture, replay into poisoned memory, compare; then the median time of a replay.
    double replay(Plugin& plugin, cudaStream_t stream, std::string const& label, Bytes const& expected) {
        cudaGraph_t graph{};
        cudaGraphExec_t executable{};
        want(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
        std::int32_t const status = first_.enqueue(plugin, stream);
        want(cudaStreamEndCapture(stream, &graph), "capture");
        if (status != 0) {
            fail(label + " fails under capture");
            return 0.0;
        }
#if CUDART_VERSION >= 12000
        want(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
#else
        want(cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0), "instantiate");
#endif
        first_.output().poison(stream);
        want(cudaGraphLaunch(executable, stream), "replay");
        want(cudaStreamSynchronize(stream), "replay");
        if (first_.output().download() != expected) fail(label + ": a replay gives another result");
        double const microseconds = time(executable, stream);
        want(cudaGraphExecDestroy(executable), "graph");
        want(cudaGraphDestroy(graph), "graph");
        return microseconds;
    }

    static double time(cudaGraphExec_t executable, cudaStream_t stream) {
        constexpr int kSAMPLES = 11, kREPLAYS = 10;
        cudaEvent_t begin{}, end{};
        want(cudaEventCreate(&begin), "event");
        want(cudaEventCreate(&end), "event");
        std::vector<double> samples;
        for (int sample = 0; sample < kSAMPLES; ++sample) {
            want(cudaEventRecord(begin, stream), "event");
            for (int i = 0; i < kREPLAYS; ++i) want(cudaGraphLaunch(executable, stream), "replay");
            want(cudaEventRecord(end, stream), "event");
            want(cudaEventSynchronize(end), "event");
            float milliseconds = 0.0F;
            want(cudaEventElapsedTime(&milliseconds, begin, end), "event");
            samples.push_back(1000.0 * static_cast<double>(milliseconds) / kREPLAYS);
        }
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
        std::nth_element(samples.begin(), samples.begin() + kSAMPLES / 2, samples.end());
        return samples[kSAMPLES / 2];
    }

    /// Two contexts of one plugin at once, each on its thread and stream, with its tactic; results as when alone.
    void runThreads(Plugin& plugin, std::vector<std::int32_t> const& tactics) {
        std::string problem[2];
        auto const work = [&](int number, Loaded& loaded, std::int32_t tactic) {
            try {
                Stream const stream;
                auto const context = plugin.attach(nullptr);
                context->setTactic(tactic);
                for (int i = 0; i < 10; ++i) {
                    if (eager(*context, loaded, stream.handle) != results_.at(tactic)) problem[number] = "another result";
                }
            } catch (std::exception const& error) {
                problem[number] = error.what();
            }
        };
        if (results_.count(tactics.front()) == 0 || results_.count(tactics.back()) == 0) return;
        std::thread one(work, 0, std::ref(first_), tactics.front());
        std::thread two(work, 1, std::ref(second_), tactics.back());
        one.join();
        two.join();
        for (auto const& text : problem) {
            if (!text.empty()) fail("two contexts: " + text);
        }
        if (problem[0].empty() && problem[1].empty()) say("ok     %s: two contexts\n", case_.name.c_str());
    }

    Journal& journal_;
    Case const& case_;
    Loaded first_, second_;
    std::map<std::int32_t, Bytes> results_;
    int failures_{0};
};

}  // namespace

bool haveGpu() {
    int count = 0;
    bool const have = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
    static_cast<void>(cudaGetLastError());
    return have;
}

int runCases(Journal& journal, std::string const& folder) {
    cudaDeviceProp properties{};
    want(cudaGetDeviceProperties(&properties, 0), "device");
    say("%s, compute capability %d.%d\n", properties.name, properties.major, properties.minor);
    int failures = 0, cases = 0, launches = 0;
    for (std::string const& line : readCaseLines(folder)) {
        try {
            Case const source = readCase(folder, line);
            Runner runner(journal, source);
            failures += runner.run();
            launches += runner.tactics();
            ++cases;
        } catch (MissingType const& missing) {
            say("skip   %s: %s\n", line.substr(0, line.find(' ')).c_str(), missing.what());
        }
        }
    return failures;
}

}  // namespace harness
