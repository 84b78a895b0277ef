// Stands for libnvinfer where there is none: the plugin registry and the global logger, nothing else. It lets the plugin
// library be linked with the right dependency, and lets the harness load it the way TensorRT does. It is never installed.
#include "stub/nvinfer_stub.h"

#include <dlfcn.h>

#include <cstring>
#include <string>
#include <vector>

// The registry of TensorRT 8 and 10 has methods over IPluginCreator that are deprecated and must be there all the same.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#ifdef __clang__
#pragma clang diagnostic ignored "-Winconsistent-missing-override"  // some minor versions declare more than others
#endif

#define STUB_TENSORRT (NV_TENSORRT_MAJOR * 100 + NV_TENSORRT_MINOR)

namespace {

using nvinfer1::AsciiChar;
using nvinfer1::IErrorRecorder;
using nvinfer1::IPluginCreator;
#if STUB_TENSORRT >= 1000
using nvinfer1::IPluginCreatorInterface;
using nvinfer1::IPluginCreatorV3One;
using Interface = IPluginCreatorInterface;
using Concrete = IPluginCreatorV3One;
constexpr char const* kENTRY = "getCreators";
#else
using Interface = IPluginCreator;
using Concrete = IPluginCreator;
constexpr char const* kENTRY = "getPluginCreators";
#endif

nvinfer1::ILogger* stubLogger{nullptr};

#if STUB_TENSORRT >= 806
class LoggerFinder final : public nvinfer1::ILoggerFinder {
public:
    ~LoggerFinder() override = default;
    nvinfer1::ILogger* findLogger() override { return stubLogger; }
};

LoggerFinder loggerFinder;
#endif

Concrete const& concrete(Interface const& creator) { return static_cast<Concrete const&>(creator); }

class Registry final : public nvinfer1::IPluginRegistry {
public:
    ~Registry() noexcept override = default;

    bool add(Interface& creator, AsciiChar const* space) noexcept {
        Concrete const& added = concrete(creator);
        if (find(added.getPluginName(), added.getPluginVersion(), space) != nullptr) return false;
        creators_.push_back(&creator);
        return true;
    }
    Interface* find(AsciiChar const* name, AsciiChar const* version, AsciiChar const* space) noexcept {
        for (Interface* creator : creators_) {
            Concrete const& candidate = concrete(*creator);
            if (std::strcmp(candidate.getPluginName(), name) == 0 &&
                std::strcmp(candidate.getPluginVersion(), version) == 0 &&
                std::strcmp(candidate.getPluginNamespace(), space) == 0) {
                return creator;
            }
        }
        return nullptr;
    }
    Interface* const* list(std::int32_t* count) const noexcept {
        *count = static_cast<std::int32_t>(creators_.size());
        return creators_.data();
    }
    bool remove(Interface const& creator) noexcept {
        for (auto it = creators_.begin(); it != creators_.end(); ++it) {
            if (*it == &creator) {
                creators_.erase(it);
                return true;
            }
        }
        return false;
    }

    void setErrorRecorder(IErrorRecorder* const recorder) noexcept override { recorder_ = recorder; }
    IErrorRecorder* getErrorRecorder() const noexcept override { return recorder_; }

#if STUB_TENSORRT < 1100
#if STUB_TENSORRT >= 1000
    // Old creators are never registered here.
    bool registerCreator(IPluginCreator&, AsciiChar const* const) noexcept override { return false; }
    bool deregisterCreator(IPluginCreator const&) noexcept override { return false; }
    IPluginCreator* const* getPluginCreatorList(std::int32_t* const count) const noexcept override {
        *count = 0;
        return nullptr;
    }
    IPluginCreator* getPluginCreator(AsciiChar const* const, AsciiChar const* const,
                                     AsciiChar const* const) noexcept override {
        return nullptr;
    }
#else
    bool registerCreator(IPluginCreator& creator, AsciiChar const* const space) noexcept override {
        return add(creator, space);
    }
    bool deregisterCreator(IPluginCreator const& creator) noexcept override { return remove(creator); }
    IPluginCreator* const* getPluginCreatorList(std::int32_t* const count) const noexcept override { return list(count); }
    IPluginCreator* getPluginCreator(AsciiChar const* const name, AsciiChar const* const version,
                                     AsciiChar const* const space) noexcept override {
        return find(name, version, space);
    }
#endif
#endif

#if STUB_TENSORRT >= 1000
    bool registerCreator(IPluginCreatorInterface& creator, AsciiChar const* const space) noexcept override {
        return add(creator, space);
    }
    bool deregisterCreator(IPluginCreatorInterface const& creator) noexcept override { return remove(creator); }
    IPluginCreatorInterface* const* getAllCreators(std::int32_t* const count) const noexcept override {
        return list(count);
    }
    IPluginCreatorInterface* const* getAllCreatorsRecursive(std::int32_t* const count) noexcept { return list(count); }
    IPluginCreatorInterface* getCreator(AsciiChar const* const name, AsciiChar const* const version,
                                        AsciiChar const* const space) noexcept override {
        return find(name, version, space);
    }
    nvinfer1::IPluginResource* acquirePluginResource(AsciiChar const*, nvinfer1::IPluginResource*) noexcept override {
        return nullptr;
    }
    std::int32_t releasePluginResource(AsciiChar const*) noexcept override { return 1; }
#endif

#if STUB_TENSORRT >= 806
    bool isParentSearchEnabled() const override { return false; }
    void setParentSearchEnabled(bool const) override {}
    /// As TensorRT's: refuses a library one of whose creators is registered already.
    PluginLibraryHandle loadLibrary(AsciiChar const* path) noexcept override {
        void* handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        if (handle == nullptr) return nullptr;
        auto const setFinder = reinterpret_cast<void (*)(nvinfer1::ILoggerFinder*)>(dlsym(handle, "setLoggerFinder"));
        auto const entry = reinterpret_cast<Interface* const* (*)(std::int32_t&)>(dlsym(handle, kENTRY));
        if (setFinder == nullptr || entry == nullptr) return nullptr;
        setFinder(&loggerFinder);
        std::int32_t count = 0;
        Interface* const* given = entry(count);
        for (std::int32_t i = 0; i < count; ++i) {
            if (!add(*given[i], concrete(*given[i]).getPluginNamespace())) return nullptr;
        }
        return handle;
    }
    void deregisterLibrary(PluginLibraryHandle) noexcept override {}
#endif

private:
    std::vector<Interface*> creators_;
    IErrorRecorder* recorder_{nullptr};
};

}  // namespace

#define STUB_EXPORT __attribute__((visibility("default")))

extern "C" STUB_EXPORT nvinfer1::IPluginRegistry* getPluginRegistry() noexcept {
    static Registry registry;
    return &registry;
}

extern "C" STUB_EXPORT nvinfer1::ILogger* getLogger() noexcept { return stubLogger; }

extern "C" STUB_EXPORT void orinportStubSetLogger(nvinfer1::ILogger* logger) noexcept { stubLogger = logger; }
