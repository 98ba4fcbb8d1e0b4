#include "tests/pretend_gpu/nccl/unique_id.h"

#include <cstdint>
#include <cstring>

#include "tests/pretend_gpu/diagnostics.h"

namespace pretend_gpu::nccl {
namespace {

constexpr std::uint32_t kMagic = 0x504E4944;

struct Contents {
  std::uint32_t magic;
  std::uint32_t padding;
  Place place;
};
static_assert(sizeof(Contents) <= NCCL_UNIQUE_ID_BYTES);

}  // namespace

ncclUniqueId IdOf(const Board& board) {
  ncclUniqueId id = {};
  const Contents contents{kMagic, 0, board.place()};
  std::memcpy(id.internal, &contents, sizeof(contents));
  return id;
}

std::shared_ptr<Board> BoardOf(const ncclUniqueId& id) {
  Contents contents;
  std::memcpy(&contents, id.internal, sizeof(contents));
  if (contents.magic != kMagic) {
    End("these 128 bytes are no unique id; pass all bytes that ncclGetUniqueId wrote on one rank");
  }
  return Board::Open(contents.place);
}

}  // namespace pretend_gpu::nccl
