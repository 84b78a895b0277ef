#include "core/attributes.h"

#include <cmath>
#include <cstring>

namespace orinport::plugin {
namespace {

constexpr std::int64_t kLARGE = 1 << 20;  // keeps every product of attributes far inside 64 bits

#define ORINPORT_DCN(member) offsetof(Attributes, dcn) + offsetof(DcnAttributes, member)
#define ORINPORT_ATTENTION(member) offsetof(Attributes, attention) + offsetof(DeformAttnAttributes, member)

constexpr FieldSpec kDCN_FIELDS[]{
    {"kh", false, false, 1, 1024, ORINPORT_DCN(kh)},
    {"kw", false, false, 1, 1024, ORINPORT_DCN(kw)},
    {"sh", false, false, 1, kLARGE, ORINPORT_DCN(sh)},
    {"sw", false, false, 1, kLARGE, ORINPORT_DCN(sw)},
    {"ph", false, false, 0, kLARGE, ORINPORT_DCN(ph)},
    {"pw", false, false, 0, kLARGE, ORINPORT_DCN(pw)},
    {"dh", false, false, 1, kLARGE, ORINPORT_DCN(dh)},
    {"dw", false, false, 1, kLARGE, ORINPORT_DCN(dw)},
    {"group", false, true, 1, kLARGE, ORINPORT_DCN(group)},
    {"group_channels", false, true, 1, kLARGE, ORINPORT_DCN(group_channels)},
    {"offscale", true, false, 0, 0, ORINPORT_DCN(offscale)},
    {"step", false, false, 1, INT32_MAX, ORINPORT_DCN(step)},
    {"remove_center", false, false, 0, 1, ORINPORT_DCN(remove_center)},
};

constexpr FieldSpec kATTENTION_FIELDS[]{
    {"im2col_step", false, false, 1, INT32_MAX, ORINPORT_ATTENTION(im2col_step)},
    {"K", false, false, 1, 1024, ORINPORT_ATTENTION(points)},
};

#undef ORINPORT_DCN
#undef ORINPORT_ATTENTION

constexpr char kMAGIC[4]{'O', 'R', 'P', 'L'};
constexpr std::size_t kHEADER = 12;
constexpr std::size_t kTACTIC = 8;
constexpr std::size_t kTRAILER = 4;
constexpr std::uint32_t kTACTICS = 1 << 16;

static_assert(kHEADER + 4 * (sizeof kDCN_FIELDS / sizeof kDCN_FIELDS[0]) + kTACTIC + kTRAILER <= kMAX_SERIALIZED);

std::uint8_t* slot(Attributes& attributes, FieldSpec const& spec) noexcept {
    return reinterpret_cast<std::uint8_t*>(&attributes) + spec.offset;
}

std::uint8_t const* slot(Attributes const& attributes, FieldSpec const& spec) noexcept {
    return reinterpret_cast<std::uint8_t const*>(&attributes) + spec.offset;
}

template <typename T>
T load(void const* data) noexcept {
    T value;
    std::memcpy(&value, data, sizeof value);
    return value;
}

Status storeInteger(Kind kind, FieldSpec const& spec, std::int64_t value, Attributes& attributes) noexcept {
    if (value < spec.low || value > spec.high) {
        return failure(Code::InvalidArgument, "%s: field %s must be in [%lld, %lld], not %lld.", pluginName(kind), spec.name,
                       static_cast<long long>(spec.low), static_cast<long long>(spec.high),
                       static_cast<long long>(value));
    }
    auto const narrow = static_cast<std::int32_t>(value);
    std::memcpy(slot(attributes, spec), &narrow, sizeof narrow);
    return {};
}

Status storeReal(Kind kind, FieldSpec const& spec, double value, Attributes& attributes) noexcept {
    auto const narrow = static_cast<float>(value);
    if (!std::isfinite(narrow)) {
        return failure(Code::InvalidArgument, "%s: field %s must be finite.", pluginName(kind), spec.name);
    }
    std::memcpy(slot(attributes, spec), &narrow, sizeof narrow);
    return {};
}

Status readField(Kind kind, FieldSpec const& spec, Field const& field, Attributes& attributes) noexcept {
    if (field.length != 1) {
        return failure(Code::InvalidArgument, "%s: field %s must have length 1, not %lld.", pluginName(kind), spec.name,
                       static_cast<long long>(field.length));
    }
    if (field.data == nullptr) {
        return failure(Code::InvalidArgument, "%s: field %s has no data.", pluginName(kind), spec.name);
    }
    switch (field.type) {
        case FieldType::Int32:
            if (!spec.real) return storeInteger(kind, spec, load<std::int32_t>(field.data), attributes);
            break;
        case FieldType::Int64:
            if (!spec.real) return storeInteger(kind, spec, load<std::int64_t>(field.data), attributes);
            break;
        case FieldType::Float32:
            if (spec.real) return storeReal(kind, spec, static_cast<double>(load<float>(field.data)), attributes);
            break;
        case FieldType::Float64:
            if (spec.real) return storeReal(kind, spec, load<double>(field.data), attributes);
            break;
        case FieldType::Other: break;
    }
    return failure(Code::InvalidArgument, "%s: field %s must be of type %s.", pluginName(kind), spec.name,
                   spec.real ? "FLOAT32" : "INT32");
}

Status checkTogether(Attributes const& attributes) noexcept {
    if (attributes.kind == Kind::DeformAttn) return {};
    DcnAttributes const& dcn = attributes.dcn;
    char const* name = pluginName(attributes.kind);
    if (dcn.taps() < 1) return failure(Code::InvalidArgument, "%s: a 1x1 kernel without its centre has no taps.", name);
    if (dcn.channels() > kLARGE || dcn.taps() > kLARGE) {
        return failure(Code::InvalidArgument, "%s: %lld channels with %lld taps are too many.", name,
                       static_cast<long long>(dcn.channels()), static_cast<long long>(dcn.taps()));
    }
    if (attributes.kind == Kind::FusedDcn && !dcn.keepsSize()) {
        return failure(Code::InvalidArgument,
                       "%s: value and offset_mask can lie in one tensor only if the output has the input's size; kernel "
                       "%dx%d, stride %dx%d, pad %dx%d, dilation %dx%d change it.",
                       name, dcn.kh, dcn.kw, dcn.sh, dcn.sw, dcn.ph, dcn.pw, dcn.dh, dcn.dw);
    }
    return {};
}

std::uint32_t crc32(std::uint8_t const* data, std::size_t size) noexcept {
    std::uint32_t crc = 0xFFFFFFFFU;
    for (std::size_t i = 0; i < size; ++i) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0U ? 0xEDB88320U : 0U);
    }
    return ~crc;
}

