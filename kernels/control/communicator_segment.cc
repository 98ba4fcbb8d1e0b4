#include "kernels/control/communicator_segment.h"

#include <utility>

#include "kernels/common/config.h"

namespace tf_smddp {
namespace {

static_assert(kMaxLocalRanks == 64, "each member has one bit of a 64-bit mask, and one record");

// Note [The ring cannot overflow] in launch_log.h.
std::size_t LogEntries(const TableShape& shape) { return 2 * shape.generations * shape.slots; }

}  // namespace

TableShape CommunicatorSegment::Layout::Table() const {
  if (!wired) return {slots, num_ranks};
  return {slots, num_ranks + 1, Place::kMostGenerations, MemberId(num_ranks)};
}

std::size_t CommunicatorSegment::Layout::Bytes() const {
  const std::size_t bytes = sizeof(Fixed) + LaunchLog::Bytes(LogEntries(Table())) +
                            ReadinessTable::Bytes(Table()) + backend_bytes +
                            (wired ? LaunchLog::Bytes(LogEntries(Table())) : 0);
  return (bytes + kLargestPage - 1) / kLargestPage * kLargestPage;
}

// The parts lie one behind the other, in the order of the header comment. Note [Zeros are objects] in
// job_segment.h.
CommunicatorSegment::CommunicatorSegment(std::shared_ptr<Mapping> mapping, const Layout& layout,
                                         const AbortRecord* abort)
    : mapping_(std::move(mapping)),
      layout_(layout),
      fixed_(reinterpret_cast<Fixed*>(mapping_->data())),
      launch_log_(mapping_->data() + sizeof(Fixed), LogEntries(layout.Table())),
      table_memory_(mapping_->data() + sizeof(Fixed) + LaunchLog::Bytes(LogEntries(layout.Table()))),
      table_(table_memory_, layout.Table(), &fixed_->active, abort),
      backends_(table_memory_ + ReadinessTable::Bytes(layout.Table())),
      ready_log_(backends_ + layout.backend_bytes, LogEntries(layout.Table())) {}

}  // namespace tf_smddp
