// Device memory, pinned memory, copies and fills.
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/pretend_gpu/tests/support.h"

namespace pretend_gpu::testing {
namespace {

using Bytes = std::vector<unsigned char>;

class MemoryTest : public Gpu {};

TEST_F(MemoryTest, FreshMemoryIsNotANumber) {
  const CUdeviceptr address = Allocate(40);
  float values[10];
  OK(cuMemcpyDtoH_v2(values, address, sizeof(values)));
  for (const float value : values) EXPECT_TRUE(std::isnan(value));
  OK(cuMemFree_v2(address));
}

TEST_F(MemoryTest, CopiesInAllDirections) {
  Bytes in(1000), out(1000);
  for (std::size_t i = 0; i < in.size(); i++) in[i] = static_cast<unsigned char>(i);
  const CUdeviceptr a = Allocate(1000), b = Allocate(1000);
  OK(cuMemcpyHtoD_v2(a, in.data(), 1000));
  OK(cuMemcpyDtoD_v2(b, a, 1000));
  OK(cuMemcpyDtoH_v2(out.data(), b, 1000));
  EXPECT_EQ(in, out);
  // Parts of allocations, and copies that do not say where their ends lie.
  OK(cuMemcpy(a + 1, b + 500, 499));
  OK(cuMemcpy(reinterpret_cast<CUdeviceptr>(out.data()), a + 1, 499));
  EXPECT_EQ(Bytes(in.begin() + 500, in.begin() + 999), Bytes(out.begin(), out.begin() + 499));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
}

TEST_F(MemoryTest, APoolFreesInTheOrderOfTheStream) {
  CUmemoryPool pool = nullptr;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  std::size_t before = 0, during = 0, after = 0, total = 0;
  OK(cuMemGetInfo_v2(&before, &total));
  CUdeviceptr address = 0;
  OK(cuMemAllocFromPoolAsync(&address, 1 << 20, pool, nullptr));
  OK(cuMemsetD32Async(address, 7, 1 << 18, nullptr));
  OK(cuMemGetInfo_v2(&during, &total));
  EXPECT_GE(before - during, std::size_t{1} << 20);
  OK(cuMemFreeAsync(address, nullptr));
  OK(cuCtxSynchronize());
  OK(cuMemGetInfo_v2(&after, &total));
  EXPECT_EQ(before, after);
}

TEST_F(MemoryTest, FillsOfAllWidths) {
  const CUdeviceptr address = Allocate(12);
  OK(cuMemsetD8_v2(address, 0xAB, 4));
  OK(cuMemsetD16_v2(address + 4, 0x1234, 2));
  OK(cuMemsetD32_v2(address + 8, 0x56789ABC, 1));
  EXPECT_EQ((Bytes{0xAB, 0xAB, 0xAB, 0xAB, 0x34, 0x12, 0x34, 0x12, 0xBC, 0x9A, 0x78, 0x56}),
            Read(address, 12));
  OK(cuMemFree_v2(address));
}

TEST_F(MemoryTest, PageableMemoryIsReadBeforeTheCallReturnsAndPinnedMemoryLater) {
  pretend_gpu_set_policy("lazy");
  const CUstream stream = MakeStream();
  const CUdeviceptr a = Allocate(1), b = Allocate(1);
  unsigned char pageable = 1;
  unsigned char registered[1] = {1};
  OK(cuMemHostRegister_v2(registered, 1, 0));
  OK(cuMemcpyHtoDAsync_v2(a, &pageable, 1, stream));
  OK(cuMemcpyHtoDAsync_v2(b, registered, 1, stream));
  pageable = registered[0] = 2;  // too early for the pinned one
  EXPECT_EQ(Bytes{1}, Read(a, 1, stream));
  EXPECT_EQ(Bytes{2}, Read(b, 1, stream));
  OK(cuMemHostUnregister(registered));
  OK(cuStreamDestroy_v2(stream));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
  pretend_gpu_set_policy("prompt");
}

TEST_F(MemoryTest, ACopyToPinnedMemoryIsAsynchronous) {
  pretend_gpu_set_policy("lazy");
  const CUstream stream = MakeStream();
  const CUdeviceptr address = Allocate(1);
  OK(cuMemsetD8Async(address, 7, 1, stream));
  unsigned char* pinned = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 1, 0));
  *pinned = 0;
  OK(cuMemcpyDtoHAsync_v2(pinned, address, 1, stream));
  EXPECT_EQ(0, *pinned);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(7, *pinned);
  OK(cuMemFreeHost(pinned));
  OK(cuStreamDestroy_v2(stream));
  OK(cuMemFree_v2(address));
  pretend_gpu_set_policy("prompt");
}

