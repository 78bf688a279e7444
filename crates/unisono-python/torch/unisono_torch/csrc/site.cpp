// The line of the program that makes a call: the innermost Python frame outside torch and this package.

#include "site.hpp"

#include <unordered_map>
#include <utility>

#include <torch/csrc/utils/pybind.h>

namespace unisono_torch {
namespace {

// The most code objects that are kept. A program with more of them forgets all and begins anew.
constexpr size_t CODES_MAX = 4096;

// The most bytes of a file's name that the library keeps: of a longer one its end, which says more than its beginning.
constexpr size_t NAME_BYTES_MAX = 250;

// All of this is used with the interpreter's lock held. It is never destroyed: threads may outlive the program's end.
struct Known {
  std::vector<std::string> skipped;
  // Names of files, which stay.
  std::unordered_map<std::string, std::string> names;
  // The name of each code object's file, null in a skipped folder. The code objects are kept, so that no other one gets
  // an address.
  std::unordered_map<PyCodeObject*, const char*> files;
};

Known& known() {
  static auto* known = new Known();
  return *known;
}

const char* read_file(PyCodeObject* code) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
  if (text == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  std::string name(text, static_cast<size_t>(length));
  for (const std::string& folder : known().skipped)
    if (name.compare(0, folder.size(), folder) == 0) return nullptr;
  if (name.size() > NAME_BYTES_MAX) {
    size_t start = name.size() - NAME_BYTES_MAX;
    // Not in the middle of a character.
    while (start < name.size() && (static_cast<unsigned char>(name[start]) & 0xC0U) == 0x80U) start++;
    name.erase(0, start);
  }
  return known().names.try_emplace(name, name).first->second.c_str();
}

const char* file_of(PyCodeObject* code) {
  auto& files = known().files;
  auto found = files.find(code);
  if (found != files.end()) return found->second;
  if (files.size() >= CODES_MAX) {
    auto forgotten = std::exchange(files, {});
    for (auto& [old, file] : forgotten) Py_DECREF(old);
  }
  const char* file = read_file(code);
  Py_INCREF(code);
  files.emplace(code, file);
  return file;
}

}  // namespace

Site site() {
  // A thread without a state has no frames: autograd's, which DDP's calls come from.
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) return {};
  pybind11::gil_scoped_acquire interpreter;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  Site found;
  while (frame != nullptr && found.file == nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    found.file = file_of(code);
    Py_DECREF(code);
    if (found.file != nullptr) found.line = static_cast<uint32_t>(PyFrame_GetLineNumber(frame));
    PyFrameObject* back = found.file == nullptr ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
  return found;
}

void skip_folders(std::vector<std::string> folders) { known().skipped = std::move(folders); }

}  // namespace unisono_torch
