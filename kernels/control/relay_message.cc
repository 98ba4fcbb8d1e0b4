#include "kernels/control/relay_message.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/common/launch_environment.h"

namespace tf_smddp {
namespace {

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void PutText(const std::string& text) {
    Put(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  template <typename T>
  bool Get(T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes_.size() - at_ < sizeof *value) return false;
    std::memcpy(static_cast<void*>(value), bytes_.data() + at_, sizeof *value);
    at_ += sizeof *value;
    return true;
  }
  // A count of things that take at least `least` bytes each.
  bool GetCount(std::uint64_t* count, std::size_t least) {
    return Get(count) && *count <= (bytes_.size() - at_) / least;
  }
  bool GetText(std::string* text) {
    std::uint64_t size = 0;
    if (!GetCount(&size, 1)) return false;
    text->assign(bytes_, at_, size);
    at_ += size;
    return true;
  }
  bool GetRank(RankId* rank) {
    std::int32_t value = 0;
    if (!Get(&value) || value < RankId().value() || value >= kMaxRanks) return false;
    *rank = RankId(value);
    return true;
  }
  bool AtEnd() const { return at_ == bytes_.size(); }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

// Parts of ranks at equal distances, which bring the same: those of a host, or of a job, are mostly one run.
struct Run {
  std::int32_t first;
  std::int32_t step;  // from one rank to the next
  std::uint64_t ranks;
  std::uint64_t rows;
};

// How many parts from `begin` on are a run.
std::size_t RunLength(const std::vector<RelayPart>& parts, std::size_t begin) {
  const RelayPart& first = parts[begin];
  if (!first.splits.empty() || begin + 1 == parts.size()) return 1;
  const int step = parts[begin + 1].rank.value() - first.rank.value();
  std::size_t length = 1;
  for (std::size_t i = begin + 1; i < parts.size(); ++i, ++length) {
    const bool next = parts[i].rank.value() - parts[i - 1].rank.value() == step;
    if (!next || parts[i].rows != first.rows || !parts[i].splits.empty()) break;
  }
  return length;
}

void PutParts(const std::vector<RelayPart>& parts, Writer* writer) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < parts.size(); i += RunLength(parts, i)) begins.push_back(i);
  writer->Put(static_cast<std::uint64_t>(begins.size()));
  for (const std::size_t begin : begins) {
    const RelayPart& part = parts[begin];
    const std::size_t length = RunLength(parts, begin);
    const int step = length > 1 ? parts[begin + 1].rank.value() - part.rank.value() : 0;
    writer->Put(Run{part.rank.value(), step, length, part.rows});
    writer->Put(static_cast<std::uint64_t>(part.splits.size()));
    for (const std::uint64_t rows : part.splits) writer->Put(rows);
  }
}

bool GetRun(Reader* reader, std::vector<RelayPart>* parts) {
  Run run{};
  std::uint64_t splits = 0;
  if (!reader->Get(&run) || !reader->GetCount(&splits, sizeof(std::uint64_t))) return false;
  if (run.ranks < 1 || run.ranks > static_cast<std::uint64_t>(kMaxRanks) - parts->size()) return false;
  // Encode makes no such run; the copies of its splits could take any amount of memory.
  if (splits > 0 && run.ranks > 1) return false;
  RelayPart part;
  part.rows = run.rows;
  part.splits.resize(splits);
  for (std::uint64_t& rows : part.splits) reader->Get(&rows);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(run.ranks); ++i) {
    const std::int64_t rank = run.first + i * run.step;
    if (rank < 0 || rank >= kMaxRanks) return false;
    part.rank = RankId(static_cast<int>(rank));
    parts->push_back(part);
  }
  return true;
}

void Put(const RelayMessage& message, Writer* writer) {
  writer->Put(message.kind);
  writer->Put(message.ticket);
  writer->Put(message.key_hash);
  writer->PutText(message.key);
  writer->Put(message.manifest);
  PutParts(message.parts, writer);
  writer->Put(message.incarnation);
  writer->Put(message.origin);
  writer->PutText(message.text);
  writer->Put(static_cast<std::int32_t>(message.rank.value()));
  writer->Put(static_cast<std::int32_t>(message.last.value()));
  writer->Put(message.nccl);
  writer->Put(message.region);
  writer->Put(static_cast<std::uint8_t>(message.seals));
  writer->Put(static_cast<std::uint64_t>(message.data.size()));
  for (const std::string& data : message.data) writer->PutText(data);
}

bool Get(Reader* reader, RelayMessage* message) {
  std::uint64_t runs = 0;
  std::uint8_t seals = 0;
  if (!reader->Get(&message->kind) || !reader->Get(&message->ticket) || !reader->Get(&message->key_hash) ||
      !reader->GetText(&message->key) || !reader->Get(&message->manifest) ||
      !reader->GetCount(&runs, sizeof(Run))) {
    return false;
  }
  for (; runs > 0; --runs) {
    if (!GetRun(reader, &message->parts)) return false;
  }
  if (!reader->Get(&message->incarnation) || !reader->Get(&message->origin) ||
      !reader->GetText(&message->text) || !reader->GetRank(&message->rank) ||
      !reader->GetRank(&message->last) || !reader->Get(&message->nccl) || !reader->Get(&message->region) ||
      !reader->Get(&seals)) {
    return false;
  }
  const bool is_of_rank = message->kind == RelayMessage::kLeft || message->kind == RelayMessage::kShutDown;
  if (is_of_rank && message->rank == RankId()) return false;
  message->seals = seals != 0;
  std::uint64_t pieces = 0;
  if (!reader->GetCount(&pieces, sizeof(std::uint64_t))) return false;
  message->data.resize(pieces);
  for (std::string& data : message->data) {
    if (!reader->GetText(&data)) return false;
  }
  return true;
}

}  // namespace

bool HasSplits(const RelayMessage& message) {
  return std::any_of(message.parts.begin(), message.parts.end(),
                     [](const RelayPart& part) { return !part.splits.empty(); });
}

RelayMessage WithSplitsFor(const std::vector<std::size_t>& receivers, RelayMessage message) {
  for (RelayPart& part : message.parts) {
    if (receivers.back() >=
        part.splits.size()) {  // there are none, or they are damaged, as receivers will find
      part.splits.clear();
      continue;
    }
    std::vector<std::uint64_t> rows;
    rows.reserve(receivers.size());
    for (const std::size_t receiver : receivers) rows.push_back(part.splits[receiver]);
    part.splits = std::move(rows);
  }
  return message;
}

std::string Encode(const std::vector<RelayMessage>& messages) {
  Writer writer;
  writer.Put(static_cast<std::uint64_t>(messages.size()));
  for (const RelayMessage& message : messages) Put(message, &writer);
  return writer.Take();
}

bool Decode(const std::string& bytes, std::vector<RelayMessage>* messages) {
  Reader reader(bytes);
  std::uint64_t count = 0;
  if (!reader.GetCount(&count, sizeof(Manifest))) return false;
  messages->clear();
  messages->resize(count);
  for (RelayMessage& message : *messages) {
    if (!Get(&reader, &message)) return false;
  }
  return reader.AtEnd();
}

}  // namespace tf_smddp
