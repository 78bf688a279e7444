// Communicators of the library: ranks meet through torch's store, and make groups without it.

#include "communicator.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include "error.hpp"
#include "site.hpp"

namespace unisono_torch {
namespace {

// The longest wait for a key in one function of the store: a person's Ctrl-C is seen between two.
constexpr std::chrono::milliseconds WAIT_MAX{500};

// The result of a function of the store that has thrown. Its text is in the meeting.
constexpr int32_t STORE_FAILED = -1;

// torch's store as the library uses it.
struct Meeting {
  const c10::intrusive_ptr<c10d::Store>& store;
  // The text of the exception that a function has thrown.
  std::string failure;
};

int32_t meeting_set(void* context, const char* key, const uint8_t* value, size_t length) {
  auto* meeting = static_cast<Meeting*>(context);
  try {
    meeting->store->set(key, std::vector<uint8_t>(value, value + length));
    return 0;
  } catch (const std::exception& error) {
    meeting->failure = error.what();
    return STORE_FAILED;
  }
}

int32_t meeting_get(void* context, const char* key, double timeout_s, uint8_t* value, size_t room, size_t* length) {
  auto* meeting = static_cast<Meeting*>(context);
  const auto longest = std::min(WAIT_MAX, std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000.0)));
  try {
    if (!meeting->store->check({key})) {
      try {
        meeting->store->wait({key}, std::max(longest, std::chrono::milliseconds(1)));
      } catch (const std::exception&) {
        // A store that is gone throws below, too.
        if (!meeting->store->check({key})) return UNISONO_NO_VALUE;
      }
    }
    const std::vector<uint8_t> found = meeting->store->get(key);
    // The library says of a value that is too long that it is not rank 0's.
    *length = std::min(found.size(), room);
    std::memcpy(value, found.data(), *length);
    return 0;
  } catch (const std::exception& error) {
    meeting->failure = error.what();
    return STORE_FAILED;
  }
}

// Whether one of the variables of a launcher is set, the library's own name or the usual one.
bool is_set(const char* own_name, const char* usual_name) {
  return std::getenv(own_name) != nullptr || std::getenv(usual_name) != nullptr;
}

}  // namespace

Communicator::Communicator(unisono_comm* handle) : handle_(handle) {
  const int size = unisono_size(handle);
  job_ranks_.resize(static_cast<size_t>(std::max(size, 0)));
  check(unisono_comm_ranks(handle, job_ranks_.data(), nullptr, job_ranks_.size()));
}

Communicator::~Communicator() {
  // The end of a world waits for its threads, which may need the interpreter for objects of Python.
  std::optional<pybind11::gil_scoped_release> released;
  if (Py_IsInitialized() && PyGILState_GetThisThreadState() != nullptr && PyGILState_Check()) released.emplace();
  unisono_comm_free(handle_);
}

std::shared_ptr<Communicator> Communicator::meet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                 std::chrono::milliseconds timeout, const std::string& secret_file) {
  let_signals_end_waits();
  Meeting meeting{store, {}};
  const std::string join_timeout_s = std::to_string(seconds(timeout));
  const std::string rank_text = std::to_string(rank);
  const std::string size_text = std::to_string(size);
  const std::array<unisono_setting_t, 3> settings{{{"UNISONO_JOIN_TIMEOUT_S", join_timeout_s.c_str()},
                                                   {"UNISONO_RANK", rank_text.c_str()},
                                                   {"UNISONO_WORLD_SIZE", size_text.c_str()}}};
  // Half of a launcher's variables is no launcher: a program that says its rank itself may set WORLD_SIZE alone.
  const bool is_half = is_set("UNISONO_RANK", "RANK") != is_set("UNISONO_WORLD_SIZE", "WORLD_SIZE");
  const Site line = site();
  unisono_init_t init{};
  init.struct_size = sizeof init;
  // Groups of one process may each be a world of their own.
  init.flags = UNISONO_ANOTHER_WORLD;
  init.rank = static_cast<uint32_t>(rank);
  init.size = static_cast<uint32_t>(size);
  init.line = line.line;
  init.file = line.file;
  init.secret_file = secret_file.empty() ? nullptr : secret_file.c_str();
  init.settings = settings.data();
  init.setting_count = is_half ? settings.size() : 1;
  init.meeting_set = meeting_set;
  init.meeting_get = meeting_get;
  init.meeting_context = &meeting;
  unisono_comm* world = nullptr;
  const unisono_status status = unisono_init(&init, &world);
  if (status != UNISONO_STATUS_OK && !meeting.failure.empty())
    C10_THROW_ERROR(DistBackendError, c10::str("unisono: torch's store has failed: ", meeting.failure));
  check(status);
  forget_lost_ranks();
  return std::make_shared<Communicator>(world);
}

std::shared_ptr<Communicator> Communicator::group(const std::vector<int64_t>& ranks) const {
  std::vector<uint32_t> members;
  // One key for each list, so that a program that makes groups for ever has as many keys as lists.
  std::string key = "torch";
  for (const int64_t rank : ranks) {
    TORCH_CHECK(rank >= 0 && static_cast<size_t>(rank) < job_ranks_.size(), "unisono: rank ", rank, " of ",
                job_ranks_.size());
    members.push_back(job_ranks_[static_cast<size_t>(rank)]);
    key += ' ' + std::to_string(members.back());
  }
  unisono_comm* group = nullptr;
  check(unisono_make_group(handle_, key.c_str(), members.data(), members.size(), nullptr, &group));
  return std::make_shared<Communicator>(group);
}

int Communicator::rank_of(uint32_t job_rank) const {
  const auto found = std::find(job_ranks_.begin(), job_ranks_.end(), job_rank);
  return found == job_ranks_.end() ? -1 : static_cast<int>(found - job_ranks_.begin());
}

void Communicator::close() {
  // A group that has failed has told so already.
  if (unisono_close(handle_) == UNISONO_STATUS_MISMATCH) TORCH_WARN("unisono: ", unisono_last_error()->text);
}

}  // namespace unisono_torch
