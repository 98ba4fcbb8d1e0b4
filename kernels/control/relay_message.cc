#include "kernels/control/relay_message.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/common/launch_environment.h"
#include "kernels/control/ticket.h"

namespace tf_smddp {
namespace {

class Writer {
 public:
  void PutBytes(const void* data, std::size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  // Seven bits in each byte, the lowest first; all bytes but the last have the highest bit set.
  void PutNumber(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void PutText(const std::string& text) {
    PutNumber(text.size());
    bytes_ += text;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}

  bool GetBytes(void* data, std::size_t size) {
    if (left() < size) return false;
    std::memcpy(data, at_, size);
    at_ += size;
    return true;
  }
  template <typename T>
  bool GetNumber(T* value, std::uint64_t most = std::numeric_limits<T>::max()) {
    std::uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) return false;
      const auto byte = static_cast<unsigned char>(*at_++);
      const std::uint64_t bits = byte & 0x7f;
      if (bits << shift >> shift != bits) return false;
      number |= bits << shift;
      if (byte < 0x80) {
        *value = static_cast<T>(number);
        return number <= most;
      }
    }
    return false;
  }
  // A count of things that take at least `least` bytes each.
  bool GetCount(std::uint64_t* count, std::size_t least) {
    return GetNumber(count) && *count <= left() / least;
  }
  bool GetText(std::string* text) {
    std::uint64_t size = 0;
    if (!GetCount(&size, 1)) return false;
    text->assign(at_, size);
    at_ += size;
    return true;
  }
  bool GetRank(RankId* rank) {
    int value = 0;
    if (!GetNumber(&value, kMaxRanks - 1)) return false;
    *rank = RankId(value);
    return true;
  }
  bool AtEnd() const { return at_ == end_; }

 private:
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  const char* at_;
  const char* const end_;
};

// How many parts from `begin` on are a run: of ranks at equal distances, which bring the same. The parts of a
// host, or of a job, are mostly one run.
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
  writer->PutNumber(begins.size());
  for (const std::size_t begin : begins) {
    const RelayPart& part = parts[begin];
    const std::size_t length = RunLength(parts, begin);
    const int step = length > 1 ? parts[begin + 1].rank.value() - part.rank.value() : 0;
    writer->PutNumber(part.rank.index());
    writer->PutNumber(static_cast<std::uint32_t>(step));
    writer->PutNumber(length);
    writer->PutNumber(part.rows);
    writer->PutNumber(part.splits.size());
    for (const std::uint64_t rows : part.splits) writer->PutNumber(rows);
  }
}

bool GetRun(Reader* reader, std::vector<RelayPart>* parts) {
  RelayPart part;
  std::uint32_t step = 0;
  std::uint64_t ranks = 0, splits = 0;
  if (!reader->GetRank(&part.rank) || !reader->GetNumber(&step) ||
      !reader->GetNumber(&ranks, static_cast<std::uint64_t>(kMaxRanks) - parts->size()) ||
      !reader->GetNumber(&part.rows) || !reader->GetCount(&splits, 1)) {
    return false;
  }
  // Encode makes no such run; the copies of its splits could take any amount of memory.
  if (ranks < 1 || (splits > 0 && ranks > 1)) return false;
  part.splits.resize(splits);
  for (std::uint64_t& rows : part.splits) {
    if (!reader->GetNumber(&rows)) return false;
  }
  const std::int64_t first = part.rank.value();
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(ranks); ++i) {
    const std::int64_t rank = first + i * static_cast<std::int32_t>(step);
    if (rank < 0 || rank >= kMaxRanks) return false;
    part.rank = RankId(static_cast<int>(rank));
    parts->push_back(part);
  }
  return true;
}

bool GetParts(Reader* reader, std::vector<RelayPart>* parts) {
  constexpr std::size_t kLeastBytesOfRun = 5;
  std::uint64_t runs = 0;
  if (!reader->GetCount(&runs, kLeastBytesOfRun)) return false;
  for (; runs > 0; --runs) {
    if (!GetRun(reader, parts)) return false;
  }
  return true;
}

void PutDescription(RelayMessage::Kind kind, const Description& description, Writer* writer) {
  writer->PutBytes(&description.key_hash, sizeof description.key_hash);
  writer->PutText(description.key);
  if (kind == RelayMessage::kReady) writer->PutBytes(&description.manifest, sizeof description.manifest);
}

bool GetDescription(RelayMessage::Kind kind, Reader* reader, Description* description) {
  if (!reader->GetBytes(&description->key_hash, sizeof description->key_hash) ||
      !reader->GetText(&description->key)) {
    return false;
  }
  return kind != RelayMessage::kReady ||
         reader->GetBytes(static_cast<void*>(&description->manifest), sizeof description->manifest);
}

// The fields of a message that it has on the wire, as bits; those of most messages are the first ones.
enum Field : std::uint32_t {
  kTicket = 1,
  kDescribes = 2,
  kParts = 4,
  kIncarnation = 8,
  kNccl = 16,
  kData = 32,
  kSeals = 64,
  kLast = 128,
  kRank = 256,
  kOrigin = 512,
  kText = 1024,
  kCommunicator = 2048,
  kAllFields = 4095,
};

bool IsOfTensor(RelayMessage::Kind kind) {
  return kind == RelayMessage::kReady || kind == RelayMessage::kLaunch;
}

// A ticket begins with its incarnation, which makes a large number of it.
std::uint64_t ShortTicket(const RelayMessage& message) {
  return message.ticket - TicketOf(message.incarnation, 0);
}

