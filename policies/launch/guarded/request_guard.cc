#include "policies/launch/guarded/request_guard.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace lull::policies {
namespace {

constexpr int64_t kFinestBound = 10;  // per mille; a smaller bound asks for no more precise a mean
constexpr int64_t kUsualOf = 8;       // requests

}  // namespace

void RequestGuard::submitted(Submitted launch, bool lower_in_flight) {
  settle(lower_in_flight);
  const Duration held = clock_.go_on(launch.at);
  launch.at = clock_.at(launch.at);
  IterationModel& timeline = schedule_.timeline();
  const IterationPlace place = pattern_.launch(launch.kernel, launch.at, launch.place);
  if (place.length != 0 && (generation_ != place.generation || timeline.length() != place.length)) {
    generation_ = place.generation;
    end_request(/*whole=*/false);
    timeline.restart(place.length, pattern_.known());
    times_.restart();
    usual_of_ = 0;
    most_marked_ = {};
    // Other requests, or single waits, that were over say nothing of these requests. But the error budget's first
    // request is given only once.
    error_.forgive();
    if (!compared_) error_ = {};
    price_ = {};
    exceptions_lose_ = followed_ = follows_ = {};
    deep_x4_ = 0;
    by_turns_ = false;
  }
  const bool was_in_step = std::exchange(in_step_, place.in_step && timeline.has_waits());
  schedule_.look_for_wait();
  settle(lower_in_flight);
  const bool starts = in_step_ && place.position == timeline.service_start();
  if (schedule_.begins_stretch(launch.at, lower_in_flight)) {
    if (!in_step_) end_request(/*whole=*/false);
    if (in_step_ && !starts)
      pause_ = std::min(launch.at - schedule_.waited_until(), timeline.sure_pause());
  }
  if (starts || was_in_step != in_step_) {
    end_request(request_.whole && starts && was_in_step);
    request_.whole = starts;
  }
  if (place.started) {
    const bool known = timeline.known();
    const bool surely = pattern_.known() && pattern_.begins_surely();
    if (timeline.begin(surely)) request_.whole = false;  // requests begin elsewhere now
    if (timeline.known() && !known) schedule_.knows_better();
  }
  if (request_.began == kNever) request_.began = launch.at;
  request_.markers += launch.marker;
  marker_ = std::max(marker_, launch.marker);

  count_held(held, request_);
  launch.place = place;
  schedule_.submitted(launch, in_step_, lower_in_flight);
}

// The client was held, at the beginning of this request or within it.
void RequestGuard::count_held(Duration held, Request& delayed) {
  if (held.ns == 0) return;
  held_ += held;
  delayed.held += held;
  delayed.lost += held;
  mean_.cost(held);
}

void RequestGuard::settle(bool lower_in_flight) {
  const std::optional<IsolatedSchedule::Waited> wait = schedule_.settle(lower_in_flight);
  if (!wait) return;
  pattern_.waited(wait->at);
  if (!wait->clean) request_.undisturbed = false;
  request_.took += wait->at - wait->from;
  request_.pauses += std::exchange(pause_, Duration{});
  request_.lost += wait->delay;
  mean_.cost(wait->delay);
  count_lately(wait->delay + std::exchange(held_, Duration{}));
  // The request is over: the next wait may be in another request of the program's, but not in a third one.
  const bool over = std::max(request_.lost, lost_lately_) > limit();
  if (over && !begins_surely() && request_.exceptions < 2) {
    if (request_.excepted && others_lately() > 0) went_deep(lower_in_flight);
    request_.excepted = false;
  }
}

// Where nobody can tell with which wait a request ends, any run of as many waits as a request has is held to its limit.
void RequestGuard::count_lately(Duration lost) {
  lately_.push_back(lost);
  request_.waits += 1;
  lost_lately_ += lost;
  const size_t others = others_lately();
  if (lately_.size() > others) lost_lately_ -= lately_[lately_.size() - 1 - others];
}

// lost_lately_ as it will be when the next wait has lost `soon`.
Duration RequestGuard::lost_lately(Duration soon) const {
  const size_t others = others_lately();
  if (others == 0 || soon.ns == 0) return lost_lately_;
  return lost_lately_ + soon - (lately_.size() < others ? Duration{} : lately_[lately_.size() - others]);
}

