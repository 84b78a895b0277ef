#include "harness/checks.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <thread>

#include "harness/say.h"

namespace harness {
namespace {

using nvinfer1::DataType;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginFieldType;

constexpr char const* kDCN = "DCNv4_Plugin";
constexpr char const* kFUSED = "DCNv4FuseOffset_Plugin";
constexpr char const* kATTENTION = "FlashDeformAttn";
constexpr char const* kNAMES[]{kDCN, kFUSED, kATTENTION};

/// Values of the fields of one plugin, in the order in which nodes carry them.
struct Fields {
    std::vector<std::string> names;
    std::vector<std::int32_t> integers;
    std::vector<float> reals;
    std::vector<PluginField> list;

    Fields() = default;
    Fields(Fields const&) = delete;
    Fields& operator=(Fields const&) = delete;

    PluginFieldCollection collection() { return {static_cast<std::int32_t>(list.size()), list.data()}; }
    PluginField& operator[](std::string const& name) {
        for (PluginField& field : list) {
            if (name == field.name) return field;
        }
        say("no field %s\n", name.c_str());
        std::abort();
    }
    void add(std::string const& name, std::int32_t value) {
        names.push_back(name);
        integers.push_back(value);
        list.push_back({names.back().c_str(), &integers.back(), PluginFieldType::kINT32, 1});
    }
    void add(std::string const& name, float value) {
        names.push_back(name);
        reals.push_back(value);
        list.push_back({names.back().c_str(), &reals.back(), PluginFieldType::kFLOAT32, 1});
    }
    void remove(std::string const& name) {
        for (auto it = list.begin(); it != list.end(); ++it) {
            if (name == it->name) {
                list.erase(it);
                return;
            }
        }
    }
    void set(std::string const& name, std::int32_t value) {
        integers.push_back(value);
        (*this)[name].data = &integers.back();
    }
};

/// Fields of FlashInternImage's operators, or of a FlashDeformAttn with 4 points.
void fill(Fields& fields, std::string const& plugin) {
    fields.names.reserve(64);
    fields.integers.reserve(64);
    fields.reals.reserve(64);
    if (plugin == kATTENTION) {
        fields.add("im2col_step", 64);
        fields.add("K", 4);
        return;
    }
    for (char const* name : {"kh", "kw"}) fields.add(name, 3);
    for (char const* name : {"sh", "sw", "ph", "pw", "dh", "dw"}) fields.add(name, 1);
    fields.add("group", 4);
    fields.add("group_channels", 16);
    fields.add("offscale", 1.0F);
    fields.add("step", 256);
    fields.add("remove_center", 0);
}

/// Tensors that belong to fill(): inputs, then the output.
Descs tensorsOf(std::string const& plugin, DataType type = DataType::kFLOAT, std::int64_t batch = 2) {
    if (plugin == kDCN) {
        return {describe({batch, 14, 13, 64}, type), describe({batch, 14, 13, 112}, type),
                describe({batch, 14, 13, 64}, type)};
    }
    if (plugin == kFUSED) return {describe({batch, 14, 13, 176}, type), describe({batch, 14, 13, 64}, type)};
    return {describe({batch, 100, 8, 32}, type), describe({2, 2}, DataType::kINT32), describe({2}, DataType::kINT32),
            describe({batch, 7, 8, 24}, type), describe({batch, 7, 256}, type)};
}

Shape shapeOf(nvinfer1::PluginTensorDesc const& desc) {
    Shape shape;
    for (std::int32_t i = 0; i < desc.dims.nbDims; ++i) shape.push_back(desc.dims.d[i]);
    return shape;
}

Descs inputsOf(Descs const& tensors) { return Descs(tensors.begin(), tensors.end() - 1); }
Descs outputsOf(Descs const& tensors) { return Descs(tensors.end() - 1, tensors.end()); }

std::uint32_t crc32(Bytes const& bytes, std::size_t size) {
    std::uint32_t crc = 0xFFFFFFFFU;
    for (std::size_t i = 0; i < size; ++i) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0U ? 0xEDB88320U : 0U);
    }
    return ~crc;
}

constexpr std::ptrdiff_t kTAIL = 12;  // of the serialized form: tactic, kernels, checksum

