// Element types and operators of torch as the library has them.

#include "elements.hpp"

#include <unisono.h>

namespace unisono_torch {

Element element_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return {UNISONO_DTYPE_F64, 0};
    case at::kFloat:
      return {UNISONO_DTYPE_F32, 0};
    case at::kHalf:
      return {UNISONO_DTYPE_F16, 0};
    case at::kBFloat16:
      return {UNISONO_DTYPE_BF16, 0};
    case at::kChar:
      return {UNISONO_DTYPE_I8, 0};
    case at::kShort:
      return {UNISONO_DTYPE_I16, 0};
    case at::kInt:
      return {UNISONO_DTYPE_I32, 0};
    case at::kLong:
      return {UNISONO_DTYPE_I64, 0};
    case at::kByte:
      return {UNISONO_DTYPE_U8, 0};
    case at::kUInt16:
      return {UNISONO_DTYPE_U16, 0};
    case at::kUInt32:
      return {UNISONO_DTYPE_U32, 0};
    case at::kUInt64:
      return {UNISONO_DTYPE_U64, 0};
    case at::kBool:
      return {UNISONO_DTYPE_BOOL, 0};
    case at::kFloat8_e4m3fn:
      return {UNISONO_DTYPE_F8E4M3, 0};
    case at::kFloat8_e5m2:
      return {UNISONO_DTYPE_F8E5M2, 0};
    case at::kComplexFloat:
      return {UNISONO_DTYPE_COMPLEX64, 0};
    case at::kComplexDouble:
      return {UNISONO_DTYPE_COMPLEX128, 0};
    default:
      // Complex halves, quantised numbers, bits.
      return {UNISONO_DTYPE_OPAQUE, static_cast<uint32_t>(c10::elementSize(type))};
  }
}

Reduction reduction_of(const c10d::ReduceOp& op, at::ScalarType type) {
  const bool is_bool = type == at::kBool;
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {is_bool ? UNISONO_OP_BIT_OR : UNISONO_OP_SUM, 0.0};
    case c10d::ReduceOp::PRODUCT:
      return {is_bool ? UNISONO_OP_BIT_AND : UNISONO_OP_PROD, 0.0};
    case c10d::ReduceOp::AVG:
      return {UNISONO_OP_AVG, 0.0};
    case c10d::ReduceOp::MIN:
      return {UNISONO_OP_MIN, 0.0};
    case c10d::ReduceOp::MAX:
      return {UNISONO_OP_MAX, 0.0};
    case c10d::ReduceOp::BAND:
      return {UNISONO_OP_BIT_AND, 0.0};
    case c10d::ReduceOp::BOR:
      return {UNISONO_OP_BIT_OR, 0.0};
    case c10d::ReduceOp::BXOR:
      return {UNISONO_OP_BIT_XOR, 0.0};
    case c10d::ReduceOp::PREMUL_SUM: {
      const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK(supplement != nullptr, "unisono: PREMUL_SUM has no factor");
      const at::Tensor& tensor = supplement->tensor_factor;
      return {UNISONO_OP_PRE_MUL_SUM, tensor.defined() ? tensor.item<double>() : supplement->double_factor};
    }
    case c10d::ReduceOp::UNUSED:
      break;
  }
  TORCH_CHECK(false, "unisono: an operator of number ", static_cast<int>(op.op_), " is not known");
}

}  // namespace unisono_torch
