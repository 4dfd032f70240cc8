// impostor SOCKET sealed|unsealed|sparse|short|file: plays the coordinator there as the user that
// started it. Says "ready"; then a line for each client, "hello UID TASK" or "silent"; and obeys a
// command a line: close, open, life ON(0, 1), allow BYTES, shrink, names, quit. Each is answered by
// a line. With life on (as from the start) it shows ten times a second that it is alive.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/hostile/impostor.h"

using lull::test::Impostor;
using lull::test::Memory;

namespace {

int serve(Impostor& impostor) {
  bool life = true;
  char line[256];
  setvbuf(stdin, nullptr, _IONBF, 0);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  puts("ready");
  for (;;) {
    pollfd waits[2] = {{0, POLLIN, 0}, {impostor.listener(), POLLIN, 0}};
    if (poll(waits, 2, 100) < 0) return 1;
    if (life) impostor.show_life();
    if ((waits[1].revents & POLLIN) != 0) {
      const lull::test::Victim victim = impostor.take();
      if (victim.task.empty()) {
        puts("silent");
      } else {
        printf("hello %u %s\n", victim.uid, victim.task.c_str());
      }
    }
    if ((waits[0].revents & (POLLIN | POLLHUP)) == 0) continue;
    if (fgets(line, sizeof line, stdin) == nullptr) return 0;
    char word[32] = "";
    unsigned long long value = 0;
    sscanf(line, "%31s %llu", word, &value);
    if (strcmp(word, "close") == 0 || strcmp(word, "open") == 0) {
      impostor.set_gates(word[0] == 'o');
    } else if (strcmp(word, "life") == 0) {
      life = value != 0;
    } else if (strcmp(word, "allow") == 0) {
      impostor.allow_bytes(value);
    } else if (strcmp(word, "shrink") == 0) {
      impostor.shrink();
    } else if (strcmp(word, "names") == 0) {
      for (const std::string& name : impostor.names()) printf("%s ", name.c_str());
      puts(".");
      continue;
    } else {
      return 0;
    }
    puts("done");
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr struct {
    const char* name;
    Memory memory;
  } kKinds[] = {{"sealed", Memory::kSealed},
                {"unsealed", Memory::kUnsealed},
                {"sparse", Memory::kSparse},
                {"short", Memory::kShort},
                {"file", Memory::kFile}};
  for (const auto& kind : kKinds) {
    if (argc != 3 || strcmp(argv[2], kind.name) != 0) continue;
    try {
      Impostor impostor(argv[1], kind.memory);
      return serve(impostor);
    } catch (const std::exception& error) {
      fprintf(stderr, "impostor: %s\n", error.what());
      return 1;
    }
  }
  fprintf(stderr, "usage: impostor SOCKET sealed|unsealed|sparse|short|file\n");
  return 2;
}
