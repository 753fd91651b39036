// A launch as a function of Python's own: a call takes 9 % less than through cffi
// (docs/benchmarks.md). By CPython's stable ABI (Python/C API manual, "C API and ABI Stability"),
// declared here as its headers are not everywhere, and weakly, as programs without Python may load
// a library of kernels as well.
#pragma once

#include <cstddef>

#include "support/portable.hpp"

struct _object;

extern "C" {
#define DSCORE_PYTHON __attribute__((weak))
DSCORE_PYTHON unsigned long long PyLong_AsUnsignedLongLong(_object *);
DSCORE_PYTHON char *PyBytes_AsString(_object *);
DSCORE_PYTHON _object *PyLong_FromLong(long);
DSCORE_PYTHON int PyErr_BadArgument();
DSCORE_PYTHON _object *PyErr_Occurred();
DSCORE_PYTHON void *PyEval_SaveThread();
DSCORE_PYTHON void PyEval_RestoreThread(void *);
#undef DSCORE_PYTHON
}

namespace dscore {

// Of x, w, bias, out and the stream, numbers all; self, bytes of Python's, is a dscore_call.
inline _object *python_start(_object *self, _object *const *given, std::ptrdiff_t count) {
  if (count != 5) {
    PyErr_BadArgument();
    return nullptr;
  }
  dscore_address at[5];
  for (int i = 0; i < 5; i++) at[i] = PyLong_AsUnsignedLongLong(given[i]);
  if (PyErr_Occurred()) return nullptr;
  const auto *const call = reinterpret_cast<const dscore_call *>(PyBytes_AsString(self));
  const dscore_places places{at[0], at[1], at[2], at[3], at[4]};
  // Other threads run meanwhile: a launch waits where the device's queue is full.
  void *const thread = PyEval_SaveThread();
  const int code = call->launch(&call->shape, &places, call->device);
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
