// Each collective with each type and op, in place and not, against what it should be; with 1 to 4 ranks.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/pretend_gpu/nccl/operation.h"
#include "tests/pretend_gpu/nccl/tests/ranks.h"
#include "tests/pretend_gpu/nccl/types.h"

namespace pretend_gpu::nccl::testing {
namespace {

constexpr int kPreMulSumOnHost = 5, kPreMulSumOnDevice = 6;  // besides NCCL's ops
constexpr double kFactor = 2;

// Element i of what a rank sends: small, so that sums and products of it are exact in all types.
double Sent(int type, int rank, std::size_t i) {
  const int value = static_cast<int>((static_cast<std::size_t>(rank) * 2 + i) % 4);
  const bool is_unsigned = type == ncclUint8 || type == ncclUint32 || type == ncclUint64;
  return is_unsigned ? value : value - 1;
}

double Reduced(int type, int op, int ranks, std::size_t i) {
  double result = Sent(type, 0, i);
  for (int rank = 1; rank < ranks; rank++) {
    const double value = Sent(type, rank, i);
    if (op == ncclProd) {
      result *= value;
    } else if (op == ncclMax) {
      result = std::max(result, value);
    } else if (op == ncclMin) {
      result = std::min(result, value);
    } else {
      result += value;
    }
  }
  if (op == ncclAvg) return IsInteger(type) ? std::trunc(result / ranks) : result / ranks;
  return op >= kPreMulSumOnHost ? result * kFactor : result;
}

std::vector<char> Encode(int type, const std::vector<double>& values) {
  std::vector<char> bytes(values.size() * SizeOf(type));
  WithType(type, [&](auto element) {
    for (std::size_t i = 0; i < values.size(); i++) {
      using T = decltype(element);
      if constexpr (std::is_arithmetic_v<T>) {
        element = static_cast<T>(values[i]);
      } else {
        element = T(static_cast<float>(values[i]));
      }
      std::memcpy(bytes.data() + i * sizeof(element), &element, sizeof(element));
    }
  });
  return bytes;
}

std::vector<double> Decode(int type, const std::vector<char>& bytes) {
  std::vector<double> values(bytes.size() / SizeOf(type));
  WithType(type, [&](auto element) {
    for (std::size_t i = 0; i < values.size(); i++) {
      std::memcpy(&element, bytes.data() + i * sizeof(element), sizeof(element));
      if constexpr (std::is_arithmetic_v<decltype(element)>) {
        values[i] = static_cast<double>(element);
      } else {
        values[i] = static_cast<float>(element);
      }
    }
  });
  return values;
}

// One call on one rank.
class Case {
 public:
  Case(const Rank& rank, ncclComm_t comm, Kind kind, int type, int op, std::size_t count, bool in_place)
      : rank_(rank), comm_(comm), kind_(kind), type_(type), op_(op), count_(count), in_place_(in_place) {}

  void Run() {
    SCOPED_TRACE(::testing::Message() << "rank " << rank_.rank << " of " << rank_.ranks << ", kind "
                                      << static_cast<int>(kind_) << ", type " << type_ << ", op " << op_
                                      << ", count " << count_ << ", in place " << in_place_);
    const std::size_t all = count_ * rank_.ranks;
    const std::size_t sent = kind_ == Kind::kReduceScatter ? all : count_;
    const std::size_t received = kind_ == Kind::kAllGather ? all : count_;
    std::vector<double> values(sent);
    for (std::size_t i = 0; i < sent; i++) values[i] = Sent(type_, rank_.rank, i);
    MakeBuffers(Encode(type_, values), sent, received);
    Call();
    auto bytes = Download(static_cast<const char*>(receive_), received * SizeOf(type_), rank_.stream);
    if (kind_ != Kind::kReduce || rank_.rank == root_) Check(Decode(type_, bytes));
    CUDA_OK(cudaFree(memory_));
    if (memory_ != receive_memory_) {
      CUDA_OK(cudaFree(receive_memory_));
    }
  }

 private:
  // In place, the smaller buffer lies in the larger one.
  void MakeBuffers(const std::vector<char>& sent_bytes, std::size_t sent, std::size_t received) {
    const std::size_t slice = rank_.rank * count_ * SizeOf(type_);
    std::vector<char> bytes(std::max(sent, in_place_ ? received : 0) * SizeOf(type_) + 1);
    const bool gathers = in_place_ && kind_ == Kind::kAllGather;
    std::copy(sent_bytes.begin(), sent_bytes.end(), bytes.begin() + (gathers ? slice : 0));
    memory_ = Upload(bytes, rank_.stream);
    send_ = memory_ + (gathers ? slice : 0);
    receive_memory_ =
        in_place_ ? memory_ : Upload(std::vector<char>(received * SizeOf(type_) + 1), rank_.stream);
    receive_ = receive_memory_ + (in_place_ && kind_ == Kind::kReduceScatter ? slice : 0);
  }

