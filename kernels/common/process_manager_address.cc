#include "kernels/common/process_manager_address.h"

#include <cstdint>

#include "kernels/common/number_text.h"

namespace tf_smddp {
namespace {

// Linux gives these to no program that has not asked for one of them.
constexpr int kFirstSlurmPort = 61'000;
constexpr int kSlurmPorts = 4'500;

constexpr int kLargestPort = 65'535;

}  // namespace

std::string FirstSlurmHost(const std::string& nodes) {
  std::string host;
  for (std::size_t at = 0; at < nodes.size() && nodes[at] != ','; ++at) {
    if (nodes[at] != '[') {
      host += nodes[at];
      continue;
    }
    const std::size_t end = nodes.find(']', at);
    host += nodes.substr(at + 1, nodes.find_first_of("-,]", at) - at - 1);
    if (end == std::string::npos) break;
    at = end;
  }
  return host;
}

Status ReadProcessManagerAddress(const std::function<const char*(const char*)>& lookup,
                                 ProcessManagerAddress* address) {
  const auto value = [&](const char* name) -> std::string {
    const char* const text = lookup(name);
    return text == nullptr ? "" : text;
  };
  address->host = value("MASTER_ADDR");
  if (address->host.empty()) address->host = FirstSlurmHost(value("SLURM_STEP_NODELIST"));
  if (address->host.empty()) {
    return InvalidArgument("set MASTER_ADDR to the name of rank 0's host, and MASTER_PORT to a port there");
  }
  const std::string master_port = value("MASTER_PORT");
  if (!master_port.empty()) {
    const Status status = ParseInt("MASTER_PORT", master_port.c_str(), &address->port);
    if (!status.ok()) return status;
    if (address->port < 1 || address->port >= kLargestPort) {
      return InvalidArgument("MASTER_PORT=" + master_port + " is outside [1, " +
                             std::to_string(kLargestPort - 1) + "]: the port after it is used, too");
    }
    ++address->port;
    return {};
  }
  if (value("SLURM_JOB_ID").empty()) {
    return InvalidArgument("MASTER_PORT is not set though MASTER_ADDR is; set it to a port of rank 0's host");
  }
  std::int64_t job = 0, step = 0;
  Status status = ParseInteger("SLURM_JOB_ID", value("SLURM_JOB_ID").c_str(), &job);
  if (status.ok()) status = ParseInteger("SLURM_STEP_ID", value("SLURM_STEP_ID").c_str(), &step);
  if (!status.ok()) return status;
  // Steps of a job may run at once, and so may jobs with numbers that are near each other.
  const std::uint64_t place = static_cast<std::uint64_t>(job) * 16 + static_cast<std::uint64_t>(step);
  address->port = kFirstSlurmPort + static_cast<int>(place % kSlurmPorts);
  return {};
}

}  // namespace tf_smddp
