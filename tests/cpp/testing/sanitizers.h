// Under sanitizers, which slow everything down, tests run a smaller matrix.
#ifndef TF_SMDDP_TESTS_CPP_TESTING_SANITIZERS_H_
#define TF_SMDDP_TESTS_CPP_TESTING_SANITIZERS_H_

namespace tf_smddp::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
inline constexpr bool kSanitized = kThreadSanitizer || kAddressSanitizer;

}  // namespace tf_smddp::testing

#endif  // TF_SMDDP_TESTS_CPP_TESTING_SANITIZERS_H_