  void Call() {
    const auto type = static_cast<ncclDataType_t>(type_);
    auto op = static_cast<ncclRedOp_t>(op_);
    const auto factor = Encode(type_, {kFactor});
    char* on_device = nullptr;
    if (op_ == kPreMulSumOnHost) {
      NCCL_OK(ncclRedOpCreatePreMulSum(&op, const_cast<char*>(factor.data()), type, ncclScalarHostImmediate,
                                       comm_));
    } else if (op_ == kPreMulSumOnDevice) {
      on_device = Upload(factor, rank_.stream);
      NCCL_OK(ncclRedOpCreatePreMulSum(&op, on_device, type, ncclScalarDevice, comm_));
    }
    switch (kind_) {
      case Kind::kAllReduce:
        NCCL_OK(ncclAllReduce(send_, receive_, count_, type, op, comm_, rank_.stream));
        break;
      case Kind::kReduce:
        NCCL_OK(ncclReduce(send_, receive_, count_, type, op, root_, comm_, rank_.stream));
        break;
      case Kind::kReduceScatter:
        NCCL_OK(ncclReduceScatter(send_, receive_, count_, type, op, comm_, rank_.stream));
        break;
      case Kind::kAllGather:
        NCCL_OK(ncclAllGather(send_, receive_, count_, type, comm_, rank_.stream));
        break;
      default:
        if (in_place_) {
          NCCL_OK(ncclBcast(receive_, count_, type, root_, comm_, rank_.stream));
        } else {
          NCCL_OK(ncclBroadcast(send_, receive_, count_, type, root_, comm_, rank_.stream));
        }
    }
    if (op_ >= kPreMulSumOnHost) {
      NCCL_OK(ncclRedOpDestroy(op, comm_));
    }
    if (on_device != nullptr) {
      CUDA_OK(cudaStreamSynchronize(rank_.stream));
      CUDA_OK(cudaFree(on_device));
    }
  }

  double Expected(std::size_t i) const {
    if (kind_ == Kind::kBroadcast) return Sent(type_, root_, i);
    if (kind_ == Kind::kAllGather) return Sent(type_, static_cast<int>(i / count_), i % count_);
    return Reduced(type_, op_, rank_.ranks, kind_ == Kind::kReduceScatter ? i + rank_.rank * count_ : i);
  }

  void Check(const std::vector<double>& values) const {
    // An average multiplies by 1/n first, which is not exact for three ranks.
    const bool exact = op_ != ncclAvg || IsInteger(type_) || rank_.ranks != 3;
    const double tolerance = exact ? 0 : type_ == ncclBfloat16 ? 0.03 : type_ == ncclFloat16 ? 4e-3 : 1e-6;
    for (std::size_t i = 0; i < values.size(); i++) ASSERT_NEAR(Expected(i), values[i], tolerance) << i;
  }

  const Rank& rank_;
  const ncclComm_t comm_;
  const Kind kind_;
  const int type_, op_;
  const std::size_t count_;
  const bool in_place_;
  const int root_ = rank_.ranks - 1;
  char *memory_ = nullptr, *receive_memory_ = nullptr, *send_ = nullptr, *receive_ = nullptr;
};

void Matrix(Rank& rank) {
  const ncclComm_t comm = rank.Join();
  const Kind kinds[] = {Kind::kAllReduce, Kind::kReduce, Kind::kReduceScatter, Kind::kAllGather,
                        Kind::kBroadcast};
  for (const Kind kind : kinds) {
    for (int type = 0; type < ncclNumTypes; type++) {
      for (int op = 0; op <= (Reduces(kind) ? kPreMulSumOnDevice : 0); op++) {
        const std::size_t count = 1 + (type * 7 + op * 3) % 20;
        Case(rank, comm, kind, type, op, count, (type + op) % 2 == 0).Run();
      }
    }
    for (const std::size_t count : {std::size_t{0}, std::size_t{40'000}}) {
      for (const bool in_place : {false, true})
        Case(rank, comm, kind, ncclFloat32, ncclSum, count, in_place).Run();
    }
  }
  NCCL_OK(ncclCommDestroy(comm));
}
const Named matrix("matrix", Matrix);

TEST(Matrix, OneRank) { RunThreads(1, Matrix); }
TEST(Matrix, TwoThreads) { RunThreads(2, Matrix); }
TEST(Matrix, ThreeThreads) { RunThreads(3, Matrix); }
TEST(Matrix, FourThreads) { RunThreads(4, Matrix); }
TEST(Matrix, TwoProcesses) { RunProcesses(2, "matrix"); }
TEST(Matrix, ThreeProcesses) { RunProcesses(3, "matrix"); }
TEST(Matrix, FourProcesses) { RunProcesses(4, "matrix"); }

}  // namespace
}  // namespace pretend_gpu::nccl::testing

int main(int argc, char** argv) { return pretend_gpu::nccl::testing::Main(argc, argv, "random"); }
