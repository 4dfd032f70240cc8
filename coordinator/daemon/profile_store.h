// What was learnt of each task on each model of GPU, kept in files between runs: one readable JSON
// file (coordinator/engine/task_record.h) for each of both, in one directory.
//
// Used by the daemon's threads for what may take long (Background): a profile of many kernels is
// megabytes of text. A file is replaced whole: written beside it and renamed, so that a daemon that
// dies leaves the old one or the new one. What cannot be read (damaged, of a newer lull) is moved
// aside to NAME.bad or NAME.newer and never touched again. There are at most kMostFiles; of the
// user who has most, the one not written for longest goes first. Nothing here throws; errors are
// one line, and none is fatal.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine/task_record.h"

namespace lull::daemon {

class ProfileStore {
 public:
  static constexpr size_t kMostFiles = 512;

  struct Entry {
    std::string file;  // name in the directory
    std::string task;
    std::string gpu;
    uint64_t kernels = 0;
    uint64_t samples = 0;
    uint64_t bytes = 0;
    int64_t saved_unix_s = 0;
  };

  // An empty directory: nothing is kept, loaded or listed.
  explicit ProfileStore(std::string directory = {}) : directory_(std::move(directory)) {}
  bool is_on() const { return !directory_.empty(); }
  const std::string& directory() const { return directory_; }

  // Makes the directory where it is missing.
  std::expected<void, std::string> save(const engine::TaskRecord& record);
  // Its text and content; nothing where there is none. An error tells of a file moved aside.
  struct Kept {
    std::string text;
    engine::TaskRecord record;
  };
  std::expected<std::optional<Kept>, std::string> load(const std::string& task,
                                                       const std::string& gpu);
  // By task, then model. What cannot be read is not listed.
  std::vector<Entry> list() const;
  // Every model's record of the task; `task` as in the record, or without the "uid/" before it.
  std::vector<engine::TaskRecord> find(const std::string& task) const;
  // How many files of the task went, of tasks that begin with `only_prefix` ("UID/").
  std::expected<size_t, std::string> forget(const std::string& task,
                                            const std::string& only_prefix = {});

  static std::string file_name(const std::string& task, const std::string& gpu);

 private:
  void make_room() const;
  std::string directory_;
};

// `task` is the record's, or the record's without the user id before it.
bool names_task(const std::string& recorded, const std::string& task);

// $STATE_DIRECTORY/profiles (systemd), else $XDG_STATE_HOME/lull/profiles, else
// ~/.local/state/lull/profiles; empty without a home.
std::string default_profile_directory();

}  // namespace lull::daemon
