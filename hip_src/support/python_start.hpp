// A launch as a function of Python's own: a call takes 9 % less than through cffi
// (docs/benchmark_notes.md). By CPython's stable ABI (Python/C API manual, "C API and ABI
// Stability"), declared here as its headers are not everywhere, and weakly, as programs without
// Python may load a library of kernels as well.
#pragma once

#include <cstddef>

#include "support/library.hpp"

struct _object;

extern "C" {
#define DSCORE_PYTHON __attribute__((weak))
DSCORE_PYTHON unsigned long long PyLong_AsUnsignedLongLong(_object *);
DSCORE_PYTHON int PyBytes_AsStringAndSize(_object *, char **, std::ptrdiff_t *);
DSCORE_PYTHON _object *PyLong_FromLong(long);
DSCORE_PYTHON int PyErr_BadArgument();
DSCORE_PYTHON _object *PyErr_Occurred();
DSCORE_PYTHON void *PyEval_SaveThread();
DSCORE_PYTHON void PyEval_RestoreThread(void *);
#undef DSCORE_PYTHON
}

namespace dscore {

// Starts the dscore_calls in self, bytes of Python's, on the operands' addresses and a stream, all
// of them numbers.
inline _object *python_start(_object *self, _object *const *given, std::ptrdiff_t count) {
  char *bytes = nullptr;
  std::ptrdiff_t size = 0;
  if (PyBytes_AsStringAndSize(self, &bytes, &size)) return nullptr;
  const auto *const calls = reinterpret_cast<const dscore_call *>(bytes);
  const int operands = calls->operands;
  if (count != operands + 1) {
    PyErr_BadArgument();
    return nullptr;
  }
  dscore_operands placed;
  for (int i = 0; i < operands; i++) placed.at[i] = PyLong_AsUnsignedLongLong(given[i]);
  placed.stream = PyLong_AsUnsignedLongLong(given[operands]);
  if (PyErr_Occurred()) return nullptr;
  // Other threads run meanwhile: a launch waits where the device's queue is full.
  void *const thread = PyEval_SaveThread();
  int code = 0;
  for (auto call = calls; code == 0 && reinterpret_cast<const char *>(call) < bytes + size; call++)
    code = call->launch(&call->shape, &placed, call->device);
  PyEval_RestoreThread(thread);
  return PyLong_FromLong(code);
}

// A PyMethodDef.
struct PythonMethod {
  const char *name;
  _object *(*function)(_object *, _object *const *, std::ptrdiff_t);
  int flags;
  const char *doc;
};
constexpr int fastcall = 0x0080;  // METH_FASTCALL
inline const PythonMethod python_method{"start", python_start, fastcall, nullptr};

}  // namespace dscore
