// A library behind NVIDIA's own Python bindings that is not TensorRT: it notes what is asked of a builder, and an "engine"
// of it computes max(x, 0) byte by byte. It shows that our calls pass the bindings' own conversions; it is no TensorRT.
// `defaults.h` is made from the headers: for each abstract class V* a class D* in which every function does nothing.
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "NvInfer.h"
#include "defaults.h"

using namespace nvinfer1;

static std::string noted;
static ILogger* logger;

template <typename... Values>
static void note(Values const&... values)
{
    std::ostringstream line;
    using expand = int[];
    (void) expand{0, ((line << values << ' '), 0)...};
    noted += line.str() + "\n";
}

extern "C" char const* standin_noted() { return noted.c_str(); }

struct Memory : IHostMemory, DHostMemory
{
    std::string content;
    explicit Memory(std::string text) : content(std::move(text)) { mImpl = this; }
    void* data() const noexcept override { return const_cast<char*>(content.data()); }
    std::size_t size() const noexcept override { return content.size(); }
    DataType type() const noexcept override { return DataType::kINT8; }
};

struct Entry
{
    std::string name;
    bool input;
    DataType type;
    TensorFormat format;
    Dims dims;
    std::size_t bytes;
};

struct Engine;

struct Context : IExecutionContext, DExecutionContext
{
    Engine* engine;
    std::map<std::string, void*> places;
    explicit Context(Engine* of) : engine(of) { mImpl = this; }
    bool setTensorAddress(char const* name, void* place) noexcept override
    {
        places[name] = place;
        return place != nullptr;
    }
    bool enqueueV3(cudaStream_t stream) noexcept override;
};

struct Engine : ICudaEngine, DCudaEngine
{
    std::vector<Entry> entries;
    Engine() { mImpl = this; }
    Entry const& at(char const* name) const
    {
        for (auto const& entry : entries)
            if (entry.name == name)
                return entry;
        return entries.at(0);
    }
    int32_t getNbIOTensors() const noexcept override { return static_cast<int32_t>(entries.size()); }
    char const* getIOTensorName(int32_t index) const noexcept override { return entries[index].name.c_str(); }
    TensorIOMode getTensorIOMode(char const* name) const noexcept override
    {
        return at(name).input ? TensorIOMode::kINPUT : TensorIOMode::kOUTPUT;
    }
    Dims getTensorShape(char const* name) const noexcept override { return at(name).dims; }
    DataType getTensorDataType(char const* name) const noexcept override { return at(name).type; }
    TensorFormat getTensorFormat(char const* name) const noexcept override { return at(name).format; }
    TensorLocation getTensorLocation(char const*) const noexcept override { return TensorLocation::kDEVICE; }
    IExecutionContext* createExecutionContext(ExecutionContextAllocationStrategy) noexcept override
    {
        return new Context(this);
    }
};

bool Context::enqueueV3(cudaStream_t stream) noexcept
{
    if (stream == nullptr)
        return false;
    auto const* from = static_cast<signed char const*>(places[engine->entries[0].name]);
    auto* to = static_cast<signed char*>(places[engine->entries[1].name]);
    for (std::size_t i = 0; i < engine->entries[1].bytes; ++i)
        to[i] = from[i] > 0 ? from[i] : 0;
    return true;
}

struct Runtime : IRuntime, DRuntime
{
    Runtime() { mImpl = this; }
    int32_t getNbDLACores() const noexcept override { return 2; }
    void setDLACore(int32_t core) noexcept override { note("runtime core", core); }
    ICudaEngine* deserializeCudaEngine(void const* blob, std::size_t size) noexcept override
    {
        std::istringstream lines(std::string(static_cast<char const*>(blob), size));
        auto* engine = new Engine;
        std::string kind, name;
        int type, format;
        while (lines >> kind >> name >> type >> format)
        {
            Entry entry{name, kind == "in", static_cast<DataType>(type), static_cast<TensorFormat>(format), {}, 0};
            lines >> entry.bytes >> entry.dims.nbDims;
            for (int32_t i = 0; i < entry.dims.nbDims && i < Dims::MAX_DIMS; ++i)
                lines >> entry.dims.d[i];
            engine->entries.push_back(entry);
        }
        if (engine->entries.size() == 2)
            return engine;
        delete engine;
        logger->log(ILogger::Severity::kERROR, "this is no engine of the stand-in");
        return nullptr;
    }
};

struct Tensor : ITensor, DTensor
{
    std::string name;
    DataType type{DataType::kFLOAT};
    explicit Tensor(char const* called) : name(called) { mImpl = this; }
    char const* getName() const noexcept override { return name.c_str(); }
    void setType(DataType value) noexcept override
    {
        type = value;
        note(name, "type", static_cast<int>(value));
    }
    DataType getType() const noexcept override { return type; }
    void setAllowedFormats(TensorFormats formats) noexcept override { note(name, "formats", formats); }
    bool setDynamicRange(float low, float high) noexcept override
    {
        note(name, "range", low, high);
        return true;
    }
};

struct Layer : IIdentityLayer, DLayer
{
    Layer() { mLayer = this; }
    LayerType getType() const noexcept override { return LayerType::kIDENTITY; }
    char const* getName() const noexcept override { return "relu"; }
    void setPrecision(DataType type) noexcept override { note("relu precision", static_cast<int>(type)); }
};

