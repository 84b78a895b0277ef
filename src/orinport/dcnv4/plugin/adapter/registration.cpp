// The creators, registered once when the library is loaded (trtexec --staticPlugins, dlopen), and handed out once more
// when TensorRT's registry loads the library itself (trtexec --dynamicPlugins, IPluginRegistry::loadLibrary).
#include <atomic>

#include "adapter/common.h"

#if ORINPORT_TENSORRT >= 1000
#include "adapter/v3.h"
#else
#include "adapter/v2.h"
#endif

#define ORINPORT_EXPORT extern "C" __attribute__((visibility("default")))

namespace orinport::plugin {
namespace {

#if ORINPORT_TENSORRT >= 1000
using Creator = CreatorV3;
using CreatorInterface = nvinfer1::IPluginCreatorInterface;
#else
using Creator = CreatorV2;
using CreatorInterface = nvinfer1::IPluginCreator;
#endif

constexpr std::int32_t kCREATORS = sizeof kKINDS / sizeof kKINDS[0];

struct Creators {
    Creator dcn{Kind::Dcn}, fused{Kind::FusedDcn}, attention{Kind::DeformAttn};
    CreatorInterface* list[kCREATORS]{&dcn, &fused, &attention};
};

Creators& creators() noexcept {
    static Creators instance;
    return instance;
}

std::atomic<bool> registered{false};

struct Registration {
    Registration() noexcept {
        if (nvinfer1::IPluginRegistry* registry = getPluginRegistry()) {
            for (CreatorInterface* creator : creators().list) registry->registerCreator(*creator, kPLUGIN_NAMESPACE);
            registered.store(true);
        }
    }
};

Registration const registration;

#if ORINPORT_TENSORRT >= 806

/// A registry that loads the library registers what it gets from here by itself, and unloads the library later. So the
/// registration of the load must go: it would clash with the caller's, or outlive the library.
CreatorInterface* const* handOut(std::int32_t& count) noexcept {
    nvinfer1::IPluginRegistry* registry = getPluginRegistry();
    if (registry != nullptr && registered.exchange(false)) {
        for (CreatorInterface* creator : creators().list) registry->deregisterCreator(*creator);
    }
    count = kCREATORS;
    return creators().list;
}
#endif

}  // namespace
}  // namespace orinport::plugin

#if ORINPORT_TENSORRT >= 806
#if ORINPORT_TENSORRT >= 1000
ORINPORT_EXPORT nvinfer1::IPluginCreatorInterface* const* getCreators(std::int32_t& nbCreators);
ORINPORT_EXPORT nvinfer1::IPluginCreatorInterface* const* getCreators(std::int32_t& nbCreators) {
    return orinport::plugin::handOut(nbCreators);
}
#else
ORINPORT_EXPORT nvinfer1::IPluginCreator* const* getPluginCreators(std::int32_t& nbCreators);
ORINPORT_EXPORT nvinfer1::IPluginCreator* const* getPluginCreators(std::int32_t& nbCreators) {
    return orinport::plugin::handOut(nbCreators);
}
#endif

ORINPORT_EXPORT void setLoggerFinder(nvinfer1::ILoggerFinder* finder);
ORINPORT_EXPORT void setLoggerFinder(nvinfer1::ILoggerFinder* finder) { orinport::plugin::useLoggerFinder(finder); }
#endif
