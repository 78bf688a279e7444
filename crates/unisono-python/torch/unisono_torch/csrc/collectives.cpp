// Collectives that reduce, and broadcast.

#include "backend.hpp"

namespace unisono_torch {

Backend::WorkHandle Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  at::Tensor& tensor = only("broadcast", tensors);
  check_tensors("broadcast", tensor);
  Call call(UNISONO_OPERATION_BROADCAST, tensor.scalar_type());
  call.fields.root = checked_root(options.rootRank);
  // The root's tensor is read only, so it may be an expanded one.
  call.update(call.fields.root == rank_ ? tensor.resolve_conj().resolve_neg().contiguous() : tensor);
  // A broadcast is always in place.
  call.fields.flags = 0;
  call.fields.count = static_cast<uint64_t>(tensor.numel());
  return run(std::move(call), {c10d::OpType::BROADCAST, "broadcast"}, tensor, tensor, options);
}

Backend::WorkHandle Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = only("all_reduce", tensors);
  if (tensor.is_sparse()) return allreduce_sparse(tensors, options);
  check_tensors("all_reduce", tensor);
  Call call(UNISONO_OPERATION_ALL_REDUCE, tensor.scalar_type());
  call.update(tensor);
  call.fields.count = static_cast<uint64_t>(tensor.numel());
  call.reduce(options.reduceOp);
  return run(std::move(call), {c10d::OpType::ALLREDUCE, "all_reduce"}, tensor, tensor, options);
}

Backend::WorkHandle Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  check_tensors("all_reduce", tensors);
  TORCH_CHECK(!tensors.empty(), "unisono: all_reduce of no tensors");
  Call call(UNISONO_OPERATION_ALL_REDUCE, tensors.front().scalar_type());
  call.update(tensors);
  for (const at::Tensor& tensor : tensors) call.fields.count += static_cast<uint64_t>(tensor.numel());
  call.divide(UNISONO_DIVISION_COALESCED);
  call.reduce(options.reduceOp);
  return run(std::move(call), {c10d::OpType::ALLREDUCE_COALESCED, "all_reduce"}, tensors, tensors, options);
}

Backend::WorkHandle Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  at::Tensor& tensor = only("reduce", tensors);
  check_tensors("reduce", tensor);
  Call call(UNISONO_OPERATION_REDUCE, tensor.scalar_type());
  call.fields.root = checked_root(options.rootRank);
  // Elsewhere the tensor is read only.
  if (call.fields.root == rank_) {
    call.update(tensor);
  } else {
    call.read(tensor);
  }
  call.fields.count = static_cast<uint64_t>(tensor.numel());
  call.reduce(options.reduceOp);
  return run(std::move(call), {c10d::OpType::REDUCE, "reduce"}, tensor, tensor, options);
}

Backend::WorkHandle Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ReduceScatterOptions& options) {
  at::Tensor& output = only("reduce_scatter", outputs);
  Tensors& shares = only("reduce_scatter", inputs);
  check_tensors("reduce_scatter", output);
  check_tensors("reduce_scatter", shares);
  TORCH_CHECK(shares.size() == ranks(), "unisono: reduce_scatter of ", shares.size(), " tensors for ", size_, " ranks");
  const at::Tensor& own = shares[static_cast<size_t>(rank_)];
  TORCH_CHECK(own.numel() == output.numel(), "unisono: share ", rank_, " of reduce_scatter has ", own.numel(),
              " elements, but the output of this rank has ", output.numel());
  Call call(UNISONO_OPERATION_REDUCE_SCATTER, output.scalar_type());
  call.write(output);
  call.read(shares);
  call.divide(UNISONO_DIVISION_SHARES);
  call.share(lengths(shares));
  call.reduce(options.reduceOp);
  return run(std::move(call), {c10d::OpType::REDUCE_SCATTER, "reduce_scatter"}, shares, output, options);
}

Backend::WorkHandle Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& options) {
  check_tensors("reduce_scatter", {output, input});
  TORCH_CHECK(input.numel() == output.numel() * size_, "unisono: the input of reduce_scatter has ", input.numel(),
              " elements, but the outputs of ", size_, " ranks have ", output.numel(), " each");
  Call call(UNISONO_OPERATION_REDUCE_SCATTER, output.scalar_type());
  call.write(output);
  call.read(input);
  call.fields.count = static_cast<uint64_t>(output.numel());
  call.reduce(options.reduceOp);
  return run(std::move(call), {c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter"}, input, output, options);
}

Backend::WorkHandle Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                             const c10d::ReduceScatterOptions& options) {
  check_tensors("reduce_scatter", outputs);
  check_tensors("reduce_scatter", inputs);
  TORCH_CHECK(!outputs.empty() && outputs.size() == inputs.size(), "unisono: reduce_scatter of ", inputs.size(),
              " inputs into ", outputs.size(), " outputs");
  Call call(UNISONO_OPERATION_REDUCE_SCATTER, outputs.front().scalar_type());
  call.write(outputs);
  call.read_whole(inputs, size_);
  for (size_t at = 0; at < outputs.size(); at++) {
    TORCH_CHECK(inputs[at].numel() == outputs[at].numel() * size_, "unisono: input ", at, " of reduce_scatter has ",
                inputs[at].numel(), " elements, but its outputs on ", size_, " ranks have ", outputs[at].numel(),
                " each");
    call.fields.count += static_cast<uint64_t>(outputs[at].numel());
  }
  call.reduce(options.reduceOp);
  return run(std::move(call), {c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "reduce_scatter"}, inputs, outputs,
             options);
}

}  // namespace unisono_torch