void Put(const RelayMessage& message, Writer* writer) {
  std::uint32_t fields = 0;
  const auto note = [&fields](Field field, bool is_there) {
    if (is_there) fields |= field;
  };
  note(kTicket, ShortTicket(message) != 0);
  note(kDescribes, message.describes);
  note(kParts, !message.parts.empty());
  note(kIncarnation, message.incarnation != 0);
  note(kNccl, message.nccl != kNotKept);
  note(kData, !message.data.empty());
  note(kSeals, message.seals);
  note(kLast, message.last != RankId());
  note(kRank, message.rank != RankId());
  note(kOrigin, message.origin != 0);
  note(kText, !message.text.empty());
  note(kCommunicator, message.communicator != 0);
  writer->PutNumber(message.kind);
  writer->PutNumber(fields);
  if (IsOfTensor(message.kind)) writer->PutNumber(message.number);
  if (fields & kTicket) writer->PutNumber(ShortTicket(message));
  if (fields & kDescribes) PutDescription(message.kind, *message.description, writer);
  if (fields & kParts) PutParts(message.parts, writer);
  if (fields & kIncarnation) writer->PutNumber(message.incarnation);
  if (fields & kNccl) writer->PutNumber(message.nccl);
  if (fields & kData) {
    writer->PutNumber(message.data.size());
    for (const std::string& data : message.data) writer->PutText(data);
  }
  if (fields & kLast) writer->PutNumber(static_cast<std::uint32_t>(message.last.value()));
  if (fields & kRank) writer->PutNumber(static_cast<std::uint32_t>(message.rank.value()));
  if (fields & kOrigin) writer->PutNumber(message.origin);
  if (fields & kText) writer->PutText(message.text);
  if (fields & kCommunicator) writer->PutNumber(message.communicator);
}

bool GetData(Reader* reader, std::vector<std::string>* data) {
  std::uint64_t pieces = 0;
  if (!reader->GetCount(&pieces, 1)) return false;
  data->resize(pieces);
  return std::all_of(data->begin(), data->end(), [&](std::string& text) { return reader->GetText(&text); });
}

// Finds the description that the message's number stands for, or reads it.
bool Describe(Reader* reader, Descriptions* descriptions, KnownNumbers* known, RelayMessage* message) {
  if (!message->describes) {
    if (message->number < 1 || message->number > known->size()) return false;
    message->description = (*known)[message->number - 1];
    return true;
  }
  if (message->number < 1 || message->number > std::min<std::size_t>(known->size() + 1, SentNumbers::kMost)) {
    return false;
  }
  Description description;
  if (!GetDescription(message->kind, reader, &description)) return false;
  message->description = descriptions->Share(std::move(description));
  if (message->number > known->size()) known->emplace_back();
  (*known)[message->number - 1] = message->description;
  return true;
}

bool Get(Reader* reader, Descriptions* descriptions, KnownNumbers* known, RelayMessage* message) {
  std::uint32_t kind = 0, fields = 0;
  if (!reader->GetNumber(&kind, RelayMessage::kAbort) || !reader->GetNumber(&fields, kAllFields))
    return false;
  message->kind = static_cast<RelayMessage::Kind>(kind);
  message->describes = (fields & kDescribes) != 0;
  message->seals = (fields & kSeals) != 0;
  const bool of_tensor = IsOfTensor(message->kind);
  if (message->describes && !of_tensor) return false;
  const bool is_of_rank = message->kind == RelayMessage::kLeft || message->kind == RelayMessage::kShutDown;
  if (is_of_rank && (fields & kRank) == 0) return false;
  if (of_tensor && !reader->GetNumber(&message->number)) return false;
  if ((fields & kTicket) && !reader->GetNumber(&message->ticket)) return false;
  if (of_tensor && !Describe(reader, descriptions, known, message)) return false;
  if ((fields & kParts) && !GetParts(reader, &message->parts)) return false;
  if ((fields & kIncarnation) && !reader->GetNumber(&message->incarnation)) return false;
  message->ticket += TicketOf(message->incarnation, 0);
  if ((fields & kNccl) && !reader->GetNumber(&message->nccl)) return false;
  if ((fields & kData) && !GetData(reader, &message->data)) return false;
  if ((fields & kLast) && !reader->GetRank(&message->last)) return false;
  if ((fields & kRank) && !reader->GetRank(&message->rank)) return false;
  if ((fields & kOrigin) && !reader->GetNumber(&message->origin)) return false;
  if ((fields & kText) && !reader->GetText(&message->text)) return false;
  if ((fields & kCommunicator) && !reader->GetNumber(&message->communicator)) return false;
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

void Number(std::vector<RelayMessage>* messages, SentNumbers* numbers) {
  for (RelayMessage& message : *messages) {
    if (message.description == nullptr) continue;
    message.number = numbers->NumberOf(message.description, &message.describes);
  }
}

std::string Encode(const std::vector<RelayMessage>& messages) {
  Writer writer;
  for (const RelayMessage& message : messages) Put(message, &writer);
  return writer.Take();
}

bool Decode(const std::string& bytes, Descriptions* descriptions, KnownNumbers* known,
            const std::function<void(const RelayMessage&)>& take) {
  Reader reader(bytes);
  while (!reader.AtEnd()) {
    RelayMessage message;
    if (!Get(&reader, descriptions, known, &message)) return false;
    take(message);
  }
  return true;
}

}  // namespace tf_smddp
