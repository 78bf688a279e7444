// Handles of calls: waits, futures, and calls whose handle is dropped before their end.

#include "work.hpp"

#include <shared_mutex>
#include <unordered_map>

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include "communicator.hpp"
#include "error.hpp"

namespace unisono_torch {
namespace {

// Held by each thread of the library while it completes a future, and by the end of the interpreter for good.
std::shared_timed_mutex& futures_mutex() {
  static auto* mutex = new std::shared_timed_mutex();
  return *mutex;
}

std::string& name() {
  static auto* name = new std::string("unisono");
  return *name;
}

// The outcome of a call whose handle is gone: nobody asks for it.
void drop_started(void* context, unisono_status status, const unisono_outcome_t* /*outcome*/) {
  const std::unique_ptr<std::shared_ptr<Started>> started(static_cast<std::shared_ptr<Started>*>(context));
  if (status != UNISONO_STATUS_OK) return;
  try {
    (*started)->copy_back();
  } catch (const std::exception& error) {
    TORCH_WARN("unisono: a result could not be copied: ", error.what());
  }
}

}  // namespace

const char* event_title(const char* operation) {
  static std::mutex mutex;
  // By address: names are literals, and a call allocates no text.
  static auto* titles = new std::unordered_map<const char*, std::string>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = titles->find(operation);
  if (found != titles->end()) return found->second.c_str();
  return titles->emplace(operation, name() + ":" + operation).first->second.c_str();
}

void set_backend_name(std::string given) { name() = std::move(given); }

const std::string& backend_name() { return name(); }

Started::~Started() { unisono_work_free(work_); }

void Started::copy_back() {
  const std::lock_guard<std::mutex> lock(mutex_);
  call_.copy_back();
}

Work::Work(Facts facts)
    : c10d::Work(facts.rank, facts.type, facts.title, facts.inputs), facts_(std::move(facts)) {}

Work::~Work() {
  if (started_ == nullptr || is_noted_ || Work::isCompleted()) return;
  // The call goes on, and so does the use of its memory.
  auto* context = new std::shared_ptr<Started>(started_);
  if (unisono_work_on_done(started_->work(), drop_started, context) != UNISONO_STATUS_OK) {
    // Nothing tells the end of the memory's use: it stays.
    TORCH_WARN("unisono: ", unisono_last_error()->text);
  }
}

void Work::end(const unisono_outcome_t& outcome) {
  outcome_ = outcome;
  is_noted_ = true;
  finish();
}

void Work::begin(std::shared_ptr<Started> started) { started_ = std::move(started); }

bool Work::isCompleted() {
  if (started_ == nullptr) return c10d::Work::isCompleted();
  const unisono_status status = unisono_work_test(started_->work());
  if (status == UNISONO_STATUS_PENDING) return false;
  // A handle that has ended has its result at once.
  unisono_outcome_t outcome{};
  note_end(unisono_work_wait(started_->work(), 0.0, &outcome), &outcome);
  return true;
}

bool Work::isSuccess() const {
  const std::lock_guard<std::mutex> lock(end_mutex_);
  return is_noted_ && !exception_;
}

int Work::sourceRank() const {
  const std::lock_guard<std::mutex> lock(end_mutex_);
  TORCH_CHECK(is_noted_, "unisono: the source of a message is known once its receive has ended");
  return static_cast<int>(outcome_.source);
}

bool Work::wait(std::chrono::milliseconds timeout) {
  if (started_ != nullptr) {
    unisono_outcome_t outcome{};
    const double longest = timeout == kNoTimeout ? -1.0 : seconds(timeout);
    const unisono_status status = unisono_work_wait(started_->work(), longest, &outcome);
    if (status == UNISONO_STATUS_PENDING) {
      C10_THROW_ERROR(DistBackendError, c10::str("unisono: Operation timed out! The call has not ended within ",
                                                 timeout.count(), " ms, and goes on"));
    }
    note_end(status, &outcome);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void Work::abort() {
  if (started_ != nullptr) unisono_work_cancel(started_->work());
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const bool has_ended = isCompleted();
  {
    const std::lock_guard<std::mutex> lock(future_mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  }
  if (has_ended) {
    complete_future();
    return future_;
  }
  auto* context = new c10::intrusive_ptr<Work>(c10::intrusive_ptr<Work>::reclaim_copy(this));
  const unisono_status status = unisono_work_on_done(started_->work(), on_done, context);
  if (status != UNISONO_STATUS_OK) delete context;
  check(status);
  return future_;
}

std::string Work::algorithm() const {
  const std::lock_guard<std::mutex> lock(end_mutex_);
  return outcome_.algorithm == nullptr ? std::string() : std::string(outcome_.algorithm);
}

std::string Work::text() {
  const bool has_ended = isCompleted();
  const char* state = !has_ended ? "goes on" : isSuccess() ? "done" : "failed";
  const std::string algorithm = this->algorithm();
  return c10::str("<", facts_.title, " ", facts_.sequence_number, ": ", state,
                  algorithm.empty() ? "" : " by " + algorithm, ">");
}

void Work::end_futures(std::chrono::milliseconds longest) {
  // A function given to `then` may wait for something that never comes.
  if (!futures_mutex().try_lock_for(longest)) {
    TORCH_WARN("unisono: a function of a future runs at the end of the interpreter, and may crash it");
  }
}

void Work::note_end(unisono_status status, const unisono_outcome_t* outcome) {
  const std::lock_guard<std::mutex> lock(end_mutex_);
  if (is_noted_) return;
  std::exception_ptr error = error_of_end(status, outcome);
  if (!error) outcome_ = *outcome;
  is_noted_ = true;
  finish(std::move(error));
}

std::exception_ptr Work::error_of_end(unisono_status status, const unisono_outcome_t* outcome) {
  try {
    check(status);
    started_->copy_back();
    if (facts_.expected_bytes && outcome->source >= 0 && outcome->bytes != *facts_.expected_bytes) {
      C10_THROW_ERROR(DistBackendError,
                      c10::str("unisono: rank ", outcome->source, " has sent ", outcome->bytes,
                               " bytes, but the tensor of the receive has ", *facts_.expected_bytes));
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void Work::complete_future() {
  if (future_->completed()) return;
  const std::exception_ptr error = exception();
  if (error) {
    future_->setErrorIfNeeded(error);
  } else {
    future_->markCompleted(c10::IValue(facts_.outputs));
  }
}

void Work::on_done(void* context, unisono_status status, const unisono_outcome_t* outcome) {
  std::unique_ptr<c10::intrusive_ptr<Work>> work(static_cast<c10::intrusive_ptr<Work>*>(context));
  const std::shared_lock<std::shared_timed_mutex> lock(futures_mutex(), std::try_to_lock);
  if (!lock.owns_lock()) {
    // The interpreter ends, and nobody waits any more: objects of Python may hang on the future.
    static_cast<void>(work.release());
    return;
  }
  try {
    (*work)->note_end(status, outcome);
    (*work)->complete_future();
  } catch (const std::exception& error) {
    TORCH_WARN("unisono: a future could not be completed: ", error.what());
  }
  work.reset();
}

}  // namespace unisono_torch