// `said`: what this request's waits said it lost; `lost`: what it really lost. First the waits are put right: some of
// them count together with the next request's.
RequestGuard::Lately RequestGuard::lately(Duration said, Duration lost) {
  const size_t others = others_lately();
  const size_t first_own = lately_.size() - std::min<size_t>(request_.waits, lately_.size());
  const Duration known = std::clamp(lost, Duration{}, said);
  Lately found;
  Duration sum;
  for (size_t i = 0; i < lately_.size(); ++i) {
    const bool own = i >= first_own;
    if (own && said > known) lately_[i] = {lately_[i].ns * (known.ns * 1'024 / said.ns) / 1'024};
    sum += lately_[i];
    if (i > others) sum -= lately_[i - 1 - others];
    if (own) found.most = std::max(found.most, sum);
    if (own) found.largest = std::max(found.largest, lately_[i]);
  }
  while (lately_.size() > others) lately_.pop_front();
  lost_lately_ = std::accumulate(lately_.begin(), lately_.end(), Duration{});
  found.most += std::max(Duration{}, lost - said);
  return found;
}

void RequestGuard::end_request(bool whole) {
  const bool is_whole = whole;
  whole = whole && parts_.has(Part::kComparing) && !request_.beside_higher;
  if (request_.began != kNever && schedule_.waited_until() > request_.began) {
    const bool compares = whole && times_.known();
    const Duration said = request_.lost;
    if (whole) compare();
    learn_usual(is_whole);
    earn(said, compares);
    const bool over = count_over(said);
    learn_price(compares);
    // Where kernels run together, an exception need not be over although that was foretold.
    if (compares && request_.excepted && !over && request_.foretold > limit() && price_.is_low())
      went_deep(/*left_behind=*/false);
    if (compares && request_.exceptions > 0 && request_.held.ns == 0 && request_.foretold > limit())
      by_turns_ = 2 * request_.lost.ns >= request_.foretold.ns;
    if (over && request_.exceptions > 0 && others_lately() == 0) went_deep(schedule_.lower_there());
    draw(whole);
    compared_ = compared_ || compares || (is_whole && request_.beside_higher);
  }
  best_idle_ -= Duration{best_idle_.ns / tuning::kBestRemembered};
  schedule_.service_ended(usual_);
  // What an exception let go may still be on the device, and make the next request late, too.
  if (request_.exceptions > 0 && schedule_.lower_there()) next_.meant = true;
  // An exception that is not over after all costs the error budget nothing. So while the budgets go unused, each
  // request begins as an exception until one is over.
  // But first it may be planned that the next one holds the client.
  const bool ample = whole && !kept_ && holds_exception();
  if (ample && !next_.excepted && (was_ample_ || !holding_helps())) except(next_);
  was_ample_ = ample;
  plans_in_ -= std::min(plans_in_, 1U);
  request_ = std::exchange(next_, Request{});
  request_.undisturbed = schedule_.clean();
}

// The whole time of this request is known. It says what requests take, if others cost this one next to nothing; else
// what this one has lost.
void RequestGuard::compare() {
  const Duration said = request_.lost - request_.held;
  const bool as_good = kept_ && tuning::kAsGoodPart * said.ns <= allowance().ns;
  if (request_.undisturbed || as_good)
    times_.undisturbed(request_.took - (request_.undisturbed ? Duration{} : said), kept_,
                       /*surely=*/request_.undisturbed);
  else
    request_.lost = times_.cost(request_.took, said) + request_.held;
}

// What requests take by themselves, and their markers. A request that was seen only in part has the weight of one in
// eight, and the first whole one replaces it.
void RequestGuard::learn_usual(bool whole) {
  if (whole) usual_of_ = std::min(usual_of_ + 1, kUsualOf);
  const int64_t of = usual_.ns == 0 ? 1 : whole ? usual_of_ : kUsualOf;
  const bool usually = !request_.beside_higher || !times_.known();
  if (usually) usual_ += Duration{(by_itself() - usual_).ns / of};
  markers_ += Duration{(request_.markers - markers_).ns / of};
  // A program's first launches have many more markers. So what undisturbed requests took then is no measure for later
  // requests.
  most_marked_ = std::max(most_marked_, markers_);
  const int64_t fell = tuning::kAsGoodPart * (most_marked_ - markers_).ns;
  // A fall by less than half a marker a request is chance.
  const bool by_chance = 2 * (most_marked_ - markers_).ns < marker_.ns;
  if (!by_chance && fell > allowance().ns && tuning::kAsGoodPart * (markers_ - request_.markers).ns < fell) {
    times_.restart();
    // Markers took most of the limit: requests that were over say nothing of those to come.
    error_.forgive();
    if (whole) markers_ = std::min(markers_, request_.markers);
    most_marked_ = markers_;
  }
}

// The mean budget: the loss that the waits said is put right, and the request earns its allowance.
void RequestGuard::earn(Duration said, bool compares) {
  mean_.cost(request_.lost - said);
  const int64_t unsure = 1000 * times_.error().ns / std::max<int64_t>(1, allowance().ns);
  const int64_t earned = compares
                             ? std::max(tuning::kLeastEarned_x1000, tuning::kEarned_x1000 - unsure)
                             : tuning::kEarnedUncompared_x1000;
  const Duration allowed = without_markers(by_itself(), bound_.mean_per_mille, request_.markers);
  mean_.earn({allowed.ns * earned / 1000}, allowance());
}

// Counts this request in the error budget. Returns whether it was over.
bool RequestGuard::count_over(Duration said) {
  const Lately lately = this->lately(said, request_.lost);
  const Duration lost = std::max(request_.lost, lately.most);
  const bool over = lost > limit();
  // Where nobody can tell with which wait a request ends, two of the program's requests may be over: one with the wait
  // that lost most, one with the others.
  const bool two =
      !begins_surely() && request_.waits > 1 && request_.lost - lately.largest > limit();
  error_.slow_ones(times_.spread());
  const uint32_t requests = std::max(two ? 2U : 1U, request_.exceptions);
  if (counts(request_)) {
    error_.ended(over, request_.meant, requests, lost - (limit() - times_.spread()));
    error_.missed(error_of(lost), limit());
  }
  if (!knows_change_ && schedule_.change().ns > 0) {
    knows_change_ = true;
    error_.forgive_errors();
  }
  // One exception that was cut short shall not say for ever what exceptions take.
  if (exceptions_lose_ < most_held()) exceptions_lose_ += Duration{exceptions_lose_.ns / tuning::kTakenForgotten};
  if (over && request_.exceptions > 0) {
    const Duration each{lost.ns / requests};
    const bool first = exceptions_lose_.ns == 0;
    exceptions_lose_ += first ? each : Duration{(each - exceptions_lose_).ns / tuning::kTakenRemembered};
  }
  if (over) {  // its waits have been counted, and make no other request over
    lately_.clear();
    lost_lately_ = {};
  }
  return over;
}

// How much more this request lost than it should have, with the waits before it that count. A request that was over
// should have lost no more than the limit less what is kept free, even if more was foretold later. Where nothing was
// foretold, only a request that was over has an error: others vary by themselves.
Duration RequestGuard::error_of(Duration lost) const {
  if (request_.meant || request_.undisturbed) return {};
  const Duration foretold = request_.foretold + (lost - request_.lost);
  if (lost > limit()) return lost - std::min(foretold, error_.meant(limit()));
  return request_.foretold.ns > 0 ? lost - foretold : Duration{};
}

// A request was an exception. If it left nothing on the device, or was not over after all, the next exception may have
// more in flight, else less.
void RequestGuard::went_deep(bool left_behind) {
  deep_x4_ = left_behind ? deep_x4_ / 2 : std::clamp<int64_t>(2 * deep_x4_, 1, tuning::kDeepest_x4);
}

void RequestGuard::learn_price(bool compares) {
  const bool tells = tuning::kTellingPart * request_.foretold.ns >=
                     std::min(limit(), tuning::kDeepestCredit).ns;
  price_.slow_ones(times_.spread());
  if (compares && tells && request_.held.ns == 0) price_.learn(request_.foretold, request_.lost);
}

// Draws whether the request after the next is kept undisturbed. However strange requests are, lower work must go on.
void RequestGuard::draw(bool whole) {
  may_keep_ = kept_ ? may_keep_ - 2 : std::min(may_keep_ + 1, tuning::kMayKeep);
  const Duration precise{usual_.ns * std::max<int64_t>(bound_.mean_per_mille, kFinestBound) / 4000};
  // While the mean budget is ample, nobody needs to know the mean better.
  const bool enough = whole && mean_.is_ample();
  kept_ = std::exchange(keeps_next_, times_.draw(enough ? usual_ : precise, whole)) && may_keep_ >= 2;
}

// Both budgets hold an exception, and no launch waits for more than the mean budget holds.
bool RequestGuard::holds_exception() const {
  if (!parts_.has(Part::kExceptions) || !parts_.has(Part::kUnused)) return false;
  return times_.known() && error_.is_ample() &&
         mean_.beyond(tuning::kKeptByException) > std::max(limit(), mean_.wanted());
}

bool RequestGuard::plan_stands() const {
  return launched_all() && holding_helps() && request_.exceptions == 0 && !next_.excepted && !kept_ && !keeps_next_ &&
         holds_exception();
}

void RequestGuard::hold_next() {
  except(next_);
  next_.may_hold = true;
}

// For how long the exception may yet hold the client. The mean budget has not yet paid for the hold under way.
Duration RequestGuard::may_be_held(Instant now) const {
  const Duration held = clock_.stands_for(now);
  const Duration most = std::min(Duration{tuning::kHeldAtMost * allowance().ns}, tuning::kHeldForAtMost);
  return std::max(Duration{}, std::min(mean_.beyond(tuning::kKeptByException), most - delayed().held) - held);
}

void RequestGuard::excepted(bool surely) {
  Request& delayed = this->delayed();
  delayed.meant = true;
  if (surely) except(delayed);
  delayed.may_hold = delayed.may_hold || surely;
  const Duration followed = std::min(std::exchange(followed_, Duration{}), most_held());
  follows_ += Duration{(followed - follows_).ns / tuning::kTakenRemembered};
  mean_.spent();
}

void RequestGuard::except(Request& request) {
  request.meant = true;
  if (!std::exchange(request.excepted, true)) request.exceptions += 1;
}

RequestGuard::Slack RequestGuard::slack(Instant now) const {
  // Nothing is known of the next wait. So there is no slack, and all work in its way has delayed it.
  if (!knows() || !schedule_.knows_place()) {
    const Duration delayed = Duration{} - schedule_.blocked_since_wait();
    return {delayed, delayed};
  }
  const Duration own = schedule_.work_left() + schedule_.host_late();
  const Duration slack = timeline().due(now, idle()) - now - own;
  if (!idle()) return {slack, slack};
  // The device has caught up: lower work may have the pause before the next launch, less what the host is late already.
  const Duration pause = std::max(Duration{}, timeline().next_launch() - now);
  const Duration late = std::max(Duration{}, Duration{} - slack);
  return {std::max(slack, pause - std::min(late, schedule_.host_late())), slack - pause};
}

// An exception, or a launch by chance, goes where the slack is nearly the largest, or as a request is about to begin:
// then all of that request's slack is there for what follows.
bool RequestGuard::best_moment(Duration slack) const {
  if (!knows() || request_.exceptions > 0 || !parts_.has(Part::kBestMoment)) return true;
  const int64_t best = timeline().best_slack().ns;
  return idle() && (through() || slack.ns >= best - best / tuning::kNearBestPart);
}

// The most lower work in flight. `next`: what goes now delays the next request.
Duration RequestGuard::depth_of(Instant at, const Moment& moment, const Request& delayed, bool next) const {
  // Half of the slack, and half of what a request may lose: even if half of the slack is an error, no request is over.
  const Duration loses{error_.aimed(limit()).ns * 1'024 / moment.price_x1024};
  const Duration half{(std::max(Duration{}, moment.slack) + loses).ns / tuning::kLeftPart};
  Duration most = depth(moment);
  if (mean_.is_ample()) most = std::max(most, half);
  if (may_hold()) return std::max(most, may_be_held(at));
  if (!delayed.excepted || !knows() || next) return most;
  // What an exception lets go shall make no other request be over. What comes behind the client's last launch may still
  // be there when the next request begins. So that is no more than the host's pause, half of the slack and half of what
  // the next request may lose.
  const Duration to_launch = timeline().to_launch(/*service=*/begins_surely() || delayed.exceptions > 1);
  // Where the device takes the clients' kernels by turns, more lower work is through before the client's last kernel.
  // What exceptions left behind tells how much.
  const Duration left = schedule_.work_left() + to_launch - timeline().to_launch(/*service=*/false);
  const Duration to_do{left.ns * deep_x4_ / 4};
  return std::max({std::min(most, timeline().sure_pause() + half), to_launch, to_do});
}

Moment RequestGuard::moment(Instant at, Duration ahead, bool any, Duration change, Duration own_done) {
  const Instant now = clock_.at(at);
  const Duration held = clock_.stands_for(at);
  const bool next = through();
  Request& delayed = this->delayed();
  const Duration soon = knows() ? schedule_.about_to_lose(now) : Duration{};
  const Duration lost = delayed.lost + held + (next ? Duration{} : soon);
  auto [slack, inside] = this->slack(now);
  slack += own_done;
  // The device changes back when the client launches, however long the device has been idle.
  Moment moment{.slack = slack, .ahead = ahead, .alone = !any};
  if (idle()) moment.back = change - std::max(Duration{}, inside);
  const Duration away = knows() && idle() ? timeline().random_pause() : Duration{};
  // A delay is foretold once, after lower work has come; while the client is away at random, not until it is back.
  if (any && came_ && away.ns == 0) {
    delayed.foretold = std::max(delayed.foretold, std::max(ahead - slack, moment.back) + lost);
    came_ = false;
  }
  // Beside own work a lower launch costs its whole length, in a pause only what is longer than the pause. So a part of
  // the mean budget is kept for pauses.
  Duration budget = mean_.beyond(idle() ? 0 : tuning::kKeptForPauses);
  // What the waits say was lost is part of what was foretold: so the price applies to it, too.
  const int64_t true_x1024 = parts_.has(Part::kPrice) ? price_.x1024() : 1'024;
  const Duration said = std::max(lost, lost_lately(soon));
  Duration tail = error_.aimed(limit()) - Duration{said.ns * true_x1024 / 1'024};
  // p99 counts requests, not by how much they are over.
  if (delayed.excepted) {
    // The mean budget has not yet paid for a hold under way, nor for what the next wait will say.
    const Duration plenty = mean_.beyond(tuning::kKeptByException) - held - soon;
    if (plenty > std::min(budget, tail)) budget = tail = plenty;
  }
  const auto believed = [&](Duration of) { return parts_.has(Part::kTrust) ? error_.believed(of, limit()) : of; };
  moment.slack = believed(slack);
  if (!parts_.has(Part::kBudgets)) {
    moment.depth = std::max(Duration{}, moment.slack);
    return moment;
  }
  moment.budget = budget;
  moment.tail = tail;
  // A second exception in a request lasts to the request's end. It takes much of the mean budget, which would do for
  // other exceptions. So while that is less than half full, the second waits until the first is counted.
  const bool waits = next || (!delayed.excepted && !mean_.is_ample());
  if (parts_.has(Part::kExceptions) && counts(delayed) && best_moment(slack))
    moment.exceptions_x1000 = error_.left_x1000(/*uncounted=*/waits ? request_.exceptions : 0);
  if (idle()) best_idle_ = std::max(best_idle_, slack);
  moment.best_slack = moment.slack;
  if (knows() && away.ns == 0 && parts_.has(Part::kBestMoment))
    moment.best_slack = believed(std::min(timeline().best_slack(), best_idle_));
  if (parts_.has(Part::kChance)) moment.back_in = away;
  if (parts_.has(Part::kPrice)) {
    moment.price_x1024 = price_.x1024();
    moment.priced = price_.known_to() - lost;
  }
  // An exception may take what the mean budget holds for it, but no more than exceptions really took of late. While the
  // client is away at random, an exception takes no more at once than a launch by chance: so launches wait for none.
  if (away.ns == 0 && parts_.has(Part::kExceptions)) moment.exception_takes = mean_.beyond(tuning::kKeptByException);
  if (exceptions_lose_.ns > 0) moment.exception_takes = std::min(moment.exception_takes, exceptions_lose_);
  moment.follows = follows_;
  moment.deepest = Duration{error_.aimed(limit()).ns / tuning::kBorne};
  moment.depth = depth_of(at, moment, delayed, next);
  if (!parts_.has(Part::kDepth)) moment.depth = tuning::kMostCredit;
  return moment;
}

}  // namespace lull::policies
