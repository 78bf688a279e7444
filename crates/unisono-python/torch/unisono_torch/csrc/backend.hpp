// The backend of torch.distributed: each function of c10d::Backend as one call of the library.

#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "call.hpp"
#include "communicator.hpp"
#include "work.hpp"

namespace unisono_torch {

class CompressionState;

// A group of ranks. Any thread may call it, several at once: collectives run in the order of their calls, messages
// beside them. A call with `asyncOp` off is made by the thread that calls, and has ended when the function returns.
class Backend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkHandle = c10::intrusive_ptr<c10d::Work>;

  Backend(std::shared_ptr<Communicator> communicator, int rank, int size, std::chrono::milliseconds timeout);

  // All ranks of the program, or of a group in a program whose other ranks have another backend.
  static c10::intrusive_ptr<Backend> join(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                          std::chrono::milliseconds timeout, const std::string& secret_file,
                                          bool is_default);
  // These ranks of the default group, in this order.
  static c10::intrusive_ptr<Backend> group(const std::vector<int64_t>& ranks, int rank,
                                           std::chrono::milliseconds timeout);
  // Whether there is a default group to make others of.
  static bool has_world();

  // Life (backend.cpp).
  const std::string getBackendName() const override { return backend_name(); }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_number_; }
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                           const c10::intrusive_ptr<Options>& options) override;
  void abort() override;
  void shutdown() override;

  // Collectives (collectives.cpp).
  WorkHandle broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkHandle allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkHandle allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkHandle reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkHandle reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ReduceScatterOptions& options) override;
  WorkHandle _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                  const c10d::ReduceScatterOptions& options) override;
  WorkHandle reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const c10d::ReduceScatterOptions& options) override;

  // Collectives that only move elements (movements.cpp).
  WorkHandle allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkHandle _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) override;
  WorkHandle gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkHandle scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkHandle alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkHandle alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                           std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  // Overrides a function that older versions of torch do not have.
  WorkHandle gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options);

  // Messages and barriers (messages.cpp).
  WorkHandle send(Tensors& tensors, int destination, int tag) override;
  WorkHandle recv(Tensors& tensors, int source, int tag) override;
  WorkHandle recvAnysource(Tensors& tensors, int tag) override;
  WorkHandle barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // Sparse tensors (sparse.cpp).
  WorkHandle allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;

  // Sums that send fewer bits (compressed.cpp).
  WorkHandle compressed_all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op,
                                   const std::shared_ptr<CompressionState>& state, bool is_async);

  // The ranks of this group that errors have named as lost.
  std::vector<int> lost_ranks() const;
  // The communicator, for calls that torch does not have.
  std::shared_ptr<Communicator> communicator() const;

 private:
  // An operation of torch: its type and its name.
  struct Operation {
    c10d::OpType type;
    const char* name;
  };
  // Makes a call, or starts it; `inputs` are for the profiler, `outputs` the result.
  template <typename CallOptions>
  WorkHandle run(Call call, Operation operation, at::TensorList inputs, at::TensorList outputs,
                 const CallOptions& options) {
    return run(std::move(call), operation, inputs, outputs, options.asyncOp, options.timeout);
  }
  WorkHandle run(Call call, Operation operation, at::TensorList inputs, at::TensorList outputs, bool is_async,
                 std::chrono::milliseconds timeout);
  // The same with the facts, for a collective or a message.
  WorkHandle issue(Call call, Facts facts, bool is_async);
  WorkHandle message(Call call, Operation operation, const at::Tensor& tensor, int tag);
  WorkHandle receive(Tensors& tensors, int peer, int tag, Operation operation);
  // Of a call whose tensors are checked.
  Facts facts(Operation operation, at::TensorList inputs, at::TensorList outputs,
              std::chrono::milliseconds timeout) const;
  int checked_root(int64_t root) const;
  size_t ranks() const { return static_cast<size_t>(size_); }

  c10::intrusive_ptr<Options> options_;
  std::atomic<uint64_t> sequence_number_{0};
  // Whether ranks of this group go on in a smaller one.
  std::atomic<bool> is_shrunk_{false};
  mutable std::mutex mutex_;
  // Null after the end of the group.
  std::shared_ptr<Communicator> communicator_;
};

// The only tensor of a list.
at::Tensor& only(const char* operation, std::vector<at::Tensor>& tensors);
// The only list of lists.
std::vector<at::Tensor>& only(const char* operation, std::vector<std::vector<at::Tensor>>& lists);
// Refuses tensors that are not dense tensors of the host.
void check_tensors(const char* operation, at::TensorList tensors);

}  // namespace unisono_torch
