// Modules and their functions. A function is the twin of its name, or runs the PTX of its module (ptx.h).
#ifndef TF_SMDDP_TESTS_PRETEND_GPU_MODULE_H_
#define TF_SMDDP_TESTS_PRETEND_GPU_MODULE_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/pretend_gpu/handles.h"

namespace pretend_gpu {

struct Function {
  std::string name;
  void* context;  // the handle of the context into which the module was loaded
  std::shared_ptr<const std::string> ptx;
};

struct Module {
  void* context;
  std::shared_ptr<const std::string> ptx;  // its text, or nullptr if the image is of another kind
  std::mutex mu;
  std::map<std::string, void*> functions;  // their handles, by name; guarded by mu

  struct Variable {
    void* address;  // in the memory of the context's device
    std::size_t bytes;
  };
  std::map<std::string, Variable> variables;  // that were asked for, by name; guarded by mu
};

inline HandleTable<Module>& Modules() {
  static auto* modules = new HandleTable<Module>("module");
  return *modules;
}

inline HandleTable<Function>& Functions() {
  static auto* functions = new HandleTable<Function>("function");
  return *functions;
}

}  // namespace pretend_gpu

#endif  // TF_SMDDP_TESTS_PRETEND_GPU_MODULE_H_
