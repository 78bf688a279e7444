// The module `unisono_torch._C`.

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "backend.hpp"
#include "compressed.hpp"
#include "site.hpp"
#include "work.hpp"

namespace py = pybind11;
using unisono_torch::Backend;
using unisono_torch::CompressionState;
using unisono_torch::Work;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.doc() = "torch.distributed on unisono";
  // The bases.
  py::module_::import("torch.distributed");

  py::class_<Work, c10::intrusive_ptr<Work>, c10d::Work>(module, "Work", "The handle of a call.")
      .def_property_readonly("algorithm", &Work::algorithm, "The algorithm that ran; empty before the end.")
      .def("__repr__", &Work::text, py::call_guard<py::gil_scoped_release>());

  py::class_<Backend, c10::intrusive_ptr<Backend>, c10d::Backend>(module, "Backend", "A group of ranks.")
      .def(
          "compressed_all_reduce",
          [](Backend& backend, const at::Tensor& tensor, const c10d::ReduceOp& op,
             const std::shared_ptr<CompressionState>& state, bool is_async) {
            return backend.compressed_all_reduce(tensor, op, state, is_async);
          },
          py::arg("tensor"), py::arg("op"), py::arg("state"), py::arg("async_op"),
          py::call_guard<py::gil_scoped_release>())
      .def("lost_ranks", &Backend::lost_ranks, "The ranks of the group that errors have named as lost.")
      // torch calls it on members and others alike when the default group is bound to a device. Groups need no help.
      .def("perform_nocolor_split", [](const Backend&, const at::Device&) {})
      .def("__repr__", [](Backend& backend) {
        return c10::str("<", backend.getBackendName(), " rank ", backend.getRank(), " of ", backend.getSize(), ">");
      });

  py::class_<CompressionState, std::shared_ptr<CompressionState>>(
      module, "CompressionState", "The codec of compressed sums of one vector, and the errors that they still owe.")
      .def(py::init<const Backend&, const std::string&, at::ScalarType, int64_t>(), py::arg("backend"),
           py::arg("codec"), py::arg("dtype"), py::arg("length"))
      .def_static(
          "of_bytes",
          [](const Backend& backend, const std::string& codec, at::ScalarType dtype, const py::bytes& bytes) {
            return std::make_shared<CompressionState>(backend, codec, dtype, std::string(bytes));
          },
          py::arg("backend"), py::arg("codec"), py::arg("dtype"), py::arg("bytes"))
      .def("reset", &CompressionState::reset)
      .def("bytes", [](const CompressionState& state) { return py::bytes(state.bytes()); });

  module.def("join", &Backend::join, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
             py::arg("secret_file"), py::arg("is_default"), py::call_guard<py::gil_scoped_release>());
  module.def("group", &Backend::group, py::arg("ranks"), py::arg("rank"), py::arg("timeout"),
             py::call_guard<py::gil_scoped_release>());
  module.def("has_world", &Backend::has_world);
  module.def("set_backend_name", &unisono_torch::set_backend_name);
  module.def("skip_folders", &unisono_torch::skip_folders);
  module.def(
      "end_futures",
      [](double longest_s) { Work::end_futures(std::chrono::milliseconds(static_cast<int64_t>(longest_s * 1000.0))); },
      py::call_guard<py::gil_scoped_release>());
}
