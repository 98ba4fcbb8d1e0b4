#include "tests/pretend_gpu/nccl/tests/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "tests/pretend_gpu/pretend_gpu.h"

extern char** environ;

namespace pretend_gpu::nccl::testing {
namespace {

std::map<std::string, Program>& Programs() {
  static auto* programs = new std::map<std::string, Program>;
  return *programs;
}

void RunRank(Rank rank, Program program) {
  CUDA_OK(cudaSetDevice(rank.rank));
  CUDA_OK(cudaStreamCreateWithFlags(&rank.stream, CU_STREAM_NON_BLOCKING));
  pretend_gpu_set_stream_role(rank.stream, "test");
  program(rank);
  CUDA_OK(cudaStreamDestroy(rank.stream));
}

std::string Hexadecimal(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

ncclUniqueId IdOf(const std::string& text) {
  ncclUniqueId id;
  for (int i = 0; i < NCCL_UNIQUE_ID_BYTES; i++) {
    id.internal[i] = static_cast<char>(std::strtol(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return id;
}

// The arguments are --rank, a program, the rank, how many there are, and ids.
int RunArguments(int argc, char** argv) {
  Rank rank{std::atoi(argv[3]), std::atoi(argv[4]), {}};
  for (int i = 5; i < argc; i++) rank.ids.push_back(IdOf(argv[i]));
  RunRank(rank, Programs().at(argv[2]));
  return ::testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}

}  // namespace

ncclComm_t Rank::Join(int id) const {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclSuccess, ncclCommInitRank(&comm, ranks, ids[id], rank)) << ncclGetLastError(nullptr);
  return comm;
}

Named::Named(const char* name, Program program) { Programs()[name] = program; }

std::vector<ncclUniqueId> NewIds() {
  std::vector<ncclUniqueId> ids(4);
  for (ncclUniqueId& id : ids) EXPECT_EQ(ncclSuccess, ncclGetUniqueId(&id));
  return ids;
}

void RunThreads(int ranks, Program program) {
  const auto ids = NewIds();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; rank++) {
    threads.emplace_back([=] { RunRank({rank, ranks, ids}, program); });
  }
  for (std::thread& thread : threads) thread.join();
}

void RunProcesses(int ranks, const char* name) {
  Processes processes(ranks, name);
  for (int rank = 0; rank < ranks; rank++) {
    const int status = processes.Wait(rank);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << rank << " of " << ranks << ": status " << status << "\n"
        << processes.Errors(rank);
  }
}

Processes::Processes(int ranks, const char* name, const std::vector<std::string>& variables) {
  std::vector<std::string> texts{"/proc/self/exe", "--rank", name, "", std::to_string(ranks)};
  for (const ncclUniqueId& id : NewIds()) texts.push_back(Hexadecimal(id));
  std::vector<char*> environment;
  for (const std::string& variable : variables) environment.push_back(const_cast<char*>(variable.c_str()));
  for (char** at = environ; *at != nullptr; at++) environment.push_back(*at);
  environment.push_back(nullptr);
  for (int rank = 0; rank < ranks; rank++) {
    texts[3] = std::to_string(rank);
    std::vector<char*> arguments;
    for (std::string& text : texts) arguments.push_back(text.data());
    arguments.push_back(nullptr);
    static int files = 0;
    Process process{
        0, ::testing::TempDir() + "rank_" + std::to_string(getpid()) + "_" + std::to_string(files++)};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, process.errors.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (posix_spawn(&process.id, arguments[0], &actions, nullptr, arguments.data(), environment.data()) !=
        0) {
      std::abort();
    }
    posix_spawn_file_actions_destroy(&actions);
    processes_.push_back(process);
  }
}

Processes::~Processes() {
  for (std::size_t rank = 0; rank < processes_.size(); rank++) {
    if (processes_[rank].id != 0) Kill(static_cast<int>(rank));
    unlink(processes_[rank].errors.c_str());
  }
}

void Processes::Kill(int rank) {
  kill(processes_[rank].id, SIGKILL);
  waitpid(processes_[rank].id, nullptr, 0);
  processes_[rank].id = 0;
}

int Processes::Wait(int rank) {
  Process& process = processes_[rank];
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int status = 0;
  while (waitpid(process.id, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "rank " << rank << " hangs";
      kill(process.id, SIGKILL);
      waitpid(process.id, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  process.id = 0;
  return status;
}

std::string Processes::Errors(int rank) const {
  std::ostringstream text;
  text << std::ifstream(processes_[rank].errors).rdbuf();
  return text.str();
}

int Main(int argc, char** argv, const char* policy) {
  setenv("PRETEND_GPU_DEVICES", "4", 0);
  setenv("PRETEND_GPU_MEMORY_MB", "64", 0);
  setenv("PRETEND_GPU_POLICY", policy, 0);
  setenv("PRETEND_GPU_DELAY_US", "30", 0);
  setenv("PRETEND_GPU_LAZY_US", kNever, 0);
  setenv("PRETEND_GPU_NCCL_LIMIT_S", "50", 0);
  if (argc > 1 && std::strcmp(argv[1], "--rank") == 0) return RunArguments(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  // Each death test runs in a new process, since the streams' threads do not survive a fork.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  return RUN_ALL_TESTS();
}

}  // namespace pretend_gpu::nccl::testing
