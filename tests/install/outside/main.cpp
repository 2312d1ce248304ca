// A model of its own, trained with the installed package: fits y = 3x − 1.
#include <shardgrad/shardgrad.h>

#include <cstdio>

using namespace sg;

struct Line : nn::Module {
  Line() : linear({.in = 1, .out = 1}) { add("linear", linear); }
  Variable loss(const Tensor& x, const Tensor& y) {
    const Variable error = linear.forward(Variable(x)) - Variable(y);
    return mean(error * error);
  }
  nn::Linear linear;
};

int main(int argc, char** argv) {
  return dist::launch(argc, argv, [](dist::Comm& comm) {
    Line model;
    model.initialize(1);
    auto engine =
        dist::initialize(model.units(), {.engine = dist::EngineKind::none, .lr = 0.05}, comm);
    const Tensor x = from_vector<float>({-1, 0, 1, 2}, {4, 1}),
                 y = from_vector<float>({-4, -1, 2, 5}, {4, 1});
    float loss = 1;
    for (int step = 0; step < 500 && loss > 1e-3f; ++step) {
      engine->backward(engine->forward([&] { return model.loss(x, y); }));
      loss = engine->step().loss;
    }
    check(ErrorKind::numeric, loss <= 1e-3f, "the line was not found: loss {}", loss);
    std::printf("trained to a loss of %.5f\n", static_cast<double>(loss));
  });
}
