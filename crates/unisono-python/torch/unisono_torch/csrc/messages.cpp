// Messages between two ranks, and barriers.

#include <algorithm>

#include "backend.hpp"
#include "error.hpp"

namespace unisono_torch {

// A message is bytes: torch lets both sides have different types. It never waits behind collectives.
Backend::WorkHandle Backend::message(Call call, Operation operation, const at::Tensor& tensor, int tag) {
  TORCH_CHECK(tag >= 0, "unisono: tag ", tag, ", but tags begin at 0");
  auto facts = this->facts(operation, tensor, tensor, c10d::kUnsetTimeout);
  if (operation.type != c10d::OpType::SEND) facts.expected_bytes = tensor.nbytes();
  call.as_bytes();
  call.fields.tag = tag;
  call.fields.count = tensor.nbytes();
  return issue(std::move(call), std::move(facts), true);
}

Backend::WorkHandle Backend::send(Tensors& tensors, int destination, int tag) {
  at::Tensor& tensor = only("send", tensors);
  check_tensors("send", tensor);
  TORCH_CHECK(destination >= 0 && destination < size_, "unisono: send to rank ", destination, " of ", size_);
  Call call(UNISONO_OPERATION_SEND, tensor.scalar_type());
  call.read(tensor);
  call.fields.peer = destination;
  return message(std::move(call), {c10d::OpType::SEND, "send"}, tensor, tag);
}

Backend::WorkHandle Backend::recv(Tensors& tensors, int source, int tag) {
  TORCH_CHECK(source >= 0 && source < size_, "unisono: recv from rank ", source, " of ", size_);
  return receive(tensors, source, tag, {c10d::OpType::RECV, "recv"});
}

Backend::WorkHandle Backend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, UNISONO_ANY, tag, {c10d::OpType::RECVANYSOURCE, "recvAnySource"});
}

Backend::WorkHandle Backend::receive(Tensors& tensors, int peer, int tag, Operation operation) {
  at::Tensor& tensor = only("recv", tensors);
  check_tensors("recv", tensor);
  Call call(UNISONO_OPERATION_RECV, tensor.scalar_type());
  call.write(tensor);
  call.fields.peer = peer;
  return message(std::move(call), operation, tensor, tag);
}

Backend::WorkHandle Backend::barrier(const c10d::BarrierOptions& options) {
  return run(Call(UNISONO_OPERATION_BARRIER), {c10d::OpType::BARRIER, "barrier"}, {}, {}, options);
}

// The texts are those that programs know from Gloo: rank 0 names the missing ranks, the others name rank 0. Here the
// others name them too.
void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  if (timeout.count() <= 0) {
    C10_THROW_ERROR(DistBackendError, c10::str("Rank ", rank_, " timed out in monitoredBarrier after ",
                                               timeout.count(), " ms."));
  }
  const auto comm = communicator();
  const unisono_status status = unisono_monitored_barrier(comm->handle(), seconds(timeout));
  if (status != UNISONO_STATUS_TIMEOUT) {
    check(status);
    return;
  }
  const unisono_error_t* error = unisono_last_error();
  std::vector<int> missing;
  for (size_t at = 0; at < error->rank_count; at++) missing.push_back(comm->rank_of(error->ranks[at]));
  std::sort(missing.begin(), missing.end());
  if (rank_ == 0 && !wait_all_ranks && !missing.empty()) missing.resize(1);
  const char* word = rank_ == 0 && missing.size() == 1 ? "Rank " : "Ranks ";
  const std::string text =
      c10::str(word, c10::Join(", ", missing), " failed to pass monitoredBarrier in ", timeout.count(), " ms");
  if (rank_ == 0) C10_THROW_ERROR(DistBackendError, text);
  C10_THROW_ERROR(DistBackendError,
                  c10::str("Rank ", rank_, " successfully reached monitoredBarrier, but received errors while waiting ",
                           "for send/recv from rank 0. Please check rank 0 logs for faulty rank. ", text));
}

}  // namespace unisono_torch
