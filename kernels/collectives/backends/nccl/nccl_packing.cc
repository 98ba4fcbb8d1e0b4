#include "kernels/collectives/backends/nccl/nccl_packing.h"

#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

namespace tf_smddp::nccl {
namespace {

constexpr std::uint64_t kAlignment = 16;  // of each tensor in the buffer; a multiple of each type's size

std::uint64_t BytesOf(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUInt8:
      return 1;
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUInt32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUInt64:
    case DataType::kFloat64:
      return 8;
  }
  return 8;
}

std::uint64_t BytesOf(const NcclCall& call) { return call.count * BytesOf(call.type); }
std::uint64_t RoomOf(const NcclCall& call) {
  return (BytesOf(call) + kAlignment - 1) / kAlignment * kAlignment;
}

bool IsSmall(const NcclCall& call) {
  return call.function == NcclCall::Function::kAllReduce && BytesOf(call) <= kMostPackedBytes;
}

using Kind = std::tuple<DataType, Op, bool, std::uint64_t>;
Kind KindOf(const NcclCall& call) { return {call.type, call.op, call.scaled, call.scaled ? call.scalar : 0}; }

}  // namespace

Packing Pack(void* buffer, std::vector<NcclCall>* calls) {
  std::map<Kind, std::vector<const NcclCall*>> alike;  // in the order of the kinds: the same on all ranks
  std::vector<NcclCall> result;
  std::uint64_t room = kPackingBufferBytes;
  for (const NcclCall& call : *calls) {
    if (!IsSmall(call) || RoomOf(call) > room) {
      result.push_back(call);
      continue;
    }
    room -= RoomOf(call);
    alike[KindOf(call)].push_back(&call);
  }
  Packing packing;
  auto* at = static_cast<std::byte*>(buffer);
  for (const auto& [kind, members] : alike) {
    NcclCall packed = *members.front();
    if (members.size() > 1) {
      packed.send = packed.receive = at;
      packed.count = 0;
      for (const NcclCall* const call : members) {
        packing.in.push_back({at, call->send, BytesOf(*call)});
        packing.out.push_back({call->receive, at, BytesOf(*call)});
        packed.count += RoomOf(*call) / BytesOf(call->type);
        at += RoomOf(*call);
      }
    }
    result.push_back(packed);
  }
  *calls = std::move(result);
  return packing;
}

Status Packer::Open(const Place& place, std::unique_ptr<Packer>* opened) {
  std::unique_ptr<Packer> packer(new Packer(place));
  Status status = cuda::Copier::Open(place.driver, place.context, &packer->copier_);
  if (!status.ok()) return status;
  const cuda::CurrentContext current(place.driver, place.context);
  status = place.driver->Check("cuMemAlloc", place.driver->MemAlloc(&packer->buffer_, kPackingBufferBytes));
  if (status.ok()) *opened = std::move(packer);
  return status;
}

Packer::~Packer() {
  const cuda::CurrentContext current(place_.driver, place_.context);
  static_cast<void>(place_.driver->MemFree(buffer_));  // nothing is lost if it fails
}

Status Packer::Enqueue(std::vector<NcclCall> calls, Communicator* communicator, cuda::Stream stream) {
  Packing packing = Pack(reinterpret_cast<void*>(buffer_), &calls);
  out_ = std::move(packing.out);
  const cuda::CurrentContext current(place_.driver, place_.context);
  const Status status = copier_->Put(packing.in, stream);
  return status.ok() ? communicator->Enqueue(calls, stream) : status;
}

Status Packer::Unpack(cuda::Stream stream) {
  const cuda::CurrentContext current(place_.driver, place_.context);
  return copier_->Put(std::exchange(out_, {}), stream);
}

}  // namespace tf_smddp::nccl
