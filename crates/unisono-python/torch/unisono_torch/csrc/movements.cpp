// Collectives that move elements and do not compute with them.

#include <algorithm>

#include "backend.hpp"

namespace unisono_torch {
namespace {

// Whether elements of all these tensors have one type.
bool have_one_type(at::TensorList tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == tensors.front().scalar_type();
  });
}

std::vector<at::Tensor> joined(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

uint64_t elements(at::TensorList tensors) {
  uint64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += static_cast<uint64_t>(tensor.numel());
  return sum;
}

}  // namespace

Backend::WorkHandle Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) {
  at::Tensor& input = only("all_gather", inputs);
  Tensors& shares = only("all_gather", outputs);
  check_tensors("all_gather", input);
  check_tensors("all_gather", shares);
  TORCH_CHECK(shares.size() == ranks(), "unisono: all_gather into ", shares.size(), " tensors for ", size_, " ranks");
  const at::Tensor& own = shares[static_cast<size_t>(rank_)];
  TORCH_CHECK(own.numel() == input.numel(), "unisono: the input of all_gather has ", input.numel(),
              " elements, but output ", rank_, ", this rank's, has ", own.numel());
  Call call(UNISONO_OPERATION_ALL_GATHER, input.scalar_type());
  call.write(shares);
  call.read(input);
  call.divide(UNISONO_DIVISION_SHARES);
  call.share(lengths(shares));
  return run(std::move(call), {c10d::OpType::ALLGATHER, "all_gather"}, input, shares, options);
}

Backend::WorkHandle Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& options) {
  check_tensors("all_gather", {output, input});
  TORCH_CHECK(output.numel() == input.numel() * size_, "unisono: the output of all_gather has ", output.numel(),
              " elements, but the inputs of ", size_, " ranks have ", input.numel(), " each");
  Call call(UNISONO_OPERATION_ALL_GATHER, input.scalar_type());
  call.fields.count = static_cast<uint64_t>(input.numel());
  call.write(output);
  // Often this rank's share of the output.
  call.read(input);
  return run(std::move(call), {c10d::OpType::_ALLGATHER_BASE, "all_gather"}, input, output, options);
}

Backend::WorkHandle Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  const Tensors all = joined(outputs);
  check_tensors("all_gather", inputs);
  check_tensors("all_gather", all);
  TORCH_CHECK(!inputs.empty(), "unisono: all_gather of no tensors");
  TORCH_CHECK(outputs.size() == ranks(), "unisono: all_gather into ", outputs.size(), " lists for ", size_, " ranks");
  for (const Tensors& list : outputs) {
    TORCH_CHECK(lengths(list) == lengths(inputs), "unisono: the outputs of all_gather have other lengths than the ",
                inputs.size(), " inputs");
  }
  Call call(UNISONO_OPERATION_ALL_GATHER, inputs.front().scalar_type());
  call.write(all);
  call.read(inputs);
  call.fields.count = elements(inputs);
  return run(std::move(call), {c10d::OpType::ALLGATHER_COALESCED, "all_gather"}, inputs, all, options);
}

Backend::WorkHandle Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                             const c10d::AllgatherOptions& options) {
  check_tensors("all_gather", inputs);
  check_tensors("all_gather", outputs);
  TORCH_CHECK(!inputs.empty() && outputs.size() == inputs.size(), "unisono: all_gather of ", inputs.size(),
              " inputs into ", outputs.size(), " outputs");
  for (size_t at = 0; at < inputs.size(); at++) {
    TORCH_CHECK(outputs[at].nbytes() == inputs[at].nbytes() * ranks(), "unisono: output ", at, " of all_gather has ",
                outputs[at].nbytes(), " bytes, but its inputs on ", size_, " ranks have ", inputs[at].nbytes(),
                " each");
  }
  Call call(UNISONO_OPERATION_ALL_GATHER, inputs.front().scalar_type());
  const bool is_typed = have_one_type(inputs);
  if (!is_typed) call.as_bytes();
  call.write_whole(outputs, size_);
  call.read(inputs);
  for (const at::Tensor& input : inputs)
    call.fields.count += static_cast<uint64_t>(is_typed ? input.numel() : static_cast<int64_t>(input.nbytes()));
  return run(std::move(call), {c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED, "all_gather"}, inputs, outputs, options);
}

