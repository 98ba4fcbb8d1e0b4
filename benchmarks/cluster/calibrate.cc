// calibrate: what a link and an MPI give to two ranks. Run it with two ranks on two hosts; rank 0 prints one
// line of JSON. With SimGrid it measures what the simulation gives, which should be the same.
//
//   latency_us      half of a ping-pong of 4 bytes
//   stream_MBps     messages of 256 KiB, one way, 16 under way
//   small_us        the time for each of many messages of 1 KiB, one way, 64 under way
//
// Each is the best of many short rounds, since the machine does other work.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

constexpr int kRounds = 60;

// The seconds of `messages` messages from rank 0 to rank 1, up to `under_way` at a time, and an answer.
double Stream(int rank, int messages, int bytes, int under_way) {
  std::vector<char> memory(static_cast<std::size_t>(bytes) * under_way);
  std::vector<MPI_Request> requests(under_way, MPI_REQUEST_NULL);
  char answer = 0;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < messages; ++i) {
      MPI_Request& request = requests[i % under_way];
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      char* const at = memory.data() + static_cast<std::size_t>(bytes) * (i % under_way);
      if (rank == 0) {
        MPI_Isend(at, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
      } else {
        MPI_Irecv(at, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
      }
    }
    MPI_Waitall(under_way, requests.data(), MPI_STATUSES_IGNORE);
    if (rank == 0) {
      MPI_Recv(&answer, 1, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Send(&answer, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
    best = std::min(best, MPI_Wtime() - begin);
  }
  return best;
}

double PingPong(int rank, int turns) {
  int value = 0;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < turns; ++i) {
      for (int sender = 0; sender < 2; ++sender) {
        if (rank == sender) {
          MPI_Send(&value, 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD);
        } else {
          MPI_Recv(&value, 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
      }
    }
    best = std::min(best, (MPI_Wtime() - begin) / turns / 2);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const double latency = PingPong(rank, 20);
  constexpr int kLarge = 256 << 10, kLargeMessages = 40, kSmallMessages = 500;
  const double stream = Stream(rank, kLargeMessages, kLarge, 16);
  const double small = Stream(rank, kSmallMessages, 1024, 64);
  if (rank == 0) {
    std::printf("{\"latency_us\": %.2f, \"stream_MBps\": %.2f, \"small_us\": %.3f}\n", latency * 1e6,
                kLargeMessages * static_cast<double>(kLarge) / stream / 1e6, small / kSmallMessages * 1e6);
  }
  MPI_Finalize();
  return 0;
}
