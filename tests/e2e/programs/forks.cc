// forks exit|exec|work [LAUNCHES]: LAUNCHES before and after a fork whose child exits at once,
// execs /bin/true, or (`work`: the fork comes before the parent's first driver call) launches for
// itself. The line counts the parent's launches only; a working child prints a line of its own
// first.
#include <sys/wait.h>

#include <string>

#define DRIVER(name) name
#include "driver_work.h"

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "exit";
  const auto count = argument(argc, argv, 2, 10);
  DriverWork work;
  Counts counts;
  if (what != "work") {
    work.start();
    counts.add(work.run(count, 10000));
  }
  const pid_t child = fork();
  REQUIRE_THAT(child >= 0);
  if (child == 0) {
    if (what == "exec") execl("/bin/true", "true", static_cast<char*>(nullptr));
    if (what == "work") {
      work.start();
      unsetenv("PROGRAM_WAIT_FILE");
      std::exit(finish(work.run(count, 10000)));
    }
    _exit(what == "exec" ? 127 : 0);
  }
  int status = -1;
  REQUIRE_THAT(waitpid(child, &status, 0) == child);
  REQUIRE_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  if (what == "work") work.start();
  counts.add(work.run(count, 10000));
  return finish(counts);
}
