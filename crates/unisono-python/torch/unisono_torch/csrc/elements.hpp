// Element types and operators of torch as the library has them.

#pragma once

#include <cstdint>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace unisono_torch {

// The type of one element.
struct Element {
  int32_t dtype;
  // The bytes of an element that only the program can interpret; else 0.
  uint32_t opaque_bytes;
};

// Every type has one: a type that the library cannot compute with moves as bytes.
Element element_of(at::ScalarType type);

// An operator.
struct Reduction {
  int32_t op;
  // Of PREMUL_SUM.
  double factor;
};

// The operator for elements of a type. torch's sum and product of truth values are "or" and "and".
Reduction reduction_of(const c10d::ReduceOp& op, at::ScalarType type);

}  // namespace unisono_torch
