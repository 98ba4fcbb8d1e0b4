#include "kernels/process/found_libraries.h"

#include "kernels/collectives/backends/nccl/nccl_transfer.h"
#include "kernels/common/config.h"
#include "kernels/cuda/driver.h"
#include "kernels/mpi/runtime.h"

namespace tf_smddp {
namespace {

std::string LineOf(const std::string& name, const Status& status, const std::string& found) {
  std::string text = status.ok() ? found : status.message();
  for (char& each : text) {
    if (each == '\n' || each == '\t') each = ' ';
  }
  return name + (status.ok() ? "\tfound\t" : "\tmissing\t") + text + "\n";
}

}  // namespace

Status FindLibraries(const std::string& nccl_library, const std::string& prefix, std::string* lines) {
  Config config;
  const Status read = ReadConfig(&config);
  if (!read.ok()) return read;
  if (config.nccl_library.empty()) config.nccl_library = nccl_library;

  Status status;
  cuda::Driver::Get(&status);
  *lines = LineOf("CUDA driver", status, "");

  const nccl::Library* const library = nccl::NcclTransfer::SharedLibrary(config.nccl_library, &status);
  *lines += LineOf("NCCL", status, library == nullptr ? "" : library->version + " (" + library->path + ")");

  std::string description;
  status = mpi::Runtime::Find(config, prefix, &description);
  *lines += LineOf("MPI library", status, description);
  return {};
}

}  // namespace tf_smddp
