#include "tests/unit/policies/held_out_programs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/unit/policies/held_out_host.h"

namespace lull::held_out {
namespace {

// ---- models -----------------------------------------------------------------------------------

void bottlenecks(Host& host, bool tuning) {
  constexpr std::array<int, 4> kBlocks{3, 4, 6, 3};
  host.launch("conv7x7");
  host.launch("bn", 9);
  host.launch("relu", 9);
  host.launch("maxpool");
  for (uint64_t stage = 0; stage < 4; ++stage) {
    for (int block = 0; block < kBlocks[stage]; ++block) {
      for (uint64_t conv = 0; conv < 3; ++conv) {
        if (tuning && block < 2) {
          for (uint64_t trial = 0; trial < 4; ++trial)
            host.launch("trial", stage * 16 + conv * 4 + trial);
        }
        host.launch(conv == 1 ? "conv3x3" : "conv1x1", stage * 4 + conv);
        host.launch("bn", stage * 2 + conv / 2);
        if (conv == 2 && block == 0) {
          host.launch("conv1x1s2", stage);
          host.launch("bn", stage * 2 + 1);
        }
        if (conv == 2) host.launch("add", stage);
        host.launch("relu", stage * 2 + conv / 2);
      }
    }
  }
  host.launch("avgpool");
  host.launch("fc");
}

void bottlenecks_backward(Host& host) {
  constexpr std::array<int, 4> kBlocks{3, 4, 6, 3};
  host.launch("fc_dgrad");
  host.launch("fc_wgrad");
  for (uint64_t stage = 4; stage-- > 0;) {
    for (int block = kBlocks[stage]; block-- > 0;) {
      for (uint64_t conv = 3; conv-- > 0;) {
        host.launch("relu_backward", stage * 2 + conv / 2);
        host.launch("bn_backward", stage * 2 + conv / 2);
        host.launch("dgrad", stage * 4 + conv);
        host.launch("wgrad", stage * 4 + conv);
        if (conv == 2 && block == 0) host.several("downsample_backward", 3, stage);
      }
      host.launch("add", stage);
    }
  }
}

struct Transformer {
  int layers = 12;
  uint64_t shape = 0;
  double other_gemm = 0;  // how often the library picks another kernel
  double skip = 0;        // layers left out

