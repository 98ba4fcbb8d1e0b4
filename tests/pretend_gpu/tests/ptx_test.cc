// Kernels that come as PTX.
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/api/driver.h"
#include "tests/pretend_gpu/tests/support.h"

namespace pretend_gpu::testing {
namespace {

// A kernel that computes y[i] of x[i], for i < n. `body` computes %f2 of %f1, and may use %r5 = i.
std::string Kernel(const std::string& body) {
  return R"(// A comment; with a semicolon
.version 7.1
.target sm_80
.address_size 64
.visible .entry other(
	.param .u32 other_param_0
)
{
	ret;

}
.visible .entry each(
	.param .u64 .ptr .align 16 each_param_0,
	.param .u64 each_param_1,
	.param .u32 each_param_2
)
.maxntid 256, 1, 1
{
	.reg .pred 	%p<3>;
	.reg .f32 	%f<9>;

	ld.param.u32 	%r1, [each_param_2];
	mov.u32 	%r2, %ctaid.x;
	mov.u32 	%r3, %ntid.x;
	mov.u32 	%r4, %tid.x;
	mad.lo.s32 	%r5, %r2, %r3, %r4;
	setp.ge.s32 	%p1, %r5, %r1;
	@%p1 bra 	$L__BB0_2;
	ld.param.u64 	%rd1, [each_param_0];
	cvta.to.global.u64 	%rd2, %rd1;
	ld.param.u64 	%rd3, [each_param_1];
	mul.wide.s32 	%rd4, %r5, 4;
	add.s64 	%rd5, %rd3, %rd4;
	ld.global.f32 	%f1, [%rd5];
)" + body +
         R"(
	add.s64 	%rd6, %rd2, %rd4;
	st.global.f32 	[%rd6], %f2;
$L__BB0_2:
	ret;

}
)";
}

