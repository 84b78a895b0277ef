// Shape expressions that evaluate themselves. TensorRT's classes are shells around an implementation pointer.
#pragma once

#include <NvInferRuntime.h>

#include <deque>

namespace harness {

#if NV_TENSORRT_MAJOR >= 10
using Extent = std::int64_t;
#else
using Extent = std::int32_t;
#endif

class Expression final : public nvinfer1::IDimensionExpr, private nvinfer1::apiv::VDimensionExpr {
public:
    Expression(Extent value, bool constant) : value_(value), constant_(constant) { mImpl = this; }
    ~Expression() noexcept override = default;

    bool isConstant() const override { return constant_; }
    Extent getConstantValue() const override { return constant_ ? value_ : 0; }
#if NV_TENSORRT_MAJOR >= 10
    bool isSizeTensor() const override { return false; }
#endif

    Extent evaluate() const { return value_; }
    bool known() const { return constant_; }

private:
    Extent value_;
    bool constant_;
};

class Expressions final : public nvinfer1::IExprBuilder, private nvinfer1::apiv::VExprBuilder {
public:
    Expressions() { mImpl = this; }
    ~Expressions() noexcept override = default;

    nvinfer1::IDimensionExpr const* input(std::int64_t extent) {
        // a negative extent is one that is not known while the network is built
        return &store_.emplace_back(static_cast<Extent>(extent < 0 ? -extent : extent), extent >= 0);
    }
    nvinfer1::IDimensionExpr const* constant(Extent value) override { return &store_.emplace_back(value, true); }
    nvinfer1::IDimensionExpr const* operation(nvinfer1::DimensionOperation operation,
                                              nvinfer1::IDimensionExpr const& first,
                                              nvinfer1::IDimensionExpr const& second) override {
        auto const& left = static_cast<Expression const&>(first);
        auto const& right = static_cast<Expression const&>(second);
        return &store_.emplace_back(compute(operation, left.evaluate(), right.evaluate()), left.known() && right.known());
    }
#if NV_TENSORRT_MAJOR >= 10
    nvinfer1::IDimensionExpr const* declareSizeTensor(std::int32_t, nvinfer1::IDimensionExpr const&,
                                                      nvinfer1::IDimensionExpr const&) override {
        return nullptr;
    }
#endif

private:
    static Extent compute(nvinfer1::DimensionOperation operation, Extent left, Extent right) {
        switch (operation) {
            case nvinfer1::DimensionOperation::kSUM: return left + right;
            case nvinfer1::DimensionOperation::kSUB: return left - right;
            case nvinfer1::DimensionOperation::kPROD: return left * right;
            case nvinfer1::DimensionOperation::kFLOOR_DIV: {
                Extent const quotient = left / right;
                return quotient - ((left % right != 0) && ((left < 0) != (right < 0)) ? 1 : 0);
            }
            default: return -1;  // the plugins need no other
        }
    }

    std::deque<Expression> store_;  // addresses stay
};

}  // namespace harness