std::uint32_t kernelsNumber() noexcept {
    constexpr char kID[] = ORINPORT_KERNELS_ID;
    return crc32(reinterpret_cast<std::uint8_t const*>(kID), sizeof kID - 1);
}

void put(std::uint8_t*& cursor, std::uint32_t value, int bytes) noexcept {
    for (int i = 0; i < bytes; ++i) *cursor++ = static_cast<std::uint8_t>(value >> (8 * i));
}

std::uint32_t get(std::uint8_t const*& cursor, int bytes) noexcept {
    std::uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= static_cast<std::uint32_t>(*cursor++) << (8 * i);
    return value;
}

}  // namespace

char const* pluginName(Kind kind) noexcept {
    switch (kind) {
        case Kind::Dcn: return "DCNv4_Plugin";
        case Kind::FusedDcn: return "DCNv4FuseOffset_Plugin";
        case Kind::DeformAttn: return "FlashDeformAttn";
    }
    return "";
}

FieldTable fieldTable(Kind kind) noexcept {
    if (kind == Kind::DeformAttn) {
        return {kATTENTION_FIELDS, static_cast<std::int32_t>(sizeof kATTENTION_FIELDS / sizeof kATTENTION_FIELDS[0])};
    }
    return {kDCN_FIELDS, static_cast<std::int32_t>(sizeof kDCN_FIELDS / sizeof kDCN_FIELDS[0])};
}

Status parseAttributes(Kind kind, Field const* fields, std::int32_t count, Attributes& attributes) noexcept {
    FieldTable const table = fieldTable(kind);
    attributes = Attributes{};
    attributes.kind = kind;
    std::uint32_t seen = 0;
    for (std::int32_t i = 0; i < count; ++i) {
        char const* name = fields[i].name;
        if (name == nullptr) return failure(Code::InvalidArgument, "%s: field %d has no name.", pluginName(kind), i);
        std::int32_t row = 0;
        while (row < table.count && std::strcmp(table.rows[row].name, name) != 0) ++row;
        if (row == table.count) {
            return failure(Code::InvalidArgument, "%s: unknown field %.64s.", pluginName(kind), name);
        }
        if ((seen >> row & 1U) != 0U) {
            return failure(Code::InvalidArgument, "%s: field %s is given twice.", pluginName(kind), name);
        }
        seen |= 1U << row;
        Status const status = readField(kind, table.rows[row], fields[i], attributes);
        if (!status.ok()) return status;
    }
    for (std::int32_t row = 0; row < table.count; ++row) {
        if (table.rows[row].required && (seen >> row & 1U) == 0U) {
            return failure(Code::InvalidArgument, "%s: field %s is missing.", pluginName(kind), table.rows[row].name);
        }
    }
    return checkTogether(attributes);
}