TEST_F(MemoryTest, RoomIsCountedAndComesBack) {
  std::size_t before = 0, during = 0, after = 0, total = 0;
  OK(cuMemGetInfo_v2(&before, &total));
  EXPECT_EQ(std::size_t{64} << 20, total);
  std::vector<CUdeviceptr> held;
  for (int i = 0; i < 10; i++) held.push_back(Allocate(1 << 20));
  OK(cuMemGetInfo_v2(&during, &total));
  EXPECT_LE(during + (10 << 20), before);
  CUdeviceptr too_large = 1;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&too_large, 64 << 20));
  EXPECT_EQ(0u, too_large);
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&too_large, ~std::size_t{0}));
  // In an order in which holes meet on either side, and on both.
  for (const int i : {1, 0, 3, 2, 9, 5, 7, 6, 8, 4}) OK(cuMemFree_v2(held[i]));
  OK(cuMemGetInfo_v2(&after, &total));
  EXPECT_EQ(before, after);
  const CUdeviceptr all = Allocate(60 << 20);
  OK(cuMemFree_v2(all));
}

TEST_F(MemoryTest, PointersTellWhatTheyAre) {
  const CUdeviceptr address = Allocate(100);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  OK(cuMemGetAddressRange_v2(&base, &bytes, address + 99));
  EXPECT_EQ(address, base);
  EXPECT_EQ(100u, bytes);
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &bytes, address + 100));
  unsigned type = 0;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  EXPECT_EQ(CU_MEMORYTYPE_DEVICE, type);
  void* pinned = nullptr;
  OK(cuMemHostAlloc(&pinned, 8, 0));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(pinned)));
  EXPECT_EQ(CU_MEMORYTYPE_HOST, type);
  int on_stack = 0;
  const auto host = reinterpret_cast<CUdeviceptr>(&on_stack);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host));
  EXPECT_TRUE(pretend_gpu_is_device_memory(reinterpret_cast<void*>(address)));
  EXPECT_FALSE(pretend_gpu_is_device_memory(&on_stack));
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree_v2(address));
}

TEST_F(MemoryTest, ModulesInPtxHaveGlobalVariables) {
  const char* const ptx = R"(
.version 7.1
.target sm_80
.address_size 64
.visible .global .align 128 .b8 zeros[64];
.visible .global .align 4 .b8 numbers[6] = {7, 0, 255, 1};
)";
  std::size_t free_before = 0, free_after = 0, total = 0;
  OK(cuMemGetInfo_v2(&free_before, &total));
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, ptx));
  CUdeviceptr address = 0, again = 0;
  std::size_t bytes = 0;
  OK(cuModuleGetGlobal_v2(&address, &bytes, module, "zeros"));
  EXPECT_EQ(std::vector<unsigned char>(64, 0), Read(address, bytes));
  OK(cuMemsetD8_v2(address, 5, bytes));
  OK(cuModuleGetGlobal_v2(&again, nullptr, module, "zeros"));
  EXPECT_EQ(address, again);
  EXPECT_EQ(std::vector<unsigned char>(64, 5), Read(address, bytes));
  OK(cuModuleGetGlobal_v2(&address, &bytes, module, "numbers"));
  EXPECT_EQ((std::vector<unsigned char>{7, 0, 255, 1, 0, 0}), Read(address, bytes));
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&address, &bytes, module, "number"));
  OK(cuModuleUnload(module));
  OK(cuMemGetInfo_v2(&free_after, &total));
  EXPECT_EQ(free_before, free_after);
}

TEST_F(MemoryTest, ErrorsHaveNamesAndTexts) {
  const char* text = nullptr;
  OK(cuGetErrorName(CUDA_ERROR_NOT_READY, &text));
  EXPECT_STREQ("CUDA_ERROR_NOT_READY", text);
  OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ("there is no room for the allocation", text);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(12345, &text));
}

}  // namespace
}  // namespace pretend_gpu::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  pretend_gpu::testing::Configure(1, "prompt", pretend_gpu::testing::kNever);
  return RUN_ALL_TESTS();
}