struct Network : INetworkDefinition, DNetworkDefinition
{
    Tensor in{"x"}, out{"y"};
    Layer layer;
    Network() { mImpl = this; }
    int32_t getNbLayers() const noexcept override { return 1; }
    ILayer* getLayer(int32_t) const noexcept override { return const_cast<Layer*>(&layer); }
    int32_t getNbInputs() const noexcept override { return 1; }
    ITensor* getInput(int32_t) const noexcept override { return const_cast<Tensor*>(&in); }
    int32_t getNbOutputs() const noexcept override { return 1; }
    ITensor* getOutput(int32_t) const noexcept override { return const_cast<Tensor*>(&out); }
};

struct Cache : ITimingCache, DTimingCache
{
    std::string content;
    explicit Cache(std::string text) : content(std::move(text)) { mImpl = this; }
    IHostMemory* serialize() const noexcept override { return new Memory(content + "+timed"); }
};

struct Config : IBuilderConfig, DBuilderConfig
{
    Cache const* cache{nullptr};
    IInt8Calibrator* calibrator{nullptr};
    IProgressMonitor* monitor{nullptr};
    Config() { mImpl = this; }
    void setFlag(BuilderFlag flag) noexcept override { note("flag", static_cast<int>(flag)); }
    void clearFlag(BuilderFlag flag) noexcept override { note("no flag", static_cast<int>(flag)); }
    void setDefaultDeviceType(DeviceType type) noexcept override { note("device", static_cast<int>(type)); }
    void setDLACore(int32_t core) noexcept override { note("core", core); }
    void setEngineCapability(EngineCapability value) noexcept override { note("capability", static_cast<int>(value)); }
    void setMemoryPoolLimit(MemoryPoolType pool, std::size_t size) noexcept override
    {
        note("pool", static_cast<int>(pool), size);
    }
    void setProfilingVerbosity(ProfilingVerbosity value) noexcept override { note("verbosity", static_cast<int>(value)); }
    void setBuilderOptimizationLevel(int32_t level) noexcept override { note("level", level); }
    void setAvgTimingIterations(int32_t number) noexcept override { note("timing", number); }
    void setDeviceType(ILayer const* layer, DeviceType type) noexcept override
    {
        note(layer->getName(), "device", static_cast<int>(type));
    }
    void setInt8Calibrator(IInt8Calibrator* value) noexcept override { calibrator = value; }
    IInt8Calibrator* getInt8Calibrator() const noexcept override { return calibrator; }
    void setProgressMonitor(IProgressMonitor* value) noexcept override { monitor = value; }
    IProgressMonitor* getProgressMonitor() const noexcept override { return monitor; }
    ITimingCache* createTimingCache(void const* blob, std::size_t size) const noexcept override
    {
        return new Cache(std::string(static_cast<char const*>(blob), size));
    }
    bool setTimingCache(ITimingCache const& value, bool) noexcept override
    {
        cache = static_cast<Cache const*>(&value);
        return true;
    }
    ITimingCache const* getTimingCache() const noexcept override { return cache; }
};

struct Builder : IBuilder, DBuilder
{
    Builder() { mImpl = this; }
    int32_t getNbDLACores() const noexcept override { return 2; }
    IBuilderConfig* createBuilderConfig() noexcept override { return new Config; }
    INetworkDefinition* createNetworkV2(NetworkDefinitionCreationFlags flags) noexcept override
    {
        note("network", flags);
        return new Network;
    }
    IHostMemory* buildSerializedNetwork(INetworkDefinition&, IBuilderConfig& config) noexcept override
    {
        auto& own = static_cast<Config&>(config);
        if (own.monitor != nullptr)
        {
            own.monitor->phaseStart("Building", nullptr, 2);
            note("goes on", own.monitor->stepComplete("Building", 0));
            own.monitor->phaseFinish("Building");
        }
        if (own.calibrator != nullptr)
        {
            std::size_t length = 0;
            auto const* cache = static_cast<char const*>(own.calibrator->readCalibrationCache(length));
            note("cache", std::string(cache, length));
        }
        logger->log(ILogger::Severity::kWARNING, "built by the stand-in");
        return new Memory("in x 2 5 64 4 1 32 1 2\nout y 2 5 64 4 1 32 1 2\n");
    }
};

extern "C" void* createInferBuilder_INTERNAL(void* given, int32_t) noexcept
{
    logger = static_cast<ILogger*>(given);
    return static_cast<IBuilder*>(new Builder);
}

extern "C" void* createInferRuntime_INTERNAL(void* given, int32_t) noexcept
{
    logger = static_cast<ILogger*>(given);
    return static_cast<IRuntime*>(new Runtime);
}

extern "C" void* createInferRefitter_INTERNAL(void*, void*, int32_t) noexcept { return nullptr; }
extern "C" IPluginRegistry* getPluginRegistry() noexcept { return nullptr; }

namespace nvinfer1
{
extern "C" IPluginRegistry* getBuilderPluginRegistry(EngineCapability) noexcept { return nullptr; }
} // namespace nvinfer1