  void gemm(Host& host, std::string_view name, uint64_t which) const {
    const bool other = other_gemm > 0 && host.chance(other_gemm);
    host.launch(name, shape * 64 + which * 4 + (other ? 1 + host.below(2) : 0));
  }
  std::vector<bool> forward(Host& host) const {
    std::vector<bool> used;
    host.launch("embedding", shape);
    host.launch("position_add", shape);
    for (int layer = 0; layer < layers; ++layer) {
      used.push_back(skip == 0 || !host.chance(skip));
      if (!used.back()) continue;
      host.launch("layer_norm", shape);
      gemm(host, "gemm", 0);
      host.launch("bias", shape);
      host.several("transpose", 3, shape);
      host.launch("attention", shape);
      gemm(host, "gemm", 1);
      host.launch("dropout_add", shape);
      host.launch("layer_norm", shape);
      gemm(host, "gemm", 2);
      host.launch("gelu", shape);
      gemm(host, "gemm", 3);
      host.launch("dropout_add", shape);
    }
    host.launch("layer_norm", shape);
    gemm(host, "gemm", 4);
    return used;
  }
  void backward(Host& host, const std::vector<bool>& used) const {
    host.launch("softmax_loss", shape);
    host.launch("softmax_loss_backward", shape);
    for (size_t layer = used.size(); layer-- > 0;) {
      if (!used[layer]) continue;
      for (uint64_t linear = 4; linear-- > 0;) {
        gemm(host, "gemm_dgrad", linear);
        gemm(host, "gemm_wgrad", linear);
        host.launch("bias_grad", shape * 4 + linear);
        if (linear == 3) host.launch("gelu_backward", shape);
        if (linear == 1) host.several("attention_backward", 3, shape);
      }
      host.several("layer_norm_backward", 2, shape);
      host.launch("grad_add", shape);
    }
    host.launch("embedding_backward", shape);
  }
  void step(Host& host) const { backward(host, forward(host)); }
};

void adam(Host& host, uint64_t chunks, uint64_t which = 0) {
  for (uint64_t i = 0; i < chunks; ++i) {
    host.launch("foreach_mul", which * 64 + i);
    host.launch("foreach_addcmul", which * 64 + i);
    host.launch("foreach_sqrt", which * 64 + i);
    host.launch("foreach_addcdiv", which * 64 + i);
  }
}

void initialise(Host& host, uint64_t tensors) {
  for (uint64_t i = 0; i < tensors; ++i) {
    host.launch(host.chance(0.5) ? "normal" : "fill", host.below(12));
    if (host.chance(0.2)) host.pause_us(300);
  }
  host.pause_us(20'000);
}

// ---- programs ---------------------------------------------------------------------------------

Sequence resnet_training(uint64_t seed) {
  Host host(seed);
  initialise(host, 161);
  host.skip();
  for (int step = 0; step < 160; ++step) {
    bottlenecks(host, /*tuning=*/step == 0);
    host.launch("nll_loss");
    bottlenecks_backward(host);
    host.several("sgd_momentum", 5);
    host.pause_us(1'500);
    if (step > 0)
      host.end();
    else
      host.skip();
    if (step % 40 == 39) {
      for (int batch = 0; batch < 10; ++batch) {
        bottlenecks(host, false);
        host.several("topk", 4);
        host.pause_us(700);
      }
      host.skip();
    }
  }
  return host.done();
}

Sequence gpt_accumulation(uint64_t seed) {
  Host host(seed);
  const Transformer gpt{.layers = 6};
  initialise(host, 80);
  host.skip();
  for (int step = 0; step < 150; ++step) {
    for (int micro = 0; micro < 4; ++micro) {
      gpt.step(host);
      host.pause_us(60);
    }
    host.several("norm_of_grad", 12);
    host.launch("clip");
    adam(host, 3);
    host.pause_us(400);
    host.end();
    if (step % 50 == 49) {
      for (int batch = 0; batch < 8; ++batch) {
        (void)gpt.forward(host);
        host.several("eval_loss", 3);
        host.pause_us(100);
      }
      host.skip();
    }
  }
  return host.done();
}

Sequence llm_decode(uint64_t seed) {
  Host host(seed);
  const auto token = [&](uint64_t kv) {
    host.launch("embed_token");
    for (int layer = 0; layer < 24; ++layer) {
      host.launch("rms_norm");
      host.launch("gemv_qkv");
      host.launch("rope");
      host.launch("kv_append");
      host.launch("decode_attention", kv / 32);
      host.launch("attention_reduce", kv / 128);
      host.launch("gemv_o");
      host.launch("rms_norm");
      host.launch("gemv_up");
      host.launch("silu_mul");
      host.launch("gemv_down");
    }
    host.launch("rms_norm");
    host.launch("gemv_head");
    host.several("sort", 2);
    host.launch("sample");
    host.pause_us(150);
  };
  for (int request = 0; request < 4; ++request) {
    const uint64_t prompt = host.between(30, 700);
    for (int layer = 0; layer < 24; ++layer) {
      for (uint64_t op = 0; op < 10; ++op) host.launch("prefill", prompt * 16 + op);
    }
    host.pause_us(4'000);
    host.skip();
    const uint64_t tokens = host.between(40, 160);
    for (uint64_t i = 0; i < tokens; ++i) {
      token(prompt + i);
      host.end();
    }
  }
  return host.done();
}

Sequence diffusion(uint64_t seed, uint64_t blocks, int images, bool by_image) {
  Host host(seed);
  for (int image = 0; image < images; ++image) {
    for (int layer = 0; layer < 6; ++layer) {
      for (uint64_t op = 0; op < 8; ++op) host.launch("text", op);
    }
    if (!by_image) host.skip();
    for (int step = 0; step < 20; ++step) {
      host.several("time_embedding", 4);
      for (uint64_t block = 0; block < blocks; ++block) {
        const uint64_t level = std::min(block, blocks - 1 - block) / 2;
        for (const std::string_view op : {"group_norm", "silu", "conv", "add", "layer_norm", "qkv",
                                          "attention", "proj", "geglu", "ff"}) {
          host.launch(op, level);
        }
      }
      host.several("guidance", 2);
      host.several("scheduler", 5);
      host.pause_us(40);
      if (!by_image) host.end();
    }
    for (uint64_t op = 0; op < 60; ++op) host.launch("vae", op % 23);
    host.pause_us(9'000);
    if (by_image)
      host.end();
    else
      host.skip();
  }
  return host.done();
}
Sequence diffusion_small(uint64_t seed) { return diffusion(seed, 9, 40, true); }
Sequence diffusion_large(uint64_t seed) { return diffusion(seed, 110, 4, false); }

Sequence dlrm_alternating(uint64_t seed) {
  Host host(seed);
  for (int step = 0; step < 200; ++step) {
    const uint64_t shape = static_cast<uint64_t>(step % 2);
    for (uint64_t table = 0; table < 8; ++table) host.launch("embedding_bag", shape);
    for (uint64_t layer = 0; layer < 4; ++layer) {
      host.launch("mlp_gemm", layer * 2 + shape);
      host.launch("relu", layer * 2 + shape);
    }
    host.launch("interaction", shape);
    for (uint64_t layer = 0; layer < 4; ++layer) {
      host.launch("mlp_dgrad", layer * 2 + shape);
      host.launch("mlp_wgrad", layer * 2 + shape);
    }
    for (uint64_t table = 0; table < 8; ++table) host.launch("embedding_backward", shape);
    for (uint64_t i = 0; i < 12; ++i) host.launch("adagrad", i);
    host.pause_us(300);
    if (shape == 1) host.end();  // hardly a kernel is in both: the pair
  }
  return host.done();
}

Sequence ddp_jittered(uint64_t seed) {
  Host host(seed);
  constexpr int kBuckets = 8;
  for (int step = 0; step < 150; ++step) {
    for (int layer = 0; layer < 8; ++layer) {
      for (uint64_t op = 0; op < 12; ++op) host.launch("forward", op);
    }
    // Gradients' buckets are reduced by another thread, soon after each is full.
    int reduced = 0;
    std::vector<uint64_t> due;
    uint64_t position = 0;
    for (int layer = 0; layer < 8; ++layer) {
      for (uint64_t op = 0; op < 22; ++op) {
        host.launch("backward", op);
        position += 1;
        while (!due.empty() && due.front() <= position) {
          host.launch("all_reduce", static_cast<uint64_t>(reduced++ % 3));
          due.erase(due.begin());
        }
      }
      due.push_back(position + 1 + host.below(6));
    }
    while (reduced < kBuckets) host.launch("all_reduce", static_cast<uint64_t>(reduced++ % 3));
    adam(host, 4);
    host.pause_us(250);
    host.end();
  }
  return host.done();
}

Sequence gan(uint64_t seed) {
  Host host(seed);
  const auto generator = [&](bool back) {
    for (uint64_t op = 0; op < 18; ++op) host.launch("g_forward", op / 2);
    if (!back) return;
    for (uint64_t op = 0; op < 34; ++op) host.launch("g_backward", op / 3);
  };
  const auto critic = [&](bool back) {
    for (uint64_t op = 0; op < 15; ++op) host.launch("d_forward", op / 2);
    host.several("bce", 2);
    if (!back) return;
    for (uint64_t op = 0; op < 28; ++op) host.launch("d_backward", op / 3);
  };
  for (int step = 0; step < 200; ++step) {
    host.several("zero", 2);
    critic(true);
    generator(false);
    critic(true);
    adam(host, 2, 0);
    host.pause_us(120);
    host.several("zero", 2);
    critic(false);
    for (uint64_t op = 0; op < 28; ++op) host.launch("d_backward", op / 3);
    for (uint64_t op = 0; op < 34; ++op) host.launch("g_backward", op / 3);
    adam(host, 3, 1);
    host.pause_us(180);
    host.end();
  }
  return host.done();
}

Sequence graph_and_eager(uint64_t seed) {
  Host host(seed);
  for (int step = 0; step < 400; ++step) {
    host.launch("copy_tokens");
    host.launch("decode_graph");
    host.launch("softmax");
    host.several("sort", 2);
    host.launch("cumsum");
    host.launch("sample");
    host.pause_us(60);
    host.end();
  }
  return host.done();
}

Sequence graph_alone(uint64_t seed) {
  Host host(seed);
  initialise(host, 40);
  const Transformer model{.layers = 2};
  for (int warm = 0; warm < 3; ++warm) model.step(host);
  host.pause_us(50'000);
  host.skip();
  for (int step = 0; step < 200; ++step) {
    host.launch("step_graph");
    host.pause_us(5'000);
    host.end();
  }
  return host.done();
}

Sequence ppo(uint64_t seed) {
  Host host(seed);
  for (int round = 0; round < 40; ++round) {
    const uint64_t steps = host.between(40, 60);
    for (uint64_t i = 0; i < steps; ++i) {
      for (uint64_t op = 0; op < 9; ++op) host.launch("policy", op);
      host.pause_us(120);
    }
    for (int minibatch = 0; minibatch < 32; ++minibatch) {
      for (uint64_t op = 0; op < 42; ++op) host.launch("update", op / 2);
      adam(host, 2);
    }
    host.pause_us(500);
    host.end();
  }
  return host.done(100, {{9, 9}, {50, 50}});
}

Sequence stochastic_depth(uint64_t seed) {
  Host host(seed);
  const Transformer model{.layers = 24, .skip = 0.1};
  for (int step = 0; step < 120; ++step) {
    model.step(host);
    adam(host, 5);
    host.pause_us(800);
    host.end();
  }
  return host.done(60);
}

Sequence changing_heuristics(uint64_t seed) {
  Host host(seed);
  const Transformer model{.layers = 8, .other_gemm = 0.03};
  for (int step = 0; step < 150; ++step) {
    model.step(host);
    adam(host, 4);
    host.pause_us(400);
    host.end();
  }
  return host.done();
}

Sequence bert_requests(uint64_t seed) {
  Host host(seed);
  for (int request = 0; request < 300; ++request) {
    host.launch("embed");
    for (int layer = 0; layer < 6; ++layer) {
      for (uint64_t op = 0; op < 9; ++op) {
        host.launch("bert", op);
        if (host.chance(0.02)) host.pause_us(400);
      }
    }
    for (uint64_t op = 0; op < 6; ++op) host.launch("pooler", op);
    host.pause_us(1 + static_cast<uint64_t>(
                          -5'000.0 * std::log1p(-static_cast<double>(host.below(9'999)) / 1e4)));
    host.end();
  }
  return host.done();
}

Sequence bucketed_lengths(uint64_t seed) {
  Host host(seed);
  for (int step = 0; step < 200; ++step) {
    const Transformer model{.layers = 5, .shape = host.below(8)};
    model.step(host);
    adam(host, 11);
    host.pause_us(600);
    host.end();
  }
  return host.done();
}

Sequence neighbour_sampling(uint64_t seed) {
  Host host(seed);
  for (int step = 0; step < 150; ++step) {
    for (int layer = 0; layer < 3; ++layer) {
      for (uint64_t op = 0; op < 16; ++op) host.launch("gather", host.below(1ULL << 40));
      host.several("index_dtype", 3);
    }
    adam(host, 4);
    host.pause_us(900);
    host.end();
  }
  return host.done();
}

Sequence logging_and_averaging(uint64_t seed) {
  Host host(seed);
  const Transformer model{.layers = 7};
  for (int step = 0; step < 200; ++step) {
    model.step(host);
    adam(host, 6);
    if (step % 25 == 24) host.several("ema_lerp", 16);
    if (step % 10 == 9) {
      for (uint64_t i = 0; i < 12; ++i) host.launch("log", i / 3);
      host.pause_us(700);
    }
    host.pause_us(300);
    host.end();
  }
  return host.done();
}

Sequence amp_overflow(uint64_t seed) {
  Host host(seed);
  const Transformer model{.layers = 6};
  for (int step = 0; step < 200; ++step) {
    model.step(host);
    host.several("unscale", 6);
    if (!host.chance(0.06)) adam(host, 8);
    host.launch("update_scale");
    host.pause_us(300);
    host.end();
  }
  return host.done();
}

Sequence mixture_of_experts(uint64_t seed) {
  Host host(seed);
  for (int step = 0; step < 200; ++step) {
    host.launch("embed");
    for (int layer = 0; layer < 12; ++layer) {
      for (uint64_t op = 0; op < 8; ++op) host.launch("attention", op);
      host.several("router", 3);
      const uint64_t experts = host.between(5, 8);
      for (uint64_t expert = 0; expert < experts; ++expert) {
        host.launch("expert_up");
        host.launch("expert_act");
        host.launch("expert_down");
      }
      host.launch("combine");
    }
    host.several("head", 3);
    host.pause_us(200);
    host.end();
  }
  return host.done(60);
}

Sequence speculative_decoding(uint64_t seed) {
  Host host(seed);
  for (int step = 0; step < 150; ++step) {
    for (int draft = 0; draft < 4; ++draft) {
      for (int layer = 0; layer < 4; ++layer) {
        for (uint64_t op = 0; op < 10; ++op) host.launch("draft", op);
      }
      host.several("draft_sample", 3);
      host.pause_us(30);
    }
    for (int layer = 0; layer < 20; ++layer) {
      for (uint64_t op = 0; op < 12; ++op) host.launch("verify", op);
    }
    host.several("accept", host.between(1, 5));
    host.launch("roll_back");
    host.pause_us(120);
    host.end();
  }
  return host.done(15);
}

Sequence conjugate_gradient(uint64_t seed) {
  Host host(seed);
  for (int step = 0; step < 60; ++step) {
    for (uint64_t op = 0; op < 20; ++op) host.launch("assemble", op);
    const uint64_t solves = host.between(30, 50);
    for (uint64_t i = 0; i < solves; ++i) {
      host.launch("spmv");
      host.launch("dot");
      host.several("axpy", 2);
      host.launch("dot");
      host.launch("xpby");
      host.pause_us(15);
    }
    for (uint64_t op = 0; op < 10; ++op) host.launch("advance", op);
    host.end();
  }
  return host.done(300, {{6, 6}});
}

Sequence detection_with_nms(uint64_t seed) {
  Host host(seed);
  for (int step = 0; step < 150; ++step) {
    bottlenecks(host, false);
    for (int image = 0; image < 4; ++image) {
      host.several("anchors", 3);
      const uint64_t rounds = host.between(2, 7);
      for (uint64_t i = 0; i < rounds; ++i) {
        host.launch("nms_iou");
        host.launch("nms_mask");
      }
      host.several("gather_boxes", 2);
    }
    host.pause_us(500);
    host.end();
  }
  return host.done(40);
}

// Training whose second half is another: layers frozen until then, and a larger batch after.
Sequence two_phases(uint64_t seed) {
  Host host(seed);
  for (uint32_t phase = 0; phase < 2; ++phase) {
    const Transformer model{.layers = 6, .shape = phase};
    host.phase(phase);
    for (int step = 0; step < 60; ++step) {
      const size_t used = phase == 0 ? 2 : 6;
      std::vector<bool> layers = model.forward(host);
      for (size_t i = 0; i < layers.size(); ++i) layers[i] = i + used >= layers.size();
      model.backward(host, layers);
      adam(host, 2 + phase * 5, phase);
      host.pause_us(300);
      const uint32_t length =
          4 + 14 * 6 + 3 + static_cast<uint32_t>(used) * 19 + (2 + phase * 5) * 4;
      host.end({{length, length}});
    }
    host.pause_us(30'000);
  }
  return host.done();
}

constexpr std::array kPrograms{
    Program{"ResNet training with validation", resnet_training},
    Program{"GPT training, accumulation of four, evaluation every fifty", gpt_accumulation},
    Program{"LLM decoding with growing shapes", llm_decode},
    Program{"diffusion, small", diffusion_small},
    Program{"diffusion, large", diffusion_large},
    Program{"DLRM, alternating shapes", dlrm_alternating},
    Program{"DDP, reductions interleaved with jitter", ddp_jittered},
    Program{"GAN, two optimizers", gan},
    Program{"graph and a few eager kernels", graph_and_eager},
    Program{"graph alone", graph_alone},
    Program{"PPO, rollouts of random length", ppo},
    Program{"library heuristics that change", changing_heuristics},
    Program{"BERT requests with pauses", bert_requests},
    Program{"bucketed lengths", bucketed_lengths},
    Program{"neighbour sampling, shapes never seen again", neighbour_sampling},
    Program{"logging and averaging now and then", logging_and_averaging},
    Program{"mixed precision with overflows", amp_overflow},
    Program{"conjugate gradient in time steps", conjugate_gradient},
    Program{"two phases", two_phases},
};
// Too much of these differs from one iteration to the next: iteration_detector.h.
constexpr std::array kBeyond{
    Program{"stochastic depth", stochastic_depth},
    Program{"mixture of experts", mixture_of_experts},
    Program{"speculative decoding", speculative_decoding},
    Program{"detection with suppression rounds", detection_with_nms},
};
}  // namespace

std::span<const Program> programs() { return kPrograms; }
std::span<const Program> programs_beyond() { return kBeyond; }

}  // namespace lull::held_out
