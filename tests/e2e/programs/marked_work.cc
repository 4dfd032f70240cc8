// marked_work [STEPS]: launches in steps that it marks by NVTX ranges: "step" with "forward" and
// "backward" inside, each of a few launches, a started range over two steps, a domain, a mark.
#include <string>

#include "tests/nvtx/nvtx_client.h"
#define DRIVER(name) name
#include "driver_work.h"

int main(int argc, char** argv) {
  nvtx_client::load();
  DriverWork work;
  work.start();
  const unsigned long long steps = argument(argc, argv, 1, 10);
  void* domain = nvtx_client::domain("data");
  nvtx_client::Attributes batch;
  batch.message_type = 3;
  batch.message = nvtx_client::registered(domain, "load batch");
  Counts counts;
  uint64_t pair = 0;
  for (unsigned long long step = 0; step < steps; ++step) {
    if (step % 2 == 0) pair = nvtx_client::start("two steps");
    nvtx_client::push("step");
    nvtx_client::push(domain, batch);
    nvtx_client::pop(domain);
    for (const char* part : {"forward", "backward"}) {
      nvtx_client::push(part);
      counts.add(work.run(3, 10000));
      nvtx_client::pop();
    }
    nvtx_client::mark(("stepped " + std::to_string(step)).c_str());
    nvtx_client::pop();
    if (step % 2 == 1) nvtx_client::end(pair);
  }
  return finish(counts);
}
