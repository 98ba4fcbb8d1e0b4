// Options: the command line of the C++ benchmarks, the same for the engine and its peers.
#ifndef TF_SMDDP_BENCHMARKS_CPP_OPTIONS_H_
#define TF_SMDDP_BENCHMARKS_CPP_OPTIONS_H_

#include <cstddef>
#include <string>
#include <vector>

namespace tf_smddp::benchmarks {

struct Options {
  std::vector<std::size_t> sizes;  // --sizes=4,1024: bytes of the tensors of the sweep, multiples of 4
  std::string set_file;            // --set=FILE: a gradient set; each line has the elements of one tensor
  int blocks = 7;                  // --blocks=N: samples for each figure
  double block_seconds = 0.02;     // --block-seconds=S: a block repeats its work for this long
  bool in_place = true;            // --in-place=0: the output is another tensor
  std::string output;              // --output=FILE: JSON lines; empty: standard output
  int ranks = 2;                   // --ranks=N, if the program starts the ranks itself; 0: it does not
  int time_limit_seconds = 600;    // --time-limit=S: the program is ended after this time
};

// Reads the command line. If it is wrong, prints a message and ends the process with code 2.
Options ParseOptions(int argc, char** argv);

}  // namespace tf_smddp::benchmarks

#endif  // TF_SMDDP_BENCHMARKS_CPP_OPTIONS_H_
