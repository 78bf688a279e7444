// Handles of calls.

#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "call.hpp"
#include "site.hpp"

namespace unisono_torch {

// A communicator of the library.
class Communicator;

// The name of an operation's event, as "unisono:all_reduce"; valid for ever.
const char* event_title(const char* operation);

// The name that events and errors begin with: the one under which the backend is registered.
void set_backend_name(std::string name);
const std::string& backend_name();

// A call that has been started, with its memory. It outlives its handle if nobody waits.
class Started {
 public:
  Started(std::shared_ptr<Communicator> communicator, Call call, unisono_work* work)
      : communicator_(std::move(communicator)), call_(std::move(call)), work_(work) {}
  ~Started();
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  unisono_work* work() const { return work_; }
  // Copies what the call has written to tensors with gaps, once.
  void copy_back();

 private:
  // A world says goodbye after its last call.
  std::shared_ptr<Communicator> communicator_;
  std::mutex mutex_;
  Call call_;
  unisono_work* work_;
};

// What torch wants to know of a call.
struct Facts {
  int rank;
  c10d::OpType type;
  // The name of the event for the profiler, which keeps its address.
  const char* title;
  std::vector<at::Tensor> inputs;
  // The tensors of `result()` and of the future.
  std::vector<at::Tensor> outputs;
  uint64_t sequence_number;
  std::chrono::milliseconds timeout;
  // The bytes that a receive must get.
  std::optional<uint64_t> expected_bytes;
};

// The handle of a call. The thread that waits moves the call; a future is completed by a thread of the library.
class Work : public c10d::Work {
 public:
  explicit Work(Facts facts);
  ~Work() override;

  // The call has ended on this thread.
  void end(const unisono_outcome_t& outcome);
  // The call goes on.
  void begin(std::shared_ptr<Started> started);

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return facts_.outputs; }
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return facts_.sequence_number; }
  std::chrono::milliseconds getTimeout() const override { return facts_.timeout; }

  // The algorithm that ran; empty before the end and after an error.
  std::string algorithm() const;
  // The call as a person reads it.
  std::string text();

  // Keeps the library's threads away from futures, and waits for those that complete one. At the end of the
  // interpreter, which functions given to `then` need.
  static void end_futures(std::chrono::milliseconds longest);

 private:
  // Notes the end of the call, once; `status` is of this thread's last function.
  void note_end(unisono_status status, const unisono_outcome_t* outcome);
  std::exception_ptr error_of_end(unisono_status status, const unisono_outcome_t* outcome);
  void complete_future();
  static void on_done(void* context, unisono_status status, const unisono_outcome_t* outcome);

  const Facts facts_;
  std::shared_ptr<Started> started_;
  // Held while the end is noted. Taken before `mutex_` of the base, which guards the error.
  mutable std::mutex end_mutex_;
  bool is_noted_ = false;
  unisono_outcome_t outcome_{};
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace unisono_torch
