// A program that knows nothing of the stand-in finds it under the names of CUDA's libraries.
#include <dlfcn.h>
#include <errno.h>

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace {

// Runs in a process of its own, since the dynamic linker reads LD_LIBRARY_PATH at the start.
int UseCuda() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* runtime = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr || driver != runtime) return 1;
  for (const char* name : {"libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11",
                           "libcusparse.so.12", "libcudnn.so.8", "libcudnn.so.9", "libnvidia-ml.so.1"}) {
    if (dlopen(name, RTLD_NOW | RTLD_LOCAL) != driver) return 2;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(runtime, "cudaGetDeviceCount"));
  int devices = 0;
  if (init == nullptr || count == nullptr || init(0) != 0 || count(&devices) != 0) return 3;
  return devices == 3 ? 0 : 4;
}

TEST(Names, AreFoundThroughTheLibraryPath) {
  const std::string folder = ::testing::TempDir() + "pretend_gpu_names";
  const std::string here = "tests/pretend_gpu/";
  ASSERT_EQ(0, std::system((here + "make_folder.sh " + here + "libpretend_gpu.so " + folder).c_str()));
  const std::string command = "LD_LIBRARY_PATH=" + folder + " PRETEND_GPU_DEVICES=3 ";
  EXPECT_EQ(0, std::system((command + program_invocation_name + " --use-cuda").c_str()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--use-cuda") return UseCuda();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
