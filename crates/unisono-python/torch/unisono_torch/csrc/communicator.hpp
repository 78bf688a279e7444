// Communicators of the library: the world that the ranks of a program make, and groups.

#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unisono.h>

namespace unisono_torch {

// A communicator, which says goodbye with its last owner.
class Communicator {
 public:
  // Takes the handle.
  explicit Communicator(unisono_comm* handle);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // All ranks that meet through a store, where `secret_file` names the file of the job's secret, or is empty.
  static std::shared_ptr<Communicator> meet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds timeout, const std::string& secret_file);
  // Some ranks of this communicator, in this order; only they make the call.
  std::shared_ptr<Communicator> group(const std::vector<int64_t>& ranks) const;

  unisono_comm* handle() const { return handle_; }
  // The rank here of a rank of the job, as errors name it; -1 for no member.
  int rank_of(uint32_t job_rank) const;
  // The ranks have no more calls to make.
  void close();

 private:
  unisono_comm* handle_;
  // By rank.
  std::vector<uint32_t> job_ranks_;
};

}  // namespace unisono_torch
