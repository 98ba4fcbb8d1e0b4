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

// As they are in the buffer.
std::uint64_t BytesOf(const NcclCall& call) { return call.count * BytesOf(call.type); }
std::uint64_t RoomOf(const NcclCall& call) {
  return (BytesOf(call) + kAlignment - 1) / kAlignment * kAlignment;
}

bool IsPacked(const NcclCall& call) {
  return call.compressed ||
         (call.function == NcclCall::Function::kAllReduce && BytesOf(call) <= kMostPackedBytes);
}

cuda::Conversion InOf(const NcclCall& call) {
  if (!call.compressed) return cuda::Conversion::kNone;
  return call.type == DataType::kFloat16 ? cuda::Conversion::kFloat32ToFloat16
                                         : cuda::Conversion::kFloat32ToBFloat16;
}

cuda::Conversion OutOf(const NcclCall& call) {
  if (!call.compressed) return cuda::Conversion::kNone;
  return call.type == DataType::kFloat16 ? cuda::Conversion::kFloat16ToFloat32
                                         : cuda::Conversion::kBFloat16ToFloat32;
}

// Cuts the first `count` elements off a compressed call, and returns them.
NcclCall CutOff(NcclCall* call, std::uint64_t count) {
  NcclCall first = *call;
  first.count = count;
  call->send = static_cast<const float*>(call->send) + count;
  call->receive = static_cast<float*>(call->receive) + count;
  call->count -= count;
  return first;
}

// Makes a round of what is packed in it.
class Round {
 public:
  explicit Round(std::uint64_t room) : room_(room) {}

  std::uint64_t room() const { return room_; }

  void Add(const NcclCall& call) {
    room_ -= RoomOf(call);
    alike_[{call.type, call.op, call.scaled, call.scaled ? call.scalar : 0}].push_back(call);
  }

  // Appends its calls to the round's.
  void Finish(void* buffer, PackedRound* round) const {
    auto* at = static_cast<std::byte*>(buffer);
    for (const auto& [kind, members] : alike_) {
      NcclCall packed = members.front();
      if (members.size() > 1 || packed.compressed) {
        packed.send = packed.receive = at;
        packed.count = 0;
        for (const NcclCall& call : members) {
          const std::uint64_t count = call.compressed ? call.count : BytesOf(call);
          round->in.push_back({at, call.send, count, InOf(call)});
          round->out.push_back({call.receive, at, count, OutOf(call)});
          packed.count += RoomOf(call) / BytesOf(call.type);
          at += RoomOf(call);
        }
      }
      round->calls.push_back(packed);
    }
  }

 private:
  using Kind = std::tuple<DataType, Op, bool, std::uint64_t>;

  std::map<Kind, std::vector<NcclCall>> alike_;  // in the order of the kinds: the same on all ranks
  std::uint64_t room_;
};

}  // namespace

std::deque<PackedRound> Pack(void* buffer, std::uint64_t bytes, const std::vector<NcclCall>& calls) {
  std::deque<PackedRound> rounds(1);
  Round round(bytes);
  for (NcclCall call : calls) {
    if (!IsPacked(call) || (!call.compressed && RoomOf(call) > round.room())) {
      rounds.back().calls.push_back(call);
      continue;
    }
    while (RoomOf(call) > round.room()) {
      if (round.room() > 0) round.Add(CutOff(&call, round.room() / BytesOf(call.type)));
      round.Finish(buffer, &rounds.back());
      round = Round(bytes);
      rounds.emplace_back();
    }
    round.Add(call);
  }
  round.Finish(buffer, &rounds.back());
  return rounds;
}

Status Packer::Open(const Place& place, std::uint64_t bytes, std::unique_ptr<Packer>* opened) {
  std::unique_ptr<Packer> packer(new Packer(place, bytes));
  Status status = cuda::Copier::Open(place.driver, place.context, &packer->copier_);
  if (!status.ok()) return status;
  const cuda::CurrentContext current(place.driver, place.context);
  status = place.driver->Check("cuMemAlloc", place.driver->MemAlloc(&packer->buffer_, bytes));
  if (status.ok()) *opened = std::move(packer);
  return status;
}

Packer::~Packer() {
  const cuda::CurrentContext current(place_.driver, place_.context);
  static_cast<void>(place_.driver->MemFree(buffer_));  // nothing is lost if it fails
}

Status Packer::Enqueue(Communicator* communicator, cuda::Stream stream) {
  const cuda::CurrentContext current(place_.driver, place_.context);
  const Status status = copier_->Put(rounds_.front().in, stream);
  if (!status.ok()) return status;
  enqueued_ = true;
  return communicator->Enqueue(rounds_.front().calls, stream);
}

Status Packer::Unpack(cuda::Stream stream) {
  if (!enqueued_) return {};
  enqueued_ = false;
  const std::vector<cuda::Copy> out = std::move(rounds_.front().out);
  rounds_.pop_front();
  const cuda::CurrentContext current(place_.driver, place_.context);
  return copier_->Put(out, stream);
}

void Packer::Forget() {
  rounds_.clear();
  enqueued_ = false;
}

}  // namespace tf_smddp::nccl
