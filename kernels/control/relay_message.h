// RelayMessage: what the hosts of a job tell each other about one communicator.
//
// Place in the stack: above descriptions.h. The relay of each host (kernels/engine/hosts/relay.h) sends these
// over the wire. All hosts run the same build, so a manifest travels as its bytes.
//
// On the wire a field takes bytes only if it has another value than at the beginning, and a number as many as
// it needs. So a report of a tensor that the head knows has some 6 bytes.
#ifndef TF_SMDDP_KERNELS_CONTROL_RELAY_MESSAGE_H_
#define TF_SMDDP_KERNELS_CONTROL_RELAY_MESSAGE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/rank_id.h"
#include "kernels/control/descriptions.h"

namespace tf_smddp {

// One rank's part in a request.
struct RelayPart {
  RankId rank;
  std::uint64_t rows = 0;
  // Where there are splits: rows for each rank of the communicator; in kLaunch, for each rank of the
  // host that gets the message.
  std::vector<std::uint64_t> splits;
};

// RelayMessage::nccl may be one of these besides a version.
inline constexpr std::uint32_t kNotKept = 0;  // not all ranks have kept their tensors on GPUs
inline constexpr std::uint32_t kNoNccl = 1;   // and not all ever will

struct RelayMessage {
  enum Kind : std::uint32_t {
    // From a host to the head:
    kReady,   // all members of the host have arrived at a request
    kFailed,  // a member has failed a step
    // From a host to the head, which passes it on to all hosts:
    kLeft,      // a member has left the communicator
    kShutDown,  // a member has called shutdown()
    // From the head to all hosts:
    kLaunch,  // all members of all hosts have arrived; launches are in the same order everywhere
    kSeal,    // the batch of the launches that came before is complete
    kFail,    // the incarnation fails, behind all launches that came before
    // From the first rank of a communicator to the head of the world, which passes it on to all hosts:
    kTurn,  // a turn is to be drawn for a batch of NCCL; in the same order everywhere
    // From a host to all others:
    kWorks,  // a rank computes (Job::last_work)
    kAbort,  // the job ends
  };
  Kind kind = kReady;
  std::uint64_t ticket = 0;       // kReady, kLaunch; kTurn: the batch's number in its incarnation
  SharedDescription description;  // kReady, kLaunch
  // kReady, kLaunch: the number of `description`, from SentNumbers, and whether the description goes along.
  std::uint32_t number = 0;
  bool describes = false;
  // kReady: of the host; kLaunch: of all hosts. It is empty if all ranks take part, and their rows are known
  // from the manifest.
  std::vector<RelayPart> parts;
  std::uint64_t incarnation = 0;  // kReady, kFailed, kFail
  std::uint64_t origin = 0;       // kFailed, kFail
  std::string text;               // kFailed, kFail, kAbort
  // kLeft, kShutDown, kWorks; kReady, kLaunch: because of which `nccl` is kNoNccl; kFail: the rank that
  // left last, if it is no failure but all have left
  RankId rank;
  // kReady: the version of NCCL to which all members of the host have given the request's tensors, each on a
  // GPU of its own. kLaunch: the one of all hosts; then NCCL moves them.
  std::uint32_t nccl = kNotKept;
  std::uint32_t communicator = 0;  // kTurn
  // The data of a small request goes with these messages (kernels/engine/hosts/relay_data.h). kReady: the
  // host's partial result, unless one of its tensors is on a GPU. kLaunch: from HostOrder, the partial
  // results of all hosts that take part, in their order; when it is sent, the result. Otherwise empty.
  std::vector<std::string> data;
  RankId last;         // kLaunch: the first rank that takes part of the host that was the last to report
  bool seals = false;  // kLaunch: it ends its batch
};

// Whether some part has splits. Then each host gets a message of its own.
bool HasSplits(const RelayMessage& message);

// Returns `message`, which has the rows for each rank of the communicator, for the host whose ranks have the
// indices `receivers` among these.
RelayMessage WithSplitsFor(const std::vector<std::size_t>& receivers, RelayMessage message);

// Gives the numbers of descriptions to messages that are about to be sent, in this order, to receivers that
// get nothing else numbered.
void Number(std::vector<RelayMessage>* messages, SentNumbers* numbers);

// Makes one message of the wire of them.
std::string Encode(const std::vector<RelayMessage>& messages);

// Calls `take` with each message in `bytes`. `known` is the sender's. False when `bytes` is no such message;
// then those before the damage have been taken.
bool Decode(const std::string& bytes, Descriptions* descriptions, KnownNumbers* known,
            const std::function<void(const RelayMessage&)>& take);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_RELAY_MESSAGE_H_