Backend::WorkHandle Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::GatherOptions& options) {
  at::Tensor& input = only("gather", inputs);
  check_tensors("gather", input);
  Call call(UNISONO_OPERATION_GATHER, input.scalar_type());
  call.fields.root = checked_root(options.rootRank);
  call.fields.count = static_cast<uint64_t>(input.numel());
  Tensors shares;
  if (call.fields.root == rank_) {
    shares = only("gather", outputs);
    check_tensors("gather", shares);
    TORCH_CHECK(shares.size() == ranks(), "unisono: gather into ", shares.size(), " tensors for ", size_, " ranks");
    for (const at::Tensor& share : shares) {
      TORCH_CHECK(share.numel() == input.numel(), "unisono: an output of gather has ", share.numel(),
                  " elements, the input ", input.numel());
    }
    call.write(shares);
    call.divide(UNISONO_DIVISION_SHARES);
  } else {
    TORCH_CHECK(outputs.empty() || (outputs.size() == 1 && outputs.front().empty()),
                "unisono: only the root of gather has outputs");
  }
  call.read(input);
  return run(std::move(call), {c10d::OpType::GATHER, "gather"}, input, shares, options);
}

Backend::WorkHandle Backend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                const c10d::GatherOptions& options) {
  check_tensors("gather", input);
  Call call(UNISONO_OPERATION_GATHER, input.scalar_type());
  call.fields.root = checked_root(options.rootRank);
  call.fields.count = static_cast<uint64_t>(input.numel());
  Tensors outputs;
  if (call.fields.root == rank_) {
    outputs.push_back(output);
    check_tensors("gather", outputs);
    TORCH_CHECK(output.numel() == input.numel() * size_, "unisono: the output of gather has ", output.numel(),
                " elements, but the inputs of ", size_, " ranks have ", input.numel(), " each");
    call.write(outputs);
  }
  call.read(input);
  return run(std::move(call), {c10d::OpType::GATHER, "gather"}, input, outputs, options);
}

Backend::WorkHandle Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                     const c10d::ScatterOptions& options) {
  at::Tensor& output = only("scatter", outputs);
  check_tensors("scatter", output);
  Call call(UNISONO_OPERATION_SCATTER, output.scalar_type());
  call.fields.root = checked_root(options.rootRank);
  call.fields.count = static_cast<uint64_t>(output.numel());
  call.write(output);
  Tensors shares;
  if (call.fields.root == rank_) {
    shares = only("scatter", inputs);
    check_tensors("scatter", shares);
    TORCH_CHECK(shares.size() == ranks(), "unisono: scatter of ", shares.size(), " tensors for ", size_, " ranks");
    for (const at::Tensor& share : shares) {
      TORCH_CHECK(share.numel() == output.numel(), "unisono: an input of scatter has ", share.numel(),
                  " elements, the output ", output.numel());
    }
    call.read(shares);
    call.divide(UNISONO_DIVISION_SHARES);
  } else {
    TORCH_CHECK(inputs.empty() || (inputs.size() == 1 && inputs.front().empty()),
                "unisono: only the root of scatter has inputs");
  }
  return run(std::move(call), {c10d::OpType::SCATTER, "scatter"}, shares, output, options);
}

Backend::WorkHandle Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  check_tensors("all_to_all", inputs);
  check_tensors("all_to_all", outputs);
  TORCH_CHECK(inputs.size() == ranks() && outputs.size() == ranks(), "unisono: all_to_all of ", inputs.size(),
              " tensors into ", outputs.size(), " for ", size_, " ranks");
  Call call(UNISONO_OPERATION_ALL_TO_ALL, inputs.front().scalar_type());
  call.write(outputs);
  call.read(inputs);
  call.divide(UNISONO_DIVISION_SHARES);
  call.exchange(lengths(inputs), lengths(outputs));
  return run(std::move(call), {c10d::OpType::ALLTOALL, "all_to_all"}, inputs, outputs, options);
}

Backend::WorkHandle Backend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                           std::vector<int64_t>& input_splits,
                                           const c10d::AllToAllOptions& options) {
  check_tensors("all_to_all", {output, input});
  Call call(UNISONO_OPERATION_ALL_TO_ALL, input.scalar_type());
  call.write(output);
  call.read(input);
  auto sent = split_lengths(input, input_splits, size_);
  auto received = split_lengths(output, output_splits, size_);
  if (output_splits.empty() && input_splits.empty()) {
    TORCH_CHECK(sent.front() == received.front(), "unisono: the input of all_to_all has ", input.numel(),
                " elements, the output ", output.numel());
    call.fields.count = sent.front();
  } else {
    call.exchange(std::move(sent), std::move(received));
  }
  return run(std::move(call), {c10d::OpType::ALLTOALL_BASE, "all_to_all"}, input, output, options);
}

}  // namespace unisono_torch
