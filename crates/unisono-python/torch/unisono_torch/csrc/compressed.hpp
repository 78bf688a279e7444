// Sums that send fewer bits, and the errors that they still owe.

#pragma once

#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <unisono.h>

#include "backend.hpp"

namespace unisono_torch {

// The state of compressed sums of one vector: its codec, and on this rank the errors of earlier sums.
class CompressionState {
 public:
  // For vectors of `length` elements of a type; all ranks give the same.
  CompressionState(const Backend& backend, const std::string& codec, at::ScalarType type, int64_t length);
  // The state that `bytes()` gave on the same rank of as many ranks.
  CompressionState(const Backend& backend, const std::string& codec, at::ScalarType type, const std::string& bytes);
  ~CompressionState();
  CompressionState(const CompressionState&) = delete;
  CompressionState& operator=(const CompressionState&) = delete;

  unisono_state* handle() const { return handle_; }
  // Forgets the errors.
  void reset();
  // The state for a checkpoint of this rank.
  std::string bytes() const;

 private:
  // The communicator lives as long as its states.
  std::shared_ptr<Communicator> communicator_;
  unisono_state* handle_ = nullptr;
};

}  // namespace unisono_torch
