// Sums that send fewer bits, and the errors that they still owe.

#include "compressed.hpp"

#include "elements.hpp"
#include "error.hpp"

namespace unisono_torch {
namespace {

unisono_state_t fields_of(const std::string& codec, at::ScalarType type) {
  unisono_state_t fields{};
  fields.struct_size = sizeof fields;
  fields.codec = codec.c_str();
  fields.operation = UNISONO_OPERATION_ALL_REDUCE;
  fields.dtype = element_of(type).dtype;
  return fields;
}

}  // namespace

CompressionState::CompressionState(const Backend& backend, const std::string& codec, at::ScalarType type,
                                   int64_t length)
    : communicator_(backend.communicator()) {
  unisono_state_t fields = fields_of(codec, type);
  const auto elements = static_cast<uint64_t>(length);
  fields.lengths = &elements;
  fields.length_count = 1;
  check(unisono_state_new(communicator_->handle(), &fields, &handle_));
}

CompressionState::CompressionState(const Backend& backend, const std::string& codec, at::ScalarType type,
                                   const std::string& bytes)
    : communicator_(backend.communicator()) {
  const unisono_state_t fields = fields_of(codec, type);
  check(unisono_state_import(communicator_->handle(), &fields, bytes.data(), bytes.size(), &handle_));
}

CompressionState::~CompressionState() { unisono_state_free(handle_); }

void CompressionState::reset() { check(unisono_state_reset(handle_)); }

std::string CompressionState::bytes() const {
  unisono_bytes_t bytes{};
  check(unisono_state_export(handle_, &bytes));
  std::string copy(reinterpret_cast<const char*>(bytes.data), bytes.length);
  unisono_bytes_free(&bytes);
  return copy;
}

Backend::WorkHandle Backend::compressed_all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op,
                                                   const std::shared_ptr<CompressionState>& state, bool is_async) {
  check_tensors("compressed all_reduce", tensor);
  Call call(UNISONO_OPERATION_ALL_REDUCE, tensor.scalar_type());
  call.update(tensor);
  call.fields.count = static_cast<uint64_t>(tensor.numel());
  call.reduce(op);
  call.compress(state, state->handle());
  return run(std::move(call), {c10d::OpType::ALLREDUCE, "compressed_all_reduce"}, tensor, tensor, is_async,
             c10d::kUnsetTimeout);
}

}  // namespace unisono_torch
