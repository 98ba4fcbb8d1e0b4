#include "kernels/engine/nccl_group.h"

#include <cstdint>
#include <memory>

#include "kernels/collectives/backends/nccl/hosts_meeting.h"
#include "kernels/control/relay_message.h"

namespace tf_smddp {
namespace {

// Between hosts, the first rank asks the head of the world for the turns of the communicator's batches.
nccl::Turns::Line::Ask AskForTurn(Communicator* communicator) {
  if (!communicator->wired()) return nullptr;
  if (communicator->head().value() != communicator->job().rank()) return [](std::uint64_t /*batch*/) {};
  return [communicator](std::uint64_t batch) {
    RelayMessage message;
    message.kind = RelayMessage::kTurn;
    message.region = communicator->group().region();
    message.ticket = batch;
    const RankId head(communicator->job().hosts().front().front());
    communicator->wire().Send(head, {kWorld, Wire::Channel::kOrder}, Encode({message}));
  };
}

}  // namespace

nccl::NcclTransfer::Group NcclGroup(Communicator* communicator) {
  LocalGroup& group = communicator->group();
  nccl::NcclTransfer::Group nccl;
  nccl.meeting = &group.segment().nccl_meeting();
  nccl.member = MemberId(group.index());
  nccl.num_members = group.size();
  nccl.turns = &communicator->job().nccl_turns();
  nccl.turn_record = &communicator->job().segment().nccl_turn_record(group.region());
  nccl.ask_for_turn = AskForTurn(communicator);
  if (communicator->wired()) {
    nccl.hosts = std::make_shared<nccl::HostsMeeting>(
        &communicator->wire(), communicator->id(), communicator->ranks(), RankId(communicator->job().rank()));
  }
  return nccl;
}

}  // namespace tf_smddp
