// Launch families: the variables that each launcher sets for its processes. A table; launch_environment.cc
// reads the variables, in the order of precedence that its header gives.
//
// Place in the stack: the bottom; inside launch_environment.cc.
#ifndef TF_SMDDP_KERNELS_COMMON_LAUNCH_FAMILIES_H_
#define TF_SMDDP_KERNELS_COMMON_LAUNCH_FAMILIES_H_

#include <vector>

#include "kernels/common/launch_environment.h"

namespace tf_smddp {

struct Family {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  // Variables that are the same on all ranks of a run and may differ from another run's.
  std::vector<const char*> run_ids;
  // Whether any one of run_ids distinguishes the run from all other running ones.
  bool run_ids_suffice;
  // Whether some of the names without the others are an error. Only the launcher uses such names.
  bool some_is_an_error;
  // Whose MPI joins its processes; kUnknown if it starts none.
  MpiKind mpi_kind;
};

// Each run has its own random key, ports and namespace. Newer versions of mpirun set fewer of them.
inline const Family kOpenMpi = {
    "Open MPI's mpirun",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    {"PMIX_NAMESPACE", "PMIX_SERVER_URI2", "PMIX_SERVER_URI4", "PMIX_SERVER_URI41", "OMPI_MCA_ess_base_jobid",
     "OMPI_MCA_orte_precondition_transports"},
    true,
    true,
    MpiKind::kOpenMpi};
// With PMI_FD instead of PMI_PORT, which is the default, no variable distinguishes two runs. conda
// environments export some PMI_*, so some of the names without the others are no error.
inline const Family kHydra = {"the mpiexec of MPICH or Intel MPI",
                              "PMI_RANK",
                              "PMI_SIZE",
                              "MPI_LOCALRANKID",
                              "MPI_LOCALNRANKS",
                              {"PMI_PORT"},
                              true,
                              false,
                              MpiKind::kMpich};
inline const Family kMvapich = {"MVAPICH2's mpirun",
                                "MV2_COMM_WORLD_RANK",
                                "MV2_COMM_WORLD_SIZE",
                                "MV2_COMM_WORLD_LOCAL_RANK",
                                "MV2_COMM_WORLD_LOCAL_SIZE",
                                {"PMI_PORT"},
                                true,
                                true,
                                MpiKind::kMpich};
// Other programs use the names RANK and WORLD_SIZE, too. By default the run id is "none", and the port is the
// same in all runs.
inline const Family kTorchrun = {
    "torchrun",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"},
    false,
    false,
    MpiKind::kUnknown};
// horovodrun listens at this port during the run.
inline const Family kHorovodrun = {"horovodrun",
                                   "HOROVOD_RANK",
                                   "HOROVOD_SIZE",
                                   "HOROVOD_LOCAL_RANK",
                                   "HOROVOD_LOCAL_SIZE",
                                   {"HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_GLOO_RENDEZVOUS_ADDR"},
                                   true,
                                   true,
                                   MpiKind::kUnknown};

// The order of precedence.
inline const Family* const kFamilies[] = {&kOpenMpi, &kHydra, &kMvapich, &kTorchrun, &kHorovodrun};

// A requeued job keeps its id, and SLURM_RESTART_COUNT grows.
inline const char* const kSlurmRunIds[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT",
                                           "SLURM_CLUSTER_NAME", "SLURM_SRUN_COMM_PORT"};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_COMMON_LAUNCH_FAMILIES_H_