std::size_t serializedSize(Kind kind) noexcept {
    return kHEADER + 4 * static_cast<std::size_t>(fieldTable(kind).count) + kTACTIC + kTRAILER;
}

void serialize(Attributes const& attributes, std::uint8_t* buffer) noexcept {
    FieldTable const table = fieldTable(attributes.kind);
    std::memcpy(buffer, kMAGIC, sizeof kMAGIC);
    std::uint8_t* cursor = buffer + sizeof kMAGIC;
    put(cursor, kFORMAT, 2);
    put(cursor, static_cast<std::uint32_t>(attributes.kind), 2);
    put(cursor, static_cast<std::uint32_t>(serializedSize(attributes.kind) - kHEADER - kTRAILER), 4);
    for (std::int32_t row = 0; row < table.count; ++row) {
        put(cursor, load<std::uint32_t>(slot(attributes, table.rows[row])), 4);
    }
    put(cursor, static_cast<std::uint32_t>(attributes.tactic), 4);
    put(cursor, kernelsNumber(), 4);
    put(cursor, crc32(buffer, static_cast<std::size_t>(cursor - buffer)), 4);
}

Status deserialize(Kind kind, void const* data, std::size_t size, Attributes& attributes) noexcept {
    char const* name = pluginName(kind);
    if (data == nullptr || size < kHEADER + kTRAILER) {
        return failure(Code::CorruptData, "%s: serialized data of %zu bytes is too short.", name, size);
    }
    auto const* bytes = static_cast<std::uint8_t const*>(data);
    if (std::memcmp(bytes, kMAGIC, sizeof kMAGIC) != 0) {
        return failure(Code::CorruptData, "%s: serialized data was not written by this plugin.", name);
    }
    std::uint8_t const* cursor = bytes + sizeof kMAGIC;
    std::uint32_t const format = get(cursor, 2);
    std::uint32_t const writtenKind = get(cursor, 2);
    std::uint32_t const payload = get(cursor, 4);
    if (format != kFORMAT) {
        return failure(Code::CorruptData, "%s: serialized data has format %u, this library reads format %u.", name, format,
                       static_cast<unsigned>(kFORMAT));
    }
    if (writtenKind != static_cast<std::uint32_t>(kind) || size != serializedSize(kind) ||
        payload != size - kHEADER - kTRAILER) {
        return failure(Code::CorruptData, "%s: serialized data of kind %u, %zu bytes with %u of payload, does not fit.", name,
                       writtenKind, size, payload);
    }
    std::uint8_t const* trailer = bytes + size - kTRAILER;
    if (get(trailer, 4) != crc32(bytes, size - kTRAILER)) {
        return failure(Code::CorruptData, "%s: serialized data is damaged (checksum).", name);
    }
    attributes = Attributes{};
    attributes.kind = kind;
    FieldTable const table = fieldTable(kind);
    for (std::int32_t row = 0; row < table.count; ++row) {
        std::uint32_t const word = get(cursor, 4);
        FieldSpec const& spec = table.rows[row];
        Status const status = spec.real
                                  ? storeReal(kind, spec, static_cast<double>(load<float>(&word)), attributes)
                                  : storeInteger(kind, spec, load<std::int32_t>(&word), attributes);
        if (!status.ok()) return status;
    }
    std::uint32_t const tactic = get(cursor, 4);
    if (tactic >= kTACTICS) return failure(Code::CorruptData, "%s: there is no tactic %u.", name, tactic);
    if (get(cursor, 4) == kernelsNumber()) attributes.tactic = static_cast<std::int32_t>(tactic);
    return checkTogether(attributes);
}

void describe(Attributes const& attributes, char (&text)[kMAX_TEXT]) noexcept {
    FieldTable const table = fieldTable(attributes.kind);
    std::size_t used = 0;
    text[0] = '\0';
    for (std::int32_t row = 0; row < table.count && used < sizeof text; ++row) {
        FieldSpec const& spec = table.rows[row];
        int const written =
            spec.real ? std::snprintf(text + used, sizeof text - used, "%s=%.9g;", spec.name,
                                      static_cast<double>(load<float>(slot(attributes, spec))))
                      : std::snprintf(text + used, sizeof text - used, "%s=%d;", spec.name,
                                      load<std::int32_t>(slot(attributes, spec)));
        if (written < 0) return;
        used += static_cast<std::size_t>(written);
    }
}

}  // namespace orinport::plugin
