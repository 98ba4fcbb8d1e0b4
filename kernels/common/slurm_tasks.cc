#include "kernels/common/slurm_tasks.h"

#include <cctype>
#include <cstdint>
#include <cstring>

namespace tf_smddp {

Status SlurmTasksOnNode(const std::string& text, int node, int* tasks) {
  const Status malformed =
      InvalidArgument("SLURM_STEP_TASKS_PER_NODE='" + text + "' has no number of tasks for SLURM_NODEID=" +
                      std::to_string(node) + "; expected is a list such as 2(x3),1");
  const char* at = text.c_str();
  const auto number = [&at](std::int64_t* value) {
    const char* begin = at;
    *value = 0;
    while (std::isdigit(static_cast<unsigned char>(*at)) != 0 && at - begin < 9)
      *value = *value * 10 + (*at++ - '0');
    return at != begin;
  };
  bool found = false;
  for (std::int64_t first = 0;;) {
    std::int64_t count = 0, nodes = 1;
    if (!number(&count)) return malformed;
    if (std::strncmp(at, "(x", 2) == 0) {
      at += 2;
      if (!number(&nodes) || nodes == 0 || *at++ != ')') return malformed;
    }
    if (node >= first && node < first + nodes) {
      *tasks = static_cast<int>(count);
      found = true;
    }
    first += nodes;
    if (*at == '\0') break;
    if (*at++ != ',') return malformed;
  }
  return found ? Status() : malformed;
}

}  // namespace tf_smddp
