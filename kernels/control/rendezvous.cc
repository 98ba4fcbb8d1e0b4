#include "kernels/control/rendezvous.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <thread>

#include "kernels/common/clock.h"
#include "kernels/control/launcher_process.h"

namespace tf_smddp {
namespace {

// Rank 0 waits this long for a lock, since a process of an earlier attempt of the same run may still be
// ending.
constexpr std::chrono::seconds kPatienceWithOwner{5};
constexpr std::size_t kKeyLength = 16;
constexpr std::size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

// FNV-1a. It need not resist attacks, since only this user's processes have access.
std::uint64_t Hash(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

std::string Hex(std::uint64_t value) {
  char text[kKeyLength + 1];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string SystemError() { return std::strerror(errno); }

// Returns an empty text if the id cannot be read, which is then so for all ranks.
std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string PidNamespace() {
  char target[64];
  const ssize_t length = ::readlink("/proc/self/ns/pid", target, sizeof target);
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : "";
}

bool IsOurs(const struct stat& info) {
  return S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 077) == 0;
}

// Checks that `path` is a private directory. A missing one is an error only if `must_exist`.
Status CheckDirectory(const std::string& path, bool must_exist) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT && !must_exist) return {};
    return Internal("the rendezvous directory '" + path + "' cannot be used: " + SystemError() +
                    "; the job that it belonged to may have ended");
  }
  if (IsOurs(info)) return {};
  return Internal("the rendezvous directory '" + path +
                  "' must be a directory of this user with mode 0700; SMDDP_TMPDIR chooses where such "
                  "directories are made");
}

// Opens and locks the directory at `path`. On failure, returns an invalid descriptor and sets errno:
// EWOULDBLOCK if another process holds the lock, ENOENT if the directory has just been removed.
UniqueFd LockDirectory(const std::string& path) {
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return {};
  if (::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) return {};
  struct stat locked, named;
  if (::fstat(directory.get(), &locked) != 0 || ::lstat(path.c_str(), &named) != 0) return {};
  if (locked.st_ino == named.st_ino && locked.st_dev == named.st_dev && IsOurs(locked)) return directory;
  errno = ENOENT;
  return {};
}

// Unlocks before it closes, because a child that was forked meanwhile has the descriptor too, and would
// otherwise keep the lock.
void Unlock(UniqueFd* directory) {
  ::flock(directory->get(), LOCK_UN);
  directory->Reset();
}

// Removes the directories that killed processes of this user have left in `parent`.
void RemoveLeftovers(const std::string& parent, const std::string& except) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(parent.c_str()), &::closedir);
  if (listing == nullptr) return;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string path = parent + "/" + entry->d_name;
    if (std::strlen(entry->d_name) != kKeyLength || path == except) continue;
    UniqueFd directory = LockDirectory(path);
    if (!directory.valid()) continue;
    ::unlink((path + "/bootstrap").c_str());
    ::rmdir(path.c_str());
    Unlock(&directory);
  }
}

enum class Base { kUsable, kUnusable, kTooLong };

