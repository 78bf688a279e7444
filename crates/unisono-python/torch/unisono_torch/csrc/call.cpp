// One call of the library, with the memory that it uses.

#include "call.hpp"

#include <algorithm>
#include <numeric>

#include "elements.hpp"

namespace unisono_torch {

Call::Call(int32_t operation, at::ScalarType type) : fields(unisono_call_of(operation, nullptr, 0)), type_(type) {
  const Element element = element_of(type);
  fields.dtype = element.dtype;
  fields.element_bytes = element.opaque_bytes;
}

Call::Call(int32_t operation) : fields(unisono_call_of(operation, nullptr, 0)), type_(at::kByte) {}

void Call::read(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    kept_.push_back(readable(tensor));
    inputs_.push_back(piece(kept_.back()));
  }
}

void Call::write(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    kept_.push_back(writable(tensor, false));
    outputs_.push_back(piece(kept_.back()));
  }
}

void Call::update(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    kept_.push_back(writable(tensor, true));
    outputs_.push_back(piece(kept_.back()));
  }
  fields.flags |= UNISONO_IN_PLACE;
}

void Call::write_whole(at::TensorList tensors, int size) {
  write(tensors);
  outputs_ = by_rank(outputs_, size);
}

void Call::read_whole(at::TensorList tensors, int size) {
  read(tensors);
  inputs_ = by_rank(inputs_, size);
}

void Call::share(std::vector<uint64_t> counts) {
  const bool is_even = std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
  if (is_even) {
    fields.count = counts.empty() ? 0 : counts.front();
  } else {
    counts_ = std::move(counts);
  }
}

void Call::exchange(std::vector<uint64_t> sent, std::vector<uint64_t> received) {
  counts_ = std::move(sent);
  receive_counts_ = std::move(received);
}

void Call::reduce(const c10d::ReduceOp& op) {
  const Reduction reduction = reduction_of(op, type_);
  fields.op = reduction.op;
  fields.factor = reduction.factor;
}

void Call::compress(std::shared_ptr<const void> owner, const unisono_state* state) {
  state_ = std::move(owner);
  fields.state = state;
}

void Call::as_bytes() {
  moves_bytes_ = true;
  fields.dtype = UNISONO_DTYPE_U8;
  fields.element_bytes = 0;
}

const unisono_call_t& Call::structure() {
  const auto place = [](std::vector<unisono_piece_t>& pieces, auto& one, auto& list, size_t& length) {
    if (pieces.size() == 1) {
      one = pieces.front().data;
    } else {
      list = pieces.data();
      length = pieces.size();
    }
  };
  // A list of one piece is one buffer.
  if (inputs_.size() <= 1 && outputs_.size() <= 1) fields.division = UNISONO_DIVISION_ANYWHERE;
  place(inputs_, fields.input, fields.inputs, fields.input_count);
  place(outputs_, fields.output, fields.outputs, fields.output_count);
  fields.counts = counts_.empty() ? nullptr : counts_.data();
  fields.counts_length = counts_.size();
  fields.receive_counts = receive_counts_.empty() ? nullptr : receive_counts_.data();
  fields.receive_counts_length = receive_counts_.size();
  return fields;
}

void Call::copy_back() {
  const at::NoGradGuard no_gradients;
  for (auto& [tensor, copy] : copies_) tensor.copy_(copy);
  copies_.clear();
}

at::Tensor Call::readable(const at::Tensor& tensor) {
  TORCH_CHECK(moves_bytes_ || tensor.scalar_type() == type_, "unisono: tensors of one call have one type, not ",
              type_, " and ", tensor.scalar_type());
  const at::NoGradGuard no_gradients;
  // A conjugated or negated view is computed here too.
  const at::Tensor plain = tensor.resolve_conj().resolve_neg().contiguous();
  return overlaps_output(plain) ? plain.clone() : plain;
}

at::Tensor Call::writable(const at::Tensor& tensor, bool is_read) {
  TORCH_CHECK(moves_bytes_ || tensor.scalar_type() == type_, "unisono: tensors of one call have one type, not ",
              type_, " and ", tensor.scalar_type());
  const bool is_plain = tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  if (is_plain) return tensor;
  const at::NoGradGuard no_gradients;
  at::Tensor copy = is_read ? tensor.clone(at::MemoryFormat::Contiguous).resolve_conj().resolve_neg()
                            : at::empty(tensor.sizes(), tensor.options());
  copies_.emplace_back(tensor, copy);
  return copy;
}

bool Call::overlaps_output(const at::Tensor& tensor) const {
  const auto* start = static_cast<const char*>(tensor.data_ptr());
  const auto* end = start + tensor.nbytes();
  const size_t bytes = element_bytes();
  return std::any_of(outputs_.begin(), outputs_.end(), [&](const unisono_piece_t& output) {
    const auto* other = static_cast<const char*>(output.data);
    return start < other + output.count * bytes && other < end;
  });
}

size_t Call::element_bytes() const { return moves_bytes_ ? 1 : c10::elementSize(type_); }

// The shares of the first rank in all buffers, then those of the second one.
std::vector<unisono_piece_t> Call::by_rank(const std::vector<unisono_piece_t>& whole, int size) const {
  std::vector<unisono_piece_t> shares;
  for (uint64_t rank = 0; rank < static_cast<uint64_t>(size); rank++) {
    for (const unisono_piece_t& buffer : whole) {
      const uint64_t count = buffer.count / static_cast<uint64_t>(size);
      auto* start = static_cast<char*>(buffer.data);
      shares.push_back({count == 0 ? nullptr : start + rank * count * element_bytes(), count});
    }
  }
  return shares;
}

unisono_piece_t Call::piece(const at::Tensor& tensor) const {
  const auto count = static_cast<uint64_t>(moves_bytes_ ? tensor.nbytes() : tensor.numel());
  return {count == 0 ? nullptr : tensor.data_ptr(), count};
}

std::vector<uint64_t> lengths(at::TensorList tensors) {
  std::vector<uint64_t> lengths;
  lengths.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) lengths.push_back(static_cast<uint64_t>(tensor.numel()));
  return lengths;
}

std::vector<uint64_t> split_lengths(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size) {
  const int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK(rows % size == 0, "unisono: ", rows, " rows are not divisible by ", size, " ranks");
    return std::vector<uint64_t>(static_cast<size_t>(size), static_cast<uint64_t>(tensor.numel() / size));
  }
  TORCH_CHECK(splits.size() == static_cast<size_t>(size), "unisono: ", splits.size(), " splits for ", size, " ranks");
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  TORCH_CHECK(sum == rows, "unisono: the splits add up to ", sum, ", but the tensor has ", rows, " rows");
  const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  std::vector<uint64_t> lengths;
  for (const int64_t split : splits) {
    TORCH_CHECK(split >= 0, "unisono: a split of ", split, " rows");
    lengths.push_back(static_cast<uint64_t>(split * row));
  }
  return lengths;
}

}  // namespace unisono_torch
