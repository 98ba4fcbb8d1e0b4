// The API: collectives, calls between two ranks, and groups.
#include <string>
#include <utility>

#include "tests/pretend_gpu/api/runtime.h"
#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/nccl/api/nccl.h"
#include "tests/pretend_gpu/nccl/buffers.h"
#include "tests/pretend_gpu/nccl/communicator.h"
#include "tests/pretend_gpu/nccl/group.h"
#include "tests/pretend_gpu/nccl/operation.h"
#include "tests/pretend_gpu/nccl/types.h"

using pretend_gpu::End;
using pretend_gpu::nccl::Communicator;
using pretend_gpu::nccl::CommunicatorOf;
using pretend_gpu::nccl::Group;
using pretend_gpu::nccl::Kind;
using pretend_gpu::nccl::Operation;
using pretend_gpu::nccl::Part;

namespace {

// A call as the program has made it.
struct Arguments {
  const void* send;
  void* receive;
  std::size_t count;
  int type;
  int op;
  int peer;
};

// Ends the process if the stream, or the current device of a call outside of groups, is not the
// communicator's.
void CheckDevice(const Communicator& communicator, CUstream stream) {
  int current = 0;
  cudaGetDevice(&current);
  if (!Group::Current().open() && current != communicator.device) {
    End("device %d is current, and %s is of device %d; make its device current first, or call it in a group",
        current, communicator.Describe().c_str(), communicator.device);
  }
  if (stream == nullptr) return;  // that of the communicator's device
  const auto facts = pretend_gpu::FactsOf(stream);
  if (facts.device == communicator.device) return;
  End("%s is of device %d, and is called on %s; pass a stream of its device", communicator.Describe().c_str(),
      communicator.device, facts.text.c_str());
}

// Reads the op, and what belongs to one of ncclRedOpCreatePreMulSum's.
void SetOp(const Communicator& communicator, int op, const std::string& user, Part* part) {
  Operation& operation = part->operation;
  if (op < 0) End("%d is no op", op);
  if (op < ncclNumOps) {
    operation.op = op;
    return;
  }
  const auto* made = communicator.pre_mul_sums.Find(op);
  if (made == nullptr) {
    End("%d is no op of %s; use what ncclRedOpCreatePreMulSum returned for it, before ncclRedOpDestroy", op,
        communicator.Describe().c_str());
  }
  if (made->type != operation.type) {
    End("the op was made by ncclRedOpCreatePreMulSum for %s, and is used for %s; make one for each type",
        pretend_gpu::nccl::NameOfType(made->type), pretend_gpu::nccl::NameOfType(operation.type));
  }
  operation.op = pretend_gpu::nccl::kPreMulSum;
  part->pre_mul_sum = *made;
  if (made->on_device == nullptr) return;
  part->scalar = UseOwnMemory(communicator, made->on_device, pretend_gpu::nccl::SizeOf(made->type),
                              "scalar of ncclRedOpCreatePreMulSum", user);
}

ncclResult_t Submit(Kind kind, const Arguments& arguments, ncclComm_t comm, CUstream stream) {
  const auto communicator = CommunicatorOf(comm);
  const Communicator::Using use(communicator);
  if (const ncclResult_t error = communicator->Ready(); error != ncclSuccess) return error;
  if (!pretend_gpu::nccl::IsType(arguments.type)) End("%d is no data type", arguments.type);
  if (arguments.peer < 0 || arguments.peer >= communicator->ranks) {
    End("rank %d is the root or the other rank of a call with %s; pass a rank from 0 to %d", arguments.peer,
        communicator->Describe().c_str(), communicator->ranks - 1);
  }
  CheckDevice(*communicator, stream);
  Part part = {};
  part.operation = {kind, arguments.type, 0, arguments.peer, arguments.count};
  const std::string user = Describe(part.operation) + " of " + communicator->Describe();
  if (pretend_gpu::nccl::Reduces(kind)) SetOp(*communicator, arguments.op, user, &part);
  part.counts = CountsOf(part.operation, communicator->rank, communicator->ranks);
  ResolveBuffers(*communicator, arguments.send, arguments.receive, user, &part);
  pretend_gpu::Log("%s of %s", Describe(part.operation).c_str(), communicator->Describe().c_str());
  return Group::Current().Add(communicator, std::move(part), stream);
}

}  // namespace

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  const pretend_gpu::Call call(__func__);
  return Submit(Kind::kAllReduce, {send, receive, count, type, op, 0}, comm, stream);
}

ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream) {
  const pretend_gpu::Call call(__func__);
  return Submit(Kind::kReduce, {send, receive, count, type, op, root}, comm, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, CUstream stream) {
  const pretend_gpu::Call call(__func__);
  return Submit(Kind::kBroadcast, {send, receive, count, type, 0, root}, comm, stream);
}

ncclResult_t ncclBcast(void* buffer, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       CUstream stream) {
  const pretend_gpu::Call call(__func__);
  return Submit(Kind::kBroadcast, {buffer, buffer, count, type, 0, root}, comm, stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, CUstream stream) {
  const pretend_gpu::Call call(__func__);
  return Submit(Kind::kAllGather, {send, receive, send_count, type, 0, 0}, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  const pretend_gpu::Call call(__func__);
  return Submit(Kind::kReduceScatter, {send, receive, receive_count, type, op, 0}, comm, stream);
}

ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  const pretend_gpu::Call call(__func__);
  return Submit(Kind::kSend, {send, nullptr, count, type, 0, peer}, comm, stream);
}

ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  const pretend_gpu::Call call(__func__);
  return Submit(Kind::kReceive, {nullptr, receive, count, type, 0, peer}, comm, stream);
}

ncclResult_t ncclGroupStart() {
  const pretend_gpu::Call call(__func__);
  Group::Current().Start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const pretend_gpu::Call call(__func__);
  return Group::Current().End();
}
