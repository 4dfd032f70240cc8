#include "policies/launch/time_slice.h"

#include <algorithm>
#include <map>

#include "policies/launch/client_table.h"

namespace lull::policies {
namespace {

class TimeSlice final : public LaunchPolicy {
 public:
  explicit TimeSlice(Duration quantum) : quantum_(quantum) {}

  void step(Instant now, std::span<const Event> events, std::vector<Decision>& out) override {
    bool gates_changed = false;
    for (const Event& event : events) {
      if (std::holds_alternative<Joined>(event) || std::holds_alternative<Left>(event)) {
        table_.apply(event);
        count_jobs();
        gates_changed = true;
      } else {
        apply_work(event);
      }
    }
    gates_changed |= take_turns(now);
    if (gates_changed) publish(out);
    const Instant wake = next_wake();
    if (wake != wake_) {
      wake_ = wake;
      out.push_back(WakeAt{wake});
    }
  }

 private:
  struct Job {
    uint32_t units = 0;
    uint32_t pending = 0;
  };

  void count_jobs() {
    jobs_.clear();
    pending_ = 0;
    for (const Member& member : table_.members()) {
      Job& job = jobs_[member.arrival];
      job.units += member.units;
      job.pending += static_cast<uint32_t>(member.pending.size());
      pending_ += member.pending.size();
    }
  }

  void apply_work(const Event& event) {
    Member* member = std::visit(
        [this](const auto& e) -> Member* {
          if constexpr (requires { e.client; }) return table_.find(e.client);
          else return nullptr;  // a timer is about nobody
        },
        event);
    if (member == nullptr) return;
    Job& job = jobs_[member->arrival];
    job.units -= member->units;
    job.pending -= static_cast<uint32_t>(member->pending.size());
    pending_ -= member->pending.size();
    member = table_.apply(event);
    job.units += member->units;
    job.pending += static_cast<uint32_t>(member->pending.size());
    pending_ += member->pending.size();
  }

  // The next waiting job after the running one, in a circle; the end if none waits.
  std::map<uint64_t, Job>::iterator next_waiting() {
    if (pending_ == 0) return jobs_.end();
    auto waits = [](const auto& entry) { return entry.second.pending > 0; };
    auto after = jobs_.upper_bound(running_);
    auto next = std::find_if(after, jobs_.end(), waits);
    if (next != jobs_.end()) return next;
    auto until = jobs_.lower_bound(running_);
    next = std::find_if(jobs_.begin(), until, waits);
    return next == until ? jobs_.end() : next;
  }

  void run(uint64_t arrival, Instant now) {
    running_ = arrival;
    draining_ = false;
    since_ = now;
    idle_since_ = kNever;
  }

  // True if gates have to change.
  bool take_turns(Instant now) {
    others_wait_ = false;
    if (jobs_.empty()) return false;
    bool changed = false;
    auto running = jobs_.find(running_);
    auto next = next_waiting();
    if (running == jobs_.end()) {
      run((next != jobs_.end() ? next : jobs_.begin())->first, now);
      running = jobs_.find(running_);
      next = next_waiting();
      changed = true;
    }
    const Job& job = running->second;
    if (job.units > 0 || job.pending > 0) {
      idle_since_ = kNever;
    } else if (idle_since_ == kNever) {
      idle_since_ = now;
    }
    others_wait_ = next != jobs_.end();
    if (!draining_ && others_wait_) {
      const bool idle = idle_since_ != kNever && now - idle_since_ >= kIdlePass;
      if (idle || now - since_ >= quantum_) {
        draining_ = true;
        since_ = now;
        changed = true;
      }
    }
    if (draining_ && !others_wait_) {
      run(running_, now);
      changed = true;
    }
    if (draining_ && (job.units == 0 || now >= drain_end())) {
      run(next->first, now);
      others_wait_ = next_waiting() != jobs_.end();
      changed = true;
    }
    return changed;
  }

  Instant drain_end() const { return since_ + Duration{quantum_.ns * kDrainQuanta}; }

  Instant next_wake() const {
    if (draining_) return drain_end();
    if (!others_wait_) return kNever;
    const Instant end = since_ + quantum_;
    return idle_since_ == kNever ? end : std::min(end, idle_since_ + kIdlePass);
  }

  void publish(std::vector<Decision>& out) {
    for (Member& member : table_.members()) {
      if (!draining_ && member.arrival == running_) {
        ClientTable::open(member, out);
      } else {
        ClientTable::close(member, out);
      }
    }
  }

  const Duration quantum_;
  ClientTable table_;
  std::map<uint64_t, Job> jobs_;  // by arrival
  uint64_t pending_ = 0;          // of all jobs
  uint64_t running_ = 0;          // arrival of the job whose turn it is
  bool draining_ = false;
  bool others_wait_ = false;
  Instant since_{0};              // when the quantum, or draining, began
  Instant idle_since_ = kNever;
  Instant wake_ = kNever;
};

}  // namespace

std::unique_ptr<LaunchPolicy> make_time_slice(const SettingValues& values) {
  return std::make_unique<TimeSlice>(Duration{values["quantum_us"] * 1000});
}

}  // namespace lull::policies
