// One call of the library, with the memory that it uses.

#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <unisono.h>

namespace unisono_torch {

// A call that an operation of torch fills in. It keeps its tensors alive, so it lives until the call has ended.
//
// The library reads and writes memory without gaps. Another tensor takes part by a copy: of an input at the start, to
// an output at the end.
class Call {
 public:
  // A call on elements of a type.
  Call(int32_t operation, at::ScalarType type);
  // A call without data.
  explicit Call(int32_t operation);

  Call(Call&&) = default;
  Call& operator=(Call&&) = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() = default;

  // The tensors are the data that is written, in pieces.
  void write(at::TensorList tensors);
  // The tensors are the data that is read, in pieces; after the data that is written, because an input that shares
  // memory with an output is read from a copy.
  void read(at::TensorList tensors);
  // The tensors are read and written.
  void update(at::TensorList tensors);

  // Several pieces are one buffer that is cut anywhere, the ranks' shares, or several buffers that one call handles
  // together.
  void divide(unisono_division division) { fields.division = division; }
  // Several buffers that one call handles together, of which every rank has an equal share: the whole ones are written,
  // or read.
  void write_whole(at::TensorList tensors, int size);
  void read_whole(at::TensorList tensors, int size);
  // The elements of each rank's share. Equal ones become the count of the call.
  void share(std::vector<uint64_t> counts);
  // The elements that this rank sends to each rank, and gets from each.
  void exchange(std::vector<uint64_t> sent, std::vector<uint64_t> received);
  // The operator.
  void reduce(const c10d::ReduceOp& op);
  // The call sends fewer bits; the state stays until its end.
  void compress(std::shared_ptr<const void> owner, const unisono_state* state);
  // The elements are bytes: for a call that only moves elements, of types that differ.
  void as_bytes();

  // The structure for the library, which is valid until the call is moved.
  const unisono_call_t& structure();
  // Copies what was written to the tensors that have gaps. Once, after a success.
  void copy_back();

  // Fields that an operation sets itself.
  unisono_call_t fields;

 private:
  at::Tensor readable(const at::Tensor& tensor);
  at::Tensor writable(const at::Tensor& tensor, bool is_read);
  bool overlaps_output(const at::Tensor& tensor) const;
  std::vector<unisono_piece_t> by_rank(const std::vector<unisono_piece_t>& whole, int size) const;
  size_t element_bytes() const;
  unisono_piece_t piece(const at::Tensor& tensor) const;

  at::ScalarType type_;
  bool moves_bytes_ = false;
  std::vector<unisono_piece_t> inputs_;
  std::vector<unisono_piece_t> outputs_;
  std::vector<uint64_t> counts_;
  std::vector<uint64_t> receive_counts_;
  std::vector<at::Tensor> kept_;
  std::shared_ptr<const void> state_;
  // Outputs with gaps, and their copies.
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

// The lengths of tensors in elements.
std::vector<uint64_t> lengths(at::TensorList tensors);

// The lengths of the parts of a tensor that is split along its first dimension; empty splits are equal ones.
std::vector<uint64_t> split_lengths(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size);

}  // namespace unisono_torch
