// A program that opens NCCL by its name, and finds it beside CUDA, or does not.
#include <dlfcn.h>
#include <errno.h>

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace {

// Runs in a process of its own, since the dynamic linker reads LD_LIBRARY_PATH at the start. Returns 10 if
// there is no NCCL.
int UseNccl() {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (cuda == nullptr) return 1;
  if (nccl == nullptr) return 10;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(cuda, "cuInit"));
  if (init == nullptr || init(0) != 0) return 2;
  for (const char* name :
       {"ncclGetVersion",   "ncclGetUniqueId",    "ncclCommInitRank",      "ncclCommInitRankConfig",
        "ncclCommInitAll",  "ncclCommSplit",      "ncclCommFinalize",      "ncclCommDestroy",
        "ncclCommAbort",    "ncclCommCount",      "ncclCommGetAsyncError", "ncclCommCuDevice",
        "ncclCommUserRank", "ncclGetErrorString", "ncclGetLastError",      "ncclRedOpCreatePreMulSum",
        "ncclRedOpDestroy", "ncclAllReduce",      "ncclBroadcast",         "ncclBcast",
        "ncclReduce",       "ncclAllGather",      "ncclReduceScatter",     "ncclSend",
        "ncclRecv",         "ncclGroupStart",     "ncclGroupEnd",          "ncclMemAlloc",
        "ncclMemFree",      "ncclCommRegister",   "ncclCommDeregister"}) {
    if (dlsym(nccl, name) == nullptr) return 3;
  }
  // They are on the same devices.
  const auto init_all = reinterpret_cast<int (*)(void**, int, const int*)>(dlsym(nccl, "ncclCommInitAll"));
  const auto destroy = reinterpret_cast<int (*)(void*)>(dlsym(nccl, "ncclCommDestroy"));
  void* comms[3] = {};
  if (init_all(comms, 3, nullptr) != 0) return 4;
  for (void* comm : comms) {
    if (destroy(comm) != 0) return 5;
  }
  return 0;
}

// Returns the exit code of UseNccl in a folder that make_folder.sh has made.
int UseFolder(const std::string& nccl) {
  const std::string folder = ::testing::TempDir() + "pretend_nccl_names";
  const std::string here = "tests/pretend_gpu/";
  const std::string make = here + "make_folder.sh " + here + "libpretend_gpu.so " + folder + " " + nccl;
  if (std::system(make.c_str()) != 0) return -1;
  const std::string command = "LD_LIBRARY_PATH=" + folder + " PRETEND_GPU_DEVICES=3 ";
  return WEXITSTATUS(std::system((command + program_invocation_name + " --use-nccl").c_str()));
}

TEST(Names, AreFoundThroughTheLibraryPath) { EXPECT_EQ(0, UseFolder("tests/pretend_gpu/nccl/libnccl.so.2")); }

TEST(Names, NcclMayBeMissing) { EXPECT_EQ(10, UseFolder("")); }

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--use-nccl") return UseNccl();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
