// C++ compiles the header, and runs its calls.

#include <cstdio>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "unisono.h"
// Two headers of a program may each include it.
#include "unisono.h"

namespace {

void ok(unisono_status status) {
  if (status != UNISONO_STATUS_OK) {
    throw std::runtime_error(unisono_last_error()->text);
  }
}

struct leave {
  void operator()(unisono_comm *comm) const { unisono_comm_free(comm); }
};

using comm = std::unique_ptr<unisono_comm, leave>;

comm join() {
  unisono_comm *world = nullptr;
  ok(unisono_init(nullptr, &world));
  return comm(world);
}

}  // namespace

int main() try {
  comm world = join();
  std::vector<double> values(1000);
  std::iota(values.begin(), values.end(), unisono_rank(world.get()));
  ok(unisono_all_reduce(world.get(), values.data(), values.size(), UNISONO_DTYPE_F64, UNISONO_OP_SUM));
  unisono_call_t call = UNISONO_CALL(UNISONO_OPERATION_ALL_REDUCE);
  call.dtype = UNISONO_DTYPE_F64;
  call.op = UNISONO_OP_MAX;
  call.count = values.size();
  call.output = values.data();
  call.flags = UNISONO_IN_PLACE;
  unisono_work *work = nullptr;
  ok(unisono_start(world.get(), &call, &work));
  ok(unisono_work_wait(work, -1.0, nullptr));
  ok(unisono_work_free(work));
  if (values[999] != 4 * 999 + 6) {
    throw std::runtime_error("another sum");
  }
  ok(unisono_close(world.get()));
  return 0;
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
