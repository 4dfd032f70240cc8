// Writes what clients do into a trace file while the daemon goes on (coordinator/trace). The daemon
// tells it of clients, drains and steps; sessions tell it of records (SessionObserver). Loop thread;
// it waits for the disk with the file's head and in the destructor only, and what the disk does not
// take is counted.
//
//   empty file --(the clock is ready)--> recording --close--> closing --(all on disk)--> done
#pragma once

#include <array>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "coordinator/daemon/clock.h"
#include "coordinator/daemon/device_table.h"
#include "coordinator/daemon/session.h"
#include "coordinator/daemon/start_times.h"
#include "coordinator/trace/writer.h"

namespace lull::daemon {

// What a tool asks for.
struct TraceOrder {
  std::string file;
  std::string source = "lulld";  // who recorded
  std::string command;           // of the recorded program, where there is one
  // While it runs; none: each client as it wishes, or as the daemon is set.
  std::optional<channel::lull_timing> timing;
};

class TraceRecorder final : public SessionObserver {
 public:
  // Who a client waits for on a device, as the engine has it now.
  using WaitsFor = std::function<std::optional<ClientId>(ClientId, DeviceId)>;

  // Takes the file; its head is written by `begin`. The error is one line.
  // `devices` must outlive it.
  static std::expected<std::unique_ptr<TraceRecorder>, std::string> open(
      TraceOrder order, const DeviceTable& devices, WaitsFor waits_for);
  // Once the clock is ready: nothing can have been launched before.
  void begin(const Clock& clock, const std::string& policy);
  bool has_begun() const { return writer_.has_value(); }
  // Until it closes.
  std::optional<channel::lull_timing> timing() const {
    return closing_ ? std::nullopt : order_.timing;
  }

  // `before`: what it had done before the recording began.
  void client_started(Session& session, const channel::ThreadTotals& before, Instant now);
  void client_ended(Session& session, Instant now);
  void priority_changed(ClientId client, Priority priority, Instant now);
  void policy_changed(const std::string& policy, Instant now);
  // After the session's rings were drained: memory, and what was lost.
  void drained(Session& session, Instant now);
  // After an engine step that followed drains: who holds the launches that are held since.
  void stepped();
  // Flushes what is older than about a second. Cheap.
  void keep(uint64_t monotonic_ns);
  uint64_t next_flush_ns() const { return next_flush_ns_; }

  void look_again_at(uint64_t monotonic_ns) { next_flush_ns_ = monotonic_ns; }

  // Nothing comes any more.
  void close();
  bool is_closing() const { return closing_; }
  bool is_written() const { return !writer_ || writer_->is_written(); }

  // {"file","running","bytes","launches","timings","lost","dropped","failure"}
  nlohmann::json figures() const;

  // ---- SessionObserver ----
  void launched(Session& session, const channel::lull_record& record, ThreadSlot thread,
                DeviceId device, Instant at) override;
  void held(Session& session, ThreadSlot thread, Ticket ticket, DeviceId device,
            Instant since) override;
  void timed(Session& session, const channel::lull_record& record, Instant launched) override;
  void synced(Session& session, ThreadSlot thread, StreamSlot stream, uint64_t sequence,
              Duration waited, Instant at) override;
  void ranged(Session& session, const channel::lull_record& record, ThreadSlot thread,
              Duration length, Instant at) override;
  void cancelled(Session& session, StreamSlot stream, uint64_t sequence, Instant at) override;

 private:
  struct HeldNote {
    Ticket ticket;
    DeviceId device;
    Instant since;
    ClientId by;
  };
  struct Client {
    std::vector<trace::KernelIndex> kernels;  // by slot, plus one; 0: not said yet
    std::array<uint64_t, channel::kMaxDevices> memory{};
    std::unordered_map<uint32_t, HeldNote> held;  // by thread
    std::unordered_map<uint64_t, trace::RangeIndex> ranges;  // by offsets of name and domain
    StartTimes starts;
    channel::ThreadTotals before;  // what it had done when the recording began
    uint64_t lost = 0;             // told
  };

  TraceRecorder(TraceOrder order, const DeviceTable& devices, WaitsFor waits_for);
  Client& client(ClientId id);
  trace::KernelIndex kernel(Client& client, Session& session, uint32_t slot);
  trace::RangeIndex range(Client& client, Session& session, uint32_t name, uint32_t domain);
  void name_device(DeviceId id);
  template <typename E>
  void add(E event);

  TraceOrder order_;
  const DeviceTable& table_;
  WaitsFor waits_for_;
  std::optional<trace::Writer> writer_;
  std::string failure_;  // of `begin`
  std::unordered_map<uint32_t, Client> clients_;
  ClientId last_id_;
  Client* last_client_ = nullptr;
  // What a kernel is, by two hashes of all it is made of: two clients share one index.
  struct Content {
    uint64_t first, second;
    bool operator==(const Content&) const = default;
  };
  struct ContentHash {
    size_t operator()(const Content& content) const { return content.first; }
  };
  std::unordered_map<Content, trace::KernelIndex, ContentHash> kernels_;
  std::map<std::pair<std::string, std::string>, trace::RangeIndex> ranges_;  // domain, name
  std::unordered_set<uint32_t> devices_;
  DeviceId last_device_{UINT32_MAX};
  std::vector<std::pair<ClientId, ThreadSlot>> newly_held_;
  uint64_t launches_ = 0, timings_ = 0, lost_ = 0;
  uint64_t next_flush_ns_ = UINT64_MAX;  // nothing to flush
  bool dirty_ = false;
  bool closing_ = false;
};

}  // namespace lull::daemon