float BitCast(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

class PtxTest : public Gpu {
 protected:
  // Returns y for this x, of a kernel with this body.
  std::vector<float> Run(const std::string& body, std::vector<float> x) {
    Launch(body, x);
    return x;
  }

 private:
  // Replaces x by y.
  void Launch(const std::string& body, std::vector<float>& x) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    OK(cuModuleLoadData(&module, Kernel(body).c_str()));
    OK(cuModuleGetFunction(&function, module, "each"));
    const std::size_t bytes = x.size() * sizeof(float);
    CUdeviceptr in = Allocate(bytes);
    CUdeviceptr out = Allocate(bytes);
    int count = static_cast<int>(x.size());
    OK(cuMemcpyHtoD_v2(in, x.data(), bytes));
    void* arguments[] = {&out, &in, &count};
    OK(cuLaunchKernel(function, 3, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
    OK(cuMemcpyDtoH_v2(x.data(), out, bytes));
    OK(cuMemFree_v2(in));
    OK(cuMemFree_v2(out));
    OK(cuModuleUnload(module));
  }
};

TEST_F(PtxTest, EachThreadWritesItsElement) {
  std::vector<float> x(70), wanted(70);
  for (int i = 0; i < 70; i++) {
    x[i] = static_cast<float>(i);
    wanted[i] = -static_cast<float>(i);
  }
  EXPECT_EQ(wanted, Run("neg.f32 %f2, %f1;", x));
}

TEST_F(PtxTest, Arithmetic) {
  using Floats = std::vector<float>;
  // 0f40400000 is 3.
  EXPECT_EQ((Floats{4, 2.5f}), Run("add.ftz.f32 %f2, %f1, 0f40400000;", {1, -0.5f}));
  EXPECT_EQ((Floats{-2, -3.5f}), Run("sub.f32 %f2, %f1, 0f40400000;", {1, -0.5f}));
  EXPECT_EQ((Floats{6, -1.5f}), Run("mul.f32 %f2, %f1, 0f40400000;", {2, -0.5f}));
  EXPECT_EQ((Floats{2, -1}), Run("div.rn.f32 %f2, %f1, 0f40400000;", {6, -3}));
  // Rounded once: three times the float next to 1/3 is 1 + 2^-25. 0fBF800000 is -1.
  EXPECT_EQ((Floats{5, 0x1p-25f}), Run("fma.rn.f32 %f2, %f1, 0f40400000, 0fBF800000;", {2, 1.0f / 3}));
  EXPECT_EQ((Floats{3, 1}), Run("min.f32 %f2, %f1, 0f40400000;", {8, 1}));
  EXPECT_EQ((Floats{8, 3}), Run("max.f32 %f2, %f1, 0f40400000;", {8, 1}));
  EXPECT_EQ((Floats{8, 1}), Run("abs.f32 %f2, %f1;", {8, -1}));
  EXPECT_EQ((Floats{3, 0}), Run("sqrt.approx.f32 %f2, %f1;", {9, 0}));
  EXPECT_EQ((Floats{3, 4}), Run("mov.b32 %r6, %f1;\nadd.s32 %r7, %r6, 0;\nmov.b32 %f2, %r7;", {3, 4}));
}

TEST_F(PtxTest, HalfPrecisionIsConverted) {
  const std::string there_and_back = "cvt.rn.f16.f32 %rs1, %f1;\ncvt.f32.f16 %f2, %rs1;";
  const float infinity = std::numeric_limits<float>::infinity();
  // Halfway between 1 and its neighbour goes to 1, which is even; 65520 is halfway to what would be 65536.
  EXPECT_EQ((std::vector<float>{1, 1, 1 + 0x1p-9f, 0x1p-24f, 0, -65504, infinity}),
            Run(there_and_back, {1, 1 + 0x1p-11f, 1 + 0x1.8p-10f, 0x1p-24f, 0x1p-25f, -65504, 65520}));
}

TEST_F(PtxTest, IntegersHaveTheirSignAndSize) {
  const auto of_index = [&](const std::string& body) {
    return Run(body + "\ncvt.rn.f32.s32 %f2, %r9;", {0, 0, 0});
  };
  using Floats = std::vector<float>;
  EXPECT_EQ((Floats{-5, -4, -3}), of_index("add.s32 %r9, %r5, -5;"));
  EXPECT_EQ((Floats{-4, -4, -3}), of_index("add.s32 %r8, %r5, -5;\nmax.s32 %r9, %r8, -4;"));
  EXPECT_EQ((Floats{3, 3, 3}), of_index("add.s32 %r8, %r5, -5;\nmin.u32 %r9, %r8, 3;"));
  EXPECT_EQ((Floats{-3, -2, -2}), of_index("add.s32 %r8, %r5, -5;\nshr.s32 %r9, %r8, 1;"));
  EXPECT_EQ((Floats{-1, -1, -1}), of_index("add.s32 %r8, %r5, -5;\nshr.s32 %r9, %r8, 40;"));
  EXPECT_EQ((Floats{0, 0, 0}), of_index("add.s32 %r8, %r5, -5;\nshr.u32 %r9, %r8, 40;"));
  EXPECT_EQ((Floats{0, 4, 8}), of_index("shl.b32 %r9, %r5, 2;"));
  EXPECT_EQ((Floats{2, 2, 3}), of_index("add.s32 %r8, %r5, 20;\nbfe.u32 %r9, %r8, 1, 2;"));
  EXPECT_EQ((Floats{0, 1, 0}), of_index("rem.s32 %r9, %r5, 2;"));
  EXPECT_EQ((Floats{-2, -2, -1}), of_index("add.s32 %r8, %r5, -5;\ndiv.s32 %r9, %r8, 2;"));
  EXPECT_EQ((Floats{1, 0, 3}), of_index("xor.b32 %r9, %r5, 1;"));
  // 65535 * 65537 does not fit.
  EXPECT_EQ((Floats{-1, 0, 1}), of_index("mov.u32 %r8, 65535;\nmad.lo.s32 %r9, %r8, 65537, %r5;"));
}

// The bits of -3 and of 2 as floats.
TEST_F(PtxTest, ALoadIntoAWiderRegisterKeepsTheSign) {
  const std::string as_float = "\ncvt.rn.f32.s64 %f2, %rd9;";
  const float minus_three = BitCast(0xfffffffd), two = BitCast(2);
  using Floats = std::vector<float>;
  EXPECT_EQ((Floats{-3, 2}), Run("ld.global.s32 %rd9, [%rd5];" + as_float, {minus_three, two}));
  EXPECT_EQ((Floats{4294967293.0f, 2}), Run("ld.global.u32 %rd9, [%rd5];" + as_float, {minus_three, two}));
  EXPECT_EQ((Floats{-3, 2}), Run("ld.global.s8 %rd9, [%rd5];" + as_float, {minus_three, two}));
}

TEST_F(PtxTest, PredicatesSelectAndSkip) {
  using Floats = std::vector<float>;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string select = "\nselp.f32 %f2, 0f3F800000, 0f00000000, %p2;";
  EXPECT_EQ((Floats{1, 0, 0}), Run("setp.lt.f32 %p2, %f1, 0f40400000;" + select, {2, 3, nan}));
  EXPECT_EQ((Floats{1, 0, 1}), Run("setp.ltu.f32 %p2, %f1, 0f40400000;" + select, {2, 3, nan}));
  EXPECT_EQ((Floats{0, 0, 1}), Run("setp.nan.f32 %p2, %f1, %f1;" + select, {2, 3, nan}));
  EXPECT_EQ((Floats{1, 0, 0}), Run("setp.ne.f32 %p2, %f1, 0f40400000;" + select, {2, 3, nan}));
  EXPECT_EQ((Floats{0, 1, 0}),
            Run("setp.lt.f32 %p1, %f1, 0f40400000;\nsetp.eq.f32 %p2, %f1, %f1;\nnot.pred %p1, %p1;\n"
                "and.pred %p2, %p1, %p2;" +
                    select,
                {2, 3, nan}));
  EXPECT_EQ((Floats{4, 3}), Run("mov.f32 %f2, %f1;\nsetp.lt.f32 %p2, %f1, 0f40400000;\n"
                                "@!%p2 bra $L1;\nadd.f32 %f2, %f1, %f1;\n$L1:",
                                {2, 3}));
}

// A struct with a table of addresses, of which each block reads the entry of its number.
TEST_F(PtxTest, AParameterMayBeAStruct) {
  static const char kText[] = R"(.version 8.0
.target sm_70
.address_size 64
.visible .entry table(
	.param .align 8 .b8 table_param_0[24],
	.param .u32 table_param_1
)
{
	mov.b64 	%rd1, table_param_0;
	mov.u64 	%rd2, %rd1;
	mov.u32 	%r1, %ctaid.y;
	mul.wide.u32 	%rd3, %r1, 8;
	add.s64 	%rd4, %rd2, %rd3;
	add.s64 	%rd5, %rd4, 8;
	ld.param.u64 	%rd6, [%rd5+-8];
	cvta.to.global.u64 	%rd7, %rd6;
	ld.param.u32 	%r2, [table_param_0+16];
	ld.param.u32 	%r3, [table_param_1];
	add.s32 	%r4, %r2, %r3;
	st.global.u32 	[%rd7], %r4;
	ret;

}
)";
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  OK(cuModuleLoadData(&module, kText));
  OK(cuModuleGetFunction(&function, module, "table"));
  struct {
    CUdeviceptr outputs[2];
    int value;
  } table = {{Allocate(4), Allocate(4)}, 40};
  int more = 2;
  void* arguments[] = {&table, &more};
  OK(cuLaunchKernel(function, 1, 2, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  for (const CUdeviceptr output : table.outputs) {
    int found = 0;
    OK(cuMemcpyDtoH_v2(&found, output, sizeof found));
    EXPECT_EQ(found, 42);
    OK(cuMemFree_v2(output));
  }
  OK(cuModuleUnload(module));
}

TEST_F(PtxTest, AnUnknownInstructionEndsTheProcess) {
  for (const std::string body :
       {"sin.approx.f32 %f2, %f1;", "add.rz.f32 %f2, %f1, %f1;", "bar.sync 0;", "cvt.rni.f32.f32 %f2, %f1;",
        "mov.u32 %r9, %laneid;", "add.f16 %rs1, %rs2, %rs3;", "setp.eq.f32 %p1|%p2, %f1, %f1;",
        "ld.shared.f32 %f2, [%rd1];"}) {
    EXPECT_DEATH(Run(body, {1}), "kernel each comes as PTX, and its instruction `" +
                                     body.substr(0, body.find(' ')) + ".*` is not known")
        << body;
  }
}

}  // namespace
}  // namespace pretend_gpu::testing

int main(int argc, char** argv) {
  pretend_gpu::testing::Configure(1, "random", "2000");
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
