// The life of a group, and the way of every call to the library.

#include "backend.hpp"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

#include "error.hpp"
#include "site.hpp"

namespace unisono_torch {
namespace {

// The default group, of which the others are made. Its owner is its backend.
struct World {
  std::mutex mutex;
  std::weak_ptr<Communicator> communicator;
};

World& world() {
  static auto* world = new World();
  return *world;
}

}  // namespace

Backend::Backend(std::shared_ptr<Communicator> communicator, int rank, int size, std::chrono::milliseconds timeout)
    : c10d::Backend(rank, size),
      options_(c10::make_intrusive<Options>(backend_name(), timeout)),
      communicator_(std::move(communicator)) {
  init();
}

c10::intrusive_ptr<Backend> Backend::join(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                          std::chrono::milliseconds timeout, const std::string& secret_file,
                                          bool is_default) {
  auto communicator = Communicator::meet(store, rank, size, timeout, secret_file);
  if (is_default) {
    const std::lock_guard<std::mutex> lock(world().mutex);
    world().communicator = communicator;
  }
  return c10::make_intrusive<Backend>(std::move(communicator), rank, size, timeout);
}

c10::intrusive_ptr<Backend> Backend::group(const std::vector<int64_t>& ranks, int rank,
                                           std::chrono::milliseconds timeout) {
  std::shared_ptr<Communicator> all;
  {
    const std::lock_guard<std::mutex> lock(world().mutex);
    all = world().communicator.lock();
  }
  TORCH_CHECK(all != nullptr, "unisono: the default group has ended");
  return c10::make_intrusive<Backend>(all->group(ranks), rank, static_cast<int>(ranks.size()), timeout);
}

bool Backend::has_world() {
  const std::lock_guard<std::mutex> lock(world().mutex);
  return !world().communicator.expired();
}

void Backend::setTimeout(std::chrono::milliseconds timeout) { options_->timeout = timeout; }

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) return nullptr;
  const auto rank = static_cast<int>(own - ranks.begin());
  const auto timeout = options ? options->timeout : options_->timeout;
  auto group = communicator()->group(std::vector<int64_t>(ranks.begin(), ranks.end()));
  auto backend = c10::make_intrusive<Backend>(std::move(group), rank, static_cast<int>(ranks.size()), timeout);
  if (options) {
    backend->options_->group_name = options->group_name;
    backend->options_->group_desc = options->group_desc;
    backend->options_->global_ranks_in_group = options->global_ranks_in_group;
  }
  return backend;
}

c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<int64_t>& excluded, int flags,
                                                  const c10::intrusive_ptr<Options>& options) {
  const auto all = communicator();
  std::vector<int64_t> rest;
  int rank = -1;
  for (int64_t other = 0; other < size_; other++) {
    if (std::find(excluded.begin(), excluded.end(), other) != excluded.end()) continue;
    if (other == rank_) rank = static_cast<int>(rest.size());
    rest.push_back(other);
  }
  TORCH_CHECK(rank >= 0, "unisono: rank ", rank_, " is excluded and cannot go on");
  // SHRINK_ABORT: calls that still run end.
  if ((flags & 1) != 0) check(unisono_abort(all->handle()));
  // Groups without a lost rank are not touched by its loss. They need the world, which is not closed with this group.
  auto survivors = all->group(rest);
  is_shrunk_ = true;
  {
    const std::lock_guard<std::mutex> lock(world().mutex);
    if (world().communicator.lock() == all) world().communicator = survivors;
  }
  const auto timeout = options ? options->timeout : options_->timeout;
  return c10::make_intrusive<Backend>(std::move(survivors), rank, static_cast<int>(rest.size()), timeout);
}

std::vector<int> Backend::lost_ranks() const {
  const auto all = communicator();
  std::vector<int> ranks;
  for (const uint32_t job_rank : lost_job_ranks()) {
    const int rank = all->rank_of(job_rank);
    if (rank >= 0) ranks.push_back(rank);
  }
  return ranks;
}

void Backend::abort() { check(unisono_abort(communicator()->handle())); }

void Backend::shutdown() {
  std::shared_ptr<Communicator> ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended = std::move(communicator_);
    communicator_ = nullptr;
  }
  if (ended && !is_shrunk_) ended->close();
}

std::shared_ptr<Communicator> Backend::communicator() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(communicator_ != nullptr, "unisono: the group is destroyed");
  return communicator_;
}

Backend::WorkHandle Backend::run(Call call, Operation operation, at::TensorList inputs, at::TensorList outputs,
                                 bool is_async, std::chrono::milliseconds timeout) {
  // Threads of a program that call at once queue, as they do with other backends.
  call.fields.flags |= UNISONO_QUEUED;
  sequence_number_++;
  return issue(std::move(call), facts(operation, inputs, outputs, timeout), is_async);
}

Backend::WorkHandle Backend::issue(Call call, Facts facts, bool is_async) {
  auto comm = communicator();
  const Site line = site();
  call.fields.file = line.file;
  call.fields.line = line.line;
  call.fields.timeout_s = seconds(facts.timeout);
  auto work = c10::make_intrusive<Work>(std::move(facts));
  if (is_async) {
    unisono_work* started = nullptr;
    check(unisono_start(comm->handle(), &call.structure(), &started));
    work->begin(std::make_shared<Started>(std::move(comm), std::move(call), started));
    return work;
  }
  unisono_outcome_t outcome{};
  call.fields.outcome = &outcome;
  check(unisono_call(comm->handle(), &call.structure()));
  call.copy_back();
  work->end(outcome);
  return work;
}

Facts Backend::facts(Operation operation, at::TensorList inputs, at::TensorList outputs,
                     std::chrono::milliseconds timeout) const {
  const bool is_set = timeout != c10d::kUnsetTimeout && timeout.count() > 0;
  return Facts{rank_,           operation.type,   event_title(operation.name),
               inputs.vec(),    outputs.vec(),    sequence_number_,
               is_set ? timeout : options_->timeout, std::nullopt};
}

int Backend::checked_root(int64_t root) const {
  TORCH_CHECK(root >= 0 && root < size_, "unisono: the root is rank ", root, " of ", size_);
  return static_cast<int>(root);
}

at::Tensor& only(const char* operation, std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "unisono: ", operation, " takes one tensor, not ", tensors.size());
  return tensors.front();
}

std::vector<at::Tensor>& only(const char* operation, std::vector<std::vector<at::Tensor>>& lists) {
  TORCH_CHECK(lists.size() == 1, "unisono: ", operation, " takes one list of tensors, not ", lists.size());
  return lists.front();
}

void check_tensors(const char* operation, at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.defined(), "unisono: ", operation, " of a tensor that is not defined");
    TORCH_CHECK(tensor.layout() == at::kStrided, "unisono: ", operation, " takes dense tensors, not one of layout ",
                tensor.layout());
    TORCH_CHECK(tensor.device().is_cpu(), "unisono: ", operation, " takes tensors of the CPU, not of ",
                tensor.device());
  }
}

}  // namespace unisono_torch