// Checks whether `base` can hold <base>/smddp-uid-<user>/<key>/bootstrap.
Base CheckBase(const std::string& base, const std::string& parent, bool must_be_private) {
  if (base.empty() || base[0] != '/') return Base::kUnusable;
  struct stat info;
  if (::stat(base.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return Base::kUnusable;
  if (must_be_private && !IsOurs(info)) return Base::kUnusable;
  if (::faccessat(AT_FDCWD, base.c_str(), W_OK | X_OK, AT_EACCESS) != 0) return Base::kUnusable;
  const std::size_t length = parent.size() + 1 + kKeyLength + std::strlen("/bootstrap");
  return length <= kMaxSocketPath ? Base::kUsable : Base::kTooLong;
}

}  // namespace

Status Rendezvous::Find(const Config& config) {
  if (!config.rendezvous.empty()) {
    directory_ = config.rendezvous;
    explanation_ = "the ranks meet in SMDDP_RENDEZVOUS='" + directory_ + "'";
    token_ = Hash("given " + config.run_id);
    if (socket_path().size() <= kMaxSocketPath) return {};
    return Internal("the socket path '" + socket_path() + "' has " + std::to_string(socket_path().size()) +
                    " bytes, the limit is " + std::to_string(kMaxSocketPath) +
                    "; use a shorter directory (SMDDP_RENDEZVOUS)");
  }
  std::string identity = "boot=" + BootId() + " size=" + std::to_string(config.size) + " " + config.run_id;
  std::string reason = config.run_id;
  if (!config.rank_variables.empty()) {
    const LauncherProcess launcher = FindLauncherProcess(config.rank_variables);
    if (launcher.pid == 0) {
      return Internal(
          "the process that started the ranks is not visible here, and the variables of " + config.launcher +
          " are the same for each run; set SMDDP_JOB_ID to a new text, the same on all ranks of the run");
    }
    identity += " pid=" + std::to_string(launcher.pid) + " start=" + std::to_string(launcher.start_time) +
                " " + PidNamespace();
    reason = "the process '" + launcher.name + "' (pid " + std::to_string(launcher.pid) +
             ") that started them" + (reason.empty() ? "" : " and from " + reason);
  }
  Status status = ChooseParent(config);
  if (!status.ok()) return status;
  directory_ = parent_ + "/" + Hex(Hash(identity));
  token_ = Hash("derived " + identity);
  explanation_ =
      "the ranks meet in '" + directory_ + "', which follows from " + reason +
      "; if that differs between the ranks, set SMDDP_JOB_ID to a new text, the same on all ranks of the run";
  return {};
}

Status Rendezvous::ChooseParent(const Config& config) {
  const std::string name = "/smddp-uid-" + std::to_string(::geteuid());
  if (!config.temporary_directory.empty()) {
    parent_ = config.temporary_directory + name;
    switch (CheckBase(config.temporary_directory, parent_, false)) {
      case Base::kUsable:
        return {};
      case Base::kTooLong:
        return Internal("SMDDP_TMPDIR='" + config.temporary_directory +
                        "' is too long for a unix socket in it (the path may have " +
                        std::to_string(kMaxSocketPath) + " bytes); use a shorter one, such as /tmp");
      case Base::kUnusable:
        break;
    }
    return Internal("SMDDP_TMPDIR='" + config.temporary_directory +
                    "' is not the absolute path of a directory that this user can write to");
  }
  for (const auto& [base, must_be_private] :
       std::initializer_list<std::pair<std::string, bool>>{{config.user_runtime_directory, true},
                                                           {config.system_temporary_directory, false},
                                                           {"/tmp", false}}) {
    parent_ = base + name;
    if (CheckBase(base, parent_, must_be_private) == Base::kUsable) return {};
  }
  return Internal(
      "the ranks have no directory to meet in: neither XDG_RUNTIME_DIR nor TMPDIR nor /tmp can be written to "
      "and has a "
      "short path; set SMDDP_TMPDIR to a directory on this host");
}

Status Rendezvous::Open() {
  const auto deadline = Clock::now() + kPatienceWithOwner;
  Status status;
  for (;;) {
    if (derived()) {
      ::mkdir(parent_.c_str(), 0700);
      status = CheckDirectory(parent_, false);
      if (!status.ok()) return status;
      if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST && errno != ENOENT) {
        return Internal("cannot make the directory '" + directory_ + "': " + SystemError() +
                        "; set SMDDP_TMPDIR to a directory on this host that you can write to");
      }
    }
    status = CheckDirectory(directory_, !derived());
    if (!status.ok()) return status;
    lock_ = LockDirectory(directory_);
    if (lock_.valid()) break;
    // The last user of a derived directory may just have removed it; it is created again.
    const bool gone = derived() && errno == ENOENT;
    if (errno != EWOULDBLOCK && errno != EINTR && !gone) {
      // Some network file systems have no locks. A given directory needs none, since it is this run's alone.
      if (!derived()) break;
      return Internal("cannot lock the directory '" + directory_ + "': " + SystemError() +
                      "; it must be on this host's own file system (SMDDP_TMPDIR chooses)");
    }
    if (Clock::now() > deadline) {
      return Internal("another process is rank 0 of this run already: " + explanation_);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  open_ = true;
  if (lock_.valid()) ::unlink(socket_path().c_str());  // the socket of a process that was killed
  if (derived()) RemoveLeftovers(parent_, directory_);
  return {};
}

void Rendezvous::Close() {
  if (!open_) return;
  open_ = false;
  ::unlink(socket_path().c_str());
  ::rmdir(directory_.c_str());  // fails, as it should, if another process has put a file there
  if (lock_.valid()) Unlock(&lock_);
  if (derived()) ::rmdir(parent_.c_str());  // fails, as it should, if another run uses it
}

Status Rendezvous::CheckPrivate() const {
  if (!derived()) return CheckDirectory(directory_, true);
  Status status = CheckDirectory(parent_, false);
  if (status.ok()) status = CheckDirectory(directory_, false);
  return status;
}

void Rendezvous::RemoveIfAbandoned() const {
  UniqueFd directory = LockDirectory(directory_);
  if (!directory.valid()) return;
  // A given directory without a socket may still be used: rank 0 has not started to listen yet.
  if (::unlink(socket_path().c_str()) == 0 || derived()) ::rmdir(directory_.c_str());
  Unlock(&directory);
  if (derived()) ::rmdir(parent_.c_str());
}

}  // namespace tf_smddp
