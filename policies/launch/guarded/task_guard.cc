#include "policies/launch/guarded/task_guard.h"

#include <algorithm>
#include <utility>

namespace lull::policies {
namespace {

// Of what is allowed, so much is aimed at; what cannot be foreseen takes the rest. Less where it is
// not known well how long undisturbed services take: by the error's share of the allowance.
constexpr int64_t kAimPerMille = 900;
constexpr int64_t kUncomparedAimPerMille = 870;  // no service ever is, where no iteration is known
constexpr int64_t kUncomparedTailPerMille = 970;  // of what p99 allows, where only waits say what was lost
constexpr int64_t kSureAimPerMille = 950;
constexpr int64_t kLeastAimPerMille = 600;
// In a pause at random, times what is aimed at else.
constexpr int64_t kTailPause_x1000 = 1'074;
// What is let go while the client has nothing on the device, at the account's cost.
constexpr Duration kCover{100'000};
constexpr int64_t kLongerThanMean_x1000 = 500, kLongerThanMost_x1000 = 50;
constexpr int64_t kSurelyOver_x2 = 3;  // times the tail bound, times 2
// The mean account holds at most so many services' worth, what two exceptions may take that come as
// often as the tail bound allows (one, where only waits say what was lost), and owes at most so
// many. An exception leaves it so many.
constexpr int64_t kAccountServices = 280, kUncomparedServices = 140;
constexpr int64_t kDebtServices = 64;
constexpr int64_t kReserve = 8;
constexpr int64_t kLeftByException = 35;
// A request opens with an exception where the account holds the unit so many times, and the unit is
// expected to be shorter than foretold by one part in so many at most.
constexpr int64_t kOpeners = 2;
constexpr int64_t kUnsurePart = 4;
constexpr int64_t kOverdrawn = 4;  // nothing goes any more
// Clean stretches before anything else, and again one in so many, to see whether all is as it was.
constexpr uint32_t kCleanFirst = 2;
constexpr uint32_t kCleanEvery = 512;
// The correction of the slack: grows by one part in so many of a service, while the account holds
// so many services' allowance.
constexpr int64_t kCorrection = 128;
constexpr int64_t kPlenty = 8;
// Where lower and own launches go by turns, so many own ones are done while a lower one comes.
constexpr uint32_t kTurnsMissed = 16;
constexpr int64_t kFinestBound = 10;  // per mille: what a mean is worth measuring for

}  // namespace

void TaskGuard::submitted(const Submitted& launch, bool lower_in_flight) {
  settle(lower_in_flight);
  const IterationPlace place = period_.launch(launch.kernel, launch.at, launch.place);
  if (place.length != 0 &&
      (generation_ != place.generation || timeline().length() != place.length)) {
    generation_ = place.generation;
    timeline().restart(place.length, period_.known());
    forget_services();
    end_service(/*whole=*/false);
    // What single stretches were over says nothing about iterations.
    tail_ = {};
  }
  const bool was_in_step = in_step_;
  in_step_ = place.in_step && timeline().has_waits();
  schedule_.look_for_wait();
  settle(lower_in_flight);
  const bool away = host_away(launch.at);
  if (schedule_.begins_stretch(launch.at, lower_in_flight)) {
    if (!in_step_) end_service(/*whole=*/false);
    if (in_step_ && place.position != timeline().service_start()) {
      pause_ = std::min(launch.at - schedule_.waited_until(), timeline().pause_of_all());
    }
  }
  const bool starts = in_step_ && place.position == timeline().service_start();
  if (starts || was_in_step != in_step_) {
    end_service(service_whole_ && starts && was_in_step);
    service_whole_ = starts;
  }
  // The service at hand, if that is not the first of it, is one of the next request.
  if (away) {
    if (request_.services > 0) end_request();
    requests_.paused();
  }
  if (place.started) {
    const bool known = timeline().known();
    if (timeline().begin(limits_.has(Part::kTurns) ? pattern_.round() : 0, pattern_.next())) {
      forget_services();  // they begin elsewhere now
      service_whole_ = false;
    }
    if (timeline().known() && !known) schedule_.knows_better();
  }
  if (service_began_ == kNever) service_began_ = launch.at;

  Submitted placed = launch;
  placed.place = place;
  schedule_.submitted(placed, in_step_, lower_in_flight);
}

void TaskGuard::forget_services() {
  feedback_.restart();
  pattern_.restart();
  requests_.restart();
}

void TaskGuard::settle(bool lower_in_flight) {
  const std::optional<IsolatedSchedule::Waited> wait = schedule_.settle(lower_in_flight);
  if (!wait) return;
  period_.waited(wait->at);
  clean_stretches_ += wait->clean ? 1 : 0;
  since_clean_ = wait->clean ? 0 : since_clean_ + 1;
  if (!wait->clean) service_undisturbed_ = false;
  const int64_t cost = wait->delay.ns * feedback_.scale_x1024() / 1024;
  waits_delay_ns_ += wait->delay.ns;
  service_delay_ns_ += cost;
  account_ns_ -= cost;
  // What it was served in: the stretch, and the pause before it that is part of the iteration.
  const int64_t took = (wait->at - wait->from).ns + std::exchange(pause_, Duration{}).ns;
  const int64_t served = std::max<int64_t>(0, took - cost);
  const int64_t earned = served * limits_.mean_per_mille / 1000 * aim_per_mille() / 1000;
  service_took_ns_ += took;
  const int64_t usual = mean_allowance_ns();
  const int64_t held = feedback_.known() ? kAccountServices : kUncomparedServices;
  account_ns_ = std::clamp(account_ns_ + earned, -kDebtServices * std::max(usual, earned),
                           std::max(held * std::max(usual, earned), longest_refused_ns_ * 5 / 4));
  clean_wanted_ = clean_stretches_ < kCleanFirst || since_clean_ >= kCleanEvery ||
                  (spends() && account_ns_ < -kOverdrawn * usual);
}

void TaskGuard::end_service(bool whole) {
  const bool served = service_began_ != kNever && schedule_.waited_until() > service_began_;
  const bool compared = served && whole && compares();
  const int64_t foretold_ns = service_delay_ns_;
  if (served) {
    if (compared) {
      compare_service();
    } else {
      kept_ = false;
      if (!compares()) keeps_next_ = false;
    }
    const int64_t by_itself = std::max<int64_t>(0, service_took_ns_ - service_delay_ns_);
    own_service_ns_ += (by_itself - own_service_ns_) / (own_service_ns_ == 0 ? 1 : 8);
    request_.whole = request_.whole && whole;
    request_.undisturbed = request_.undisturbed && service_undisturbed_;
    request_.services += 1;
    request_.took_ns += service_took_ns_;
    request_.delay_ns += service_delay_ns_;
    request_.usual_ns += feedback_.mean().ns + pattern_.offset().ns;
    if (!spent_ && compares() && limits_.has(Part::kGuessedSlack)) correct();
    if (request_.services >= services()) end_request();
    spent_ = false;
  }
  // Less what the waits say: what comparing made of that has gone by the pattern itself.
  if (compared && limits_.has(Part::kRounds)) {
    pattern_.add(Duration{std::max<int64_t>(0, service_took_ns_ - foretold_ns)}, requests_.between_pauses());
  } else {
    pattern_.restart();
  }
  if (served) requests_.served(pattern_.round());
  schedule_.service_ended(Duration{own_service_ns_});
  refused_before_ns_ = std::exchange(refused_ns_, 0);
  service_began_ = kNever;
  service_whole_ = false;
  service_undisturbed_ = schedule_.clean();
  service_took_ns_ = 0;
  waits_delay_ns_ = 0;
  service_delay_ns_ = 0;
}

void TaskGuard::end_request() {
  // As long as it is not known how slow services are by themselves, none counts as too slow.
  const bool told = !in_step_ || feedback_.varied();
  const int64_t excess = told ? excess_ns() : 0;
  const bool over = excess > 0;
  if (told) tail_.ended(over, request_.undisturbed, is_compared());
  if (compares() && (over ? !request_.excepted : !request_.spent)) {
    if (limits_.has(Part::kTailAim)) tail_.aim_after(over, limits_.has(Part::kUnmeant));
    // Slack that was only guessed at is most likely what was missing.
    if (limits_.has(Part::kGuessedSlack))
      correct_by(-std::max(2 * excess, over ? correction_ns_ / 2 : 0));
  }
  request_ = std::exchange(next_, Request{});
}

// A whole iteration has ended: its time tells what others cost it, too.
void TaskGuard::compare_service() {
  const Duration took{service_took_ns_};
  if (!service_undisturbed_) {
    const ServiceFeedback::Cost cost = feedback_.cost(took, Duration{waits_delay_ns_}, pattern_);
    account_ns_ -= cost.mean.ns - service_delay_ns_;
    service_delay_ns_ = cost.likely.ns;
  } else {
    if (feedback_.varied()) tail_.alone(took.ns > slow_ns(feedback_.mean().ns + pattern_.offset().ns, 1));
    feedback_.undisturbed(took, kept_, pattern_);
  }
  const int64_t bound = std::max<int64_t>(limits_.mean_per_mille, kFinestBound);
  const Duration precise{own_service_ns_ * bound / 1000 / 4};
  // However strange its services are, others must go on.
  may_keep_ = kept_ ? may_keep_ - 2 : std::min(may_keep_ + 1, kMayKeep);
  kept_ = std::exchange(keeps_next_, feedback_.draws_undisturbed(precise)) && may_keep_ >= 2;
}

int64_t TaskGuard::aim_per_mille() const {
  if (!has_waits()) return kUncomparedAimPerMille;
  if (!feedback_.varied()) return kAimPerMille;
  const int64_t allowed = std::max<int64_t>(1, mean_allowance_ns());
  return std::max(kLeastAimPerMille, kSureAimPerMille - 1000 * feedback_.error().ns / allowed);
}

// By how much a request has taken longer than the slow ones take by themselves and p99 allows.
int64_t TaskGuard::excess_ns() const {
  if (request_.undisturbed) return 0;
  const int64_t tail = tail_allowance_ns(request_.services);
  if (!is_compared()) {
    const int64_t spread = spread_ns(request_.services, pattern_.next());
    return std::max<int64_t>(0, request_.delay_ns - tail * kUncomparedTailPerMille / 1000 - spread);
  }
  // One that is slow by itself is not theirs.
  if (request_.delay_ns < tail / 2) return 0;
  return std::max<int64_t>(0, request_.took_ns - slow_ns(request_.usual_ns, request_.services));
}

// So long may so many services take, the last of them the one at hand, that usually take `usual_ns`.
int64_t TaskGuard::slow_ns(int64_t usual_ns, int64_t services) const {
  return (usual_ns + spread_ns(services, pattern_.next())) * (1000 + limits_.tail_per_mille) / 1000;
}

// The slowest requests of so many services take so much longer by themselves than this one does,
// whose last is `service`. All rounds are alike.
int64_t TaskGuard::spread_ns(int64_t services, uint64_t service) const {
  const int64_t longest = pattern_.longest_offset().ns;
  const int64_t beyond = std::max<int64_t>(0, feedback_.spread().ns - longest);
  return beyond + (services > 1 ? 0 : longest - pattern_.offset_of(service).ns);
}

bool TaskGuard::refused(Duration length) {
  const bool news = length.ns > std::min(refused_ns_, longest_refused_ns_);
  refused_ns_ = std::max(refused_ns_, length.ns);
  longest_refused_ns_ = std::max(longest_refused_ns_, length.ns);
  return news;
}

bool TaskGuard::may_rest(Instant now) const {
  if (!schedule_.may_rest() || !through(now)) return false;
  if (schedule_.between_stretches() && !host_away(now)) return false;
  // A unit that is let go now opens no request: the host has been away for longer than usual, or
  // nothing is known of its iterations.
  const bool away = timeline().is_away(now, Duration{INT64_MAX / 4});
  return away || (timeline().away_for_good(now) && !in_step_);
}

void TaskGuard::catch_up(const LowerWork::Since& since, Priority own, uint32_t left, Instant now) {
  schedule_.catch_up(since, own, left);
  // Beside the first one, all that was let go meanwhile says the same.
  for (uint64_t i = std::min<uint64_t>(since.spends, 2); i > 0; --i) spend({}, {}, {}, now);
  if (since.refused.ns > 0) refused(since.refused);
}

// What is known of the slack is wrong where services lose more than they may, or where the account
// stays full though lower work is turned away: then slack is taken to be less, or a little more.
void TaskGuard::correct() {
  const int64_t plenty = mean_allowance_ns(kPlenty);
  if (account_ns_ < 0 && service_delay_ns_ > plenty / kPlenty) {
    correct_by(plenty / kPlenty - service_delay_ns_);
  } else if (refused_ns_ > 0 && account_ns_ > plenty &&
             (correction_ns_ < 0 || tail_.has_plenty())) {
    correct_by(own_service_ns_ / kCorrection);
  }
}

void TaskGuard::correct_by(int64_t more_ns) {
  correction_ns_ = std::clamp(correction_ns_ + more_ns, -own_service_ns_ / 4, own_service_ns_ / 2);
}

bool TaskGuard::knows_slack() const {
  return timeline().known() && in_step_ && schedule_.knows_place();
}

// More slack than is known of is a guess, whose cost the account has to bear.
int64_t TaskGuard::lent_ns() const { return std::min(correction_ns_, std::max<int64_t>(0, account_ns_)); }

int64_t TaskGuard::slack_ns(Instant now) const {
  const int64_t correction = lent_ns();
  // As if whatever comes in its way cost it, and whatever has since the last wait.
  if (!knows_slack()) return correction - schedule_.blocked_since_wait().ns;
  const Duration own = schedule_.work_left() + schedule_.host_late();
  const int64_t slack = (timeline().due(now, idle()) - now - own).ns + correction;
  if (!idle()) return slack;
  // The device has caught up: until it is back with more, less what its host is late already.
  const int64_t pause = std::max<int64_t>(0, (timeline().next_launch() - now).ns);
  return std::max(slack, pause - std::min(std::max<int64_t>(0, -slack), schedule_.host_late().ns));
}

int64_t TaskGuard::tail_limit_ns() const {
  // What the longest service of a round takes longer than the one that it is about is sure.
  const uint64_t service = pattern_.next() + (closing() ? 1 : 0);
  const int64_t spread = spread_ns(services(), service);
  const int64_t sure =
      services() > 1 ? 0 : pattern_.longest_offset().ns - pattern_.offset_of(service).ns;
  return (tail_allowance_ns() + spread - sure) / 1000 * tail_.aim_x1000() / 1000 + sure;
}

// What the request that such a unit would be in the way of now may lose at p99.
int64_t TaskGuard::tail_left_ns(Duration excess, Instant now) const {
  if (!before_request(now)) return tail_limit_ns() - delay_ns();
  // None of the next one is lost yet, but for what the service at hand has, if that is its first.
  const int64_t lost = closing() ? 0 : service_delay_ns_;
  // What comes in a pause at random costs no more than its length, whatever is known of the slack.
  const bool away = limits_.has(Part::kRandomPause) && in_step_ && timeline().pauses_at_random() &&
                    timeline().is_away(now, excess);
  return (away ? tail_limit_ns() * kTailPause_x1000 / 1000 : tail_limit_ns()) - lost;
}

// While the client is idle lower work costs it little or nothing. Where it surely costs, a reserve
// is left for that.
int64_t TaskGuard::spendable_ns() const {
  if (!spends()) return 0;
  const int64_t reserve = idle() ? 0 : mean_allowance_ns(kReserve);
  return std::max<int64_t>(0, account_ns_ - reserve);
}

bool TaskGuard::over_anyway(Instant now) const {
  if (through(now)) return false;
  if (request_.excepted) return request_.opened || delay_ns() + late_ns(now) > tail_limit_ns();
  // A unit may have taken far longer than foretold: what has really run in the way says so. While
  // more such services are owed than may be, that is not to be built on.
  if (!limits_.has(Part::kOverrun) || tail_.owes() || !feedback_.varied()) return false;
  const int64_t surely = longest_delay_ns() * kSurelyOver_x2 / 2;
  if (delay_ns() + schedule_.blocked().ns <= surely) return false;  // as is so almost always
  return foreseen_delay_ns(now) > surely;
}

int64_t TaskGuard::allowed_ns(Instant now) const {
  // p99 counts services, not by how much they exceed it: one that does may cost what the mean
  // allows while there is plenty. Where the mean is what is short, it buys more elsewhere.
  if (over_anyway(now)) {
    const int64_t plenty = account_ns_ - mean_allowance_ns(kLeftByException);
    return spends() ? std::max<int64_t>(0, plenty) : 0;
  }
  if (limits_.has(Part::kRefinements) && spent_ && delay_ns() > longest_delay_ns() && !closing())
    return spendable_ns();
  return std::min(spendable_ns(), std::max<int64_t>(0, tail_limit_ns() - delay_ns()));
}

// What a unit costs of what it is in the way for; in a service that exceeds the bound anyway no
// more than it is long, whatever waits have missed of others.
int64_t TaskGuard::scale_x1024(Instant now) const {
  return over_anyway(now) ? unit_scale_x1024() : feedback_.scale_x1024();
}

// A unit has been turned away that is longer than a service may bear, and would most likely cost
// nothing between two requests, which come at random. Until it has gone there, the accounts give
// nothing for others, one of which might make a service exceed the tail.
bool TaskGuard::waits_for_pause() const {
  const Duration longest{std::max(refused_ns_, refused_before_ns_)};
  return limits_.has(Part::kPauseFirst) && !idle() && in_step_ && timeline().known() &&
         longest.ns > tail_limit_ns() && timeline().goes_away(longest);
}

// What of the accounts is within `room`. While it has nothing there and may be back at once, no more
// than keeps the device busy.
int64_t TaskGuard::given_ns(Instant now) const {
  if (waits_for_pause() && !over_anyway(now)) return 0;
  const int64_t allowed = allowed_ns(now);
  const bool back_soon = idle() && !timeline().is_away(now, kCover);
  return back_soon ? std::min(allowed, kCover.ns * scale_x1024(now) / 1024) : allowed;
}

// Own launches of this service that are not through, made or yet to come.
uint32_t TaskGuard::own_left() const {
  if (timeline().service_launched()) return schedule_.computing();
  const uint32_t length = timeline().length();
  return schedule_.computing() + (length + timeline().service_start() - timeline().next_position()) % length;
}

// One more unit has its turn before them, whatever its length.
bool TaskGuard::has_turns_left(uint32_t lower_units) const {
  return own_left() > lower_units + schedule_.longest_row() + kTurnsMissed;
}

Duration TaskGuard::room(Instant now, uint32_t lower_units) const {
  const Duration room{slack_ns(now) + given_ns(now) * 1024 / scale_x1024(now)};
  // What is there when such a service ends delays the next one, too.
  const bool fills = limits_.has(Part::kFilling) && !idle() && knows_slack() && over_anyway(now);
  if (!fills || has_turns_left(lower_units)) return room;
  return std::min(room, lower_units < own_left() ? schedule_.lower_done_in_time() : Duration{});
}

// Every launch of the service has been made.
bool TaskGuard::closing() const {
  return in_step_ && timeline().known() && timeline().service_launched();
}

// Every launch of the request has been made.
bool TaskGuard::closing_request(Instant now) const {
  return closing() && (request_.services + 1 >= services() || host_away(now));
}

// Between two requests.
bool TaskGuard::before_request(Instant now) const {
  return idle() && (closing_request(now) || host_away(now));
}

// What comes now delays the next request, not this one.
bool TaskGuard::through(Instant now) const {
  if (!in_step_ || !timeline().known()) return idle();
  // Nothing of it is left to do, but for what its wait was not for.
  return closing_request(now) && (schedule_.in_flight() <= 1 || schedule_.between_stretches());
}

// Long enough for a pause between requests.
bool TaskGuard::host_away(Instant now) const {
  const Duration paused = now - schedule_.waited_until();
  return schedule_.between_stretches() && idle() && paused > RequestLength::pause(Duration{own_service_ns_});
}

// No unit costs more than it is long, whatever waits have missed of others.
int64_t TaskGuard::unit_scale_x1024() const {
  return std::min<int64_t>(1024, feedback_.scale_x1024());
}

// Of a unit that exceeds the room by so much, what the room has of the accounts included.
int64_t TaskGuard::cost_ns(Duration excess, Instant now) const {
  return excess.ns * unit_scale_x1024() / 1024 + given_ns(now);
}

// How likely such a unit makes the request exceed the tail: lengths are told as their mean and p95,
// between which half to a twentieth are longer; one that exceeds it at its mean surely does.
int64_t TaskGuard::chance_x1000(Duration excess, Duration spare, Instant now) const {
  const int64_t most = (tail_left_ns(excess, now) - given_ns(now)) * 1024 / unit_scale_x1024();
  const int64_t beyond = most - (excess - spare).ns;  // its mean
  if (!limits_.has(Part::kChance) || beyond <= 0 || spare.ns <= 0)
    return ErrorBudget::kSurely_x1000;
  return kLongerThanMean_x1000 -
         (kLongerThanMean_x1000 - kLongerThanMost_x1000) * std::min(beyond, spare.ns) / spare.ns;
}

bool TaskGuard::affords(Duration excess, Duration spare, Instant now) const {
  const int64_t cost = cost_ns(excess, now);
  const bool within_tail = cost <= tail_left_ns(excess, now);
  // In a pause at random it most likely costs nothing; what it does cost then is owed.
  const bool by_chance = limits_.has(Part::kRandomPause) && spends() && in_step_ &&
                         account_ns_ > 0 && before_request(now) && timeline().pauses_at_random() &&
                         timeline().is_away(now, excess);
  const bool in_mean = cost <= std::max(spendable_ns(), given_ns(now));
  if (!in_mean && !(by_chance && within_tail)) return false;
  if (within_tail) return true;
  const bool again =
      limits_.has(Part::kRefinements) && spent_ && closing() && !timeline().is_away(now, excess);
  // The request at hand is counted when the next one begins, which such a unit delays.
  const bool uncounted = limits_.has(Part::kRefinements) && through(now) &&
                         foreseen_delay_ns(now) > longest_delay_ns();
  return tail_.affords(chance_x1000(excess, spare, now), uncounted) && !again;
}

// Wherever in a request it goes, that will exceed the tail.
bool TaskGuard::surely_exceeds(Duration length, Duration spare) const {
  return limits_.has(Part::kOpening) && in_step_ && timeline().known() &&
         spare.ns * kUnsurePart <= length.ns &&
         (length - spare).ns > timeline().best_slack().ns + lent_ns() + tail_limit_ns();
}

// It goes as a request begins, whose slack is then there for what follows, up to the next such unit.
bool TaskGuard::opens_request(Duration length, Duration spare, Instant now) const {
  return surely_exceeds(length, spare) && tail_.affords() && account_ns_ >= kOpeners * length.ns &&
         !timeline().goes_away(length) && !over_anyway(now);
}

bool TaskGuard::request_begins(Instant now) const {
  return through(now) || before_request(now);
}

void TaskGuard::spend(Duration excess, Duration length, Duration spare, Instant now) {
  Request& delayed = through(now) || (request_.services > 0 && host_away(now)) ? next_ : request_;
  const bool exceeds = cost_ns(excess, now) > tail_left_ns(excess, now);
  const bool away = idle() && timeline().is_away(now, length);  // it most likely costs nothing
  delayed.opened = delayed.opened || (exceeds && !away && request_begins(now) &&
                                      opens_request(length, spare, now));
  delayed.excepted = delayed.excepted || exceeds;
  spent_ = delayed.spent = true;
  refused_ns_ = refused_before_ns_ = longest_refused_ns_ = 0;
}

bool TaskGuard::has_better_moment(Instant now, Duration length, Duration spare) const {
  if (!limits_.has(Part::kBetterMoment) || !timeline().known() || !in_step_) return false;
  // Where requests come at random, between two of them most likely costs nothing.
  if (idle() && timeline().is_away(now, length)) return false;
  if (opens_request(length, spare, now)) return !request_begins(now);
  // What was let go has not made the request an exception yet, and may have taken less than foretold.
  const bool in_vain = limits_.has(Part::kRefinements) && request_.excepted && !through(now) &&
                       tail_.affords() && !over_anyway(now);
  if (spent_ && !in_vain) return false;
  if (!idle()) return true;
  const bool violates = length.ns - slack_ns(now) > tail_left_ns(length, now);
  if (violates && timeline().goes_away(length)) return true;
  const int64_t best = timeline().best_slack().ns;
  return slack_ns(now) < best - best / 8;
}

}  // namespace lull::policies
