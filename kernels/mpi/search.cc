#include "kernels/mpi/search.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>

#include "kernels/common/process.h"

namespace tf_smddp::mpi {
namespace {

// By the name of the file: Debian calls MPICH's library after itself.
const std::vector<std::string> kOpenMpi = {"libmpi.so.40"};
const std::vector<std::string> kMpich = {"libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1"};

// The launcher may be some processes above this one: shells, and programs that the user's command starts.
constexpr int kMostAncestors = 8;

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::vector<std::string> LoadedFiles() {
  std::vector<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string path = line.substr(slash);
    const std::string name = path.substr(path.rfind('/') + 1);
    for (const auto* names : {&kOpenMpi, &kMpich}) {
      for (const std::string& known : *names) {
        const bool is_it = name.compare(0, known.size(), known) == 0;
        if (is_it && std::find(files.begin(), files.end(), path) == files.end()) files.push_back(path);
      }
    }
  }
  return files;
}

// The lib folders beside the programs that have started this process.
std::vector<std::string> LauncherFolders() {
  std::vector<std::string> folders;
  pid_t pid = ::getppid();
  for (int each = 0; each < kMostAncestors && pid > 1; ++each) {
    char program[PATH_MAX];
    const std::string link = "/proc/" + std::to_string(pid) + "/exe";
    const ssize_t length = ::readlink(link.c_str(), program, sizeof program);
    if (length > 0) {
      const std::string root = FolderOf(FolderOf(std::string(program, static_cast<std::size_t>(length))));
      for (const char* const lib : {"/lib", "/lib64"}) folders.push_back(root + lib);
    }
    ProcessStat stat;
    pid = ReadProcessStat(pid, &stat) ? stat.parent : 0;
  }
  return folders;
}

}  // namespace

std::vector<std::string> FilesToTry(const Config& config, const std::string& prefix) {
  if (!config.mpi_library.empty()) return {config.mpi_library};
  std::vector<std::string> files = LoadedFiles();
  const std::vector<std::string> folders = LauncherFolders();
  const auto add = [&](const std::vector<std::string>& names) {
    for (const std::string& folder : folders) {
      for (const std::string& name : names) {
        const std::string path = folder + "/" + name;
        if (::access(path.c_str(), R_OK) == 0) files.push_back(path);
      }
    }
    files.insert(files.end(), names.begin(), names.end());
    for (const std::string& name : names) {
      const std::string path = prefix + "/lib/" + name;
      if (!prefix.empty() && ::access(path.c_str(), R_OK) == 0) files.push_back(path);
    }
  };
  const bool open_mpi_first = config.mpi_kind == MpiKind::kOpenMpi;
  add(open_mpi_first ? kOpenMpi : kMpich);
  add(open_mpi_first ? kMpich : kOpenMpi);
  return files;
}

}  // namespace tf_smddp::mpi
