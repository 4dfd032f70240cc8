// The cases by which the job policies are judged (docs/simulation/cluster.md): each is a plan that
// a seed decides. Pure.
//
//   six       six 1-GPU jobs of different use on one node of four GPUs, 12 hours, of which the last
//             six count, against the best static placement, found by trying all of them
//   six-turns the same jobs, but none loads the PCIe switch: what is lost by turns is what moves
//   cost hundred   500 jobs on 100 GPUs of two kinds (generator.h) large     10,000 jobs on 2,000
//   GPUs search    a hyper-parameter search of 100 jobs on 4 GPUs, two of them good (small
//   networks) search16  the same on 16 GPUs; search-any: networks of any use, on 4 automl    374
//   such configurations on 4 GPUs, one of them good; automl16: on 16
//   ...-kill  a search whose owner only ends jobs; that of the others prefers promising ones, too
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "tools/simulate/cluster/simulation.h"

namespace lull::simulate::cluster {

inline constexpr std::string_view kCases =
    "six, six-turns, hundred, large, search, search16, search-any, automl, automl16 (search-kill, "
    "...)";

// The plan of a case, but for the policy. One line, where there is no such case.
[[nodiscard]] std::expected<Plan, std::string> plan_of_case(std::string_view name, uint64_t seed);

// The most that jobs of one GPU can make together on a node of four GPUs, where each job stays on
// one of them: the sum of their rates, each as a share of its own alone. Every way to spread them
// is tried, by the true speeds; on each GPU they run at once, or take turns that cost nothing,
// whichever is more.
double best_static_sum(const Plan& plan);
// The least time in which any policy could reach a search's aim: that of the best of its good jobs,
// started at once and alone. Negative: no job reaches it.
double least_aim_s(const Plan& plan);
// The same of a policy that knows nothing but what the owner does, and for which nothing costs
// time: it takes the jobs in the order of their arrival, from the first second on as many beside
// each other as make most, each up to the first look at it (of an owner who only ends jobs: to its
// end), and the good one as fast as alone from its begin on.
double blind_aim_s(const Plan& plan);
// What they made from Plan::measure_from_s on, as the same sum.
double measured_sum(const Plan& plan, const Result& result);

}  // namespace lull::simulate::cluster
