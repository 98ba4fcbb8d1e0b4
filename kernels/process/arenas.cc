#include "kernels/process/arenas.h"

namespace tf_smddp {

void Arenas::Use(const std::shared_ptr<Arena>& arena, std::size_t small_bytes) {
  small_bytes_.store(small_bytes);
  if (arena != nullptr && Find(arena->data()) == nullptr) {
    // Readers go through the list without a lock. So what was in it stays, and a list is replaced by a longer
    // one: there are as many as times that a job failed and was begun anew in this process.
    auto* longer = new std::vector<std::shared_ptr<Arena>>(*all_.load());
    longer->push_back(arena);
    all_.store(longer);
  }
  current_.store(arena.get());
}

Arenas& TheArenas() {
  static Arenas* arenas = new Arenas;
  return *arenas;
}

}  // namespace tf_smddp