/// Make the checksum right again, so that only what was changed is wrong.
void seal(Bytes& bytes) {
    std::uint32_t const crc = crc32(bytes, bytes.size() - 4);
    for (std::size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<std::uint8_t>(crc >> (8 * i));
}

/// What TensorRT's error recorder would hold.
class Recorder final : public nvinfer1::IErrorRecorder {
public:
    ~Recorder() noexcept override = default;
    std::int32_t getNbErrors() const noexcept override { return static_cast<std::int32_t>(errors.size()); }
    nvinfer1::ErrorCode getErrorCode(std::int32_t) const noexcept override { return code; }
    ErrorDesc getErrorDesc(std::int32_t index) const noexcept override {
        return errors[static_cast<std::size_t>(index)].c_str();
    }
    bool hasOverflowed() const noexcept override { return false; }
    void clear() noexcept override { errors.clear(); }
    bool reportError(nvinfer1::ErrorCode value, ErrorDesc text) noexcept override {
        code = value;
        errors.emplace_back(text);
        return true;
    }
    RefCount incRefCount() noexcept override { return 1; }
    RefCount decRefCount() noexcept override { return 1; }

    std::vector<std::string> errors;
    nvinfer1::ErrorCode code{nvinfer1::ErrorCode::kSUCCESS};
};

class Checks {
public:
    Checks(Journal& journal, unsigned seed, int fuzzRounds, bool gpu)
        : journal_(journal), random_(seed), fuzzRounds_(fuzzRounds), gpu_(gpu) {}

    int run() {
        section("registered once", [this] { registration(); });
        for (char const* name : kNAMES) {
            creator_ = findCreator(name);
            plugin_ = name;
            if (!expect(creator_ != nullptr, "the registry has no creator")) continue;
            section("fields advertised", [this] { advertised(); });
            section("fields checked", [this] { fieldChecks(); });
            section("names, clone, attach", [this] { identity(); });
            section("output shapes", [this] { shapes(); });
            section("types and formats", [this] { formats(); });
            section("configure", [this] { configuration(); });
            section("tactics", [this] { tactics(); });
            section("serialization", [this] { serialization(); });
            section("damaged serialization", [this] { damaged(); });
            section("enqueue refuses", [this] { refusals(); });
            section("threads", [this] { threads(); });
        }
        return failures_;
    }

private:
    void section(char const* title, std::function<void()> const& body) {
        title_ = title;
        int const before = failures_;
        journal_.take();
        body();
        say("%-6s %s: %s\n", failures_ == before ? "ok" : "FAILED", plugin_.empty() ? "library" : plugin_.c_str(),
                    title);
    }

    bool expect(bool condition, std::string const& what) {
        if (!condition) {
            ++failures_;
            say("       %s: %s: %s\n", plugin_.c_str(), title_, what.c_str());
        }
        return condition;
    }

    /// The call before refused with exactly one message that names the plugin.
    void expectRefusal(bool refused, std::string const& what) {
        auto const errors = journal_.take();
        expect(refused, what + ": was accepted");
        expect(errors.size() == 1, what + ": " + std::to_string(errors.size()) + " messages instead of 1");
        if (!errors.empty()) expect(errors[0].find(plugin_) == 0, what + ": message does not name the plugin: " + errors[0]);
    }

    std::unique_ptr<Plugin> create() {
        Fields fields;
        fill(fields, plugin_);
        auto const collection = fields.collection();
        auto plugin = creator_->create(&collection);
        if (plugin == nullptr) {
            say("%s cannot be created\n", plugin_.c_str());
            std::exit(1);
        }
        return plugin;
    }

    std::unique_ptr<Plugin> create(std::function<void(Fields&)> const& change) {
        Fields fields;
        fill(fields, plugin_);
        change(fields);
        auto const collection = fields.collection();
        return creator_->create(&collection);
    }

    void registration() { expect(registeredCreators() == 3, std::to_string(registeredCreators()) + " creators instead of 3"); }

    void advertised() {
        Fields fields;
        fill(fields, plugin_);
        auto const names = creator_->fieldNames();
        if (!expect(names.size() == fields.list.size(), "wrong number of fields")) return;
        for (std::size_t i = 0; i < names.size(); ++i) {
            expect(names[i].name == fields.list[i].name && names[i].type == fields.list[i].type, "field " + names[i].name);
        }
    }

    void fieldChecks() {
        expect(create([](Fields&) {}) != nullptr, "the usual fields are refused");
        bool const attention = plugin_ == kATTENTION;
        std::string const some = attention ? "K" : "kw";
        expectRefusal(creator_->create(nullptr) == nullptr, "no collection");
        for (std::int32_t bad : {-1, 0, 1 << 30}) {
            if (attention && bad > 0) continue;
            expectRefusal(create([&](Fields& f) { f.set(some, bad); }) == nullptr, some + " " + std::to_string(bad));
        }
        expectRefusal(create([&](Fields& f) { f[some].length = 2; }) == nullptr, "length 2");
        expectRefusal(create([&](Fields& f) { f[some].length = 0; }) == nullptr, "length 0");
        expectRefusal(create([&](Fields& f) { f[some].length = -1; }) == nullptr, "length -1");
        expectRefusal(create([&](Fields& f) { f[some].data = nullptr; }) == nullptr, "no data");
        expectRefusal(create([&](Fields& f) { f[some].type = PluginFieldType::kFLOAT32; }) == nullptr, "wrong type");
        expectRefusal(create([&](Fields& f) { f[some].type = PluginFieldType::kCHAR; }) == nullptr, "type CHAR");
        expectRefusal(create([&](Fields& f) { f[some].name = nullptr; }) == nullptr, "no name");
        expectRefusal(create([](Fields& f) { f.add("kernel", 3); }) == nullptr, "unknown field");
        expectRefusal(create([&](Fields& f) { f.add(some, 3); }) == nullptr, "field given twice");
        expectRefusal(create([&](Fields& f) { while (f.list.size() < 40) f.add(some, 3); }) == nullptr, "40 fields");
        for (int round = 0; round < fuzzRounds_; ++round) fuzzFields();
        if (attention) {
            expect(create([](Fields& f) { f.list.clear(); }) != nullptr, "defaults are refused");
            return;
        }
        double const wide = 0.5;
        auto const half = create([&](Fields& f) { f["offscale"] = {"offscale", &wide, PluginFieldType::kFLOAT64, 1}; });
        float const narrow = 0.5F;
        auto const same = create([&](Fields& f) { f["offscale"].data = &narrow; });
        expect(half != nullptr && same != nullptr && half->serialize() == same->serialize(), "offscale FLOAT64");
#if HARNESS_TENSORRT >= 1000
        std::int64_t const three = 3;
        auto const long3 = create([&](Fields& f) { f["kw"] = {"kw", &three, PluginFieldType::kINT64, 1}; });
        expect(long3 != nullptr && long3->serialize() == create()->serialize(), "kw INT64");
        std::int64_t const large = (std::int64_t{1} << 32) + 3;
        expectRefusal(create([&](Fields& f) { f["kw"] = {"kw", &large, PluginFieldType::kINT64, 1}; }) == nullptr, "kw 2^32+3");
#endif
        for (char const* optional : {"kh", "sh", "pw", "dw", "offscale", "step", "remove_center"}) {
            auto const plugin = create([&](Fields& f) { f.remove(optional); });
            expect(plugin != nullptr && plugin->serialize() == create()->serialize(), std::string("default of ") + optional);
        }
        expectRefusal(create([](Fields& f) { f.remove("group"); }) == nullptr, "group missing");
        expectRefusal(create([](Fields& f) { f.remove("group_channels"); }) == nullptr, "group_channels missing");
        expectRefusal(create([](Fields& f) { f.set("remove_center", 2); }) == nullptr, "remove_center 2");
        expectRefusal(create([](Fields& f) { f["offscale"].type = PluginFieldType::kINT32; }) == nullptr, "offscale INT32");
        for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            expectRefusal(create([&](Fields& f) { f["offscale"].data = &bad; }) == nullptr, "offscale not finite");
        }
        expectRefusal(create([](Fields& f) {
                          for (char const* name : {"kh", "kw", "remove_center"}) f.set(name, 1);
                          for (char const* name : {"ph", "pw"}) f.set(name, 0);
                      }) == nullptr,
                      "a kernel without taps");
        expectRefusal(create([](Fields& f) { f.set("group", 1 << 20); }) == nullptr, "too many channels");
        if (plugin_ == kFUSED) {
            expectRefusal(create([](Fields& f) { f.set("sh", 2); }) == nullptr, "fused with stride 2");
            expectRefusal(create([](Fields& f) { f.set("pw", 0); }) == nullptr, "fused with a pad that changes the size");
        }
    }

    /// Fields with some of name, type, length and data replaced at random: a plugin, or one message.
    void fuzzFields() {
        std::uint64_t const noise = (std::uint64_t{random_()} << 32U) | random_();
        auto const plugin = create([&](Fields& f) {
            std::size_t const edits = 1 + random_() % 3;
            for (std::size_t i = 0; i < edits; ++i) {
                PluginField& field = f.list[random_() % f.list.size()];
                switch (random_() % 4) {
                    case 0: field.name = f.list[random_() % f.list.size()].name; break;
                    case 1: field.type = static_cast<PluginFieldType>(random_() % 15); field.data = &noise; break;
                    case 2: field.length = static_cast<std::int32_t>(random_() % 5) - 2; break;
                    default: field.data = &noise; break;
                }
            }
        });
        auto const errors = journal_.take();
        expect(errors.size() == (plugin == nullptr ? 1U : 0U), "a plugin and a message, or neither");
        if (plugin == nullptr) return;
        auto const copy = creator_->deserialize(plugin->serialize());
        expect(copy != nullptr && copy->serialize() == plugin->serialize(), "what was created cannot be read back");
    }

    void identity() {
        auto const plugin = create();
        auto const copies = {plugin->clone(), plugin->attach(nullptr), creator_->deserialize(plugin->serialize())};
        for (auto const& copy : copies) {
            if (!expect(copy != nullptr, "no copy")) continue;
            expect(copy->name() == plugin_ && copy->version() == "1" && copy->space().empty(), "name, version or namespace");
            expect(copy->serialize() == plugin->serialize(), "another state");
            expect(copy->timingCacheId() == plugin->timingCacheId(), "another timing cache id");
        }
        if (plugin_ != kATTENTION && HARNESS_TENSORRT >= 1000) {
            auto const other = create([](Fields& f) { f.set("group", 2); });
            expect(other->timingCacheId() != plugin->timingCacheId(), "the timing cache id ignores the fields");
        }
    }

    void shapes() {
        auto const plugin = create();
        Descs const tensors = tensorsOf(plugin_);
        std::vector<Shape> inputs;
        for (auto const& desc : inputsOf(tensors)) inputs.push_back(shapeOf(desc));
        expect(plugin->outputShape(inputs) == shapeOf(tensors.back()), "known shapes");
        std::vector<Shape> hidden = inputs;
        for (Shape& shape : hidden) shape[0] = -shape[0];
        if (plugin_ != kATTENTION) {
            for (Shape& shape : hidden) {
                shape[1] = -shape[1];
                shape[2] = -shape[2];
            }
        }
        expect(plugin->outputShape(hidden) == shapeOf(tensors.back()), "unknown batch, height, width");

        auto const refuse = [&](std::size_t input, std::size_t dimension, std::int64_t extent, char const* what) {
            std::vector<Shape> bad = inputs;
            bad[input][dimension] = extent;
            expectRefusal(!plugin->outputShape(bad).has_value(), what);
        };
        expectRefusal(!plugin->outputShape({}).has_value(), "no inputs");
        std::vector<Shape> flat = inputs;
        flat[0].pop_back();
        expectRefusal(!plugin->outputShape(flat).has_value(), "rank 3");
        if (plugin_ == kDCN) {
            refuse(0, 3, 48, "wrong C");
            refuse(1, 3, 104, "P below 3*G*K");
            refuse(1, 3, 110, "P no multiple of 8");
            refuse(1, 0, 3, "another batch");
            refuse(1, 1, 13, "another Ho");
            refuse(1, 2, 12, "another Wo");
            auto const strided = create([](Fields& f) {
                f.set("sh", 2), f.set("sw", 3), f.set("ph", 0), f.set("kh", 5), f.set("dw", 2);
            });
            // 5x3 kernel, dilation 1x2, pad 0x1: (15 - 5)/2 + 1 = 6, (17 + 2 - 5)/3 + 1 = 5; K = 15, P = 180 -> 184
            expect(strided->outputShape({{4, -15, -17, 64}, {4, 6, 5, 184}}) == Shape({4, 6, 5, 64}), "stride 2x3");
            expectRefusal(!strided->outputShape({{4, 4, 17, 64}, {4, 1, 5, 184}}).has_value(), "kernel above the image");
        } else if (plugin_ == kFUSED) {
            refuse(0, 3, 64 + 104, "P below 3*G*K");
            refuse(0, 3, 64, "no offset_mask");
        } else {
            refuse(1, 1, 3, "level sizes of 3 numbers");
            refuse(2, 0, 3, "another number of starts");
            refuse(3, 0, 3, "another batch");
            refuse(3, 2, 4, "other groups");
            refuse(3, 3, 36, "another number of points");
        }
    }

    void formats() {
        auto const plugin = create();
        std::vector<DataType> types{DataType::kFLOAT, DataType::kHALF, DataType::kINT8, DataType::kINT32, DataType::kBOOL};
#if HARNESS_TENSORRT >= 1000
        types.push_back(DataType::kBF16);
        types.push_back(DataType::kINT64);
        types.push_back(DataType::kFP8);
#endif
        Descs tensors = tensorsOf(plugin_);
        std::size_t accepted = 0;
        std::function<void(std::size_t)> const walk = [&](std::size_t position) {
            if (position == tensors.size()) {
                ++accepted;
                // what is offered must also be configurable, and must not be told apart later
                if (HARNESS_TENSORRT >= 1000) expect(plugin->configure(inputsOf(tensors), outputsOf(tensors)) == 0, "offered");
                return;
            }
            for (DataType type : types) {
                tensors[position].type = type;
                if (plugin->supports(static_cast<std::int32_t>(position), tensors)) walk(position + 1);
            }
            tensors[position].type = types[0];
        };
        walk(0);
        expect(journal_.take().empty(), "errors for types that are offered");
        expect(accepted >= (HARNESS_TENSORRT >= 1000 ? 3 : 2), "only " + std::to_string(accepted) + " combinations");

        for (DataType type : {DataType::kFLOAT, DataType::kHALF}) {
            Descs const same = tensorsOf(plugin_, type);
            for (std::size_t i = 0; i < same.size(); ++i) {
                expect(plugin->supports(static_cast<std::int32_t>(i), same), "FP32 or FP16 is refused");
                Descs vectorized = same;
                vectorized[i].format = nvinfer1::TensorFormat::kCHW32;
                expect(!plugin->supports(static_cast<std::int32_t>(i), vectorized), "kCHW32 is offered");
            }
            std::vector<DataType> inputs;
            for (auto const& desc : inputsOf(same)) inputs.push_back(desc.type);
            DataType output = DataType::kBOOL;
            expect(plugin->outputType(inputs, output) == 0 && output == type, "output type");
        }
        Descs mixed = tensorsOf(plugin_, DataType::kHALF);
        mixed.back().type = DataType::kINT32;
        expect(!plugin->supports(static_cast<std::int32_t>(mixed.size()) - 1, mixed), "an INT32 output is offered");
        expect(!plugin->supports(-1, mixed) && !plugin->supports(9, mixed), "positions that do not exist");
        Descs fewer(mixed.begin() + 1, mixed.end());
        expect(!plugin->supports(0, fewer), "a missing input");
    }

    void configuration() {
        auto const plugin = create();
        Descs tensors = tensorsOf(plugin_);
        plugin->configure(inputsOf(tensors), outputsOf(tensors));
        expect(journal_.take().empty(), "the usual tensors are refused");
        auto const known = plugin->tactics();
        if (plugin_ != kATTENTION) {
            for (auto& desc : tensors) {
                for (std::int32_t i = 0; i < 3; ++i) desc.dims.d[i] = -desc.dims.d[i];
            }
            plugin->configure(inputsOf(tensors), outputsOf(tensors));
            expect(journal_.take().empty(), "unknown batch, height and width are refused");
            expect(plugin->tactics() == known, "other tactics for the same extents in the profile");
        }
        Descs wrong = tensorsOf(plugin_);
        wrong.back().dims.d[wrong.back().dims.nbDims - 1] = 1;
        std::int32_t const status = plugin->configure(inputsOf(wrong), outputsOf(wrong));
        expectRefusal(status != 0 || HARNESS_TENSORRT < 1000, "another output");
        std::int32_t const less = plugin->configure({}, outputsOf(tensors));
        expectRefusal(less != 0 || HARNESS_TENSORRT < 1000, "no inputs");
    }

    void tactics() {
        auto const plugin = create();
        for (DataType type : {DataType::kFLOAT, DataType::kHALF}) {
            for (std::int64_t batch : {1, 128}) {
                Descs const tensors = tensorsOf(plugin_, type, batch);
                plugin->configure(inputsOf(tensors), outputsOf(tensors));
                auto const list = plugin->tactics();
                for (std::size_t i = 0; i < list.size(); ++i) {
                    expect(list[i] > 0, "tactic " + std::to_string(list[i]));
                    for (std::size_t j = 0; j < i; ++j) expect(list[i] != list[j], "a tactic twice");
                    expect(plugin->setTactic(list[i]) == 0, "setTactic");
                }
                expect(plugin->setTactic(0) == 0, "the default tactic");
            }
        }
        if (HARNESS_TENSORRT >= 1000) expectRefusal(plugin->setTactic(-1) != 0, "tactic -1");
    }

    void serialization() {
        auto const plugin = create();
        Bytes const bytes = plugin->serialize();
        expect(bytes.size() > 16 && std::memcmp(bytes.data(), "ORPL", 4) == 0, "magic");
        // from an address without alignment
        Bytes shifted{0};
        shifted.insert(shifted.end(), bytes.begin(), bytes.end());
        auto const copy = creator_->deserialize(shifted.data() + 1, bytes.size());
        expect(copy != nullptr && copy->serialize() == bytes, "round trip");
        auto const again = copy == nullptr ? nullptr : copy->clone();
        expect(again != nullptr && again->serialize() == bytes, "round trip of a clone");

        Bytes chosen = bytes;
        chosen[chosen.size() - kTAIL] = 7;
        seal(chosen);
        auto const tuned = creator_->deserialize(chosen);
        expect(tuned != nullptr && tuned->clone()->serialize() == chosen, "a tactic is lost");
        Bytes foreign = chosen;
        foreign[foreign.size() - kTAIL + 4] ^= 1U;
        seal(foreign);
        auto const untuned = creator_->deserialize(foreign);
        expect(untuned != nullptr && untuned->serialize() == bytes, "a tactic of other kernels is kept");
    }

    void refuseBytes(Bytes const& bytes, std::string const& what) {
        expectRefusal(creator_->deserialize(bytes) == nullptr, what);
    }

    void damaged() {
        Bytes const good = create()->serialize();
        for (std::size_t size = 0; size < good.size(); ++size) {
            refuseBytes(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)), "truncated");
        }
        Bytes longer = good;
        longer.push_back(0);
        refuseBytes(longer, "one byte more");
        for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
            Bytes flipped = good;
            flipped[bit / 8] = static_cast<std::uint8_t>(flipped[bit / 8] ^ (1U << (bit % 8)));
            refuseBytes(flipped, "bit " + std::to_string(bit) + " flipped");
        }
        auto const altered = [&](std::size_t at, std::uint8_t value, char const* what) {
            Bytes bytes = good;
            bytes[at] = value;
            seal(bytes);
            refuseBytes(bytes, what);
        };
        altered(4, 2, "a later format");
        altered(4, 0, "format 0");
        altered(6, 9, "another kind");
        altered(8, 200, "another payload length");
        altered(11, 0xFF, "a huge payload length");
        altered(12 + 3, 0x80, "a negative first field");
        altered(good.size() - kTAIL + 3, 0x7F, "a tactic beyond all");
        Bytes shorter(good.begin(), good.end() - 4);
        seal(shorter);
        refuseBytes(shorter, "a field less");
        shorter[8] = static_cast<std::uint8_t>(shorter[8] - 4);
        seal(shorter);
        refuseBytes(shorter, "a field less, and says so");
        for (int round = 0; round < fuzzRounds_; ++round) fuzz(good);
    }

    void fuzz(Bytes const& good) {
        Bytes bytes = good;
        int const edits = std::uniform_int_distribution<int>(1, 8)(random_);
        for (int i = 0; i < edits; ++i) {
            auto const at = std::uniform_int_distribution<std::size_t>(0, bytes.size() - 1)(random_);
            bytes[at] = static_cast<std::uint8_t>(random_());
        }
        if (random_() % 4 == 0) bytes.resize(random_() % 160);
        bool const sealed = bytes.size() >= 4 && random_() % 2 == 0;
        if (sealed) seal(bytes);
        auto const plugin = creator_->deserialize(bytes);
        auto const errors = journal_.take();
        if (plugin == nullptr) {
            expect(errors.size() == 1, "a refusal without one message");
            return;
        }
        // only what is a valid state may come through, and then unchanged but for a tactic of other kernels
        Bytes const state = plugin->serialize();
        bool const same = state.size() == bytes.size() && std::equal(bytes.begin(), bytes.end() - kTAIL, state.begin());
        expect(errors.empty() && same, "damaged data was accepted");
    }

    void refusals() {
        auto const plugin = create();
        Descs const tensors = tensorsOf(plugin_);
        void const* memory[5]{&memory, &memory, &memory, &memory, &memory};  // never read: the launch is refused before
        void* result[1]{&result};
        auto const refused = [&](Descs const& changed, char const* what) {
            expectRefusal(plugin->enqueue(inputsOf(changed), outputsOf(changed), memory, result, nullptr) != 0, what);
        };
        Descs changed = tensors;
        changed[0].dims.d[0] = 3;
        refused(changed, "another batch");
        changed = tensors;
        changed.back().type = DataType::kBOOL;
        refused(changed, "another type");
        changed = tensors;
        changed[0].format = nvinfer1::TensorFormat::kCHW32;
        refused(changed, "a vectorized format");
        changed = tensors;
        for (auto& desc : changed) desc.dims.d[0] = 0;
        refused(changed, "an empty batch");
        memory[0] = nullptr;
        refused(tensors, "no memory");
        memory[0] = &memory;
        if (!gpu_) refused(tensors, "no GPU");
        if (plugin_ == kDCN) quantized(*plugin);
        if (HARNESS_TENSORRT >= 1000) recorded(*plugin);
    }

    /// A plugin attached to a context reports to its recorder too, no longer than a recorder takes.
    void recorded(Plugin& plugin) {
        Recorder recorder;
        auto const attached = plugin.attach(&recorder);
        Descs tensors = tensorsOf(plugin_);
        tensors[0].dims.d[0] = 3;
        void const* memory[5]{&memory, &memory, &memory, &memory, &memory};
        void* result[1]{&result};
        expectRefusal(attached->enqueue(inputsOf(tensors), outputsOf(tensors), memory, result, nullptr) != 0, "another batch");
        expect(recorder.errors.size() == 1 && recorder.code == nvinfer1::ErrorCode::kINVALID_ARGUMENT, "error recorder");
        for (auto const& text : recorder.errors) expect(text.size() <= Recorder::kMAX_DESC_LENGTH, "a long description");
    }

    void quantized(Plugin& plugin) {
        Descs tensors = tensorsOf(plugin_, DataType::kHALF);
        tensors[0].type = DataType::kINT8;
        if (!plugin.supports(0, tensors) || !plugin.supports(1, tensors)) return;
        void const* memory[2]{&memory, &memory};
        void* result[1]{&result};
        for (float bad : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()}) {
            tensors[0].scale = bad;
            expectRefusal(plugin.enqueue(inputsOf(tensors), outputsOf(tensors), memory, result, nullptr) != 0,
                          "INT8 without a scale");
        }
    }

    void threads() {
        auto const plugin = create();
        Bytes const bytes = plugin->serialize();
        Descs const tensors = tensorsOf(plugin_);
        std::atomic<int> wrong{0};
        auto const work = [&](std::uint32_t number) {
            for (int i = 0; i < 200; ++i) {
                auto const own = plugin->attach(nullptr);
                auto const restored = creator_->deserialize(bytes);
                Bytes bad = bytes;
                bad[number % bad.size()] ^= 1U;
                if (own == nullptr || restored == nullptr || own->serialize() != bytes ||
                    restored->serialize() != bytes || creator_->deserialize(bad) != nullptr) {
                    ++wrong;
                    continue;
                }
                own->configure(inputsOf(tensors), outputsOf(tensors));
                own->tactics();
            }
        };
        std::vector<std::thread> pool;
        for (std::uint32_t i = 0; i < 4; ++i) pool.emplace_back(work, i);
        for (auto& thread : pool) thread.join();
        expect(wrong == 0, std::to_string(wrong) + " wrong results");
        expect(journal_.take().size() == 800, "lost or additional messages");
    }

    Journal& journal_;
    std::mt19937 random_;
    int fuzzRounds_;
    bool gpu_;
    std::unique_ptr<Creator> creator_;
    std::string plugin_;
    char const* title_{""};
    int failures_{0};
};

}  // namespace

int runChecks(Journal& journal, unsigned seed, int fuzzRounds, bool gpu) {
    return Checks(journal, seed, fuzzRounds, gpu).run();
}

}  // namespace harness
